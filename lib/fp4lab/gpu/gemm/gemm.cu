#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/gpu/gemm/blas.cuh"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/gpu/gemm/scaled_gemm.cuh"

namespace fp4lab::gpu {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;

void CheckBlas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("GPU",
              std::string("cuBLASLt ") + what + ": " + LoadedBlasLt().GetStatusString(status));
}

template <class Value>
void Set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, Value value) {
  CheckBlas(LoadedBlasLt().MatrixLayoutSetAttribute(layout, attribute, &value, sizeof value),
            "layout");
}

// The layout of row-major (rows, cols) matrices, which are column-major (cols, rows) to cuBLASLt.
cublasLtMatrixLayout_t Layout(cudaDataType_t type, std::size_t rows, std::size_t cols,
                              std::size_t batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  CheckBlas(
      LoadedBlasLt().MatrixLayoutCreate(&layout, type, cols, rows, static_cast<std::int64_t>(cols)),
      "layout");
  if (batch != 1) {
    Set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(batch));
    Set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
        static_cast<std::int64_t>(rows * cols));
  }
  return layout;
}

// The number of tokens whose algorithm `tokens` takes.
std::size_t Representative(std::size_t tokens) {
  constexpr std::size_t kSteps = 16, kSmallest = 64;  // in each octave
  return RoundUp(tokens, std::max(kSmallest, std::bit_ceil(tokens) / kSteps));
}

struct Plan {
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  ~Plan() {
    if (a != nullptr) LoadedBlasLt().MatrixLayoutDestroy(a);
    if (b != nullptr) LoadedBlasLt().MatrixLayoutDestroy(b);
    if (d != nullptr) LoadedBlasLt().MatrixLayoutDestroy(d);
    if (operation != nullptr) LoadedBlasLt().MatmulDescDestroy(operation);
  }
};

template <class Value>
void Set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, Value value) {
  CheckBlas(LoadedBlasLt().MatmulDescSetAttribute(operation, attribute, &value, sizeof value),
            "attribute");
}

template <class T>
constexpr cudaDataType_t kType = std::is_same_v<T, Bf16> ? CUDA_R_16BF : CUDA_R_32F;

using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, bool, bool, bool, bool,
                       cudaDataType_t, cudaDataType_t>;

template <class T, class D>
Key KeyOf(const GemmProblem<T, D>& p) {
  return {p.m,
          p.n,
          p.k,
          p.batch,
          p.tokens_vary,
          p.a_transposed,
          p.b_transposed,
          p.c != nullptr,
          kType<T>,
          kType<D>};
}

}  // namespace

struct Gemms::State {
  struct Lane {
    cudaStream_t stream = nullptr;
    DeviceArray<std::byte> workspace{kWorkspace};
  };

  cublasLtHandle_t handle = nullptr;
  std::vector<Lane> lanes;
  DeviceArray<float> constants{2};  // 0, 1
  std::map<Key, Plan> plans;

  ~State() {
    if (handle != nullptr) LoadedBlasLt().Destroy(handle);
  }

  // The plan with the layouts of `p`.
  template <class T, class D>
  Plan& PlanFor(const GemmProblem<T, D>& p);
  template <class T, class D>
  Plan& PlanLike(const GemmProblem<T, D>& p);
  void Choose(Plan* plan) const;
};

// In column-major order the product is d^T = b^T a^T: cuBLASLt's A is b, and its B is a.
template <class T, class D>
Plan& Gemms::State::PlanLike(const GemmProblem<T, D>& p) {
  const auto [found, is_new] = plans.try_emplace(KeyOf(p));
  Plan& plan = found->second;
  if (!is_new) return plan;
  CheckBlas(LoadedBlasLt().MatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
            "operation");
  Set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  Set(plan.operation, CUBLASLT_MATMUL_DESC_POINTER_MODE,
      static_cast<std::int32_t>(CUBLASLT_POINTER_MODE_DEVICE));
  const auto layout = [&](std::size_t rows, std::size_t cols) {
    return Layout(kType<T>, rows, cols, p.batch);
  };
  plan.a = p.b_transposed ? layout(p.n, p.k) : layout(p.k, p.n);
  plan.b = p.a_transposed ? layout(p.k, p.m) : layout(p.m, p.k);
  plan.d = Layout(kType<D>, p.m, p.n, p.batch);
  Choose(&plan);
  return plan;
}

