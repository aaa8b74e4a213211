#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/blas.cuh"

namespace fp4lab::gpu {
namespace {

std::string Name() { return "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR); }

void* Open() {
  std::vector<std::string> folders = {"", "/usr/local/cuda/lib64/"};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) folders.push_back(std::string(root) + "/lib64/");
  }
  for (const std::string& folder : folders) {
    if (void* library = dlopen((folder + Name()).c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error("GPU", "training needs " + Name() + ", which is not found; install cuBLAS of CUDA " +
                         std::to_string(CUBLAS_VER_MAJOR) +
                         " or set LD_LIBRARY_PATH to its folder");
}

template <class Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) throw Error("GPU", Name() + " has no function " + name);
}

BlasLt LoadBlasLt() {
  void* const library = Open();
  BlasLt blas{};
  Find(library, "cublasLtCreate", &blas.Create);
  Find(library, "cublasLtDestroy", &blas.Destroy);
  Find(library, "cublasLtGetStatusString", &blas.GetStatusString);
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
  return blas;
}

}  // namespace

const BlasLt& LoadedBlasLt() {
  static const BlasLt blas = LoadBlasLt();
  return blas;
}

}  // namespace fp4lab::gpu
