// The linears of a model on the CPU: weights, inputs of the last forward pass, and the products of
// a pass under the plan's recipes. `linear` is an index of LinearPlan.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/shapes.h"

namespace fp4lab {

// The three GEMMs of a linear (nn/linear_recipe.h).
enum class LinearGemm { kFprop, kDgrad, kWgrad };
// "fprop", "dgrad" or "wgrad".
std::string_view GemmName(LinearGemm gemm);

// A GEMM's result under a linear's recipe, and the result of the same tensors under Recipe::rest,
// where nothing is quantized.
struct ObservedProduct {
  LinearGemm gemm = LinearGemm::kFprop;
  MatrixView<const float> quantized, plain;
};
// Called with every GEMM of a linear whose recipe is not Recipe::rest, and the linear's name.
using ProductObserver =
    std::function<void(const std::string& linear, const ObservedProduct& product)>;

// Shows a tensor to the pass's inspector, if it has one, by its name within `block`; -1: a tensor
// outside the blocks.
void Inspect(const Pass& pass, int block, const char* name, MatrixView<const float> x);

// A gradient among those of all parameters.
inline MatrixView<float> GradientOf(std::span<float> gradients, const ParameterSlice& slice) {
  return {gradients.data() + slice.offset, slice.rows, slice.cols};
}

class Linears {
 public:
  using View = MatrixView<float>;

  // Every pass reads `parameters` (layout.total), and reads and writes `amax_histories`
  // (AmaxHistoryFloats(config, recipe)); both must stay where they are.
  Linears(const ModelConfig& config, const Recipe& recipe, std::span<const float> parameters,
          std::span<float> amax_histories);
  Linears(const Linears&) = delete;
  Linears& operator=(const Linears&) = delete;

  const LinearPlan& Plan() const { return plan_; }
  void UseRecipe(const Recipe& recipe) { plan_.UseRecipe(recipe); }
  // Advances the histories of operands with delayed scaling, at the end of a step.
  void AdvanceAmaxHistories();
  // See Model::ObserveProducts.
  void ObserveProducts(const ProductObserver* observer) { products_ = observer; }
  // Must follow any change of the parameters.
  void ParametersChanged();

  std::span<const float> Gain(const ParameterSlice& slice) const {
    return parameters_.subspan(slice.offset, slice.size());
  }

  // The number of rows of x that fit an L1 cache.
  static std::size_t PieceRows(const View& x);
  // Calls make(first, rows, bf16), which writes these rows of `out`, piece by piece. If the
  // linear's recipe rounds, make rounds the rows to BF16 and returns their amax. For tensors that
  // only this linear reads.
  using MakeRows = std::function<float(std::size_t first, std::size_t rows, bool bf16)>;
  LinearInput MakeRounded(const Pass& pass, std::size_t linear, std::size_t piece_rows, View out,
                          const MakeRows& make);

  // The linear's x, before Run. It must stay as it is until RunBackward.
  void SetInput(std::size_t linear, const LinearInput& input) { inputs_[linear] = input; }
  // RmsNorm of x as the linear's input; x is also copied to `copy`, unless that is null.
  void MakeNorm(const Pass& pass, std::size_t linear, View x, std::span<const float> gain,
                float epsilon, View out, std::span<float> inverse_rms, float* copy);
  void Run(const Pass& pass, std::size_t linear, Write write, View y);
  // `gradients`: of all parameters.
  void RunBackward(const Pass& pass, std::size_t linear, const LinearInput& dy, View dx,
                   std::span<float> gradients);

 private:
  bool ShowsProducts(const Pass& pass, std::size_t linear) const;
  // Compute the GEMMs of a linear again, under its recipe and under Recipe::rest, for products_.
  void ShowForward(const Pass& pass, std::size_t linear);
  void ShowBackward(const Pass& pass, std::size_t linear, const LinearInput& dy);

  LinearPlan plan_;
  std::span<const float> parameters_;
  std::span<float> amax_histories_;
  std::vector<LinearWeight> weights_;  // one per linear
  std::vector<LinearInput> inputs_;    // one per linear, of the last forward pass
  LinearScratch scratch_;
  std::vector<float> piece_amax_;
  const ProductObserver* products_ = nullptr;
};

}  // namespace fp4lab
