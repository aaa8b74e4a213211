#include "fp4lab/study/several/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/study/analysis/analysis.h"

namespace fp4lab::study {
namespace {

constexpr double kNormal95 = 1.96;

// The mean losses over seeds of every resample of the text: [arm][draw][budget], for the reference
// and the two formats.
using TextDraws = std::array<std::vector<std::vector<double>>, 3>;

class Evaluation {
 public:
  Evaluation(const JoinedStudy& study, std::size_t reference,
             const std::array<std::size_t, 2>& formats, int draws)
      : study_(study), arms_{reference, formats[0], formats[1]} {
    if (study.chunks.chunks > 0) Draw(static_cast<std::size_t>(draws));
  }

  Json Document() const {
    const Json evaluation = study_.results.study.value("evaluation", Json::object());
    Json json = {{"validation_bytes", evaluation.value("tokens", Json())},
                 {"validation_bytes_there", study_.results.validation_tokens},
                 {"gaps", Json::array()},
                 {"ratios", Ratios(study_.cube, true)}};
    const bool has_high = HasHigh();
    if (has_high) json["high_ratios"] = Ratios(study_.high, false);
    for (std::size_t at = 0; at < study_.cube.Budgets(); ++at) {
      json["gaps"].push_back(Gaps(at, has_high));
    }
    return json;
  }

 private:
  void Draw(std::size_t draws) {
    const std::size_t budgets = study_.cube.Budgets(), chunks = study_.chunks.chunks;
    const std::size_t all = study_.cube.arms, block = TextBlockOf(study_);
    // [arm][budget][chunk], the mean over seeds.
    std::array<std::vector<std::vector<double>>, 3> series;
    for (std::size_t a = 0; a < 3; ++a) {
      for (std::size_t k = 0; k < budgets; ++k) {
        std::vector<double> mean(chunks);
        for (std::size_t s = 0; s < study_.cube.seeds; ++s) {
          const auto& own = study_.chunks.series[(s * all + arms_[a]) * budgets + k];
          for (std::size_t c = 0; c < chunks; ++c) {
            mean[c] += own[c] / static_cast<double>(study_.cube.seeds);
          }
        }
        series[a].push_back(std::move(mean));
      }
      text_[a].assign(draws, std::vector<double>(budgets));
    }
    ParallelFor(draws, [&](std::size_t d) {
      const BootstrapDraw draw = DrawBootstrap(0, chunks, block, static_cast<std::uint32_t>(d));
      for (std::size_t a = 0; a < 3; ++a) {
        for (std::size_t k = 0; k < budgets; ++k) {
          double sum = 0;
          for (std::size_t c = 0; c < chunks; ++c) {
            sum += static_cast<double>(draw.chunk_counts[c]) * series[a][k][c];
          }
          text_[a][d][k] = sum / static_cast<double>(chunks);
        }
      }
    });
  }

  bool HasHigh() const {
    for (const std::size_t arm : arms_) {
      for (std::size_t s = 0; s < study_.high.seeds; ++s) {
        for (std::size_t k = 0; k < study_.high.Budgets(); ++k) {
          if (!std::isfinite(study_.high.At(s, arm, k))) return false;
        }
      }
    }
    return true;
  }

  // Adds the error of the text to a number over seeds, and the interval that holds both.
  static Json WithText(const std::vector<double>& values, double error) {
    Json json = NumberJson(values);
    json.erase("seeds");
    json["text_error"] = std::isfinite(error) ? Json(error) : Json();
    json["interval_with_text"] = IntervalWithText(json, error);
    return json;
  }

  double GapError(std::size_t format, std::size_t at) const {
    if (text_[0].empty()) return NAN;
    std::vector<double> gaps;
    for (std::size_t d = 0; d < text_[0].size(); ++d) {
      gaps.push_back(text_[format][d][at] - text_[0][d][at]);
    }
    return Summarize(gaps).deviation;
  }

  // Of ln of the ratio of the curves of the means, over the draws in which they cross.
  double RatioError(std::size_t at, Form form) const {
    const std::size_t solved = form == Form::kExtend ? 2 : 1, level = 3 - solved;
    std::vector<bool> apart;
    for (std::size_t k = 0; k < study_.cube.Budgets(); ++k) {
      apart.push_back(study_.Apart(arms_[solved], k));
    }
    std::vector<double> found;
    for (std::size_t d = 0; d < text_[solved].size(); ++d) {
      const std::optional<double> x =
          StandingCrossing({study_.cube.log_tokens, text_[solved][d]}, apart, text_[level][d][at]);
      if (x) found.push_back(*x);
    }
    return found.size() < 2 ? NAN : Summarize(found).deviation;
  }

