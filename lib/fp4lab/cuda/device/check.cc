#include "fp4lab/cuda/device/check.cuh"

#include <string>

#include "fp4lab/base/error.h"

namespace fp4lab::cuda {

void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next launch does not report it again
  if (status == cudaErrorMemoryAllocation) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error("CUDA", std::string(what) + " does not fit the GPU's memory (" +
                            std::to_string(free >> 20) + " of " + std::to_string(total >> 20) +
                            " MiB are free): use a smaller matrix or model, lower \"batch\" or "
                            "raise \"micro_batches\"");
  }
  throw Error("CUDA", std::string(what) + ": " + cudaGetErrorString(status));
}

int Multiprocessors() {
  int device = 0, count = 0;
  Check(cudaGetDevice(&device), "asking for the device");
  Check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "asking for the device's properties");
  return count;
}

}  // namespace fp4lab::cuda
