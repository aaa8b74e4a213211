#include "fp4lab/judge/products/gemm_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

constexpr std::size_t kPromotion = 128;
constexpr std::string_view kPromotedCore = "hopper.wgmma.f8.f32";

float RoundedTo(FormatId format, float x, Rounding rounding = Rounding::kNearestEven,
                Overflow overflow = Overflow::kSpecial) {
  return Decode(format, Encode(format, x, rounding, 0, overflow));
}

std::optional<FormatId> NarrowOutput(GemmOutput output) {
  switch (output) {
    case GemmOutput::kFp32:
      return std::nullopt;
    case GemmOutput::kBf16:
      return FormatId::kBF16;
    case GemmOutput::kFp16:
      return FormatId::kFP16;
  }
  return std::nullopt;
}

// Columns from .. to - 1 of an operand; `from` is at the start of a block.
MmaOperand Columns(const MmaOperand& x, std::size_t from, std::size_t to) {
  MmaOperand part = x;
  part.cols = to - from;
  part.codes.clear();
  part.scales.clear();
  const std::size_t group = static_cast<std::size_t>(std::max(x.group, 1));
  for (std::size_t r = 0; r < x.rows; ++r) {
    const auto codes = x.Row(r).subspan(from, to - from);
    part.codes.insert(part.codes.end(), codes.begin(), codes.end());
    if (!x.IsScaled()) continue;
    const auto scales = x.ScaleRow(r).subspan(from / group, part.ScaleCols());
    part.scales.insert(part.scales.end(), scales.begin(), scales.end());
  }
  return part;
}

// The sum of parts of K, each under an accumulation and rounded to `format` if there is one.
Matrix<float> SumOfParts(const GemmKernel& k, const Accumulation& under, std::size_t width,
                         std::optional<FormatId> format) {
  Matrix<float> y(k.a.rows, k.b.rows), part(k.a.rows, k.b.rows);
  for (std::size_t from = 0; from < k.a.cols; from += width) {
    const std::size_t to = std::min(from + width, k.a.cols);
    GemmAs(under, Columns(k.a, from, to), Columns(k.b, from, to), {}, part.View());
    for (std::size_t i = 0; i < y.values.size(); ++i) {
      y.values[i] += format ? RoundedTo(*format, part.values[i]) : part.values[i];
    }
  }
  return y;
}

// The first half of K in whole blocks and in multiples of 16; K if that is nothing.
std::size_t HalfOf(const GemmKernel& k) {
  const std::size_t unit = static_cast<std::size_t>(std::max({k.a.group, k.b.group, 16}));
  const std::size_t half = k.a.cols / 2 / unit * unit;
  return half == 0 ? k.a.cols : half;
}

Matrix<float> SumIn(FormatId format, const GemmKernel& k) {
  const Matrix<double> a = ExactValues(k.a), b = ExactValues(k.b);
  Matrix<float> y(k.a.rows, k.b.rows);
  for (std::size_t m = 0; m < y.rows; ++m) {
    for (std::size_t n = 0; n < y.cols; ++n) {
      float sum = 0.0f;
      for (std::size_t i = 0; i < a.cols; ++i) {
        sum = RoundedTo(format, static_cast<float>(double{sum} + a(m, i) * b(n, i)));
      }
      y(m, n) = sum;
    }
  }
  return y;
}

Matrix<float> Sums(const GemmKernel& k) {
  switch (k.sums) {
    case PartialSums::kAsStated:
      break;
    case PartialSums::kBf16:
      return SumIn(FormatId::kBF16, k);
    case PartialSums::kFp16:
      return SumIn(FormatId::kFP16, k);
    case PartialSums::kBf16Splits:
      return SumOfParts(k, *k.under, HalfOf(k), FormatId::kBF16);
    case PartialSums::kPromoted128:
      return SumOfParts(k, *FindAccumulation(kPromotedCore), kPromotion, std::nullopt);
  }
  Matrix<float> y(k.a.rows, k.b.rows);
  GemmAs(*k.under, k.a, k.b, {}, y.View());
  return y;
}

// x to a narrow output with ties away from zero, from the two neighbours; x is finite.
float TiesAway(FormatId format, float x) {
  const float nearest = RoundedTo(format, x);
  const float low = RoundedTo(format, x, Rounding::kTowardZero);
  if (low == x || std::abs(nearest) > std::abs(low)) return nearest;
  const float high = Decode(format, Encode(format, low) + 1);
  return double{std::abs(x)} - std::abs(double{low}) == std::abs(double{high}) - std::abs(double{x})
             ? high
             : nearest;
}

