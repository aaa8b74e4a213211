// The upload of one step's tokens to the GPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/engine/model.cuh"
#include "fp4lab/gpu/engine/tokens.h"

namespace fp4lab::gpu {

// The micro-batches of one step on the device, with memory for `count` micro-batches of `rows`
// rows. Every copy has its own place in pinned memory, which is free again when the step is done.
class StepTokens {
 public:
  StepTokens(std::size_t count, std::size_t rows, std::size_t vocabulary)
      : rows_(rows),
        vocabulary_(vocabulary),
        words_(rows + (rows / kSegmentRows + vocabulary + 1) + (vocabulary + 1)),
        host_tokens_(2 * count * rows),
        host_sorted_(count * words_),
        tokens_(2 * count * rows),
        sorted_(count * words_) {}

  // Uploads micro-batch i, or fewer rows.
  DeviceBatch Upload(std::size_t i, std::span<const std::uint16_t> inputs,
                     std::span<const std::uint16_t> targets, cudaStream_t stream) {
    const std::size_t at = 2 * i * rows_;
    std::copy(inputs.begin(), inputs.end(), &host_tokens_.Span()[at]);
    std::copy(targets.begin(), targets.end(), &host_tokens_.Span()[at + rows_]);
    Copy(host_tokens_, tokens_, at, 2 * rows_, stream);
    return {inputs.size(), tokens_.data() + at, tokens_.data() + at + rows_};
  }

  // Uploads the sorted tokens that the backward pass needs; the host sorts while the GPU computes
  // the forward pass.
  void UploadSorted(std::size_t i, std::span<const std::uint16_t> inputs, cudaStream_t stream,
                    DeviceBatch* batch) {
    const SortedTokens sorted = SortTokens(inputs, vocabulary_, kSegmentRows);
    const std::size_t at = i * words_, first = at + rows_;
    const std::size_t of_token = first + rows_ / kSegmentRows + vocabulary_ + 1;
    const std::span<std::uint32_t> host = host_sorted_.Span();
    std::copy(sorted.rows.begin(), sorted.rows.end(), &host[at]);
    std::copy(sorted.first.begin(), sorted.first.end(), &host[first]);
    std::copy(sorted.of_token.begin(), sorted.of_token.end(), &host[of_token]);
    Copy(host_sorted_, sorted_, at, words_, stream);
    const std::uint32_t* const device = sorted_.data();
    batch->segments = {device + at, device + first, device + of_token, sorted.first.size() - 1,
                       vocabulary_};
  }

 private:
  template <class X>
  static void Copy(const PinnedArray<X>& from, const DeviceArray<X>& to, std::size_t at,
                   std::size_t count, cudaStream_t stream) {
    Check(cudaMemcpyAsync(to.data() + at, from.Span().data() + at, count * sizeof(X),
                          cudaMemcpyHostToDevice, stream),
          "copy to the GPU");
  }

  std::size_t rows_, vocabulary_, words_;
  PinnedArray<std::uint16_t> host_tokens_;
  PinnedArray<std::uint32_t> host_sorted_;
  DeviceArray<std::uint16_t> tokens_;
  DeviceArray<std::uint32_t> sorted_;
};

}  // namespace fp4lab::gpu