  Json Ratios(const LossCube& cube, bool with_text) const {
    Json records = Json::array();
    for (std::size_t at = 0; at < cube.Budgets(); ++at) {
      for (const Form form : kForms) {
        const std::vector<double> ratios =
            StandingRatios(study_, cube, arms_[2], arms_[1], at, form);
        if (ratios.empty()) continue;
        records.push_back({{"tokens", study_.results.budgets[at]},
                           {"bytes_per_parameter", study_.BytesEach(at)},
                           {"form", FormName(form)},
                           {"log_ratio", with_text ? WithText(ratios, RatioError(at, form))
                                                   : NumberJson(ratios)}});
      }
    }
    return records;
  }

  Json Gaps(std::size_t at, bool has_high) const {
    Json json = {{"tokens", study_.results.budgets[at]},
                 {"bytes_per_parameter", study_.BytesEach(at)}};
    std::array<std::vector<double>, 3> gaps;
    for (std::size_t a = 1; a < 3; ++a) {
      const std::string& name = study_.results.arms[arms_[a]];
      gaps[a] = study_.GapsAt(arms_[a], arms_[0], at);
      json[name] = WithText(gaps[a], GapError(a, at));
      if (!has_high) continue;
      std::vector<double> high;
      for (std::size_t s = 0; s < study_.high.seeds; ++s) {
        high.push_back(study_.high.At(s, arms_[a], at) - study_.high.At(s, arms_[0], at));
      }
      json["high"][name] = NumberJson(high);
    }
    const std::optional<Interval> interval = FiellerInterval(gaps[2], gaps[1], kConfidence);
    json["ratio_of_gaps"] = {{"ratio", Summarize(gaps[2]).mean / Summarize(gaps[1]).mean},
                             {"interval", interval ? Json{interval->low, interval->high} : Json()}};
    return json;
  }

  const JoinedStudy& study_;
  std::array<std::size_t, 3> arms_;  // the reference, the formats
  TextDraws text_;
};

}  // namespace

double TextErrorOf(const JoinedStudy& study, const LossTerms& terms, std::size_t budget,
                   int draws) {
  const IeeeArithmetic ieee;
  const std::size_t chunks = study.chunks.chunks, budgets = study.cube.Budgets();
  if (chunks == 0) return NAN;
  std::vector<double> mean(chunks);  // over seeds
  for (std::size_t s = 0; s < study.cube.seeds; ++s) {
    for (std::size_t c = 0; c < chunks; ++c) {
      double sum = 0;
      for (const auto& [arm, factor] : terms) {
        sum += factor * study.chunks.series[(s * study.cube.arms + arm) * budgets + budget][c];
      }
      mean[c] += sum / static_cast<double>(study.cube.seeds);
    }
  }
  std::vector<double> drawn(static_cast<std::size_t>(draws));
  const std::size_t block = TextBlockOf(study);
  ParallelFor(drawn.size(), [&](std::size_t d) {
    const BootstrapDraw draw = DrawBootstrap(0, chunks, block, static_cast<std::uint32_t>(d));
    double sum = 0;
    for (std::size_t c = 0; c < chunks; ++c) {
      sum += static_cast<double>(draw.chunk_counts[c]) * mean[c];
    }
    drawn[d] = sum / static_cast<double>(chunks);
  });
  return Summarize(drawn).deviation;
}

Json IntervalWithText(const Json& number, double text_error) {
  const IeeeArithmetic ieee;
  if (number["interval_t"].is_null() || !std::isfinite(text_error)) return nullptr;
  const double mean = number["mean"];
  const double seeds = mean - number["interval_t"][0].get<double>();
  const double half = std::hypot(seeds, kNormal95 * text_error);
  return {mean - half, mean + half};
}

std::size_t TextBlockOf(const JoinedStudy& study) {
  const IeeeArithmetic ieee;
  const Json tokens =
      study.results.study.value("evaluation", Json::object()).value("chunk_tokens", Json());
  if (!tokens.is_number_unsigned() || tokens.get<std::size_t>() == 0) return 1;
  return std::max<std::size_t>(1, kTextBlock / tokens.get<std::size_t>());
}

Json EvaluationOf(const JoinedStudy& study, std::size_t reference,
                  const std::array<std::size_t, 2>& formats, int draws) {
  const IeeeArithmetic ieee;
  return Evaluation(study, reference, formats, draws).Document();
}

}  // namespace fp4lab::study
