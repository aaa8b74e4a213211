// What computes a part on the CPU.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/train/model/linears.h"

namespace fp4lab {

// A part in one block and one pass. Rows are those of the micro-batch: whole sequences.
struct PartUse {
  using View = MatrixView<float>;

  const Pass& pass;
  int block = 0;
  Linears* linears = nullptr;
  std::size_t first_linear = 0;             // the part's first, an index of LinearPlan
  std::span<const ParameterSlice> gains;    // Part::gains
  const ParameterSlice* balance = nullptr;  // Part::balance, if it has any
  std::span<const View> activations;        // Part::activations, the same memory in both passes

  std::size_t Linear(std::size_t i) const { return first_linear + i; }
  std::span<const float> Gain(std::size_t i) const { return linears->Gain(gains[i]); }
  // An activation of one column, or one that a row of heads or experts fills, as a vector.
  std::span<float> Column(std::size_t i) const {
    return {activations[i].data, activations[i].size()};
  }
  void Inspect(const char* name, View x) const { fp4lab::Inspect(pass, block, name, x); }
};

// Memory of the backward pass.
struct PartGradients {
  using View = MatrixView<float>;

  View d_residual;              // in: the gradient of the part's result; out: that of its x
  View d_narrow;                // (rows, d_model), for the moment
  std::span<const View> wide;   // Part::gradients, for the moment
  std::span<float> parameters;  // gradients of all parameters, which are added to
  float loss_scale = 1.0f;      // of one token's loss, for losses that a part adds

  std::span<float> Gain(const ParameterSlice& slice) const {
    return parameters.subspan(slice.offset, slice.size());
  }
};

class PartRunner {
 public:
  using View = MatrixView<float>;

  virtual ~PartRunner() = default;

  // out = x + the part's result. x stays as it is.
  virtual void Forward(const PartUse& use, View x, View out) = 0;
  // After Forward in all blocks.
  virtual void Backward(const PartUse& use, View x, const PartGradients& gradients) = 0;
};

// Part::make of a part that Runner computes.
template <class Runner>
std::unique_ptr<PartRunner> MakeRunner(const ModelConfig& config) {
  return std::make_unique<Runner>(config);
}

}  // namespace fp4lab
