// Device memory and error handling of the training kernels.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"

namespace fp4lab::gpu {

using Bf16 = __nv_bfloat16;

// A failed call of the CUDA runtime is an Error of one line. `what` names the work.
inline void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // so that it is not reported again
  if (status == cudaErrorMemoryAllocation) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error("GPU", std::string(what) + " does not fit its memory (" +
                           std::to_string(free >> 20) + " of " + std::to_string(total >> 20) +
                           " MiB are free); raise \"micro_batches\" or lower \"batch\"");
  }
  throw Error("GPU", std::string(what) + ": " + cudaGetErrorString(status));
}

inline void CheckLaunch(const char* kernel) { Check(cudaGetLastError(), kernel); }

// What a number read back from the device is.
inline float ToFloat(float x) { return x; }
inline float ToFloat(Bf16 x) { return __bfloat162float(x); }

// The byte that fills new memory, so that a test sees reads of what nobody wrote; nullopt: memory
// stays as it comes.
inline std::optional<int> new_memory_byte;

// Memory on the current device; moves, is not copied.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t size) : size_(size) {
    if (size == 0) return;
    const std::string what = std::to_string((size * sizeof(T) + (1 << 20) - 1) >> 20) + " MiB";
    Check(cudaMalloc(&data_, size * sizeof(T)), what.c_str());
    if (!new_memory_byte) return;
    Check(cudaMemset(data_, *new_memory_byte, size * sizeof(T)), "memset");
    Check(cudaDeviceSynchronize(), "memset");  // which other streams do not wait for
  }
  DeviceArray(DeviceArray&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  DeviceArray& operator=(DeviceArray&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::size_t size() const { return size_; }

  void CopyFrom(std::span<const T> from, cudaStream_t stream) const {
    Check(cudaMemcpyAsync(data_, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream),
          "copy to the GPU");
  }
  void CopyTo(std::span<T> to, cudaStream_t stream) const {
    Check(cudaMemcpyAsync(to.data(), data_, to.size_bytes(), cudaMemcpyDeviceToHost, stream),
          "copy from the GPU");
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

inline unsigned Blocks(std::size_t work, std::size_t per_block) {
  return static_cast<unsigned>((work + per_block - 1) / per_block);
}

// Shared memory beyond 48 KB has to be asked for.
template <class Kernel>
inline void AllowShared(Kernel kernel, std::size_t size) {
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(size)),
        "shared memory");
}

// Host memory that the GPU copies from while the program goes on.
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
