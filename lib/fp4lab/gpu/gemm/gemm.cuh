// Matrix products through cuBLASLt with binary32 accumulation.
#pragma once

#include <cstddef>
#include <memory>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/gemm/gemm_problem.cuh"

namespace fp4lab::gpu {

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
