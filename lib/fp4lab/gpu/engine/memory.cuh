// Device and pinned memory of the training kernels, and copies to the host.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/device/device.h"

namespace fp4lab::gpu {

using Bf16 = __nv_bfloat16;
using cuda::AllowShared, cuda::Blocks, cuda::Check, cuda::CheckLaunch;

inline float ToFloat(float x) { return x; }
inline float ToFloat(Bf16 x) { return __bfloat162float(x); }

// The byte that fills new memory, so that a test sees reads of memory that no kernel wrote;
// nullopt: memory stays as it comes.
inline std::optional<int> new_memory_byte;

// size() elements in the memory of the current device. Movable, not copyable.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) : memory_(size * sizeof(T)) {
    if (size == 0 || !new_memory_byte) return;
    memory_.Fill(static_cast<std::uint8_t>(*new_memory_byte));
    Check(cudaDeviceSynchronize(), "memset");  // other streams do not wait for the default stream
  }

  T* data() const { return memory_.As<T>(); }
  std::size_t size() const { return memory_.bytes() / sizeof(T); }

  void CopyFrom(std::span<const T> from, cudaStream_t stream) const {
    Check(cudaMemcpyAsync(data(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream),
          "copy to the GPU");
  }
  void CopyTo(std::span<T> to, cudaStream_t stream) const {
    Check(cudaMemcpyAsync(to.data(), data(), to.size_bytes(), cudaMemcpyDeviceToHost, stream),
          "copy from the GPU");
  }

 private:
  cuda::DeviceMemory memory_;
};

// Room for `size` elements, which grows to the largest need and stays.
template <class T>
T* Reserve(DeviceArray<T>* memory, std::size_t size) {
  if (memory->size() < size) *memory = DeviceArray<T>(size);
  return memory->data();
}

// Copies a matrix from the device to the host, as binary32, after all work on the stream, for which
// it waits.
template <class X>
Matrix<float> Fetched(const X* x, std::size_t rows, std::size_t cols, cudaStream_t stream) {
  std::vector<X> raw(rows * cols);
  Check(cudaMemcpyAsync(raw.data(), x, raw.size() * sizeof(X), cudaMemcpyDeviceToHost, stream),
        "copy from the GPU");
  Check(cudaStreamSynchronize(stream), "training");
  Matrix<float> matrix(rows, cols);
  for (std::size_t i = 0; i < raw.size(); ++i) matrix.values[i] = ToFloat(raw[i]);
  return matrix;
}

// Pinned host memory, from which the GPU copies while the program goes on.
template <class T>
class PinnedArray {
 public:
  explicit PinnedArray(std::size_t size) : size_(size) {
    Check(cudaMallocHost(&data_, size * sizeof(T)), "pinned memory");
  }
  PinnedArray(const PinnedArray&) = delete;
  PinnedArray& operator=(const PinnedArray&) = delete;
  ~PinnedArray() { cudaFreeHost(data_); }

  std::span<T> Span() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace fp4lab::gpu
