#include "fp4lab/tensor/tensor_core.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/tensor/mma/mma_number.h"

namespace fp4lab {
namespace {

constexpr Format kFp32 = {32, 8, 23, 127, Specials::kInfAndNan, true};

// One term of a step: value = integer * 2^unit; `exponent` is what it contributes to E.
struct Term {
  std::int64_t integer = 0;
  int unit = 0;
  int exponent = kNoExponent;
  bool counts = false;  // whether `exponent` takes part in the maximum
};

// The special values among the terms of a sum, and the result that they force.
struct Specials3 {
  bool nan = false, plus = false, minus = false;
  void Add(int infinity) {
    plus |= infinity > 0;
    minus |= infinity < 0;
  }
  bool Any() const { return nan || plus || minus; }
  bool IsNan() const { return nan || (plus && minus); }
};

std::int64_t ShiftTowardZero(std::int64_t integer, int left) {
  const std::uint64_t magnitude = static_cast<std::uint64_t>(integer < 0 ? -integer : integer);
  std::uint64_t shifted = 0;
  if (left >= 0) {
    Expects(magnitude == 0 || left + std::bit_width(magnitude) <= 62, "a step fits 64 bits");
    shifted = magnitude == 0 ? 0 : magnitude << left;
  } else if (left > -64) {
    shifted = magnitude >> -left;
  }
  const auto result = static_cast<std::int64_t>(shifted);
  return integer < 0 ? -result : result;
}

// The binary32 code of T * 2^q, its magnitude cut to `fraction_bits` + 1 significant bits (and to
// the subnormal grid of binary32).
std::uint32_t Truncate32(std::int64_t t, int q, int fraction_bits) {
  const std::uint64_t magnitude = static_cast<std::uint64_t>(t < 0 ? -t : t);
  if (magnitude == 0) return 0;
  const std::uint32_t sign = t < 0 ? 0x80000000u : 0u;
  const int exponent = std::bit_width(magnitude) - 1 + q;
  if (exponent > 127) return sign | 0x7F800000u;
  const int unit = std::max(exponent, -126) - fraction_bits;
  const int right = unit - q;
  const std::uint64_t kept = right >= 64  ? 0
                             : right >= 0 ? magnitude >> right
                                          : magnitude << -right;
  if (kept == 0) return 0;
  // kept < 2^(fraction_bits + 1); a normal number's leading bit falls into the exponent field.
  const std::uint64_t significand = kept << (23 - fraction_bits);
  const auto field = static_cast<std::uint64_t>(std::max(exponent, -126) + 126);
  return sign | static_cast<std::uint32_t>((field << 23) + significand);
}

// The binary16 code of T * 2^q: RNE, subnormals kept, overflow to Inf.
std::uint32_t Nearest16(std::int64_t t, int q) {
  const std::uint64_t magnitude = static_cast<std::uint64_t>(t < 0 ? -t : t);
  if (magnitude == 0) return 0;
  const std::uint32_t sign = t < 0 ? 0x8000u : 0u;
  const int exponent = std::bit_width(magnitude) - 1 + q;
  if (exponent > 15) return sign | 0x7C00u;
  const int base = std::max(exponent, -14);
  const int right = base - 10 - q;
  std::uint64_t kept = 0;
  if (right <= 0) {
    kept = magnitude << -right;
  } else if (right < 64) {
    kept = magnitude >> right;
    const std::uint64_t lost = magnitude & ((std::uint64_t{1} << right) - 1);
    const std::uint64_t half = std::uint64_t{1} << (right - 1);
    if (lost > half || (lost == half && (kept & 1) != 0)) ++kept;
  }
  if (kept == 0) return 0;  // without the sign: observed on an H200, for mma.sync and wgmma
  // A carry out of the significand moves into the exponent, and on to Inf.
  const std::uint64_t code = (static_cast<std::uint64_t>(base + 14) << 10) + kept;
  return sign | static_cast<std::uint32_t>(std::min<std::uint64_t>(code, 0x7C00u));
}

std::uint32_t Round(MmaOutput output, std::int64_t t, int q) {
  switch (output) {
    case MmaOutput::kTruncate32:
      return Truncate32(t, q, 23);
    case MmaOutput::kTruncate32E8M13:
      return Truncate32(t, q, 13);
    case MmaOutput::kNearest16:
      return Nearest16(t, q);
  }
  return 0;
}

std::uint32_t SpecialResult(MmaOutput output, const Specials3& specials) {
  const bool narrow = output == MmaOutput::kNearest16;
  if (specials.IsNan()) return narrow ? 0x7FFFu : 0x7FFFFFFFu;
  const std::uint32_t infinity = narrow ? 0x7C00u : 0x7F800000u;
  return specials.minus ? infinity | (narrow ? 0x8000u : 0x80000000u) : infinity;
}

Format AccumulatorFormat(MmaOutput output) {
  return output == MmaOutput::kNearest16 ? FormatOf(FormatId::kFP16) : kFp32;
}

// The fused step over terms that are already products; c is a code of the accumulator's format.
std::uint32_t Step(const TensorCoreModel& model, std::span<const Term> terms, Specials3 specials,
                   std::uint32_t c_code) {
  const MmaNumber c = ReadMmaNumber(AccumulatorFormat(model.output), c_code);
  specials.nan |= c.is_nan;
  specials.Add(c.infinity);
  if (specials.Any()) return SpecialResult(model.output, specials);
  int e = c.significand != 0 ? c.raw : kNoExponent;
  for (const Term& term : terms) {
    if (term.counts) e = std::max(e, term.exponent);
  }
  if (e == kNoExponent) return 0;
  e = std::max(e, model.floor);
  const int q = e - model.fraction_bits;
  std::int64_t t = ShiftTowardZero(c.significand, c.raw - c.fraction_bits - q);
  for (const Term& term : terms) t += ShiftTowardZero(term.integer, term.unit - q);
  return Round(model.output, t, q);
}

Term Product(const MmaNumber& a, const MmaNumber& b, int scale_exponent, Specials3* specials) {
  const bool infinite = a.infinity != 0 || b.infinity != 0;
  if (a.is_nan || b.is_nan || (infinite && (a.significand == 0 || b.significand == 0))) {
    specials->nan = true;
    return {};
  }
  if (infinite) {
    specials->Add((a.significand < 0) != (b.significand < 0) ? -1 : 1);
    return {};
  }
  const int exponent = a.raw + b.raw + scale_exponent;
  const std::int64_t product = a.significand * b.significand;
  return {product, exponent - a.fraction_bits - b.fraction_bits, exponent, product != 0};
}

std::uint32_t Chain(const TensorCoreModel& model, std::span<const MmaNumber> a,
                    std::span<const MmaNumber> b, std::uint32_t c, const MmaScales* scales) {
  const std::size_t step = static_cast<std::size_t>(model.products);
  std::vector<Term> terms;
  for (std::size_t begin = 0; begin < a.size(); begin += step) {
    Specials3 specials;
    terms.clear();
    for (std::size_t k = begin; k < std::min(begin + step, a.size()); ++k) {
      int scale_exponent = 0;
      if (scales != nullptr) {
        const std::size_t group = k / static_cast<std::size_t>(scales->group);
        const MmaNumber sa = ReadMmaNumber(scales->format, scales->a[group]);
        const MmaNumber sb = ReadMmaNumber(scales->format, scales->b[group]);
        specials.nan |= sa.is_nan || sb.is_nan;
        scale_exponent = sa.raw + sb.raw;
      }
      terms.push_back(Product(a[k], b[k], scale_exponent, &specials));
    }
    c = Step(model, terms, specials, c);
  }
  return c;
}

// IEEE 754 addition in the accumulator's format: the last step of the emulated FP8 instruction.
std::uint32_t AddNearest(MmaOutput output, std::uint32_t x, std::uint32_t y) {
  if (output == MmaOutput::kNearest16) {
    const Format& half = FormatOf(FormatId::kFP16);
    // The binary32 sum of two binary16 numbers is exact or far from a tie of binary16.
    const float sum = Decode(half, x) + Decode(half, y);
    return Encode(half, sum, Rounding::kNearestEven, 0, Overflow::kSpecial);
  }
  const float sum = std::bit_cast<float>(x) + std::bit_cast<float>(y);
  return sum != sum ? 0x7FFFFFFFu : std::bit_cast<std::uint32_t>(sum);
}

// One instruction of kFp8InFp16, of at most 32 elements.
std::uint32_t Fp8InFp16Instruction(const TensorCoreModel& model, const Format& a_format,
                                   std::span<const std::uint32_t> a, const Format& b_format,
                                   std::span<const std::uint32_t> b, std::uint32_t c) {
  const Format& half = FormatOf(FormatId::kFP16);
  const auto widen = [&half](const Format& f, std::uint32_t code) {
    return ReadMmaNumber(
        half, Encode(half, Decode(f, code), Rounding::kNearestEven, 0, Overflow::kSpecial));
  };
  std::uint32_t sum = 0;
  for (std::size_t half_index = 0; half_index < 2; ++half_index) {
    std::vector<MmaNumber> x, y;
    for (std::size_t k = 0; k < a.size(); ++k) {
      if ((k % 4) / 2 != half_index) continue;
      x.push_back(widen(a_format, a[k]));
      y.push_back(widen(b_format, b[k]));
    }
    sum = Chain(model, x, y, sum, nullptr);
  }
  return AddNearest(model.output, sum, c);
}

std::uint32_t Fp8InFp16(const TensorCoreModel& model, const Format& a_format,
                        std::span<const std::uint32_t> a, const Format& b_format,
                        std::span<const std::uint32_t> b, std::uint32_t c) {
  for (std::size_t k = 0; k < a.size(); k += kFp8InFp16Depth) {
    const std::size_t depth = std::min(kFp8InFp16Depth, a.size() - k);
    c = Fp8InFp16Instruction(model, a_format, a.subspan(k, depth), b_format, b.subspan(k, depth),
                             c);
  }
  return c;
}

// mxf4 and mxf4nvf4: groups of 16 products are summed exactly; a group's exponent is that of its
// scales alone.
std::uint32_t ScaledGroups(const TensorCoreModel& model, std::span<const MmaNumber> a,
                           std::span<const MmaNumber> b, std::uint32_t c, const MmaScales& scales,
                           const OpenChoices& open) {
  constexpr std::size_t kGroup = 16;
  const std::size_t step = static_cast<std::size_t>(model.products);
  for (std::size_t begin = 0; begin < a.size(); begin += step) {
    Specials3 specials;
    std::vector<Term> terms;
    const std::size_t end = std::min(begin + step, a.size());
    for (std::size_t g = begin; g < end; g += kGroup) {
      const std::size_t index = g / static_cast<std::size_t>(scales.group);
      const MmaNumber sa = ReadMmaNumber(scales.format, scales.a[index]);
      const MmaNumber sb = ReadMmaNumber(scales.format, scales.b[index]);
      specials.nan |= sa.is_nan || sb.is_nan;
      std::int64_t dot = 0;  // in units of 2^-2, E2M1 having one fraction bit
      bool live = false;
      for (std::size_t k = g; k < std::min(g + kGroup, end); ++k) {
        const Term product = Product(a[k], b[k], 0, &specials);
        dot += ShiftTowardZero(product.integer, product.unit + 2);
        live |= product.counts;
      }
      const std::int64_t scale = (sa.significand < 0 ? -sa.significand : sa.significand) *
                                 (sb.significand < 0 ? -sb.significand : sb.significand);
      const int exponent = sa.raw + sb.raw;
      const bool counts = (live || open.zero_group_counts) && scale != 0 &&
                          (dot != 0 || open.cancelled_group_counts || !live);
      terms.push_back(
          {dot * scale, exponent - 2 - sa.fraction_bits - sb.fraction_bits, exponent, counts});
    }
    c = Step(model, terms, specials, c);
  }
  return c;
}

std::vector<MmaNumber> ReadAll(const Format& format, std::span<const std::uint32_t> codes) {
  std::vector<MmaNumber> numbers;
  numbers.reserve(codes.size());
  for (const std::uint32_t code : codes) numbers.push_back(ReadMmaNumber(format, code));
  return numbers;
}

}  // namespace

std::uint32_t TensorCoreDot(const TensorCoreModel& model, const Format& a_format,
                            std::span<const std::uint32_t> a, const Format& b_format,
                            std::span<const std::uint32_t> b, std::uint32_t c,
                            const MmaScales& scales, const OpenChoices& open) {
  const IeeeArithmetic ieee;
  Expects(a.size() == b.size(), "a and b have K elements each");
  const bool scaled =
      model.scheme == MmaScheme::kScaledChain || model.scheme == MmaScheme::kScaledGroups;
  if (scaled) {
    const std::size_t group = static_cast<std::size_t>(scales.group);
    const std::size_t needed = DivideUp(a.size(), group);
    Expects(scales.a.size() >= needed && scales.b.size() >= needed, "a scale for every group");
  }
  switch (model.scheme) {
    case MmaScheme::kChain:
      return Chain(model, ReadAll(a_format, a), ReadAll(b_format, b), c, nullptr);
    case MmaScheme::kFp8InFp16:
      return Fp8InFp16(model, a_format, a, b_format, b, c);
    case MmaScheme::kScaledChain:
      return Chain(model, ReadAll(a_format, a), ReadAll(b_format, b), c, &scales);
    case MmaScheme::kScaledGroups:
      return ScaledGroups(model, ReadAll(a_format, a), ReadAll(b_format, b), c, scales, open);
  }
  return 0;
}

}  // namespace fp4lab
