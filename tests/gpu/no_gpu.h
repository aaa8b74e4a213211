// The check with which tests that need a GPU begin.
#pragma once

#include <cstdio>

#include "fp4lab/train/engine.h"

namespace fp4lab {

// Whether there is no GPU to run on; prints SKIPPED if so.
inline bool NoGpu() {
  if (CudaGpus() > 0) return false;
  std::puts("SKIPPED: no GPU");
  return true;
}

}  // namespace fp4lab
