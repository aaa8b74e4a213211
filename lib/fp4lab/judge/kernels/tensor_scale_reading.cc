#include "fp4lab/judge/kernels/tensor_scale_reading.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

namespace fp4lab {
namespace {

constexpr std::array kStoredConventions = {TensorScaleConvention::kAmax,
                                           TensorScaleConvention::kMultiplier,
                                           TensorScaleConvention::kDivisor};

std::string Written(float x) {
  return HexText(std::bit_cast<std::uint32_t>(x), 8) + " (" + ShortestText(x) + ")";
}

bool SameBits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
// The distance in binary32 numbers; the largest value if the signs differ or one is NaN.
std::uint32_t Apart(float a, float b) {
  constexpr std::uint32_t kFar = ~0u;
  if (a != a || b != b || std::signbit(a) != std::signbit(b)) return kFar;
  const auto x = std::bit_cast<std::uint32_t>(a), y = std::bit_cast<std::uint32_t>(b);
  return x > y ? x - y : y - x;
}

float RoundedTo(FormatId format, float x) {
  return Decode(format, Encode(format, x, Rounding::kNearestEven, 0, Overflow::kSpecial));
}

// Tries one interpretation after the other; the first that explains all numbers is kept.
class Reader {
 public:
  explicit Reader(const TensorNumbers& n) : n_(n) {}

  float Number(float amax, TensorScaleConvention convention) const {
    if (n_.dialect != nullptr) return NumberOfAmax(*n_.dialect, amax, convention);
    return ConvertTensorScale(amax, TensorScaleConvention::kAmax, convention, n_.constant);
  }
  float Expected(float amax) const { return Number(amax, n_.convention); }
  // "the multiplier amax / 2688"
  std::string NameOf(TensorScaleConvention convention) const {
    if (convention == TensorScaleConvention::kAmax) return "the amax itself";
    const std::string c = ShortestText(n_.constant);
    return convention == TensorScaleConvention::kMultiplier ? "the multiplier amax / " + c
                                                            : "the divisor " + c + " / amax";
  }

  // Keeps the interpretation if of(amax) gives all stored numbers, up to `ulps` binary32 numbers
  // off.
  template <class Of>
  void Try(std::string_view kind, std::string_view looks, std::string_view remedy, Of of,
           std::uint32_t ulps = 0) {
    for (std::size_t i = 0; i < n_.got.size(); ++i) {
      const float number = of(n_.amax[i]);
      if (!SameBits(number, n_.got[i]) && Apart(number, n_.got[i]) > ulps) return;
    }
    Keep(kind, looks, remedy);
  }

  void Keep(std::string_view kind, std::string_view looks, std::string_view remedy) {
    if (reading_) return;
    reading_ = {
        .kind = std::string(kind), .looks = std::string(looks), .remedy = std::string(remedy)};
    while (reading_->index + 1 < n_.got.size() &&
           SameBits(Expected(n_.amax[reading_->index]), n_.got[reading_->index])) {
      ++reading_->index;
    }
    reading_->expected = Expected(n_.amax[reading_->index]);
    reading_->got = n_.got[reading_->index];
  }

  const TensorNumbers& numbers() const { return n_; }
  std::optional<TensorScaleReading> Found() && { return std::move(reading_); }

