#include "fp4lab/study/report/figures/svg.h"

#include <array>

#include "fp4lab/base/text/text.h"
#include "fp4lab/study/numbers/number_text.h"

namespace fp4lab::study {
namespace {

// Everything of the style that is no colour.
constexpr std::string_view kShapes =
    R"(.f4{font-family:"Helvetica Neue",Helvetica,Arial,"Liberation Sans",sans-serif}
.f4 .t{font-size:13px}.f4 .small{font-size:12px}.f4 .strong{font-weight:600}
.f4 .title{font-size:16px;font-weight:600}.f4 .axis,.f4 .grid{stroke-width:1}
.f4 .zero{stroke-width:1.2}.f4 .line,.f4 .thin{fill:none;stroke:currentColor;stroke-linejoin:round}
.f4 .line{stroke-width:2}.f4 .thin{stroke-width:1.3}.f4 .faint{opacity:.45}
.f4 .dash{stroke-dasharray:5 4}.f4 .fill{fill:currentColor}.f4 .soft{fill:currentColor;opacity:.4}
.f4 .hollow{stroke:currentColor;stroke-width:1.8}
)";

struct Colour {
  std::string_view selector, property, light, dark;
};

// The series have colours after Okabe and Ito (2008), which are distinguishable with any colour
// vision, and lighter ones on dark backgrounds; the reference is neutral.
constexpr std::array kColours = {Colour{".bg", "fill", "#fff", "#14171c"},
                                 Colour{".t", "fill", "#1f2430", "#e8eaee"},
                                 Colour{".muted", "fill", "#5d6572", "#a4acb9"},
                                 Colour{".axis", "stroke", "#5d6572", "#a4acb9"},
                                 Colour{".grid", "stroke", "#e3e6eb", "#2b313b"},
                                 Colour{".zero", "stroke", "#5d6572", "#a4acb9"},
                                 Colour{".stripe", "fill", "#f4f5f8", "#1b2027"},
                                 Colour{".hollow", "fill", "#fff", "#14171c"},
                                 Colour{".ink", "fill", "currentColor", "currentColor"},
                                 Colour{".s0", "color", "#4a505c", "#c3c9d3"},
                                 Colour{".s1", "color", "#0072b2", "#4fb0ea"},
                                 Colour{".s2", "color", "#00866a", "#2ecc9f"},
                                 Colour{".s3", "color", "#d55e00", "#ff8b3d"},
                                 Colour{".s4", "color", "#a3408f", "#e39ad2"},
                                 Colour{".s5", "color", "#a97800", "#e6b422"},
                                 Colour{".s6", "color", "#3d9bd1", "#9ad4f5"},
                                 Colour{".s7", "color", "#8a5a44", "#cf9c83"}};

constexpr double kInset = 18;  // left margin of the figures' titles, px

// Helvetica's advance widths in thousandths of the font size, codes 32 to 126.
constexpr std::array<int, 95> kAdvance = {
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333,  278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667,  611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278,  556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500,  500, 334, 260, 334, 584};

// A coordinate: hundredths of a px, no trailing zeros.
std::string Px(double x) {
  std::string text = Fixed(x, 2);
  while (text.find('.') != std::string::npos && (text.back() == '0' || text.back() == '.')) {
    const bool point = text.back() == '.';
    text.pop_back();
    if (point) break;
  }
  return text;
}

std::string Attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + std::string(value) + "\"";
}

std::string Points(const std::vector<Dot>& points) {
  std::string text;
  for (const Dot& p : points) text += (text.empty() ? "" : " ") + Px(p.x) + "," + Px(p.y);
  return text;
}

std::string Title(std::string_view text) { return "<title>" + EscapedMarkup(text) + "</title>"; }

}  // namespace

std::string FigureStyle(bool dark) {
  std::string text(dark ? "" : kShapes);
  for (const Colour& c : kColours) {
    text += ".f4 " + std::string(c.selector) + "{" + std::string(c.property) + ":" +
            std::string(dark ? c.dark : c.light) + "}\n";
  }
  return text;
}

double TextWidth(std::string_view text, double size) {
  double thousandths = 0;
  for (const char c : text) {
    const int code = static_cast<unsigned char>(c);
    if (code >= 32 && code < 127) thousandths += kAdvance[static_cast<std::size_t>(code - 32)];
    if (code >= 0xC0) thousandths += 600;  // the first byte of a letter outside ASCII
  }
  return thousandths * size / 1000;
}

Svg::Svg(double width, double height, std::string_view title, std::string_view description)
    : width_(width), height_(height), title_(title), description_(description) {}

