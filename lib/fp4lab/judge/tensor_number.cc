#include "fp4lab/judge/tensor_number.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/dialect/blocks.h"

namespace fp4lab {
namespace {

constexpr std::array kStoredConventions = {
    LevelTwoConvention::kAmax, LevelTwoConvention::kMultiplier, LevelTwoConvention::kDivisor};

std::string Decimal(float x) {
  char buffer[40];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, x).ptr};
}
std::string Written(float x) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string text = "0x";
  for (int bit = 28; bit >= 0; bit -= 4)
    text += kDigits[std::bit_cast<std::uint32_t>(x) >> bit & 15];
  return text + " (" + Decimal(x) + ")";
}

bool SameBits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
// How many binary32 numbers apart; far apart where the signs differ or one is NaN.
std::uint32_t Apart(float a, float b) {
  constexpr std::uint32_t kFar = ~0u;
  if (a != a || b != b || std::signbit(a) != std::signbit(b)) return kFar;
  const auto x = std::bit_cast<std::uint32_t>(a), y = std::bit_cast<std::uint32_t>(b);
  return x > y ? x - y : y - x;
}

float RoundedTo(FormatId format, float x) {
  return Decode(format, Encode(format, x, Rounding::kNearestEven, 0, Overflow::kSpecial));
}

// Tries one reading after the other; the first that gives all numbers is kept.
class Reader {
 public:
  explicit Reader(const TensorNumbers& n) : n_(n) {}

  float Number(float amax, LevelTwoConvention convention) const {
    return ConvertLevelTwo(amax, LevelTwoConvention::kAmax, convention, n_.constant);
  }
  float Expected(float amax) const { return Number(amax, n_.convention); }
  // "the multiplier amax / 2688"
  std::string NameOf(LevelTwoConvention convention) const {
    if (convention == LevelTwoConvention::kAmax) return "the amax itself";
    const std::string c = Decimal(n_.constant);
    return convention == LevelTwoConvention::kMultiplier ? "the multiplier amax / " + c
                                                         : "the divisor " + c + " / amax";
  }

  // `of` gives the number that belongs to an amax; up to `ulps` binary32 numbers beside it count.
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
  std::optional<TensorNumberReading> Found() && { return std::move(reading_); }

 private:
  const TensorNumbers& n_;
  std::optional<TensorNumberReading> reading_;
};

// The right amax in another convention, or upside down. ulps: also with other roundings.
void TryConventions(Reader& r, std::uint32_t ulps) {
  const LevelTwoConvention asked = r.numbers().convention;
  const std::string within =
      ulps == 0 ? "" : " up to " + std::to_string(ulps) + " units in the last place";
  for (const LevelTwoConvention convention : kStoredConventions) {
    if (convention == asked) continue;
    r.Try(
        Name(convention), r.NameOf(convention) + within,
        "pass --level-two-is " + std::string(Name(convention)) +
            " where the consumer reads it so; else store " + r.NameOf(asked),
        [&](float amax) { return r.Number(amax, convention); }, ulps);
  }
  r.Try(
      "reciprocal", "the reciprocal of the number that is asked for" + within,
      "store " + r.NameOf(asked), [&](float amax) { return 1.0f / r.Expected(amax); }, ulps);
}

// The asked quotient from operations that round more than once.
void TryOtherRoundings(Reader& r) {
  const TensorNumbers& n = r.numbers();
  const float c = n.constant, q = n.largest_element, s = c / q;
  const std::string C = Decimal(c), Q = Decimal(q), S = Decimal(s);
  const auto with = [&](const std::string& formula, auto of) {
    r.Try("other-roundings", formula + ", the same number but for its roundings",
          "store the quotient of one division: " + r.NameOf(n.convention), of);
  };
  if (n.convention == LevelTwoConvention::kMultiplier) {
    with("amax * fl(1 / " + C + ")", [&](float a) { return a * (1.0f / c); });
    with("fl(amax / " + S + ") / " + Q, [&](float a) { return a / s / q; });
    with("fl(amax / " + Q + ") / " + S, [&](float a) { return a / q / s; });
    with("1 / fl(" + C + " / amax)", [&](float a) { return 1.0f / (c / a); });
  } else if (n.convention == LevelTwoConvention::kDivisor) {
    with(C + " * fl(1 / amax)", [&](float a) { return c * (1.0f / a); });
    with("fl(" + S + " / amax) * " + Q, [&](float a) { return s / a * q; });
    with("fl(" + Q + " / amax) * " + S, [&](float a) { return q / a * s; });
    with("1 / fl(amax / " + C + ")", [&](float a) { return 1.0f / (a / c); });
  }
  const bool is_amax = n.convention == LevelTwoConvention::kAmax;
  r.Try(
      "one-ulp",
      is_amax ? "one unit in the last place off"
              : "one unit in the last place off, as from a division that does not round right",
      is_amax ? "store the magnitude of the largest element as it is: nothing is to be rounded"
              : "divide exactly (nvcc: no -use_fast_math, -prec-div=true): store " +
                    r.NameOf(n.convention) + " from one division",
      [&](float a) { return r.Expected(a); }, 1);
}