 private:
  const TensorNumbers& n_;
  std::optional<TensorScaleReading> reading_;
};

// Tries the right amax in another convention, or the reciprocal. ulps: tolerance for other
// roundings.
void TryConventions(Reader& r, std::uint32_t ulps) {
  const TensorScaleConvention asked = r.numbers().convention;
  const std::string within =
      ulps == 0 ? "" : " up to " + std::to_string(ulps) + " units in the last place";
  for (const TensorScaleConvention convention : kStoredConventions) {
    if (convention == asked) continue;
    r.Try(
        Name(convention), r.NameOf(convention) + within,
        "pass --tensor-scale-is " + std::string(Name(convention)) +
            " where the consumer reads it so; else store " + r.NameOf(asked),
        [&](float amax) { return r.Number(amax, convention); }, ulps);
  }
  r.Try(
      "reciprocal", "the reciprocal of the number that is asked for" + within,
      "store " + r.NameOf(asked), [&](float amax) { return 1.0f / r.Expected(amax); }, ulps);
}

// Tries the quotient that was asked for, from operations that round more than once.
void TryOtherRoundings(Reader& r) {
  const TensorNumbers& n = r.numbers();
  const float c = n.constant, q = n.largest_element, s = c / q;
  const std::string C = ShortestText(c), Q = ShortestText(q), S = ShortestText(s);
  const auto with = [&](const std::string& formula, auto of) {
    r.Try("other-roundings", formula + ", the same number but for its roundings",
          "store the quotient of one division: " + r.NameOf(n.convention), of);
  };
  if (n.convention == TensorScaleConvention::kMultiplier) {
    with("amax * fl(1 / " + C + ")", [&](float a) { return a * (1.0f / c); });
    with("fl(amax / " + S + ") / " + Q, [&](float a) { return a / s / q; });
    with("fl(amax / " + Q + ") / " + S, [&](float a) { return a / q / s; });
    with("1 / fl(" + C + " / amax)", [&](float a) { return 1.0f / (c / a); });
  } else if (n.convention == TensorScaleConvention::kDivisor) {
    with(C + " * fl(1 / amax)", [&](float a) { return c * (1.0f / a); });
    with("fl(" + S + " / amax) * " + Q, [&](float a) { return s / a * q; });
    with("fl(" + Q + " / amax) * " + S, [&](float a) { return q / a * s; });
    with("1 / fl(amax / " + C + ")", [&](float a) { return 1.0f / (a / c); });
  }
  const bool is_amax = n.convention == TensorScaleConvention::kAmax;
  r.Try(
      "one-ulp",
      is_amax ? "one unit in the last place off"
              : "one unit in the last place off, as from a division that does not round right",
      is_amax ? "store the magnitude of the largest element as it is: nothing is to be rounded"
              : "divide exactly (nvcc: no -use_fast_math, -prec-div=true): store " +
                    r.NameOf(n.convention) + " from one division",
      [&](float a) { return r.Expected(a); }, 1);
}

// Tries an intermediate number rounded to a 16-bit format.
void TryRounded(Reader& r) {
  for (const auto& [format, kind] : {std::pair{FormatId::kBF16, std::string("bf16")},
                                     std::pair{FormatId::kFP16, std::string("fp16")}}) {
    const std::string remedy = "keep the amax and the tensor scale in float32";
    for (const TensorScaleConvention convention : kStoredConventions) {
      r.Try(kind, r.NameOf(convention) + ", rounded to " + std::string(Named(format).name), remedy,
            [&, f = format](float a) { return RoundedTo(f, r.Number(a, convention)); });
      r.Try(kind,
            r.NameOf(convention) + " of an amax rounded to " + std::string(Named(format).name),
            remedy, [&, f = format](float a) { return r.Number(RoundedTo(f, a), convention); });
    }
  }
}

// Tries quotients with another constant than C.
void TryOtherConstants(Reader& r) {
  const TensorNumbers& n = r.numbers();
  const float q = n.largest_element, s = n.constant / q;
  for (const float c : {q, s, 256.0f * q, 448.0f * q, 1.0f}) {
    if (c == n.constant) continue;
    const std::string text = ShortestText(c);
    const std::string remedy = "the constant is " + ShortestText(n.constant) +
                               " here (largest block scale * largest element): store " +
                               r.NameOf(n.convention);
    r.Try(
        "other-constant", "amax / " + text, remedy, [c](float a) { return a / c; }, 1);
    r.Try(
        "other-constant", text + " / amax", remedy, [c](float a) { return c / a; }, 1);
  }
}

// What to do about a number of another amax, by the amax that codes and scales were computed with.
std::string OtherAmaxRemedy(AmaxUsed used) {
  switch (used) {
    case AmaxUsed::kRight:
      return "store the right number: scales and codes were computed with the right amax";
    case AmaxUsed::kStored:
      return "give the kernel this tensor's amax: scales and codes were computed with the stored "
             "number's amax, as a stale amax or another tensor's";
    case AmaxUsed::kNeither:
      return "find out with fp4lab explain which part was computed with which amax: scales and "
             "codes follow neither from the stored number throughout nor from the right one";
    case AmaxUsed::kNotTried:
      break;
  }
  return "check which amax the kernel stores, and which it computes scales and codes with";
}

void TryOtherAmaxes(Reader& r, std::span<const OtherAmax> others) {
  if (r.numbers().amax.size() != 1) return;
  for (const OtherAmax& other : others) {
    for (const TensorScaleConvention convention : kStoredConventions) {
      r.Try("other-amax",
            convention == TensorScaleConvention::kAmax ? other.what
                                                       : r.NameOf(convention) + " of " + other.what,
            OtherAmaxRemedy(r.numbers().used),
            [&](float) { return r.Number(other.amax, convention); });
    }
  }
}

void TryConstants(Reader& r) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string remedy = "check that the kernel writes " + r.NameOf(r.numbers().convention) +
                             ", and to the right place";
  r.Try("constant", "0, as memory that nothing was written to", remedy, [](float) { return 0.0f; });
  r.Try("constant", "1, as of a tensor without a tensor scale", remedy, [](float) { return 1.0f; });
  r.Try("constant", "infinite", remedy, [&](float) { return infinity; });
}

void KeepUnknown(Reader& r) {
  const TensorNumbers& n = r.numbers();
  std::string looks = "not a number of this amax under any convention";
  if (n.got.size() == 1 && n.got[0] > 0.0f && std::isfinite(n.got[0])) {
    const float amax = n.amax[0], got = n.got[0];
    const TensorScaleConvention c = NearestConvention(amax, got, n.constant);
    looks += c == TensorScaleConvention::kAmax ? "; it corresponds"
                                               : "; as " + r.NameOf(c) + " it corresponds";
    looks += " to an amax of " +
             ShortestText(ConvertTensorScale(got, c, TensorScaleConvention::kAmax, n.constant)) +
             ", the right one is " + ShortestText(amax);
  }
  r.Keep("unknown", looks, OtherAmaxRemedy(n.used));
}

}  // namespace