void Svg::Line(Dot a, Dot b, std::string_view style) {
  Add("<line" + Attribute("class", style) + Attribute("x1", Px(a.x)) + Attribute("y1", Px(a.y)) +
      Attribute("x2", Px(b.x)) + Attribute("y2", Px(b.y)) + "/>\n");
}

void Svg::Polyline(const std::vector<Dot>& points, std::string_view style) {
  if (points.size() < 2) return;
  Add("<polyline" + Attribute("class", style) + Attribute("points", Points(points)) + "/>\n");
}

void Svg::Curve(const std::vector<Dot>& points, std::string_view style, std::string_view title,
                const std::vector<std::string>& values) {
  if (points.size() < 2) return;
  const std::string front =
      "<polyline" + Attribute("class", style) + Attribute("points", Points(points));
  const std::string back = ">" + Title(title) + "</polyline>\n";
  standalone_ += front + back;
  embedded_ += front + Attribute("data-values", EscapedMarkup(Joined(values, "|"))) + back;
}

void Svg::Rect(double x, double y, double width, double height, std::string_view style) {
  Add("<rect" + Attribute("class", style) + Attribute("x", Px(x)) + Attribute("y", Px(y)) +
      Attribute("width", Px(width)) + Attribute("height", Px(height)) + "/>\n");
}

void Svg::Text(Dot at, std::string_view text, std::string_view style, Anchor anchor,
               double degrees) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  std::string element =
      "<text" + Attribute("class", style) + Attribute("x", Px(at.x)) + Attribute("y", Px(at.y));
  if (anchor != Anchor::kStart) {
    element += Attribute("text-anchor", kAnchors[static_cast<std::size_t>(anchor)]);
  }
  if (degrees != 0) {
    element +=
        Attribute("transform", "rotate(" + Px(degrees) + " " + Px(at.x) + " " + Px(at.y) + ")");
  }
  Add(element + ">" + EscapedMarkup(text) + "</text>\n");
}

void Svg::Marker(Dot at, std::size_t shape, double radius, std::string_view style,
                 std::string_view title) {
  const double r = radius;
  const auto add = [&](const std::string& tag, const std::string& attributes) {
    const std::string front = "<" + tag + Attribute("class", style) + attributes;
    Add(front + (title.empty() ? "/>\n" : ">" + Title(title) + "</" + tag + ">\n"));
  };
  if (shape % 4 == 0) {
    add("circle", Attribute("cx", Px(at.x)) + Attribute("cy", Px(at.y)) + Attribute("r", Px(r)));
    return;
  }
  std::vector<Dot> corners;  // corners of a shape with about the circle's area
  if (shape % 4 == 1) {
    const double h = 0.9 * r;
    corners = {
        {at.x - h, at.y - h}, {at.x + h, at.y - h}, {at.x + h, at.y + h}, {at.x - h, at.y + h}};
  } else if (shape % 4 == 2) {
    const double h = 1.28 * r;
    corners = {{at.x, at.y - h}, {at.x + h, at.y}, {at.x, at.y + h}, {at.x - h, at.y}};
  } else {
    const double h = 1.2 * r;
    corners = {{at.x, at.y - h}, {at.x + h, at.y + 0.8 * h}, {at.x - h, at.y + 0.8 * h}};
  }
  add("polygon", Attribute("points", Points(corners)));
}

void Svg::BeginTitled(std::string_view title) { Add("<g>" + Title(title) + "\n"); }

void Svg::Begin(std::string_view kind, std::string_view name) {
  Add("<g" + Attribute("class", kind) + Attribute("data-series", EscapedMarkup(name)) + ">\n");
}

void Svg::Add(const std::string& text) {
  standalone_ += text;
  embedded_ += text;
}

std::string Svg::Document(bool standalone) const {
  // On a page the left margin is cut off, so that the title aligns with the page's text.
  const double left = standalone ? 0 : kInset;
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"f4\" role=\"img\"" +
      Attribute("width", Px(width_ - left)) + Attribute("height", Px(height_)) +
      Attribute("viewBox", Px(left) + " 0 " + Px(width_ - left) + " " + Px(height_)) + ">\n";
  text += Title(title_) + "\n<desc>" + EscapedMarkup(description_) + "</desc>\n";
  if (!standalone) return text + embedded_ + "</svg>\n";
  text += "<style>\n" + FigureStyle(false) + "@media (prefers-color-scheme:dark){\n" +
          FigureStyle(true) + "}\n</style>\n";
  text += "<rect class=\"bg\" x=\"0\" y=\"0\"" + Attribute("width", Px(width_)) +
          Attribute("height", Px(height_)) + "/>\n";
  return text + standalone_ + "</svg>\n";
}

}  // namespace fp4lab::study
