// The drawing of the Hadamard transform: one block with an outlier, before and after.
#include <algorithm>
#include <cmath>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/study/draw/draw_figures.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/plot.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::study {
namespace {

constexpr double kPanelTop = 88, kPanelWidth = 310, kPanelHeight = 170;
constexpr float kOutlier = 6.0f;

int SizeToDraw(const std::string& text) {
  for (const int size : kHadamardSizes) {
    if (size >= 16 && text == std::to_string(size)) return size;
  }
  throw Error("draw hadamard " + Printable(text), "is not a size; draw 16, 32, 64 or 128 elements");
}

// Elements of eighths between -5/8 and 5/8, and an outlier.
Matrix<float> BlockWithOutlier(int size) {
  Matrix<float> x(1, static_cast<std::size_t>(size));
  for (int k = 0; k < size; ++k) {
    x(0, static_cast<std::size_t>(k)) = static_cast<float>(k * 7 % 11 - 5) / 8.0f;
  }
  x(0, 3) = kOutlier;
  return x;
}

// NVFP4's error on the values: "amax 6.000, 9 of 16 codes are zero, relative error 12.3 %".
std::string LossText(const Matrix<float>& x) {
  const Dialect& te = *FindDialect("nvfp4.te");
  const Matrix<float> y = DequantizeAs(te, QuantizeAs(te, x.View()));
  double error = 0, power = 0;
  float amax = 0;
  std::size_t zeros = 0;
  for (std::size_t k = 0; k < x.cols; ++k) {
    const double d = static_cast<double>(y(0, k)) - static_cast<double>(x(0, k));
    error += d * d;
    power += static_cast<double>(x(0, k)) * static_cast<double>(x(0, k));
    amax = std::max(amax, std::abs(x(0, k)));
    zeros += y(0, k) == 0.0f ? 1 : 0;
  }
  return "amax " + Fixed(amax, 2) + "; as NVFP4: " + std::to_string(zeros) + " of " +
         std::to_string(x.cols) + " are 0, error " + Fixed(100 * std::sqrt(error / power), 1) +
         " %";
}

void DrawBars(Svg* svg, double left, const std::string& heading, const std::string& colour,
              const Matrix<float>& x) {
  svg->Text({left - 34, kPanelTop - 28}, heading, "t strong");
  svg->Text({left - 34, kPanelTop - 11}, LossText(x), "t small muted");
  const double count = static_cast<double>(x.cols);
  Axis across{-0.5, count - 0.5, false, "element", RoundTicks(0, count - 1, 6)};
  Axis up{-7, 7, false, "", RoundTicks(-6, 6, 7)};
  const Panel panel(svg, {left, kPanelTop, kPanelWidth, kPanelHeight}, across, up);
  panel.HorizontalLine(0, "zero");
  const double width = std::max(1.0, kPanelWidth / count - 4);
  for (std::size_t k = 0; k < x.cols; ++k) {
    const double value = x(0, k), at = panel.X(static_cast<double>(k)) - width / 2;
    const double top = panel.Y(std::max(value, 0.0)), bottom = panel.Y(std::min(value, 0.0));
    svg->Rect(at, top, width, std::max(bottom - top, 0.5), "fill " + colour);
  }
}

}  // namespace

std::string DrawHadamard(const std::vector<std::string>& size) {
  const int n = SizeToDraw(size.empty() ? "16" : size[0]);
  const Matrix<float> x = BlockWithOutlier(n);
  Matrix<float> y(1, x.cols);
  RandomHadamard(x.View(), {n, TeHadamardSigns()}, y.View());
  Svg svg(kDrawingWidth, kPanelTop + kPanelHeight + 62,
          "A block of " + std::to_string(n) + " elements before and after the Hadamard transform",
          "Bars of the elements' values. One of them is an outlier, which the transform spreads.");
  DrawTitle(&svg, "The random Hadamard transform of " + std::to_string(n) + " elements");
  svg.Text({kDrawingInset, 45}, "with the signs of Transformer Engine", "t small muted");
  DrawBars(&svg, kDrawingInset + 34, "before", "s3", x);
  DrawBars(&svg, kDrawingInset + 34 + kPanelWidth + 64, "after", "s1", y);
  return svg.Document(true);
}

}  // namespace fp4lab::study
