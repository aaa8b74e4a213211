#include "fp4lab/study/numbers/token_gap.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/numbers/statistics.h"
#include "tests/support/catch.h"

namespace fp4lab::study {
namespace {

using Status = LogRatio::Status;

LossCurve Curve(const std::vector<double>& tokens, const std::function<double(double)>& loss) {
  LossCurve curve;
  for (const double d : tokens) {
    curve.log_tokens.push_back(std::log(d));
    curve.losses.push_back(loss(d));
  }
  return curve;
}

LossCurve Doubling(const std::vector<double>& losses) {
  LossCurve curve;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    curve.log_tokens.push_back(static_cast<double>(i) * std::log(2.0));
    curve.losses.push_back(losses[i]);
  }
  return curve;
}

double Ratio(const LogRatio& r) {
  REQUIRE(r.status == Status::kIdentified);
  return std::exp(r.value);
}

// The rows of tests/study/llama30m_c4.csv as curves; gaps are added to the bf16 row.
std::map<std::string, LossCurve> PublicRuns() {
  std::istringstream file(
      ReadFile(std::string(std::getenv("FP4LAB_SOURCE_DIR")) + "/tests/study/llama30m_c4.csv"));
  std::map<std::string, std::vector<double>> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#') || line.starts_with("scheme")) continue;
    std::istringstream cells(line);
    std::string name, cell;
    std::getline(cells, name, ',');
    while (std::getline(cells, cell, ',')) rows[name].push_back(std::stod(cell));
  }
  std::map<std::string, LossCurve> curves;
  for (auto& [name, row] : rows) {
    if (name != "bf16") {
      for (std::size_t i = 0; i < row.size(); ++i) row[i] += rows["bf16"][i];
    }
  }
  for (const auto& [name, row] : rows) curves[name] = Doubling(row);
  return curves;
}

TEST_CASE("The crossing of public 30M runs lies where the bias of the published chords says",
          "[study]") {
  const auto runs = PublicRuns();
  struct Row {
    const char *format, *reference;
    Form form;
    std::vector<double> ratios;  // of the budgets from `first`; rounded to two places
    std::size_t first;
  };
  const Row kRows[] = {
      {"nvfp4_nvidia_recipe_gap", "bf16", Form::kShrink, {1.47, 1.85, 2.42, 3.46, 4.76}, 1},
      {"quartet2_gap", "bf16", Form::kShrink, {1.34, 1.59, 2.00, 2.56, 3.34}, 1},
      {"mxfp4_forward_rtn_gap",
       "nvfp4_forward_1x16_gap",
       Form::kExtend,
       {1.17, 1.33, 1.58, 1.95},
       0},
      {"mxfp4_forward_rtn_gap",
       "nvfp4_forward_16x16_gap",
       Form::kExtend,
       {1.10, 1.25, 1.42, 1.61, 1.79},
       0}};
  for (const Row& row : kRows) {
    for (std::size_t i = 0; i < row.ratios.size(); ++i) {
      CAPTURE(row.format, row.reference, i);
      const LogRatio r =
          CrossingRatio(runs.at(row.format), runs.at(row.reference), row.first + i, row.form);
      CHECK(!r.extrapolated);
      // The listed ratios are of chords in ln D, which make the extend form too large and the
      // shrink form too small by up to 3.5 percent on a doubling grid. The ratios are rounded to
      // 0.01, and the losses of the .csv file twice to 1e-4, over at least 0.05 nats per e-fold.
      const double rounding = 0.005 + row.ratios[i] * 1e-4 / 0.05;
      const double bias = (Ratio(r) - row.ratios[i]) * (row.form == Form::kExtend ? -1 : 1);
      CHECK(bias > -rounding);
      CHECK(bias < 0.035 * row.ratios[i] + rounding);
    }
  }
}

TEST_CASE("Both forms of the crossing of a case worked by hand", "[study]") {
  // Budgets 1, 2, 4. R falls by 0.2 a doubling, f by 0.1 and starts 0.05 higher.
  const LossCurve r = Doubling({2.0, 1.8, 1.6}), f = Doubling({2.05, 1.95, 1.85});
  // f comes down to R(1) = 2.0 half way from 1 to 2.
  CHECK(Ratio(CrossingRatio(f, r, 0, Form::kExtend)) == Approx(std::sqrt(2.0)));
  // R was at f(4) = 1.85 three quarters of the way from 1 to 2.
  CHECK(Ratio(CrossingRatio(f, r, 2, Form::kShrink)) == Approx(4 / std::pow(2, 0.75)));
  // Exchanging R and f exchanges the two forms.
  CHECK(CrossingRatio(f, r, 2, Form::kShrink).value ==
        Approx(-CrossingRatio(r, f, 2, Form::kExtend).value));
  CHECK(Ratio(CrossingRatio(f, f, 1, Form::kExtend)) == Approx(1));
}

