#include <bit>
#include <cstddef>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/tensor/mma/tensor_core_element.h"
#include "fp4lab/tensor/tensor_core_gemm.h"

namespace fp4lab {

float FinishProduct(float y, const ProductOptions& options) {
  const IeeeArithmetic ieee;
  if (options.alpha != 1.0f) y *= options.alpha;
  switch (options.output) {
    case GemmOutput::kFp32:
      break;
    case GemmOutput::kBf16:
      y = RoundToBf16(y);
      break;
    case GemmOutput::kFp16: {
      const Format& half = FormatOf(FormatId::kFP16);
      y = Decode(half, Encode(half, y, Rounding::kNearestEven, 0, Overflow::kSpecial));
      break;
    }
  }
  return y != y ? std::bit_cast<float>(0x7FFFFFFFu) : y;
}

std::string_view WhyNot(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b) {
  if (a.cols != b.cols) return "the operands differ in K";
  const bool scaled = TakesScales(model);
  if (a.IsScaled() != scaled || b.IsScaled() != scaled) {
    return scaled ? "the instruction takes block scales" : "the instruction takes no block scales";
  }
  if (a.group != b.group || a.scale_format != b.scale_format) {
    return "the operands differ in their scales";
  }
  if (model.scheme == MmaScheme::kScaledChain &&
      (a.scale_format != FormatOf(FormatId::kE8M0) || a.group != 32)) {
    return "the instruction takes E8M0 scales of 32 elements";
  }
  if (!Takes(model, a.format) || !Takes(model, b.format)) {
    return "the instruction does not support these element formats";
  }
  if (model.scheme == MmaScheme::kScaledGroups) {
    if (a.group != 16 && a.group != 32) return "the instruction takes scales of 16 or 32 elements";
  }
  return "";
}

float TensorCoreElement(const TensorCoreModel& model, const MmaOperand& a, std::size_t m,
                        const MmaOperand& b, std::size_t n, const OpenChoices& open, float c) {
  const IeeeArithmetic ieee;
  const bool narrow = model.output == MmaOutput::kNearest16;
  const Format& half = FormatOf(FormatId::kFP16);
  const std::uint32_t start = narrow
                                  ? Encode(half, c, Rounding::kNearestEven, 0, Overflow::kSpecial)
                                  : std::bit_cast<std::uint32_t>(c);
  const MmaScales scales{a.ScaleRow(m), b.ScaleRow(n), a.group, a.scale_format};
  const std::uint32_t d = TensorCoreDot(model, a.format, a.Row(m), b.format, b.Row(n), start,
                                        a.IsScaled() ? scales : MmaScales{}, open);
  const float value = narrow ? Decode(half, d) : std::bit_cast<float>(d);
  return value != value ? std::bit_cast<float>(0x7FFFFFFFu) : value;
}

void ExpectProduct(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                   MatrixView<float> c) {
  ExpectSound(a);
  ExpectSound(b);
  Expects(a.cols == b.cols && c.rows == a.rows && c.cols == b.rows, "a (M, K), b (N, K), c (M, N)");
  const bool scaled = TakesScales(model);
  Expects(a.IsScaled() == scaled && b.IsScaled() == scaled,
          "scales where the instruction has them");
  Expects(a.group == b.group && a.scale_format == b.scale_format, "scales of one kind");
}

namespace reference {

void TensorCoreGemm(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                    const ProductOptions& options, MatrixView<float> c) {
  const IeeeArithmetic ieee;
  ExpectProduct(model, a, b, c);
  for (std::size_t m = 0; m < c.rows; ++m) {
    for (std::size_t n = 0; n < c.cols; ++n) {
      const float start = options.accumulate ? c(m, n) : 0.0f;
      c(m, n) = FinishProduct(TensorCoreElement(model, a, m, b, n, options.open, start), options);
    }
  }
}

}  // namespace reference
}  // namespace fp4lab
