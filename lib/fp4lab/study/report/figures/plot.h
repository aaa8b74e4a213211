// Panels with axes on an SVG drawing: ticks, grids, whiskers, labels that do not collide.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "fp4lab/study/numbers/statistics.h"
#include "fp4lab/study/report/figures/svg.h"

namespace fp4lab::study {

struct Tick {
  double value = 0;
  std::string label;  // empty: a grid line without a number
  std::string below;  // a second line under the label (x axes)
};

struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::string label;
  std::vector<Tick> ticks;

  double Fraction(double value) const;  // 0 at low, 1 at high
};

// Ticks at the multiples of one step in [low, high], about `most` at most, labelled with the digits
// they need. The step is 1, 2 or 5 times a power of ten.
std::vector<Tick> RoundTicks(double low, double high, int most);
// An axis over all finite `values` and a margin of `share` of their range at both ends.
Axis AxisAround(const std::vector<double>& values, double share, int most_ticks);

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
  double Right() const { return x + width; }
  double Bottom() const { return y + height; }
};

// Positions as near as possible (in least squares) to `wanted`, at least `spacing` apart and inside
// [low, high] where there is room; in the order of `wanted`'s values.
std::vector<double> SpreadOut(const std::vector<double>& wanted, double spacing, double low,
                              double high);

class Panel {
 public:
  // Draws frame, grid, ticks and axis labels. Ticks whose labels would touch are left out.
  Panel(Svg* svg, Box box, Axis x, Axis y);

  const Box& Area() const { return box_; }
  double X(double value) const;
  double Y(double value) const;
  // The place of the point (x, y), moved to the right by `shift` px, so that marks at one x can
  // stand beside each other.
  Dot At(double x, double y, double shift = 0) const { return {X(x) + shift, Y(y)}; }

  // Draws a vertical interval at x. Ends beyond the panel, infinite ends included, are cut at its
  // edge and drawn as arrow heads.
  void Whisker(double x, const Interval& interval, double shift, const std::string& style) const;
  // The same for an interval that leans: its end at `value` stands at x_of(value).
  void Whisker(const std::function<double(double)>& x_of, const Interval& interval, double shift,
               const std::string& style) const;
  // Draws a horizontal line over the whole width.
  void HorizontalLine(double y, const std::string& style) const;

  struct EndLabel {
    double y = 0;  // in data units: where the line ends
    std::string text;
    std::size_t series = 0;
  };
  // Draws labels, which are the keys of their series, to the right of the panel, each as near as
  // possible to the end of its line at (x, y), with a thin connecting line where there is room for
  // it.
  void EndLabels(const std::vector<EndLabel>& labels, double x) const;

 private:
  void DrawX() const;
  void DrawY() const;

  Svg* svg_;
  Box box_;
  Axis x_, y_;
};

std::string SeriesClass(std::size_t series);  // "s3"

struct LegendEntry {
  std::string text;
  std::size_t series = 0, shape = 0;
};
// Draws markers with names, the keys of their series, in rows from `at` on, wrapped at `width`.
// Returns the height used, px.
double Legend(Svg* svg, Dot at, double width, const std::vector<LegendEntry>& entries);

}  // namespace fp4lab::study
