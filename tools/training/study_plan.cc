// fp4lab study plan: what a study will take, and what it will be able to tell.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/study/analysis/analyze.h"
#include "fp4lab/study/analysis/power.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/results/sweep.h"
#include "fp4lab/study/run/forecast.h"
#include "fp4lab/study/run/study_start.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/status_line.h"
#include "tools/options/study_options.h"
#include "tools/training/study_example.h"

namespace fp4lab::tools {
namespace {

struct PlanOptions : StudyRunOptions {
  std::string pilot;
  study::PowerOptions power;
  bool json = false;
};

double Mebibytes(double bytes) { return std::ceil(bytes / (1 << 20)); }

Json ToJson(const study::StudyForecast& forecast) {
  Json arms = Json::array();
  for (const study::ArmForecast& arm : forecast.arms) {
    arms.push_back({{"arm", arm.arm},
                    {"block_parameters", arm.block_parameters},
                    {"steps", arm.steps},
                    {"seconds_per_step", arm.seconds_per_step},
                    {"seconds_per_budget", arm.seconds_per_budget},
                    {"observations", arm.observations},
                    {"seconds_per_observation", arm.seconds_per_observation},
                    {"seconds", arm.seconds},
                    {"memory_bytes", arm.memory}});
  }
  return {{"arms", std::move(arms)},     {"steps", forecast.steps},
          {"jobs", forecast.jobs},       {"threads_per_job", forecast.threads_per_job},
          {"seconds", forecast.seconds}, {"memory_bytes", forecast.memory},
          {"disk_bytes", forecast.disk}};
}

Json ToJson(const std::vector<study::PowerRow>& rows) {
  Json json = Json::array();
  for (const study::PowerRow& row : rows) {
    const bool is_gap = row.quantity == study::PowerRow::Quantity::kGap;
    json.push_back({{"quantity", is_gap ? "gap" : "log_token_ratio"},
                    {"arm", row.arm},
                    {"reference", row.reference},
                    {"tokens", row.tokens},
                    {"pilot_seeds", row.pilot_seeds},
                    {"deviation", row.deviation},
                    {"half_width", std::isfinite(row.half_width) ? Json(row.half_width) : Json()},
                    {"seeds_needed", row.needed > 0 ? Json(row.needed) : Json()}});
  }
  return json;
}

void PrintForecast(const study::Study& study, const study::StudyForecast& forecast) {
  Print("%s: %zu arms x %zu seeds, %zu budgets; %lld steps of %lld tokens\n",
        Printable(study.name).c_str(), study.arms.size(), study.seeds.size(), study.budgets.size(),
        static_cast<long long>(forecast.steps), static_cast<long long>(TokensPerStep(study.base)));
  std::size_t width = 3;
  for (const study::ArmForecast& arm : forecast.arms) width = std::max(width, arm.arm.size());
  Print("%-*s  %8s  %11s  %8s  %9s  %10s\n", static_cast<int>(width), "arm", "N", "tokens/N",
        "ms/step", "time/run", "memory");
  for (const study::ArmForecast& arm : forecast.arms) {
    const auto n = static_cast<double>(arm.block_parameters);
    const auto per_parameter = [&](std::int64_t tokens) {
      return study::PerParameterText(static_cast<double>(tokens) / n);
    };
    std::string range = per_parameter(study.budgets.front());
    if (study.budgets.size() > 1) range += " .. " + per_parameter(study.budgets.back());
    Print("%-*s  %8s  %11s  %8.3g  %9s  %6.0f MiB\n", static_cast<int>(width),
          Printable(arm.arm).c_str(), study::TokensText(n).c_str(), range.c_str(),
          1e3 * arm.seconds_per_step, Duration(arm.seconds).c_str(), Mebibytes(arm.memory));
  }
  Print("all runs: about %s, %d at a time with %d threads each; memory %.0f MiB, disk %.0f MiB\n",
        Duration(forecast.seconds).c_str(), forecast.jobs, forecast.threads_per_job,
        Mebibytes(forecast.memory), Mebibytes(static_cast<double>(forecast.disk)));
}

void PrintPower(const std::vector<study::PowerRow>& rows, const PlanOptions& options) {
  Print("power, from the spread between the seeds of %s:\n", Printable(options.pilot).c_str());
  for (const study::PowerRow& row : rows) {
    const bool is_gap = row.quantity == study::PowerRow::Quantity::kGap;
    const std::string what =
        is_gap ? "gap of " + row.arm + " to " + row.reference
               : "ln of the token ratio, " + row.arm + " to match " + row.reference;
    const std::string width = std::isfinite(row.half_width)
                                  ? "+- " + study::Fixed(row.half_width, is_gap ? 4 : 3)
                                  : "no interval";
    const std::string needed =
        row.needed > 0 ? std::to_string(row.needed) : "over " + std::to_string(study::kMostSeeds);
    Print("  %s at %s: %s with %zu seeds; +- %.3g needs %s\n", Printable(what).c_str(),
          study::TokensText(static_cast<double>(row.tokens)).c_str(), width.c_str(),
          options.power.seeds, is_gap ? options.power.gap : options.power.log_ratio,
          needed.c_str());
  }
  if (rows.empty()) Print("  it has no quantity that two seeds have a value of\n");
}

void RunPlan(PlanOptions options) {
  const study::Study study = ReadStudy(options);
  NoteSlowTarget();
  std::vector<study::PowerRow> power;
  options.power.seeds = study.seeds.size();
  options.power.confidence = study.analysis.confidence;
  if (!options.pilot.empty()) {
    for (const study::Results& model : study::AllViews(study::LoadResults(options.pilot))) {
      // Of a sweep, the runs at the shared learning rate.
      if (model.view == study::View::kBestRates || model.view == study::View::kOtherRate) continue;
      const std::vector<study::PowerRow> rows =
          study::PowerTable(model, study::Analyze(model), options.power);
      power.insert(power.end(), rows.begin(), rows.end());
    }
  }
  const study::StudyForecast forecast =
      study::ForecastStudy(study, study::LoadCorpusOf(study),
                           {.jobs = options.jobs, .threads_per_job = options.threads_per_job});
  if (options.json) {
    Json json = ToJson(forecast);
    if (!options.pilot.empty()) json["power"] = ToJson(power);
    return PrintJson(json, 2);
  }
  PrintForecast(study, forecast);
  if (!options.pilot.empty()) PrintPower(power, options);
}

}  // namespace

void AddStudyPlan(CLI::App& app) {
  CLI::App* study = app.get_subcommand("study");
  auto options = std::make_shared<PlanOptions>();
  CLI::App* plan = study->add_subcommand(
      "plan", "Time a few steps of each arm: the study's time, memory and disk, and its power");
  AddStudyRunOptions(plan, options.get());
  plan->add_option("--pilot", options->pilot,
                   "A results.json of like arms: says how many seeds intervals take");
  plan->add_option("--half-width", options->power.log_ratio,
                   "Wanted half-width of the interval of ln r, r the token ratio")
      ->check(Decimal(1e-6, 10))
      ->capture_default_str();
  plan->add_option("--gap-half-width", options->power.gap,
                   "Wanted half-width of the interval of a gap, in nats")
      ->check(Decimal(1e-6, 10))
      ->capture_default_str();
  plan->add_flag("--json", options->json, "Print JSON");
  plan->footer(
      StudyExample("  $ fp4lab study plan tiny.json | head -n 1\n"
                   "  tiny: 2 arms x 2 seeds, 1 budgets; 128 steps of 256 tokens\n"));
  plan->callback([=] { RunPlan(*options); });
}

}  // namespace fp4lab::tools