TEST_CASE("A crossing is extrapolated by half a grid step and no further", "[study]") {
  const LossCurve r = Doubling({2.0, 1.8, 1.6});
  const LossCurve near = Doubling({2.08, 1.88, 1.68}), far = Doubling({2.12, 1.92, 1.72});
  const LogRatio inside = CrossingRatio(near, r, 2, Form::kExtend);
  CHECK(inside.extrapolated);
  CHECK(Ratio(inside) == Approx(std::pow(2, 0.4)));
  const LogRatio outside = CrossingRatio(far, r, 2, Form::kExtend);
  CHECK(outside.status == Status::kAbove);
  CHECK(std::exp(outside.value) == Approx(std::sqrt(2.0)));
  // Mirrored: at the smallest budget the shrink form has to look below it.
  CHECK(CrossingRatio(near, r, 0, Form::kShrink).extrapolated);
  const LogRatio early = CrossingRatio(far, r, 0, Form::kShrink);
  CHECK(early.status == Status::kAbove);
  CHECK(std::exp(early.value) == Approx(std::sqrt(2.0)));
  // A better format has its ratio below a bound.
  CHECK(CrossingRatio(r, far, 0, Form::kExtend).status == Status::kBelow);
}

TEST_CASE("Curves that rise are repaired before they are crossed", "[study]") {
  const LossCurve r = Doubling({2.0, 1.8, 1.6});
  // f rises at the end: repaired to {2.1, 1.8, 1.8}, level, so it never comes down to 1.6.
  const LossCurve f = Doubling({2.1, 1.75, 1.85});
  CHECK(CrossingRatio(f, r, 2, Form::kExtend).status == Status::kAbove);
  CHECK(Ratio(CrossingRatio(f, r, 1, Form::kExtend)) == Approx(1));
  // The loss of f falls as t / (1 - t + t^2) from budget 1 to 2: a third of the way at 2 - sqrt(3).
  CHECK(Ratio(CrossingRatio(f, r, 0, Form::kExtend)) == Approx(std::pow(2, 2 - std::sqrt(3.0))));
}

TEST_CASE("A diverged curve or a curve of one point has no token ratio", "[study]") {
  const LossCurve r = Doubling({2.0, 1.8}), diverged = Doubling({2.1, INFINITY});
  CHECK(CrossingRatio(diverged, r, 0, Form::kExtend).status == Status::kUndefined);
  CHECK(CrossingRatio(Doubling({2.0}), Doubling({2.0}), 0, Form::kExtend).status ==
        Status::kUndefined);
  CHECK(!FitPowerLaw(std::vector{diverged}).law);
  const std::vector<std::vector<LossCurve>> lonely = {{Doubling({2.1})}};
  CHECK(!FitSharedBaseline(std::vector{Doubling({2.0})}, lonely));
}

const std::vector<double> kGrid = {1e6, 2e6, 4e6, 8e6, 16e6};

TEST_CASE("All three estimators recover the ratio of formats that waste tokens", "[study]") {
  // L_f(D) = L(D / r): every estimator must find r, whatever the budget.
  const double r = 1.3, e = 1.2, b = 0.6, beta = 0.4;
  const auto law = [&](double d) { return e + b * std::pow(d / 1e6, -beta); };
  const LossCurve reference = Curve(kGrid, law);
  const LossCurve format = Curve(kGrid, [&](double d) { return law(d / r); });
  for (std::size_t k = 0; k < kGrid.size() - 1; ++k) {
    CAPTURE(k);
    CHECK(Ratio(CrossingRatio(format, reference, k, Form::kExtend)) == Approx(r).epsilon(1e-3));
    CHECK(Ratio(CrossingRatio(format, reference, k + 1, Form::kShrink)) == Approx(r).epsilon(1e-3));
  }
  const PowerLawFit fit = FitPowerLaw(std::vector{reference, format});
  REQUIRE(fit.law);
  CHECK(fit.law->beta == Approx(beta).epsilon(1e-4));
  CHECK(fit.law->floors[0] == Approx(e).epsilon(1e-3));
  CHECK(fit.law->scales[1] == Approx(b * std::pow(r, beta)).epsilon(1e-3));
  CHECK(fit.law->rms < 1e-6);
  for (const Form form : {Form::kExtend, Form::kShrink}) {
    for (std::size_t k = 0; k < kGrid.size(); ++k) {
      CHECK(Ratio(PowerLawRatio(*fit.law, 1, 0, reference, k, form)) == Approx(r).epsilon(1e-3));
    }
  }
}