float Finished(float y, const GemmKernel& k, float before, float c) {
  if (k.alpha != 1.0f) y *= k.alpha;
  if (k.beta != 0.0f && k.c.size() > 0) y += k.beta * c;
  if (k.adds_before) y += before;
  const std::optional<FormatId> narrow = NarrowOutput(k.output);
  const ProductOptions output{.output = k.output};
  const float stated = FinishProduct(y, output);
  switch (k.finish) {
    case Finish::kAsStated:
      return stated;
    case Finish::kThroughBf16:
      return FinishProduct(RoundedTo(FormatId::kBF16, y), output);
    case Finish::kThroughFp16:
      return FinishProduct(RoundedTo(FormatId::kFP16, y), output);
    case Finish::kTowardZero:
      return narrow && std::isfinite(y) ? RoundedTo(*narrow, y, Rounding::kTowardZero) : stated;
    case Finish::kTiesAway:
      return narrow && std::isfinite(y) ? TiesAway(*narrow, y) : stated;
    case Finish::kSaturates:
      return narrow && !std::isnan(y)
                 ? RoundedTo(*narrow, y, Rounding::kNearestEven, Overflow::kSaturate)
                 : stated;
    case Finish::kFlushes: {
      const float least = k.output == GemmOutput::kFp16 ? 0x1p-14f : 0x1p-126f;
      return std::abs(stated) < least ? std::copysign(0.0f, stated) : stated;
    }
    case Finish::kNanAsZero:
      return std::isnan(stated) ? 0.0f : stated;
    case Finish::kInfinityAsNan:
      return std::isinf(stated) ? std::bit_cast<float>(0x7FFFFFFFu) : stated;
    case Finish::kDropsNegativeZero:
      return stated == 0.0f ? 0.0f : stated;
  }
  return stated;
}

}  // namespace

bool SameProduct(const Matrix<float>& x, const Matrix<float>& y) {
  return x.rows == y.rows && x.cols == y.cols &&
         std::equal(x.values.begin(), x.values.end(), y.values.begin(), [](float a, float b) {
           const auto x_bits = std::bit_cast<std::uint32_t>(a),
                      y_bits = std::bit_cast<std::uint32_t>(b);
           const bool both_nan =
               (x_bits & 0x7FFFFFFFu) > 0x7F800000u && (y_bits & 0x7FFFFFFFu) > 0x7F800000u;
           return x_bits == y_bits || both_nan;
         });
}

GemmKernel KernelOf(const GemmClaim& claim, const Accumulation& under) {
  return {.a = claim.a,
          .b = claim.b,
          .alpha = claim.alpha,
          .tensor_scale_a = claim.tensor_scale_a,
          .tensor_scale_b = claim.tensor_scale_b,
          .output = claim.output,
          .under = &under,
          .before = claim.before,
          .c = claim.c,
          .beta = claim.beta};
}

std::string WhyNot(const GemmKernel& k) {
  const IeeeArithmetic ieee;
  if (!(k.alpha - k.alpha == 0.0f)) return "alpha is not finite";
  if (k.sums == PartialSums::kPromoted128) {
    return WhyNot(*FindAccumulation(kPromotedCore), k.a, k.b);
  }
  return WhyNot(*k.under, k.a, k.b);
}

Matrix<float> RunGemmKernel(const GemmKernel& k) {
  const IeeeArithmetic ieee;
  const std::size_t rows = k.a.rows, cols = k.b.rows;
  const bool held = k.before.size() == rows * cols;
  Expects(held || (!k.adds_before && !k.keeps_rest), "what D held before");
  const Matrix<float> y = Sums(k);
  Matrix<float> d(rows, cols);
  for (std::size_t m = 0; m < rows; ++m) {
    for (std::size_t n = 0; n < cols; ++n) {
      const float before = held ? k.before(m, n) : 0.0f;
      const bool written = m < k.rows_written && n < k.cols_written;
      const float added = k.c.size() > 0 ? k.c(m, n) : 0.0f;
      const float value =
          written ? Finished(y(m, n), k, before, added) : (k.keeps_rest ? before : 0.0f);
      d.values[k.transposed_output ? n * rows + m : m * cols + n] = value;
    }
  }
  return d;
}

bool WrongGemm::Apply(GemmKernel& kernel) const {
  const IeeeArithmetic ieee;
  return reading != nullptr ? ApplyReading(*reading, kernel.a, kernel.b) : change(kernel);
}

std::vector<WrongGemm> WrongGemms() {
  std::vector<WrongGemm> all;
  for (const ScaleReading& r : ScaleReadings()) {
    all.push_back({.name = r.name, .what = r.text, .reading = &r});
  }
  for (const GemmDeviation& d : GemmDeviations()) {
    all.push_back({.name = d.name, .what = d.what, .change = d.apply});
  }
  return all;
}

}  // namespace fp4lab
