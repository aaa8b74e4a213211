// An SVG drawing: shapes and text with the classes of one built-in style, readable on light and on
// dark backgrounds, with no scripts, no fonts and no links of its own. Groups name the series that
// their shapes belong to, and marks have titles, which browsers show as tooltips.
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

// The rules of the classes below: the colours on a light background with all that is no colour, and
// the colours on a dark one.
std::string FigureStyle(bool dark);

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
  // A polyline named `title` whose corner i stands for the text values[i], without '|'. The texts
  // are only in the document for a page, whose script shows them.
  void Curve(const std::vector<Dot>& points, std::string_view style, std::string_view title,
             const std::vector<std::string>& values);
  void Rect(double x, double y, double width, double height, std::string_view style);
  void Text(Dot at, std::string_view text, std::string_view style, Anchor anchor = Anchor::kStart,
            double degrees = 0);
  // Draws a circle, square, diamond or triangle, by shape % 4. Series differ in shape too, so that
  // colour is never the only sign. `title` says what the mark stands for; empty: nothing.
  void Marker(Dot at, std::size_t shape, double radius, std::string_view style,
              std::string_view title = {});

  // Begins a group that lasts until End(). A series is all marks and lines of the data named
  // `name`; its key is its name in a legend or at the end of a line. A titled group is a mark made
  // of several shapes.
  void BeginSeries(std::string_view name) { Begin("series", name); }
  void BeginKey(std::string_view name) { Begin("key", name); }
  void BeginTitled(std::string_view title);
  void End() { Add("</g>\n"); }

  // The drawing as an SVG document. `standalone` adds the style and a background. The other
  // document is for a page that has the style; the left margin of the title is cut off, so that the
  // drawing aligns with the page's text.
  std::string Document(bool standalone) const;

 private:
  void Begin(std::string_view kind, std::string_view name);
  void Add(const std::string& text);  // to both documents

  double width_, height_;
  std::string title_, description_;
  std::string standalone_, embedded_;  // what the drawing has inside the <svg> of either document
};

}  // namespace fp4lab::study
