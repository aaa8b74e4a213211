#include <string>

#include "fp4lab/gpu/engine/library.h"
#include "fp4lab/gpu/gemm/blas.cuh"

namespace fp4lab::gpu {
namespace {

std::string Name() { return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR); }

template <class Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(FindFunction(library, Name(), name));
}

BlasLt LoadBlasLt() {
  void* const library = OpenLibrary(Name(), "training on a GPU");
  BlasLt blas{};
  Find(library, "cublasLtCreate", &blas.Create);
  Find(library, "cublasLtDestroy", &blas.Destroy);
  Find(library, "cublasLtGetStatusString", &blas.GetStatusString);
  Find(library, "cublasLtGetVersion", &blas.GetVersion);
  Find(library, "cublasLtMatmul", &blas.Matmul);
  Find(library, "cublasLtMatmulAlgoGetHeuristic", &blas.MatmulAlgoGetHeuristic);
  Find(library, "cublasLtMatmulDescCreate", &blas.MatmulDescCreate);
  Find(library, "cublasLtMatmulDescDestroy", &blas.MatmulDescDestroy);
  Find(library, "cublasLtMatmulDescSetAttribute", &blas.MatmulDescSetAttribute);
  Find(library, "cublasLtMatmulPreferenceCreate", &blas.MatmulPreferenceCreate);
  Find(library, "cublasLtMatmulPreferenceDestroy", &blas.MatmulPreferenceDestroy);
  Find(library, "cublasLtMatmulPreferenceSetAttribute", &blas.MatmulPreferenceSetAttribute);
  Find(library, "cublasLtMatrixLayoutCreate", &blas.MatrixLayoutCreate);
  Find(library, "cublasLtMatrixLayoutDestroy", &blas.MatrixLayoutDestroy);
  Find(library, "cublasLtMatrixLayoutSetAttribute", &blas.MatrixLayoutSetAttribute);
  return blas;
}

}  // namespace

const BlasLt& LoadedBlasLt() {
  static const BlasLt blas = LoadBlasLt();
  return blas;
}

std::string BlasLtVersion() {
  const std::size_t version = LoadedBlasLt().GetVersion();  // CUBLAS_VERSION
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

}  // namespace fp4lab::gpu