std::vector<OtherAmax> PartialAmaxes(MatrixView<const float> x, int block_cols) {
  const IeeeArithmetic ieee;
  if (x.size() == 0) return {};
  const std::size_t width = std::min(x.cols, static_cast<std::size_t>(std::max(1, block_cols)));
  float largest = 0.0f;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) largest = std::max(largest, x(r, c));
  }
  return {{"the largest element with its sign", largest},
          {"the amax of the first row", MaxMagnitudeOf(x.Block(0, 0, 1, x.cols), false)},
          {"the amax of the first block", MaxMagnitudeOf(x.Block(0, 0, 1, width), false)}};
}

TensorScaleConvention NearestConvention(float amax, float got, float constant) {
  const IeeeArithmetic ieee;
  TensorScaleConvention nearest = TensorScaleConvention::kAmax;
  const auto apart = [&](TensorScaleConvention to) {
    const float number = ConvertTensorScale(amax, TensorScaleConvention::kAmax, to, constant);
    return std::abs(std::log(double{got} / double{number}));
  };
  for (const TensorScaleConvention c : kStoredConventions) {
    if (apart(c) < apart(nearest)) nearest = c;
  }
  return nearest;
}

OtherAmax AmaxBeforeTransform(MatrixView<const float> input) {
  const IeeeArithmetic ieee;
  return {"the amax of the input before the transform", MaxMagnitudeOf(input, false)};
}

std::optional<TensorScaleReading> InterpretTensorScale(const TensorNumbers& n,
                                                       std::span<const OtherAmax> others) {
  const IeeeArithmetic ieee;
  Expects(n.convention != TensorScaleConvention::kNone, "a convention that stores a number");
  Reader r(n);
  if (n.got.size() != n.amax.size()) {
    return TensorScaleReading{
        .kind = "count",
        .looks = "a list of " + CountText(n.got.size(), "number") + ", not of " +
                 std::to_string(n.amax.size()),
        .remedy = "store one number for the tensor, or one per row for a row-scaled dialect"};
  }
  const auto is_right = [&](std::size_t i) { return SameBits(r.Expected(n.amax[i]), n.got[i]); };
  bool equal = true;
  for (std::size_t i = 0; i < n.got.size(); ++i) equal = equal && is_right(i);
  if (equal) return std::nullopt;
  TryConventions(r, 0);
  TryOtherRoundings(r);
  TryConventions(r, 2);
  TryRounded(r);
  TryOtherConstants(r);
  TryOtherAmaxes(r, others);
  TryConstants(r);
  KeepUnknown(r);
  return std::move(r).Found();
}

std::string Text(const TensorScaleReading& r) {
  const IeeeArithmetic ieee;
  if (r.kind == "count") return "it is " + r.looks;
  return "expected " + Written(r.expected) + ", got " + Written(r.got) + ": it is " + r.looks;
}

Json ToJson(const TensorScaleReading& r) {
  const IeeeArithmetic ieee;
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  return {{"index", r.index},
          {"kind", r.kind},
          {"looks", r.looks},
          {"remedy", r.remedy},
          {"expected", bits(r.expected)},
          {"got", bits(r.got)}};
}

}  // namespace fp4lab
