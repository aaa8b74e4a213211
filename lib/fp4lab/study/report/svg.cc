#include "fp4lab/study/report/svg.h"

#include <array>

#include "fp4lab/base/text.h"
#include "fp4lab/study/analysis/number_text.h"

namespace fp4lab::study {
namespace {

// The series have colours after Okabe and Ito (2008), which are distinguishable with any colour
// vision, and lighter ones on dark backgrounds; the reference is neutral.
constexpr std::string_view kStyle = R"(<style>
.f4{font-family:"Helvetica Neue",Helvetica,Arial,"Liberation Sans",sans-serif}
.f4 .bg{fill:#fff}.f4 .t{fill:#1f2430;font-size:13px}.f4 .small{font-size:12px}
.f4 .strong{font-weight:600}.f4 .muted{fill:#5d6572}.f4 .title{font-size:16px;font-weight:600}
.f4 .axis{stroke:#5d6572;stroke-width:1}.f4 .grid{stroke:#e3e6eb;stroke-width:1}
.f4 .zero{stroke:#5d6572;stroke-width:1.2}.f4 .stripe{fill:#f4f5f8}
.f4 .line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}
.f4 .thin{fill:none;stroke:currentColor;stroke-width:1.3;stroke-linejoin:round}
.f4 .faint{opacity:.45}.f4 .dash{stroke-dasharray:5 4}.f4 .fill{fill:currentColor}
.f4 .soft{fill:currentColor;opacity:.4}
.f4 .hollow{fill:#fff;stroke:currentColor;stroke-width:1.8}
.f4 .ink{fill:currentColor}
.f4 .s0{color:#4a505c}.f4 .s1{color:#0072b2}.f4 .s2{color:#00866a}.f4 .s3{color:#d55e00}
.f4 .s4{color:#a3408f}.f4 .s5{color:#a97800}.f4 .s6{color:#3d9bd1}.f4 .s7{color:#8a5a44}
@media (prefers-color-scheme:dark){
.f4 .bg{fill:#14171c}.f4 .t{fill:#e8eaee}.f4 .muted{fill:#a4acb9}
.f4 .axis{stroke:#a4acb9}.f4 .grid{stroke:#2b313b}.f4 .zero{stroke:#a4acb9}
.f4 .stripe{fill:#1b2027}.f4 .hollow{fill:#14171c}.f4 .ink{fill:currentColor}
.f4 .s0{color:#c3c9d3}.f4 .s1{color:#4fb0ea}.f4 .s2{color:#2ecc9f}.f4 .s3{color:#ff8b3d}
.f4 .s4{color:#e39ad2}.f4 .s5{color:#e6b422}.f4 .s6{color:#9ad4f5}.f4 .s7{color:#cf9c83}}
</style>
)";

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

}  // namespace

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
  body_ += "<line" + Attribute("class", style) + Attribute("x1", Px(a.x)) +
           Attribute("y1", Px(a.y)) + Attribute("x2", Px(b.x)) + Attribute("y2", Px(b.y)) + "/>\n";
}

void Svg::Polyline(const std::vector<Dot>& points, std::string_view style) {
  if (points.size() < 2) return;
  body_ += "<polyline" + Attribute("class", style) + Attribute("points", Points(points)) + "/>\n";
}

void Svg::Rect(double x, double y, double width, double height, std::string_view style) {
  body_ += "<rect" + Attribute("class", style) + Attribute("x", Px(x)) + Attribute("y", Px(y)) +
           Attribute("width", Px(width)) + Attribute("height", Px(height)) + "/>\n";
}

void Svg::Text(Dot at, std::string_view text, std::string_view style, Anchor anchor,
               double degrees) {
  constexpr std::string_view kAnchors[] = {"start", "middle", "end"};
  body_ +=
      "<text" + Attribute("class", style) + Attribute("x", Px(at.x)) + Attribute("y", Px(at.y));
  if (anchor != Anchor::kStart) {
    body_ += Attribute("text-anchor", kAnchors[static_cast<std::size_t>(anchor)]);
  }
  if (degrees != 0) {
    body_ +=
        Attribute("transform", "rotate(" + Px(degrees) + " " + Px(at.x) + " " + Px(at.y) + ")");
  }
  body_ += ">" + EscapedMarkup(text) + "</text>\n";
}

void Svg::Marker(Dot at, std::size_t shape, double radius, std::string_view style) {
  const double r = radius;
  if (shape % 4 == 0) {
    body_ += "<circle" + Attribute("class", style) + Attribute("cx", Px(at.x)) +
             Attribute("cy", Px(at.y)) + Attribute("r", Px(r)) + "/>\n";
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
  body_ += "<polygon" + Attribute("class", style) + Attribute("points", Points(corners)) + "/>\n";
}

std::string Svg::Document(bool standalone) const {
  // On a page the left margin is cut off, so that the title aligns with the page's text.
  const double left = standalone ? 0 : kInset;
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"f4\" role=\"img\"" +
      Attribute("width", Px(width_ - left)) + Attribute("height", Px(height_)) +
      Attribute("viewBox", Px(left) + " 0 " + Px(width_ - left) + " " + Px(height_)) + ">\n";
  text += "<title>" + EscapedMarkup(title_) + "</title>\n<desc>" + EscapedMarkup(description_) +
          "</desc>\n";
  text += kStyle;
  if (standalone) {
    text += "<rect class=\"bg\" x=\"0\" y=\"0\"" + Attribute("width", Px(width_)) +
            Attribute("height", Px(height_)) + "/>\n";
  }
  return text + body_ + "</svg>\n";
}

}  // namespace fp4lab::study
