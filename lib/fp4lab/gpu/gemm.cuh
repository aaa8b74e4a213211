// Matrix products through cuBLASLt with binary32 accumulation.
#pragma once

#include <cstddef>
#include <memory>

#include "fp4lab/gpu/memory.cuh"

namespace fp4lab::gpu {

// d = alpha a b + (c, or nothing), row-major: a (m, k), b (k, n), c and d (m, n). `a_transposed`: a
// lies in memory as (k, m); `b_transposed`: b as (n, k). c may be d; null: nothing is added. D:
// float or Bf16 (binary32 results rounded once; no c).
template <class T, class D = float>
struct GemmProblem {
  std::size_t m = 0, n = 0, k = 0;
  const T *a = nullptr, *b = nullptr;
  bool a_transposed = false, b_transposed = false;
  const float* alpha = nullptr;  // on the device; null: 1
  const float* c = nullptr;
  D* d = nullptr;
};

// Clear what a product writes, and the workspace, first: for compute-sanitizer's initcheck, which
// does not see all that cuBLASLt's kernels store and would report whoever reads it.
inline bool clear_products = false;

// A cuBLASLt handle, its workspace, and the algorithm chosen for each shape, once: the first that
// cuBLASLt proposes, with reductions in binary32 in the workspace only. So equal calls give equal
// bits on the same chip and library. Operands are BF16, or binary32 multiplied in binary32 (no
// TF32).
class Gemms {
 public:
  explicit Gemms(cudaStream_t stream);
  ~Gemms();
  Gemms(const Gemms&) = delete;
  Gemms& operator=(const Gemms&) = delete;

  template <class T, class D>
  void Run(const GemmProblem<T, D>& problem);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab::gpu