TEST_CASE("The shared baseline recovers gaps, exponent and ratios that follow its law", "[study]") {
  const auto base = [](double d) { return 1.6 - 0.1 * std::log(d / 1e6); };
  const double gamma = 0.15, small = 0.02, large = 0.05;
  const auto with_gap = [&](double a) {
    return Curve(kGrid, [=](double d) { return base(d) + a * std::pow(d / 1e6, gamma); });
  };
  const std::vector<LossCurve> baselines = {Curve(kGrid, base)};
  const std::vector<std::vector<LossCurve>> formats = {{with_gap(small), with_gap(large)}};
  const auto fit = FitSharedBaseline(baselines, formats);
  REQUIRE(fit);
  CHECK(fit->gamma == Approx(gamma).epsilon(1e-6));
  CHECK(fit->gaps[0][0] == Approx(small).epsilon(1e-6));
  CHECK(fit->gaps[0][1] == Approx(large).epsilon(1e-6));
  CHECK(fit->rms < 1e-8);
  for (std::size_t k = 0; k + 1 < kGrid.size(); ++k) {
    const double ratio =
        Ratio(SharedBaselineRatio(baselines[0], fit->gamma, large, small, k, Form::kExtend));
    const double at = kGrid[k] * ratio;
    CHECK(base(at) + large * std::pow(at / 1e6, gamma) ==
          Approx(base(kGrid[k]) + small * std::pow(kGrid[k] / 1e6, gamma)).epsilon(1e-9));
    // The mirrored question: the formats exchanged, from the tokens found.
    CHECK(SharedBaselineRatio(baselines[0], gamma, small, large, k, Form::kShrink).value ==
          Approx(-std::log(ratio)).epsilon(1e-6));
  }
  CHECK(SharedBaselineRatio(baselines[0], gamma, 0.9, 0, 4, Form::kExtend).status ==
        Status::kAbove);
  CHECK(Ratio(SharedBaselineRatio(baselines[0], gamma, small, small, 2, Form::kExtend)) == 1);
}

TEST_CASE("The power law says why it is not identified", "[study]") {
  const auto law = [](double d) { return 1.2 + 0.6 * std::pow(d / 1e6, -0.4); };
  CHECK(FitPowerLaw(std::vector{Curve({1e6, 2e6, 4e6}, law)}).reason == "needs 4 budgets, has 3");
  CHECK(FitPowerLaw(std::vector{Curve({1e6, 1.5e6, 2e6, 4e6}, law)}).reason ==
        "needs budgets a factor of 8 apart");
  const auto straight = [](double d) { return 1.6 - 0.1 * std::log(d / 1e6); };
  CHECK(FitPowerLaw(std::vector{Curve(kGrid, straight)}).reason ==
        "the losses fall as straight as ln D: no bend to fit");
  const auto rising = [](double d) { return 1.2 - 0.1 * std::pow(d / 1e6, -0.4); };
  CHECK(FitPowerLaw(std::vector{Curve(kGrid, rising)}).reason ==
        "a loss does not fall with the tokens");
}

TEST_CASE("The power law does not believe what is far beyond the budgets", "[study]") {
  const PowerLaw law{
      .beta = 0.4, .floors = {1.2, 1.25}, .scales = {0.6, 0.6}, .log_origin = std::log(1e6)};
  const LossCurve grid = Curve(kGrid, [](double) { return 1.0; });
  const LogRatio above = PowerLawRatio(law, 1, 0, grid, 4, Form::kExtend);
  CHECK(above.status == Status::kAbove);
  CHECK(std::exp(above.value) == Approx(2));
}

TEST_CASE("An outlier moves the Huber fit less than least squares would", "[study]") {
  const std::vector<double> grid = {1e6, 2e6, 4e6, 8e6, 16e6, 32e6, 64e6, 128e6};
  LossCurve curve = Curve(grid, [](double d) { return 1.2 + 0.6 * std::pow(d / 1e6, -0.4); });
  for (std::size_t i = 0; i < grid.size(); ++i) curve.losses[i] += (i % 2 == 0 ? 1 : -1) * 2e-4;
  curve.losses[4] += 0.02;
  const PowerLawFit fit = FitPowerLaw(std::vector{curve});
  REQUIRE(fit.law);
  CHECK(fit.law->beta == Approx(0.4).epsilon(0.03));
  CHECK(fit.law->floors[0] == Approx(1.2).epsilon(0.01));
}

TEST_CASE("The t interval over seeds of ln r covers the true ratio as often as it says",
          "[study]") {
  // 400 studies of 5 seeds: a seed shifts both curves alike, and each point has noise of its own.
  const double r = 1.3;
  const std::vector<double> grid = {1e6, 2e6, 4e6};
  const RandomStream stream{.seed = 9};
  std::uint64_t next = 0;
  const auto noise = [&] {
    const double u = UniformOpen(stream.Bits32(next++)), v = UniformOpen(stream.Bits32(next++));
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  };
  const auto loss = [](double d) { return 1.6 - 0.15 * std::log(d / 1e6); };
  int covered = 0;
  for (int study = 0; study < 400; ++study) {
    std::vector<double> log_ratios;
    for (int seed = 0; seed < 5; ++seed) {
      const double shift = 0.015 * noise();
      const auto twin = [&](double waste) {
        return Curve(grid, [&](double d) { return loss(d / waste) + shift + 0.003 * noise(); });
      };
      const LossCurve reference = twin(1), format = twin(r);
      log_ratios.push_back(CrossingRatio(format, reference, 1, Form::kExtend).value);
    }
    covered += StudentInterval(Summarize(log_ratios), 0.95)->Contains(std::log(r));
  }
  CHECK(covered >= 400 * 0.95 - 14);  // three standard errors
  CHECK(covered <= 400 * 0.95 + 14);
}

}  // namespace
}  // namespace fp4lab::study