template <class T, class D>
Plan& Gemms::State::PlanFor(const GemmProblem<T, D>& p) {
  if (!p.tokens_vary) return PlanLike(p);
  GemmProblem<T, D> like = p;
  std::size_t& tokens = p.a_transposed ? like.k : like.m;
  const std::size_t count = tokens;
  tokens = Representative(count);
  Plan& plan = PlanLike(like);
  const auto columns = static_cast<std::uint64_t>(count);  // tokens are rows, to cuBLASLt columns
  Set(plan.b, CUBLASLT_MATRIX_LAYOUT_COLS, columns);
  Set(p.a_transposed ? plan.a : plan.d, CUBLASLT_MATRIX_LAYOUT_COLS, columns);
  return plan;
}

void Gemms::State::Choose(Plan* plan) const {
  cublasLtMatmulPreference_t preference = nullptr;
  CheckBlas(LoadedBlasLt().MatmulPreferenceCreate(&preference), "preference");
  const std::size_t workspace_size = kWorkspace;
  const std::uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LoadedBlasLt().MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace_size, sizeof workspace_size);
  LoadedBlasLt().MatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  const cublasStatus_t status = LoadedBlasLt().MatmulAlgoGetHeuristic(
      handle, plan->operation, plan->a, plan->b, plan->d, plan->d, preference, 1, &result, &count);
  LoadedBlasLt().MatmulPreferenceDestroy(preference);
  CheckBlas(status, "has no algorithm for this shape");
  if (count == 0) throw Error("GPU", "cuBLASLt has no algorithm for this shape");
  plan->algorithm = result.algo;
}

Gemms::Gemms(cudaStream_t stream) : state_(std::make_unique<State>()) {
  CheckBlas(LoadedBlasLt().Create(&state_->handle), "handle");
  constexpr std::array<float, 2> kConstants = {0.0f, 1.0f};
  state_->constants.CopyFrom(kConstants, stream);
  AddLane(stream);
  Check(cudaStreamSynchronize(stream), "copy to the GPU");
}
Gemms::~Gemms() = default;

std::size_t Gemms::AddLane(cudaStream_t stream) {
  State::Lane& lane = state_->lanes.emplace_back();
  lane.stream = stream;
  if (clear_products) {
    Check(cudaMemsetAsync(lane.workspace.data(), 0, kWorkspace, stream), "memset");
  }
  return state_->lanes.size() - 1;
}

template <class T, class D>
void Gemms::Run(const GemmProblem<T, D>& p, std::size_t lane) {
  Expects((std::is_same_v<D, float> || p.c == nullptr), "GemmProblem: only binary32 is added to");
  Expects(!p.tokens_vary || (p.batch == 1 && !(p.a_transposed && p.b_transposed)),
          "GemmProblem: a number of tokens varies along rows");
  State& s = *state_;
  const State::Lane& on = s.lanes.at(lane);
  if (p.a_scales.scales != nullptr || p.b_scales.scales != nullptr) {
    if constexpr (std::is_same_v<T, Bf16>) {
      return MultiplyScaled(p, reinterpret_cast<float*>(on.workspace.data()),
                            kWorkspace / sizeof(float), on.stream);
    }
    Expects(false, "GemmProblem: scales of blocks of BF16 operands");
  }
  Plan& plan = s.PlanFor(p);
  const float* const constants = s.constants.data();
  const float* alpha = p.alpha != nullptr ? p.alpha : constants + 1;
  const float* beta = constants + (p.c != nullptr ? 1 : 0);
  if (clear_products && static_cast<const void*>(p.c) != p.d) {
    Check(cudaMemsetAsync(p.d, 0, p.batch * p.m * p.n * sizeof(D), on.stream), "memset");
  }
  const cublasStatus_t status =
      LoadedBlasLt().Matmul(s.handle, plan.operation, alpha, p.b, plan.a, p.a, plan.b, beta,
                            p.c != nullptr ? static_cast<const void*>(p.c) : p.d, plan.d, p.d,
                            plan.d, &plan.algorithm, on.workspace.data(), kWorkspace, on.stream);
  if (p.tokens_vary && (status == CUBLAS_STATUS_NOT_SUPPORTED ||
                        status == CUBLAS_STATUS_INVALID_VALUE)) {  // not with so many tokens
    GemmProblem<T, D> exact = p;
    exact.tokens_vary = false;
    return Run(exact, lane);
  }
  CheckBlas(status, "product");
}

template void Gemms::Run(const GemmProblem<float>&, std::size_t);
template void Gemms::Run(const GemmProblem<Bf16>&, std::size_t);
template void Gemms::Run(const GemmProblem<Bf16, Bf16>&, std::size_t);

}  // namespace fp4lab::gpu
