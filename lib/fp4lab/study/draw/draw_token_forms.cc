// The drawing of the token ratio: extend and shrink form on the mean loss curves of a study.
#include <cmath>
#include <cstdint>
#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/study/draw/draw_figures.h"
#include "fp4lab/study/numbers/loss_curve.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/figures/figure_parts.h"
#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {
namespace {

constexpr double kFormsTop = 92, kFormsHeight = 330, kFormsLeft = 66, kFormsWidth = 560;
constexpr int kCurvePlaces = 160;

// The mean loss of an arm over its seeds, at each budget that all of its runs reach.
LossCurve MeanCurve(const Results& results, const std::string& arm) {
  LossCurve curve;
  for (const std::int64_t tokens : results.budgets) {
    double sum = 0;
    int count = 0;
    for (const RunResult& run : results.runs) {
      if (run.arm != arm) continue;
      for (const AnnealedPoint& p : run.points) {
        if (p.tokens != tokens) continue;
        sum += p.loss;
        ++count;
      }
    }
    if (count == 0) continue;
    curve.log_tokens.push_back(std::log(static_cast<double>(tokens)));
    curve.losses.push_back(sum / count);
  }
  return curve;
}

struct Forms {
  double extend_at = 0, extend_loss = 0;  // where the worse curve has the better one's loss
  double shrink_at = 0, shrink_loss = 0;  // where the better curve had the worse one's last loss
  double stop = 0, last = 0;              // ln of the tokens where each form begins
};

// The last budget whose loss the worse curve still reaches, and the largest budget of all.
Forms FormsOf(const SmoothCurve& better, const SmoothCurve& worse, const LossCurve& points,
              const std::string& where) {
  Forms forms;
  forms.last = points.log_tokens.back();
  forms.shrink_loss = worse.Loss(forms.last);
  const std::optional<double> passed = better.Inverse(forms.shrink_loss);
  for (std::size_t i = points.log_tokens.size(); i-- > 0;) {
    const double loss = better.Loss(points.log_tokens[i]);
    const std::optional<double> reached = worse.Inverse(loss);
    if (!reached || *reached > forms.last) continue;
    forms.stop = points.log_tokens[i];
    forms.extend_loss = loss;
    forms.extend_at = *reached;
    break;
  }
  if (!passed || forms.extend_at == 0) {
    throw Error(where,
                "has no two curves that reach each other's loss; draw a study whose "
                "contrast is identified");
  }
  forms.shrink_at = *passed;
  return forms;
}

std::string RatioText(double longer, double shorter) {
  return Fixed(std::exp(longer - shorter), 2);
}

// An arrow at one loss, and the ratio beside its end: above the curves if it points to the right,
// below them if it points to the left.
void DrawForm(Svg* svg, const Panel& panel, double from, double to, double loss,
              const std::string& colour, const std::string& text) {
  const Dot a = panel.At(std::exp(from), loss), b = panel.At(std::exp(to), loss);
  DrawArrow(svg, a, b, colour);
  svg->Marker(a, 0, 4, "fill " + colour);
  const bool right = b.x > a.x;
  svg->Text({b.x + (right ? 8 : -8), b.y + (right ? -5 : 16)}, text,
            "t small strong " + colour + " ink", right ? Anchor::kStart : Anchor::kEnd);
}

}  // namespace

std::string DrawTokenForms(const std::vector<std::string>& path) {
  const Results results = LoadResults(path[0]);
  const std::string& worse_arm = results.question.format;
  const std::string& better_arm = results.question.format_reference;
  const std::string where = "draw token-ratio " + path[0];
  if (worse_arm.empty()) throw Error(where, "registered no contrast of two arms");
  const LossCurve better_points = MeanCurve(results, better_arm);
  const LossCurve worse_points = MeanCurve(results, worse_arm);
  if (!better_points.Usable() || !worse_points.Usable()) {
    throw Error(where,
                "has no two budgets with finite losses of " + better_arm + " and " + worse_arm);
  }
  const SmoothCurve better(better_points), worse(worse_points);
  const Forms forms = FormsOf(better, worse, better_points, where);
  Svg svg(kDrawingWidth, kFormsTop + kFormsHeight + 74,
          "Extend form and shrink form of " + worse_arm + " over " + better_arm,
          "The mean losses of two arms against tokens. Horizontal arrows join equal losses.");
  DrawTitle(&svg, "Equal losses of " + better_arm + " and " + worse_arm, results);
  const double first = better_points.log_tokens.front();
  Axis up = AxisAround({worse.Loss(first), better.Loss(forms.last)}, 0.06, 7);
  up.label = "validation loss, nats per token";
  const Panel panel(&svg, {kFormsLeft, kFormsTop, kFormsWidth, kFormsHeight},
                    BudgetAxis(results, 0.04), up);
  const auto draw = [&](const SmoothCurve& curve, const std::string& colour) {
    std::vector<Dot> dots;
    for (int i = 0; i <= kCurvePlaces; ++i) {
      const double at = first + (forms.last - first) * i / kCurvePlaces;
      dots.push_back(panel.At(std::exp(at), curve.Loss(at)));
    }
    svg.Polyline(dots, "line " + colour);
  };
  draw(better, "s2");
  draw(worse, "s3");
  DrawForm(&svg, panel, forms.stop, forms.extend_at, forms.extend_loss, "s4",
           "extend " + RatioText(forms.extend_at, forms.stop));
  DrawForm(&svg, panel, forms.last, forms.shrink_at, forms.shrink_loss, "s1",
           "shrink " + RatioText(forms.last, forms.shrink_at));
  panel.EndLabels(
      {{better.Loss(forms.last), better_arm, 2}, {worse.Loss(forms.last), worse_arm, 3}},
      std::exp(forms.last));
  return svg.Document(true);
}

}  // namespace fp4lab::study
