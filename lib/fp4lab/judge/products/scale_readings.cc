#include "fp4lab/judge/products/scale_readings.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

bool IsE8M0(const MmaOperand& x) {
  return x.IsScaled() && x.scale_format == FormatOf(FormatId::kE8M0);
}
bool IsE4M3(const MmaOperand& x) {
  return x.IsScaled() && (x.scale_format == FormatOf(FormatId::kE4M3) ||
                          x.scale_format == FormatOf(FormatId::kUE4M3));
}

// Replaces scale bytes; the sign of an E4M3 scale is ignored.
bool Replace(MmaOperand& x, std::uint8_t from, std::uint8_t to) {
  bool changed = false;
  const auto mask = static_cast<std::uint8_t>(IsE8M0(x) ? 0xFF : 0x7F);
  for (std::uint8_t& scale : x.scales) {
    if ((scale & mask) != from) continue;
    scale = to;
    changed = true;
  }
  return changed;
}

// Makes the elements under a scale byte 0.
bool ZeroUnder(MmaOperand& x, std::uint8_t byte) {
  bool changed = false;
  const auto mask = static_cast<std::uint8_t>(IsE8M0(x) ? 0xFF : 0x7F);
  const std::size_t blocks = x.ScaleCols(), group = static_cast<std::size_t>(x.group);
  for (std::size_t i = 0; i < x.scales.size(); ++i) {
    if ((x.scales[i] & mask) != byte) continue;
    const std::size_t row = i / blocks, first = i % blocks * group;
    const std::size_t end = std::min(first + group, x.cols);
    std::fill(x.codes.begin() + static_cast<std::ptrdiff_t>(row * x.cols + first),
              x.codes.begin() + static_cast<std::ptrdiff_t>(row * x.cols + end), 0u);
    x.scales[i] = IsE8M0(x) ? 127 : 0x38;  // 1
    changed = true;
  }
  return changed;
}

// Reads the bytes in another format; codes and bytes stay.
bool ReadAs(MmaOperand& x, bool applies, FormatId format) {
  if (applies) x.scale_format = FormatOf(format);
  return applies;
}

// The elements under a scale byte with its upper bit set change their sign.
bool SignsUsed(MmaOperand& x) {
  bool changed = false;
  if (!IsE4M3(x)) return false;
  const std::size_t group = static_cast<std::size_t>(x.group);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      if ((x.ScaleRow(r)[c / group] & 0x80) == 0) continue;
      x.codes[r * x.cols + c] ^= SignBit(x.format);
      changed = true;
    }
  }
  return changed;
}

constexpr ScaleReading kRows[] = {
    {"0x7f-as-448", "reads the scale byte 0x7F as 448, not as NaN",
     [](MmaOperand& x) { return IsE4M3(x) && Replace(x, 0x7F, 0x7E); }},
    {"0x7f-as-480", "reads the scale byte 0x7F as 480, not as NaN",
     [](MmaOperand& x) {
       const bool has = IsE4M3(x) && std::any_of(x.scales.begin(), x.scales.end(),
                                                 [](auto s) { return (s & 0x7F) == 0x7F; });
       if (has) x.scale_format.specials = Specials::kNone;
       return has;
     }},
    {"0x7f-as-0", "reads the scale byte 0x7F as 0, not as NaN",
     [](MmaOperand& x) { return IsE4M3(x) && ZeroUnder(x, 0x7F); }},
    {"e8m0-0x00-as-0", "reads the E8M0 scale byte 0x00 as 0, not as 2^-127",
     [](MmaOperand& x) { return IsE8M0(x) && ZeroUnder(x, 0x00); }},
    {"e8m0-0x00-as-2^-126", "reads the E8M0 scale byte 0x00 as 2^-126, not as 2^-127",
     [](MmaOperand& x) { return IsE8M0(x) && Replace(x, 0x00, 0x01); }},
    {"e8m0-0xff-as-0", "reads the E8M0 scale byte 0xFF as 0, not as NaN",
     [](MmaOperand& x) { return IsE8M0(x) && ZeroUnder(x, 0xFF); }},
    {"e8m0-0xff-as-2^127", "reads the E8M0 scale byte 0xFF as 2^127, not as NaN",
     [](MmaOperand& x) { return IsE8M0(x) && Replace(x, 0xFF, 0xFE); }},
    {"subnormal-scales-as-0", "reads subnormal E4M3 scales as 0",
     [](MmaOperand& x) {
       bool changed = false;
       for (std::uint8_t byte = 1; IsE4M3(x) && byte < 8; ++byte) changed |= ZeroUnder(x, byte);
       return changed;
     }},
    {"e4m3-scales-as-e5m2", "reads E4M3 scale bytes as E5M2",
     [](MmaOperand& x) { return ReadAs(x, IsE4M3(x), FormatId::kE5M2); }},
    {"e4m3-scales-as-e8m0", "reads E4M3 scale bytes as E8M0",
     [](MmaOperand& x) { return ReadAs(x, IsE4M3(x), FormatId::kE8M0); }},
    {"e8m0-scales-as-e4m3", "reads E8M0 scale bytes as E4M3",
     [](MmaOperand& x) { return ReadAs(x, IsE8M0(x), FormatId::kE4M3); }},
    {"scale-signs-used", "takes the upper bit of an E4M3 scale byte as a sign", SignsUsed},
    {"scales-ignored", "does not multiply by the block scales", IgnoreScales},
};

