// Matrix products through cuBLASLt with binary32 accumulation.
#pragma once

#include <cstddef>
#include <memory>

#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

// Scales in binary32 of an operand's blocks along the reduction axis: that of row r and element k
// is scales[r / rows * row_stride + k / block * block_stride].
struct BlockScales {
  const float* scales = nullptr;  // null: all are 1
  std::size_t rows = 1, block = 0;
  std::size_t row_stride = 0, block_stride = 0;

  // The scales of square blocks if the product reduces along the other axis.
  BlockScales Turned() const { return {scales, block, rows, block_stride, row_stride}; }
};

// d = alpha a b + c, row-major: a (m, k), b (k, n), c and d (m, n). `a_transposed`: a lies in
// memory as (k, m); `b_transposed`: b lies in memory as (n, k). A null c adds nothing; d may be c.
// D is float, or Bf16 (binary32 results rounded once, without c). `batch`: as many products, whose
// matrices follow each other in memory. `tokens_vary`: m, or k where a is transposed, is a number
// of tokens that changes from call to call.
template <class T, class D = float>
struct GemmProblem {
  std::size_t m = 0, n = 0, k = 0;
  const T *a = nullptr, *b = nullptr;
  bool a_transposed = false, b_transposed = false;
  const float* alpha = nullptr;  // on the device; null: 1
  const float* c = nullptr;
  D* d = nullptr;
  std::size_t batch = 1;
  bool tokens_vary = false;
  BlockScales a_scales = {}, b_scales = {};  // of BF16 operands (scaled_gemm.cuh)
};

// Tests set this to clear the workspace, and d before each product, for compute-sanitizer's
// initcheck: the tool does not see all stores of cuBLASLt's kernels and would report every reader
// of d.
inline bool clear_products = false;

// A cuBLASLt handle, its workspace, and one algorithm for each shape: the first that cuBLASLt
// proposes with reductions in binary32 and in the workspace only. Equal calls therefore give equal
// bits on the same kind of GPU and library; to another kind cuBLASLt may propose to split a long
// reduction, wgrad's over tokens, into another number of sums. Where tokens vary, as an expert's
// do, their number is rounded up for the choice, by at most an eighth or 63: else cuBLASLt would be
// asked for nearly every product. Operands are BF16, or binary32 multiplied in binary32 (no TF32).
class Gemms {
 public:
  explicit Gemms(cudaStream_t stream);
  ~Gemms();
  Gemms(const Gemms&) = delete;
  Gemms& operator=(const Gemms&) = delete;

  // Another stream for products, with a workspace of its own. Returns its lane; the stream of the
  // constructor is lane 0. Lanes change no bits.
  std::size_t AddLane(cudaStream_t stream);

  template <class T, class D>
  void Run(const GemmProblem<T, D>& problem, std::size_t lane = 0);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab::gpu
