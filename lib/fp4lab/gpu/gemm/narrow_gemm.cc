#include "fp4lab/gpu/gemm/narrow_gemm.h"

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>

#include "fp4lab/base/error.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/gpu/gemm/blas.cuh"

namespace fp4lab::gpu {
namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;

struct KindFacts {
  std::string_view name;
  bool has_scales, needs_blackwell;
  cublasLtMatmulMatrixScale_t scale_mode;
};

KindFacts FactsOf(NarrowKind kind) {
  switch (kind) {
    case NarrowKind::kFp8:
      return {"FP8", false, false, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F};
    case NarrowKind::kMxfp8:
      return {"MXFP8", true, true, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0};
    case NarrowKind::kNvfp4:
      return {"NVFP4", true, true, CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3};
    case NarrowKind::kMxfp4:
      return {"MXFP4", true, true, CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0};
  }
  return {};
}

void CheckBlas(cublasStatus_t status, const std::string& what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("GPU", what + ": " + LoadedBlasLt().GetStatusString(status));
}

cudaDataType_t TypeOf(FormatId element) {
  return element == FormatId::kE2M1   ? CUDA_R_4F_E2M1
         : element == FormatId::kE4M3 ? CUDA_R_8F_E4M3
                                      : CUDA_R_8F_E5M2;
}

template <class Handle, class Destroy>
auto Owned(Handle handle, Destroy destroy) {
  return std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>(handle, destroy);
}

// The layout of a row-major (rows, cols) matrix, which is column-major (cols, rows) to cuBLASLt.
auto Layout(cudaDataType_t type, std::size_t rows, std::size_t cols) {
  cublasLtMatrixLayout_t layout = nullptr;
  CheckBlas(
      LoadedBlasLt().MatrixLayoutCreate(&layout, type, cols, rows, static_cast<std::int64_t>(cols)),
      "cuBLASLt layout");
  return Owned(layout, LoadedBlasLt().MatrixLayoutDestroy);
}

template <class Value>
void Set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, Value value) {
  CheckBlas(LoadedBlasLt().MatmulDescSetAttribute(operation, attribute, &value, sizeof value),
            "cuBLASLt attribute");
}

// In column-major order the product is d^T = b a^T: cuBLASLt's A is b, and its B is a.
auto Operation(const NarrowProblem& p, const KindFacts& facts) {
  cublasLtMatmulDesc_t operation = nullptr;
  CheckBlas(LoadedBlasLt().MatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "cuBLASLt operation");
  auto owned = Owned(operation, LoadedBlasLt().MatmulDescDestroy);
  Set(operation, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  Set(operation, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  Set(operation, CUBLASLT_MATMUL_DESC_POINTER_MODE,
      static_cast<std::int32_t>(CUBLASLT_POINTER_MODE_DEVICE));
  Set(operation, CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{0});
  if (facts.has_scales) {
    Set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(facts.scale_mode));
    Set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(facts.scale_mode));
    Set(operation, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(p.b.scales));
    Set(operation, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(p.a.scales));
  }
  return owned;
}

void CheckProblem(const NarrowProblem& p, const KindFacts& facts) {
  const bool fp4 = p.kind == NarrowKind::kNvfp4 || p.kind == NarrowKind::kMxfp4;
  const std::size_t multiple = fp4 ? 32 : 16;
  for (const NarrowOperand* operand : {&p.a, &p.b}) {
    Expects((operand->element == FormatId::kE2M1) == fp4, "elements of the kind of product");
    Expects((operand->scales != nullptr) == facts.has_scales, "scales where the kind has them");
  }
  Expects(p.a.element != FormatId::kE5M2 || p.b.element != FormatId::kE5M2,
          "one operand of E5M2 at most");
  Expects(p.k % multiple == 0 && p.n % multiple == 0 && p.m > 0 && p.n > 0 && p.k > 0,
          "k and n are multiples of 16, of 32 for E2M1");
  Expects(p.alpha != nullptr && p.d != nullptr, "alpha and d");
}

// The handle, workspace and beta = 0 of one thread's products, made once.
struct Shared {
  cublasLtHandle_t handle = nullptr;
  cuda::DeviceMemory workspace{kWorkspace}, zero{sizeof(float)};

  Shared() {
    CheckBlas(LoadedBlasLt().Create(&handle), "cuBLASLt handle");
    zero.Fill(0);
  }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  ~Shared() { LoadedBlasLt().Destroy(handle); }
};

int ComputeCapability() {
  int device = 0, major = 0;
  cuda::Check(cudaGetDevice(&device), "asking for the device");
  cuda::Check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
              "asking for the device's properties");
  return major;
}

}  // namespace

void NarrowGemm(const NarrowProblem& p, cuda::StreamHandle stream) {
  const KindFacts facts = FactsOf(p.kind);
  CheckProblem(p, facts);
  const std::string name(facts.name);
  if (facts.needs_blackwell && ComputeCapability() < 10) {
    throw Error("GPU",
                "products of " + name +
                    " need a Blackwell chip; multiply the BF16 values here (they are exact)");
  }
  thread_local const Shared shared;
  const auto operation = Operation(p, facts);
  const auto a = Layout(TypeOf(p.b.element), p.n, p.k), b = Layout(TypeOf(p.a.element), p.m, p.k);
  const auto d = Layout(CUDA_R_32F, p.m, p.n);
  cublasLtMatmulPreference_t made = nullptr;
  CheckBlas(LoadedBlasLt().MatmulPreferenceCreate(&made), "cuBLASLt preference");
  const auto preference = Owned(made, LoadedBlasLt().MatmulPreferenceDestroy);
  CheckBlas(LoadedBlasLt().MatmulPreferenceSetAttribute(
                made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace),
            "cuBLASLt preference");
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  CheckBlas(LoadedBlasLt().MatmulAlgoGetHeuristic(shared.handle, operation.get(), a.get(), b.get(),
                                                  d.get(), d.get(), made, 1, &found, &count),
            "cuBLASLt has no product of " + name + " of this shape");
  if (count == 0) throw Error("GPU", "cuBLASLt has no product of " + name + " of this shape");
  CheckBlas(LoadedBlasLt().Matmul(shared.handle, operation.get(), p.alpha, p.b.codes, a.get(),
                                  p.a.codes, b.get(), shared.zero.As<float>(), p.d, d.get(), p.d,
                                  d.get(), &found.algo, shared.workspace.data(), kWorkspace,
                                  cuda::NativeStream(stream)),
            "cuBLASLt product of " + name);
}

}  // namespace fp4lab::gpu
