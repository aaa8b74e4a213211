// The drawing of rounding: the mean of what stochastic rounding gives, beside nearest.
#include <cstdint>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/study/draw/draw_figures.h"
#include "fp4lab/study/report/figures/plot.h"

namespace fp4lab::study {
namespace {

constexpr double kRoundTop = 78, kRoundHeight = 300, kRoundLeft = 66, kRoundWidth = 520;
constexpr std::uint32_t kFields = 1u << 16, kFieldStep = 1u << 6;  // of the random bits, evenly
constexpr int kPlaces = 240;

const NamedFormat& FormatToRound(const std::string& name) {
  const std::optional<FormatId> id = FindFormat(name);
  std::vector<std::string> known;
  for (const NamedFormat& f : kFormats) {
    if (f.format.bits <= 6) known.emplace_back(f.short_name);
  }
  if (!id || Named(*id).format.bits > 6) {
    throw Error("draw rounding " + Printable(name),
                "is not a format of at most 6 bits; " + DidYouMean(name, known));
  }
  return Named(*id);
}

double MeanOfStochastic(const Format& f, float x) {
  double sum = 0;
  for (std::uint32_t field = kFieldStep / 2; field < kFields; field += kFieldStep) {
    sum += static_cast<double>(Decode(f, Encode(f, x, Rounding::kStochastic, field)));
  }
  return sum / (kFields / kFieldStep);
}

}  // namespace

std::string DrawRounding(const std::vector<std::string>& format) {
  const NamedFormat& named = FormatToRound(format.empty() ? "e2m1" : format[0]);
  const Format& f = named.format;
  const double end = static_cast<double>(MaxFinite(named.id));
  Svg svg(kDrawingWidth, kRoundTop + kRoundHeight + 56,
          "Nearest and stochastic rounding to " + std::string(named.name),
          "The result of nearest rounding is a staircase. The mean of stochastic rounding is the "
          "value itself.");
  DrawTitle(&svg, "Rounding to " + std::string(named.name));
  svg.Text({kDrawingInset, 47},
           "stochastic: the mean over 1,024 random fields, evenly spaced among all 65,536",
           "t small muted");
  const std::vector<Tick> ticks = RoundTicks(0, end, 8);
  const Panel panel(&svg, {kRoundLeft, kRoundTop, kRoundWidth, kRoundHeight},
                    {0, end, false, "value before rounding", ticks},
                    {0, end * 1.04, false, "value after rounding", ticks});
  std::vector<Dot> nearest, mean;
  float before = 0;
  for (int i = 0; i <= kPlaces; ++i) {
    const float x = static_cast<float>(end) * static_cast<float>(i) / kPlaces;
    const float now = Decode(f, Encode(f, x));
    if (i > 0 && now != before) nearest.push_back(panel.At(x, before));  // a step is upright
    nearest.push_back(panel.At(x, now));
    mean.push_back(panel.At(x, MeanOfStochastic(f, x)));
    before = now;
  }
  svg.Polyline(nearest, "line s3");
  svg.Polyline(mean, "line s1");
  svg.Text({kRoundLeft + kRoundWidth + 12, kRoundTop + 20}, "nearest even", "t strong s3 ink");
  svg.Text({kRoundLeft + kRoundWidth + 12, kRoundTop + 40}, "mean of stochastic",
           "t strong s1 ink");
  return svg.Document(true);
}

}  // namespace fp4lab::study
