// Errors of the CUDA runtime as Error("CUDA", ...), and grid sizes of launches.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "fp4lab/base/divide_up.h"

namespace fp4lab::cuda {

// Throws Error("CUDA", "<what>: <the runtime's message>") unless `status` is success. The message
// of an out-of-memory error gives the free and the total memory and a remedy. `what` names the
// work: "copying to the device".
void Check(cudaError_t status, const char* what);

// Throws the error of the kernel launch right before, if it failed.
inline void CheckLaunch(const char* kernel) { Check(cudaGetLastError(), kernel); }

// The number of multiprocessors of the current device.
int Multiprocessors();

// The runtime's type of a StreamHandle (device/device.h).
inline cudaStream_t NativeStream(void* stream) { return static_cast<cudaStream_t>(stream); }

// The number of thread blocks of a grid in which each thread block takes `per_block` pieces of the
// work.
inline unsigned Blocks(std::size_t work, std::size_t per_block) {
  return static_cast<unsigned>(DivideUp(work, per_block));
}

// Lets `kernel` use `size` bytes of dynamic shared memory; the runtime wants this call for more
// than 48 KB.
template <class Kernel>
void AllowShared(Kernel kernel, std::size_t size) {
  Check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(size)),
        "shared memory");
}

}  // namespace fp4lab::cuda