// A 16-bit number on the way.
void TryRounded(Reader& r) {
  for (const auto& [format, kind] : {std::pair{FormatId::kBF16, std::string("bf16")},
                                     std::pair{FormatId::kFP16, std::string("fp16")}}) {
    const std::string remedy = "keep the amax and the number of level 2 in float32";
    for (const LevelTwoConvention convention : kStoredConventions) {
      r.Try(kind, r.NameOf(convention) + ", rounded to " + std::string(Named(format).name), remedy,
            [&, f = format](float a) { return RoundedTo(f, r.Number(a, convention)); });
      r.Try(kind,
            r.NameOf(convention) + " of an amax rounded to " + std::string(Named(format).name),
            remedy, [&, f = format](float a) { return r.Number(RoundedTo(f, a), convention); });
    }
  }
}

// Quotients with another constant than C.
void TryOtherConstants(Reader& r) {
  const TensorNumbers& n = r.numbers();
  const float q = n.largest_element, s = n.constant / q;
  for (const float c : {q, s, 256.0f * q, 448.0f * q, 1.0f}) {
    if (c == n.constant) continue;
    const std::string text = Decimal(c);
    const std::string remedy = "the constant is " + Decimal(n.constant) +
                               " here (largest block scale * largest element): store " +
                               r.NameOf(n.convention);
    r.Try(
        "other-constant", "amax / " + text, remedy, [c](float a) { return a / c; }, 1);
    r.Try(
        "other-constant", text + " / amax", remedy, [c](float a) { return c / a; }, 1);
  }
}

void TryOtherAmaxes(Reader& r, std::span<const OtherAmax> others) {
  if (r.numbers().amax.size() != 1) return;
  for (const OtherAmax& other : others) {
    for (const LevelTwoConvention convention : kStoredConventions) {
      r.Try("other-amax",
            convention == LevelTwoConvention::kAmax ? other.what
                                                    : r.NameOf(convention) + " of " + other.what,
            "store the number that the scales and codes were made with: that of the whole tensor "
            "as it is quantized",
            [&](float) { return r.Number(other.amax, convention); });
    }
  }
}

void TryConstants(Reader& r) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::string remedy = "look at whether the kernel writes " +
                             r.NameOf(r.numbers().convention) + " at all, and to which place";
  r.Try("constant", "0, as memory that nothing was written to", remedy, [](float) { return 0.0f; });
  r.Try("constant", "1, as of a tensor without a tensor scale", remedy, [](float) { return 1.0f; });
  r.Try("constant", "infinite", remedy, [&](float) { return infinity; });
}

void KeepUnknown(Reader& r) {
  const TensorNumbers& n = r.numbers();
  std::string looks = "not a number of this amax under any convention";
  if (n.got.size() == 1 && n.got[0] > 0.0f && std::isfinite(n.got[0])) {
    const float amax = n.amax[0], got = n.got[0];
    const LevelTwoConvention c = NearestConvention(amax, got, n.constant);
    looks += c == LevelTwoConvention::kAmax ? "; it would belong"
                                            : "; as " + r.NameOf(c) + " it would belong";
    looks += " to an amax of " +
             Decimal(ConvertLevelTwo(got, c, LevelTwoConvention::kAmax, n.constant)) +
             ", the right one is " + Decimal(amax);
  }
  r.Keep("unknown", looks,
         "look at which amax the kernel stores: it is not the one that scales and codes were made "
         "with");
}

}  // namespace

std::vector<OtherAmax> PartialAmaxes(MatrixView<const float> x, int block_cols) {
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

LevelTwoConvention NearestConvention(float amax, float got, float constant) {
  LevelTwoConvention nearest = LevelTwoConvention::kAmax;
  const auto apart = [&](LevelTwoConvention to) {
    const float number = ConvertLevelTwo(amax, LevelTwoConvention::kAmax, to, constant);
    return std::abs(std::log(double{got} / double{number}));
  };
  for (const LevelTwoConvention c : kStoredConventions) {
    if (apart(c) < apart(nearest)) nearest = c;
  }
  return nearest;
}

OtherAmax AmaxBeforeTransform(MatrixView<const float> input) {
  return {"the amax of the input before the transform", MaxMagnitudeOf(input, false)};
}

std::optional<TensorNumberReading> ReadTensorNumber(const TensorNumbers& n,
                                                    std::span<const OtherAmax> others) {
  Expects(n.convention != LevelTwoConvention::kNone, "a convention that stores a number");
  Reader r(n);
  if (n.got.size() != n.amax.size()) {
    return TensorNumberReading{
        .kind = "count",
        .looks = "a list of " + std::to_string(n.got.size()) + " where " +
                 std::to_string(n.amax.size()) + " are asked for",
        .remedy = "store one number for the tensor, or one a row, as the dialect has them"};
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

std::string Text(const TensorNumberReading& r) {
  if (r.kind == "count") return "it is " + r.looks;
  return "expected " + Written(r.expected) + ", got " + Written(r.got) + ": it is " + r.looks;
}

Json ToJson(const TensorNumberReading& r) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  return {{"index", r.index},
          {"kind", r.kind},
          {"looks", r.looks},
          {"remedy", r.remedy},
          {"expected", bits(r.expected)},
          {"got", bits(r.got)}};
}

}  // namespace fp4lab
