// An SVG drawing: shapes and text with the classes of one built-in style, readable on light and on
// dark backgrounds, with no scripts, no fonts and no links of its own.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fp4lab::study {

// Width in px of text in the style's sans-serif font, from Helvetica's advance widths.
double TextWidth(std::string_view text, double size);

struct Dot {
  double x = 0, y = 0;
};

enum class Anchor { kStart, kMiddle, kEnd };

class Svg {
 public:
  // `title` and `description` are for screen readers and tooltips.
  Svg(double width, double height, std::string_view title, std::string_view description);

  // `style` is a list of classes:
  //   s0 ... s7       colour of a series (s0 is the reference, neutral)
  //   line, thin, faint, dash   strokes;   fill, hollow, soft   areas and markers
  //   grid, axis, zero, stripe  parts of a frame
  //   t, small, strong, muted   text
  void Line(Dot a, Dot b, std::string_view style);
  void Polyline(const std::vector<Dot>& points, std::string_view style);
  void Rect(double x, double y, double width, double height, std::string_view style);
  void Text(Dot at, std::string_view text, std::string_view style, Anchor anchor = Anchor::kStart,
            double degrees = 0);
  // Draws a circle, square, diamond or triangle, by shape % 4. Series differ in shape too, so that
  // colour is never the only sign.
  void Marker(Dot at, std::size_t shape, double radius, std::string_view style);

  // The drawing as an SVG document. `standalone` adds a background; without it the left margin of
  // the title is cut off, so that the drawing aligns with the text of a page.
  std::string Document(bool standalone) const;

 private:
  double width_, height_;
  std::string title_, description_, body_;
};

}  // namespace fp4lab::study
