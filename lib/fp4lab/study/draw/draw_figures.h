// The functions behind the rows of Drawings(), and the two ways in which they set text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/study/report/figures/svg.h"

namespace fp4lab::study {

std::string DrawNumberLines(const std::vector<std::string>& formats);
std::string DrawBlocks(const std::vector<std::string>& dialects);
std::string DrawScaleOrder(const std::vector<std::string>& order);
std::string DrawDataflow(const std::vector<std::string>& recipe);
std::string DrawHadamard(const std::vector<std::string>& size);
std::string DrawRounding(const std::vector<std::string>& format);
std::string DrawTokenForms(const std::vector<std::string>& results);

inline constexpr double kDrawingWidth = 760;  // px, as the figures of a report
inline constexpr double kWider = 1.25;  // of fonts that stand in for Helvetica, bold ones above all
inline constexpr double kDrawingInset = 18;  // left and right margins, px

// The title of a drawing at its upper left.
inline void DrawTitle(Svg* svg, std::string_view title) {
  svg->Text({kDrawingInset, 26}, title, "t title");
}

// An arrow from a to b, with a head of 5 px at b. a and b differ in one coordinate only.
inline void DrawArrow(Svg* svg, Dot a, Dot b, const std::string& series) {
  constexpr double kHead = 5;
  svg->Line(a, b, "thin " + series);
  const double dx = b.x > a.x ? -kHead : b.x < a.x ? kHead : 0;
  const double dy = b.y > a.y ? -kHead : b.y < a.y ? kHead : 0;
  svg->Polyline(
      {{b.x + dx + 0.6 * dy, b.y + dy + 0.6 * dx}, b, {b.x + dx - 0.6 * dy, b.y + dy - 0.6 * dx}},
      "thin " + series);
}

}  // namespace fp4lab::study
