// Errors of the CUDA runtime as Error("CUDA", ...). Only for the sources of this folder.
#pragma once

#include <cuda_runtime_api.h>

#include "fp4lab/cuda/device.h"

namespace fp4lab::cuda {

// Throws Error("CUDA", "<what>: <the runtime's words>") unless `status` is success. Out of memory
// gets a remedy. `what` names what was tried: "copying to the device".
void Check(cudaError_t status, const char* what);

// After a launch.
inline void CheckLaunch(const char* kernel) { Check(cudaGetLastError(), kernel); }

// Of the current device.
int Multiprocessors();

inline cudaStream_t NativeStream(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace fp4lab::cuda
