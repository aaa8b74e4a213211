// The drawing of number formats: a mark for each magnitude.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/study/draw/draw_figures.h"

namespace fp4lab::study {
namespace {

constexpr double kLineHeight = 84, kLineTop = 50, kTick = 9;
constexpr int kMostBits = 8;
constexpr float kMostLinear = 32.0f;  // formats that end above it have a logarithmic axis

const NamedFormat& FormatToDraw(const std::string& name) {
  const std::optional<FormatId> id = FindFormat(name);
  if (!id) {
    std::vector<std::string> known;
    for (const NamedFormat& f : kFormats) known.emplace_back(f.short_name);
    throw Error("draw number-line " + Printable(name),
                "is not a format; " + DidYouMean(name, known, "`fp4lab formats` lists them"));
  }
  const NamedFormat& named = Named(*id);
  if (named.format.bits > kMostBits) {
    throw Error("draw number-line " + name, "has " + std::to_string(named.format.bits) +
                                                " bits; draw formats of at most 8 bits");
  }
  return named;
}

struct Magnitude {
  float value = 0;
  bool subnormal = false;
};

// The finite magnitudes, ascending.
std::vector<Magnitude> MagnitudesOf(const Format& f) {
  std::vector<Magnitude> found;
  const bool has_subnormals = f.specials != Specials::kOnlyOnesNan;
  for (std::uint32_t code = 0; code <= MaxFiniteCode(f); ++code) {
    found.push_back({Decode(f, code), has_subnormals && code >> f.mantissa_bits == 0});
  }
  return found;
}

std::string PowerText(int exponent) { return "2^" + std::to_string(exponent); }

void DrawFormat(Svg* svg, const NamedFormat& named, double top) {
  const std::vector<Magnitude> values = MagnitudesOf(named.format);
  const bool linear = values.back().value <= kMostLinear;
  const float least = values.front().value > 0 ? values.front().value : values[1].value;
  const int low = std::ilogb(least), high = std::ilogb(values.back().value) + 1;
  const double left = kDrawingInset + (linear ? 0 : 22), right = kDrawingWidth - kDrawingInset - 8;
  const double y = top + 40;
  const auto x_of = [&](float value) {
    const double share = linear ? value / values.back().value
                                : (std::log2(static_cast<double>(value)) - low) / (high - low);
    return left + share * (right - left);
  };
  svg->Text({kDrawingInset, top + 14}, named.name, "t strong");
  svg->Text({kDrawingInset + kWider * TextWidth(named.name, 13) + 12, top + 14},
            CountText(values.size(), "magnitude") + (named.format.is_signed ? ", two signs" : "") +
                ", largest " + ShortestText(values.back().value) +
                (linear ? "" : ", logarithmic axis"),
            "t small muted");
  svg->Line({left, y}, {right, y}, "axis");
  double free = -1;  // the right end of the last label
  const auto label = [&](double x, const std::string& text) {
    const double half = kWider * TextWidth(text, 12) / 2;
    if (x - half < free + 5) return;
    svg->Text({x, y + 24}, text, "t small", Anchor::kMiddle);
    free = x + half;
  };
  for (const Magnitude& m : values) {
    if (!linear && m.value == 0) {
      svg->Text({kDrawingInset, y + 4}, "0", "t small");
      continue;
    }
    const std::string colour = m.subnormal ? "s3" : "s1";
    svg->Line({x_of(m.value), y - kTick}, {x_of(m.value), y + kTick}, "thin " + colour);
    if (linear && (values.size() <= 16 || m.value == std::floor(m.value))) {
      label(x_of(m.value), ShortestText(m.value));
    }
  }
  if (linear) return;
  const int step = std::max(1, (high - low) / 12);
  for (int e = low; e <= high; e += step) {
    label(left + static_cast<double>(e - low) / (high - low) * (right - left), PowerText(e));
  }
}

}  // namespace

std::string DrawNumberLines(const std::vector<std::string>& formats) {
  std::vector<const NamedFormat*> rows;
  for (const std::string& name : formats) rows.push_back(&FormatToDraw(name));
  std::vector<std::string> names;
  for (const NamedFormat* row : rows) names.emplace_back(row->name);
  Svg svg(kDrawingWidth, kLineTop + kLineHeight * static_cast<double>(rows.size()) + 8,
          "The magnitudes of " + Joined(names, ", "),
          "A mark per magnitude. Subnormal numbers, zero among them, have another colour.");
  DrawTitle(&svg, "A mark per magnitude");
  svg.Text({kDrawingInset + 230, 26}, "normal", "t strong s1 ink");
  svg.Text({kDrawingInset + 300, 26}, "zero and subnormal", "t strong s3 ink");
  double top = kLineTop;
  for (const NamedFormat* row : rows) {
    DrawFormat(&svg, *row, top);
    top += kLineHeight;
  }
  return svg.Document(true);
}

}  // namespace fp4lab::study