constexpr std::size_t kMostElements = 4096;

MmaOperand RowOf(const MmaOperand& x, std::size_t row) {
  MmaOperand one = x;
  one.rows = 1;
  const auto codes = x.Row(row);
  one.codes.assign(codes.begin(), codes.end());
  if (x.IsScaled()) {
    const auto scales = x.ScaleRow(row);
    one.scales.assign(scales.begin(), scales.end());
  }
  return one;
}

// The judgement of element (row, col) under a reading, or as the bytes say (nullptr).
GemmJudgement JudgeElement(const GemmClaim& claim, const Accumulation& under, std::size_t row,
                           std::size_t col, const ScaleReading* reading) {
  MmaOperand a = RowOf(claim.a, row), b = RowOf(claim.b, col);
  if (reading != nullptr) {
    ApplyReading(*reading, a, b);
    if (!WhyNot(under, a, b).empty()) return {.outside = 1};
  }
  return JudgeGemm({.a = a,
                    .b = b,
                    .d = claim.d.Block(row, col, 1, 1),
                    .alpha = claim.alpha,
                    .output = claim.output,
                    .c = claim.HasC() ? claim.c.Block(row, col, 1, 1) : MatrixView<const float>{},
                    .beta = claim.beta},
                   under);
}

// The readings that explain elements outside of the bound, if they explain all of them.
std::vector<ReadingMatch> ExplainElements(const GemmClaim& claim, const Accumulation& under) {
  std::vector<ReadingMatch> matches;
  if (claim.d.size() > kMostElements) return matches;
  for (std::size_t row = 0; row < claim.d.rows; ++row) {
    for (std::size_t col = 0; col < claim.d.cols; ++col) {
      if (JudgeElement(claim, under, row, col, nullptr).outside == 0) continue;
      // A NaN or an infinity of the device is no evidence for one way to make it.
      if (!std::isfinite(claim.d(row, col))) return {};
      const auto found =
          std::find_if(std::begin(kRows), std::end(kRows), [&](const ScaleReading& r) {
            return JudgeElement(claim, under, row, col, &r).outside == 0;
          });
      if (found == std::end(kRows)) return {};
      const auto match = std::find_if(matches.begin(), matches.end(),
                                      [&](const ReadingMatch& m) { return m.reading == found; });
      if (match == matches.end()) {
        matches.push_back({found, GemmVerdict::kInside, 1, 1});
      } else {
        ++match->elements, ++match->different;
      }
    }
  }
  return matches;
}

}  // namespace

bool IgnoreScales(MmaOperand& x) {
  if (!x.IsScaled()) return false;
  const auto one = static_cast<std::uint8_t>(Encode(x.scale_format, 1.0f));
  const bool changed =
      std::any_of(x.scales.begin(), x.scales.end(), [&](std::uint8_t byte) { return byte != one; });
  std::fill(x.scales.begin(), x.scales.end(), one);
  return changed;
}

std::span<const ScaleReading> ScaleReadings() { return kRows; }

bool ApplyReading(const ScaleReading& reading, MmaOperand& a, MmaOperand& b) {
  const bool alike = a.scale_format == b.scale_format;
  const bool in_a = reading.apply(a), in_b = reading.apply(b);
  if (alike && in_a && !in_b) b.scale_format = a.scale_format;
  if (alike && in_b && !in_a) a.scale_format = b.scale_format;
  return in_a || in_b;
}

std::vector<ReadingMatch> FindScaleReadings(const GemmClaim& claim, const Accumulation& under) {
  const IeeeArithmetic ieee;
  std::vector<ReadingMatch> matches;
  for (const ScaleReading& row : kRows) {
    MmaOperand a = claim.a, b = claim.b;
    if (!ApplyReading(row, a, b) || !WhyNot(under, a, b).empty()) continue;
    const GemmClaim other{.a = a,
                          .b = b,
                          .d = claim.d,
                          .alpha = claim.alpha,
                          .output = claim.output,
                          .c = claim.c,
                          .beta = claim.beta};
    const GemmJudgement judgement = JudgeGemm(other, under);
    if (judgement.outside > 0) continue;
    matches.push_back({&row, judgement.verdict, judgement.different});
  }
  return matches.empty() ? ExplainElements(claim, under) : matches;
}

}  // namespace fp4lab
