// cuBLASLt, loaded at run time when a GPU trains, since the rest of the program does not need the
// library.
#pragma once

#include <cublasLt.h>

#include <string>

namespace fp4lab::gpu {

// The functions in use, under their names without "cublasLt".
struct BlasLt {
  decltype(&cublasLtCreate) Create;
  decltype(&cublasLtDestroy) Destroy;
  decltype(&cublasLtGetStatusString) GetStatusString;
  decltype(&cublasLtGetVersion) GetVersion;
  decltype(&cublasLtMatmul) Matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) MatrixLayoutSetAttribute;
};

// Loads the library on the first call: from where the loader looks, then from where CUDA usually
// is. Throws a one-line Error if the library, or a function of it, is not found.
const BlasLt& LoadedBlasLt();

// Of the loaded library, as "13.1.0".
std::string BlasLtVersion();

}  // namespace fp4lab::gpu
