#include "fp4lab/nn/linear/memory.h"

#include <algorithm>
#include <numeric>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/nn/linear.h"
#include "fp4lab/nn/linear/operand.h"

namespace fp4lab {
namespace {

constexpr double kFloat = sizeof(float);

// Bytes of codes: a byte each, and a binary32 scale per block.
double CodeBytes(const Dialect& d, double size) {
  const double block = static_cast<double>(d.block_rows) * d.block_cols;  // 0: the tensor
  return size * (1.0 + (block > 0.0 ? kFloat / block : 0.0));
}

bool IsRowScaled(const OperandRecipe& operand) {
  return operand.format && operand.format->row_scaled && operand.scale_window == 0;
}

}  // namespace

void LinearMemory::Take(Buffer buffer, double bytes) {
  shared_[buffer] = std::max(shared_[buffer], bytes);
}

double LinearMemory::Shared() const {
  const IeeeArithmetic ieee;
  return std::accumulate(shared_.begin(), shared_.end(), 0.0);
}

void LinearMemory::Include(const LinearMemory& other) {
  const IeeeArithmetic ieee;
  kept_ = std::max(kept_, other.kept_);
  for (int b = 0; b < kBuffers; ++b) Take(static_cast<Buffer>(b), other.shared_[b]);
}

void LinearMemory::AddWeight(const LinearRecipe& recipe, const GemmRecipe& gemm, double size,
                             bool observed) {
  const OperandRecipe& b = gemm.b;
  const bool integers = CanUseIntegers(gemm);
  if (integers) kept_ += CodeBytes(*b.format, size);
  if (b.from_fprop) Take(kDecoded, kFloat * size);
  if (integers && !observed) return;
  if (!recipe.bf16 && !b.format && b.hadamard == 0) return;  // the operand refers to the weight
  if (observed || KeepsWeightValues(recipe, b, size)) {
    kept_ += kFloat * size;
  } else {
    Take(kWeight, kFloat * size);
  }
}

void LinearMemory::AddTensor(const LinearRecipe& recipe, const GemmRecipe& gemm,
                             const OperandRecipe& operand, double size, double to_round,
                             bool observed, Buffer values, Buffer codes) {
  const bool integers = CanUseIntegers(gemm);
  if (integers) {
    Take(codes, CodeBytes(*operand.format, size));
    if (operand.hadamard != 0) Take(kTransformed, size * kFloat / 2);  // BF16
    // PrepareRounded's bands need next to nothing.
    const bool in_bands =
        values == kValuesA && operand.hadamard == 0 && !TakesRandomBits(*operand.format);
    if (recipe.bf16 && !in_bands) Take(kWeight, kFloat * to_round);
  }
  if (operand.scale_window != 0) {
    constexpr double kFloatsOfBands = 2 * (1 << 18);  // linear/operand.cc
    Take(integers ? kWindows : values, kFloat * size);
    Take(kBands, kFloat * kFloatsOfBands);
  }
  if (integers && !observed) return;
  if (operand.format && observed) Take(kSeen, kFloat * size + CodeBytes(*operand.format, size));
  if (operand.format || operand.hadamard != 0) {
    Take(values, kFloat * size);
  } else if (recipe.bf16) {
    Take(values, kFloat * to_round);
  }
}

void LinearMemory::AddSide(const OperandRecipe& operand, double tokens, double channels,
                           double others, bool along_channels, Buffer rest, Buffer side) {
  if (!operand.side) return;
  const auto hot =
      static_cast<double>(HotChannelCount(operand.side, static_cast<std::size_t>(channels)));
  Take(rest, kFloat * tokens * channels);
  Take(side, kFloat * tokens * hot);
  if (along_channels) {
    Take(kSideOther, kFloat * others * (hot > 0.0 ? hot : channels));
  } else {
    Take(kSideOther, kFloat * tokens * others);
    Take(kSideProduct, kFloat * hot * others);
  }
}

void LinearMemory::Add(const LinearRecipe& recipe, double tokens, double out, double in,
                       bool observed) {
  const IeeeArithmetic ieee;
  const double weight = out * in, input = tokens * in, grad = tokens * out;
  // Parts round their wide tensors where they lie; linears round those of the narrower side, a
  // gradient once for both of its GEMMs.
  const double narrow = std::min(input, grad);
  const GemmRecipe &fprop = recipe.fprop, &dgrad = recipe.dgrad, &wgrad = recipe.wgrad;
  AddWeight(recipe, fprop, weight, observed);
  if (!SharesTranspose(fprop.b, dgrad.b)) AddWeight(recipe, dgrad, weight, observed);
  AddTensor(recipe, fprop, fprop.a, input, narrow, observed, kValuesA, kCodesA);
  AddTensor(recipe, dgrad, dgrad.a, grad, 0.0, observed, kValuesA, kCodesA);
  if (!SharesTranspose(dgrad.a, wgrad.a)) {
    AddTensor(recipe, wgrad, wgrad.a, grad, 0.0, observed, kValuesA, kCodesA);
  }
  AddTensor(recipe, wgrad, wgrad.b, input, narrow, observed, kValuesB, kCodesB);
  if (wgrad.b.from_fprop) Take(kDecoded, kFloat * input);
  if (recipe.bf16) Take(kGrad, kFloat * narrow);
  Take(kPacked, CanUseIntegers(wgrad) ? input * 9 / 16 : kFloat * weight);
  for (const GemmRecipe* gemm : {&fprop, &dgrad, &wgrad}) {
    const double product = gemm == &fprop ? grad : gemm == &dgrad ? input : weight;
    if (IsRowScaled(gemm->a) || IsRowScaled(gemm->b)) Take(kProduct, kFloat * product);
  }
  AddSide(fprop.a, tokens, in, out, true, kSplitA, kSideA);
  AddSide(dgrad.a, tokens, out, in, true, kSplitA, kSideA);
  AddSide(wgrad.a, tokens, out, in, false, kSplitA, kSideA);
  AddSide(wgrad.b, tokens, in, out, false, kSplitB, kSideB);
}

}  // namespace fp4lab
