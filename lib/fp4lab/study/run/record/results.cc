#include "fp4lab/study/run/record/results.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/version.h"

namespace fp4lab::study {
namespace {

constexpr std::int64_t kCurvePoints = 200;

Json PointJson(const BranchPoint& point) {
  const bool has_high = point.high.tokens > 0;
  Json json = {{"tokens", point.branch.tokens},
               {"steps", point.branch.total_steps},
               {"validation_loss", point.training.loss},
               {"validation_loss_high", has_high ? Json(point.high.loss) : Json()},
               {"chunk_losses", point.training.chunk_losses},
               {"chunk_losses_high", point.high.chunk_losses}};
  for (const TextLoss& text : point.texts) {
    json["texts"][text.name] = {
        {"validation_loss", text.loss},
        {"validation_loss_high", text.loss_high ? Json(*text.loss_high) : Json()}};
  }
  return json;
}

// The trunk's training loss: at most kCurvePoints means over equal stretches of steps; "step" is
// the last step of its stretch.
Json CurveJson(const RunRecord& record, const Arm& arm, const RunPlan& plan) {
  Json curve = Json::array();
  const auto steps = std::min(static_cast<std::int64_t>(record.losses.size()), plan.TrunkSteps());
  const std::int64_t stride = DivideUp(plan.TrunkSteps(), kCurvePoints);
  for (std::int64_t end = stride; end <= steps; end += stride) {
    double sum = 0.0;
    for (std::int64_t i = end - stride; i < end; ++i) sum += record.losses[i];
    const std::int64_t total = plan.branches.back().total_steps;
    curve.push_back({{"step", end},
                     {"tokens", end * plan.tokens_per_step},
                     {"loss", sum / static_cast<double>(stride)},
                     {"learning_rate", LearningRate(arm.schedule, end - 1, total)}});
  }
  return curve;
}

// The observations of the trunk and of the plan's branches by rising step, as columns: a list a
// number, one entry an observation, null where it was not measured.
Json DiagnosticsJson(const RunRecord& record, const RunPlan& plan) {
  std::vector<const Observation*> seen;
  for (const Observation& o : record.observations) {
    const bool on_branch = std::any_of(plan.branches.begin(), plan.branches.end(),
                                       [&](const Branch& b) { return b.tokens == o.budget; });
    if (on_branch || (o.budget == 0 && o.step <= plan.TrunkSteps())) seen.push_back(&o);
  }
  std::sort(seen.begin(), seen.end(), [](const Observation* a, const Observation* b) {
    return std::tuple(a->budget, a->step) < std::tuple(b->budget, b->step);
  });
  Json steps = Json::array(), budgets = Json::array(), tokens = Json::array();
  Json rows = Json::array();
  std::map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    steps.push_back(seen[i]->step);
    budgets.push_back(seen[i]->budget);
    tokens.push_back(seen[i]->tokens);
    for (const ObservedRow& row : seen[i]->rows) {
      const auto [place, is_new] = places.try_emplace(row.name, rows.size());
      if (is_new) rows.push_back({{"name", row.name}, {"numbers", Json::object()}});
      Json& to = rows[place->second];
      if (!row.format.empty()) to["format"] = row.format;
      const auto set = [&](Json* list, Json value) {
        if (list->is_null()) *list = Json(seen.size(), Json());
        (*list)[i] = std::move(value);
      };
      for (const auto& [key, value] : row.numbers) set(&to["numbers"][key], value);
      if (row.scales) set(&to["scales"], fp4lab::ToJson(*row.scales));
    }
  }
  return {{"steps", std::move(steps)},
          {"budgets", std::move(budgets)},
          {"tokens", std::move(tokens)},
          {"rows", std::move(rows)}};
}

Json RunJson(const RunRecord& record, const Arm& arm, std::uint64_t seed, const RunPlan& plan) {
  Json points = Json::array(), trunk_points = Json::array(), tensors = Json::array(), diverged;
  for (const Branch& branch : plan.branches) {
    if (const BranchPoint* point = record.PointOf(branch)) points.push_back(PointJson(*point));
    const TrunkPoint* trunk = record.TrunkPointOf(branch.branch_step);
    if (trunk == nullptr) continue;
    trunk_points.push_back({{"tokens", branch.branch_step * plan.tokens_per_step},
                            {"validation_loss", trunk->validation_loss}});
    tensors = Json::array();
    for (const TensorStatistics& t : trunk->tensors) tensors.push_back(fp4lab::ToJson(t));
  }
  const bool broke = record.DivergedIn(plan);
  if (broke) diverged = {{"step", record.diverged->step}, {"tensor", record.diverged->tensor}};
  const double tokens = static_cast<double>(record.steps_made * plan.tokens_per_step);
  Json json = {{"arm", arm.name},
               {"seed", seed},
               {"status", broke ? "diverged" : "ok"},
               {"diverged_at", std::move(diverged)},
               {"points", std::move(points)},
               {"trunk_points", std::move(trunk_points)},
               {"curve", CurveJson(record, arm, plan)},
               {"tensors", std::move(tensors)},
               {"seconds", record.seconds},
               {"tokens_per_second", record.seconds > 0.0 ? tokens / record.seconds : 0.0}};
  if (!record.processors.empty()) json["processors"] = record.processors;
  if (!record.observations.empty()) json["diagnostics"] = DiagnosticsJson(record, plan);
  return json;
}

}  // namespace

Json ResultsJson(const Study& study, const Corpus& corpus, const Outcome& outcome) {
  const IeeeArithmetic ieee;
  Json runs = Json::array(), numerics = Json::object(), sizes = Json::object();
  const auto size = [](const ModelConfig& model) {
    return Json{{"parameters", ParameterCount(model)},
                {"block_parameters", BlockParameterCount(model)}};
  };
  std::size_t index = 0;
  for (std::size_t a = 0; a < study.arms.size(); ++a) {
    const Arm& arm = study.arms[a];
    numerics[arm.name] = outcome.numerics[a];
    if (arm.model != study.base.model) sizes[arm.name] = size(arm.model);
    for (const std::uint64_t seed : study.seeds) {
      runs.push_back(RunJson(outcome.records[index++], arm, seed, PlanOf(study, arm)));
    }
  }
  Json model = size(study.base.model);
  if (!sizes.empty()) model["arms"] = std::move(sizes);
  Json json = {{"schema", "fp4lab.study.results/1"},
               {"name", study.name},
               {"fp4lab_version", kVersion},
               {"numerics", std::move(numerics)},
               {"study", ToJson(study)},
               {"exploratory", outcome.exploratory},
               {"corpus",
                {{"name", corpus.name},
                 {"vocabulary", corpus.vocabulary},
                 {"train_tokens", corpus.train.size()},
                 {"validation_tokens", corpus.validation.size()},
                 {"train_sha256", corpus.train_sha256},
                 {"validation_sha256", corpus.validation_sha256}}},
               {"model", std::move(model)},
               {"runs", std::move(runs)}};
  for (const ValidationPart& text : corpus.texts) {
    json["corpus"]["texts"][text.name] = {{"tokens", text.tokens.size()}, {"sha256", text.sha256}};
  }
  if (!outcome.registered.empty()) json["registered"] = outcome.registered;
  return json;
}

}  // namespace fp4lab::study
