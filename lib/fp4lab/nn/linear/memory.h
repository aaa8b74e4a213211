// The memory that linears keep and share under their recipes, told from shapes before any of it is
// allocated.
#pragma once

#include <array>

#include "fp4lab/nn/linear_recipe.h"

namespace fp4lab {

// Bytes are of type double because a configuration may ask for sizes that no integer holds.
class LinearMemory {
 public:
  // Adds a linear with a weight (out, in) and inputs of `tokens` rows. `observed`: an observer sees
  // its operands at some steps (LinearCall::observer), for which they are made as values.
  void Add(const LinearRecipe& recipe, double tokens, double out, double in, bool observed);

  // Of LinearWeight: the operands of all weights that stay from use to use.
  double Kept() const { return kept_; }
  // Of LinearScratch and of products: each buffer is as large as its largest use.
  double Shared() const;

  // The same linears in another state of the recipe: buffers do not shrink.
  void Include(const LinearMemory& other);

 private:
  enum Buffer {
    kValuesA,
    kCodesA,
    kValuesB,
    kCodesB,
    kWeight,       // values of a large weight, or a tensor rounded to BF16 on its way to integers
    kGrad,         // the gradient rounded to BF16
    kTransformed,  // a tensor between its transform and its integers
    kWindows,      // a tensor with windows of scales
    kBands,        // sums of a product with windows
    kDecoded,      // fprop's operand decoded
    kPacked,       // the right operand of a product, packed
    kSeen,         // an observed operand before and after its quantization
    kProduct,      // a product before the scales of its rows
    kSplitA,       // what a side term leaves of an operand
    kSplitB,
    kSideA,  // hot channels
    kSideB,
    kSideOther,
    kSideProduct,
    kBuffers
  };

  void Take(Buffer buffer, double bytes);
  void AddWeight(const LinearRecipe& recipe, const GemmRecipe& gemm, double size, bool observed);
  // The operand of a tensor of `size` elements, of which `to_round` are rounded to BF16 for it.
  void AddTensor(const LinearRecipe& recipe, const GemmRecipe& gemm, const OperandRecipe& operand,
                 double size, double to_round, bool observed, Buffer values, Buffer codes);
  void AddSide(const OperandRecipe& operand, double tokens, double channels, double others,
               bool along_channels, Buffer rest, Buffer side);

  double kept_ = 0.0;
  std::array<double, kBuffers> shared_{};
};

}  // namespace fp4lab
