#include "fp4lab/study/report/figures/plot.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fp4lab/study/numbers/number_text.h"

namespace fp4lab::study {
namespace {

constexpr double kSmall = 12, kText = 13;

double Clamped(double x, double low, double high) { return std::min(std::max(x, low), high); }

// 1, 2 or 5 times a power of ten, at least `x`.
double RoundUp(double x) {
  const double power = std::pow(10, std::floor(std::log10(x)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= x * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

double Axis::Fraction(double value) const {
  return logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
}

std::vector<Tick> RoundTicks(double low, double high, int most) {
  std::vector<Tick> ticks;
  if (!(high > low)) return ticks;
  const double step = RoundUp((high - low) / most);
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  const double first = std::ceil(low / step - 1e-9);
  for (double i = first; i * step <= high + 1e-9 * step; ++i) {
    ticks.push_back({i * step, Fixed(i * step, digits), ""});
  }
  return ticks;
}

Axis AxisAround(const std::vector<double>& values, double share, int most_ticks) {
  Axis axis;
  double low = INFINITY, high = -INFINITY;
  for (const double v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min(low, v);
    high = std::max(high, v);
  }
  if (low > high) return axis;
  const double range = high > low ? high - low : std::max(std::abs(low), 1e-3);
  axis.low = low - share * range;
  axis.high = high + share * range;
  axis.ticks = RoundTicks(axis.low, axis.high, most_ticks);
  return axis;
}

std::vector<double> SpreadOut(const std::vector<double>& wanted, double spacing, double low,
                              double high) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  // With i * spacing subtracted from position i, the condition on the distances says that positions
  // do not fall: the nearest such sequence is an isotonic regression.
  std::vector<double> reduced;
  for (std::size_t i = 0; i < order.size(); ++i) {
    reduced.push_back(static_cast<double>(i) * spacing - wanted[order[i]]);
  }
  const std::vector<double> monotone = NonIncreasing(reduced);
  const double room = high - spacing * (static_cast<double>(wanted.size()) - 1);
  std::vector<double> result(wanted.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double base = Clamped(-monotone[i], low, std::max(low, room));
    result[order[i]] = base + static_cast<double>(i) * spacing;
  }
  return result;
}

Panel::Panel(Svg* svg, Box box, Axis x, Axis y)
    : svg_(svg), box_(box), x_(std::move(x)), y_(std::move(y)) {
  DrawY();
  DrawX();
}

double Panel::X(double value) const { return box_.x + box_.width * x_.Fraction(value); }
double Panel::Y(double value) const { return box_.Bottom() - box_.height * y_.Fraction(value); }

void Panel::DrawX() const {
  const double bottom = box_.Bottom();
  svg_->Line({box_.x, bottom}, {box_.Right(), bottom}, "axis");
  double last_end = -INFINITY;
  bool two_lines = false;
  for (const Tick& tick : x_.ticks) {
    const double x = X(tick.value);
    svg_->Line({x, bottom}, {x, bottom + 5}, "axis");
    const double half = std::max(TextWidth(tick.label, kSmall), TextWidth(tick.below, kSmall)) / 2;
    if (x - half < last_end + 8) continue;
    svg_->Text({x, bottom + 19}, tick.label, "t small", Anchor::kMiddle);
    if (!tick.below.empty()) {
      svg_->Text({x, bottom + 34}, tick.below, "t small muted", Anchor::kMiddle);
      two_lines = true;
    }
    last_end = x + half;
  }
  svg_->Text({box_.x + box_.width / 2, bottom + (two_lines ? 56 : 41)}, x_.label, "t",
             Anchor::kMiddle);
}

void Panel::DrawY() const {
  double widest = 0, last = INFINITY;
  for (const Tick& tick : y_.ticks) {
    const double y = Y(tick.value);
    svg_->Line({box_.x, y}, {box_.Right(), y}, "grid");
    if (last - y < kSmall + 2) continue;
    svg_->Text({box_.x - 8, y + 4}, tick.label, "t small", Anchor::kEnd);
    widest = std::max(widest, TextWidth(tick.label, kSmall));
    last = y;
  }
  if (y_.label.empty()) return;
  svg_->Text({box_.x - widest - 22, box_.y + box_.height / 2}, y_.label, "t", Anchor::kMiddle, -90);
}

void Panel::Whisker(double x, const Interval& interval, double shift,
                    const std::string& style) const {
  Whisker([x](double) { return x; }, interval, shift, style);
}

void Panel::Whisker(const std::function<double(double)>& x_of, const Interval& interval,
                    double shift, const std::string& style) const {
  // Y() takes only values inside the axis: an infinite value, and on a logarithmic axis a value
  // that is not positive, has no position.
  const auto place = [&](double value) {
    const double inside = std::clamp(value, y_.low, y_.high);
    return At(std::clamp(x_of(inside), x_.low, x_.high), inside, shift);
  };
  const Dot top = place(interval.high), bottom = place(interval.low);
  svg_->Line(top, bottom, style);
  const auto end = [&](Dot at, double value, double direction) {
    if (value >= y_.low && value <= y_.high) {
      svg_->Line({at.x - 4, at.y}, {at.x + 4, at.y}, style);
      return;
    }
    const double y = at.y + 6 * direction;
    svg_->Polyline({{at.x - 4, y}, at, {at.x + 4, y}}, style);
  };
  end(top, interval.high, 1);
  end(bottom, interval.low, -1);
}

void Panel::HorizontalLine(double y, const std::string& style) const {
  svg_->Line({box_.x, Y(y)}, {box_.Right(), Y(y)}, style);
}

void Panel::EndLabels(const std::vector<EndLabel>& labels, double x) const {
  std::vector<double> wanted;
  for (const EndLabel& label : labels) wanted.push_back(Y(label.y));
  const std::vector<double> places = SpreadOut(wanted, kText + 4, box_.y + 6, box_.Bottom() - 4);
  const double from = X(x) + 30, to = box_.Right() + 12;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::string series = SeriesClass(labels[i].series);
    svg_->BeginKey(labels[i].text);
    if (to - from > 8) {
      svg_->Polyline({{from, wanted[i]}, {to - 4, places[i]}}, series + " thin faint");
    }
    svg_->Text({to, places[i] + 4.5}, labels[i].text, "t strong ink " + series);
    svg_->End();
  }
}

std::string SeriesClass(std::size_t series) { return "s" + std::to_string(series % 8); }

double Legend(Svg* svg, Dot at, double width, const std::vector<LegendEntry>& entries) {
  double x = at.x, y = at.y;
  for (const LegendEntry& entry : entries) {
    const double needed = 18 + TextWidth(entry.text, kText) * 1.06;
    if (x > at.x && x + needed > at.x + width) {
      x = at.x;
      y += 20;
    }
    svg->BeginKey(entry.text);
    svg->Marker({x + 6, y - 4.5}, entry.shape, 4.5, SeriesClass(entry.series) + " fill");
    svg->Text({x + 16, y}, entry.text, "t");
    svg->End();
    x += needed + 16;
  }
  return y - at.y + 20;
}

}  // namespace fp4lab::study
