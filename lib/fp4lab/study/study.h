// A study file: arms x seeds x token budgets, and the question asked of them before they are run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run_plan.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

// What one precision trains with. Model, data, batch and validation are the study's: all arms see
// the same tokens in the same order.
struct Arm {
  std::string name;
  RecipeConfig recipe;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;

  friend bool operator==(const Arm&, const Arm&) = default;
};

// Registered before the runs: what is compared with what, where, and what would count as an answer.
struct AnalysisConfig {
  std::string reference;               // the arm that gaps are taken to; default: the first
  std::vector<std::string> contrast;   // {f, R}: the headline token ratio of f against R
  std::int64_t primary_tokens = 0;     // the budget of the headline; default: the largest
  double confidence = 0.95;            // of every interval
  std::vector<std::string> null_arms;  // twins of the reference: their gap is the noise floor
  Json criteria = Json::array();       // criteria.h; may be empty

  friend bool operator==(const AnalysisConfig&, const AnalysisConfig&) = default;
};

struct Study {
  std::string name, title, description;
  TrainConfig base;       // all that arms share; its recipe, seed and tokens do not count
  std::vector<Arm> arms;  // in the order of the file
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> budgets;  // tokens, ascending
  AnalysisConfig analysis;
};

// Strict: every key known, every value checked, each error at its JSON pointer.
Study ReadStudy(const std::filesystem::path& path);
Study ParseStudy(std::string_view text, const std::string& where);

// Every default spelled out. Parsing its text gives the same study back ("arm_order" keeps the
// order, which JSON objects of this program do not).
Json ToJson(const Study& study);

// The configuration of one run. `tokens` is the largest budget.
TrainConfig ConfigOf(const Study& study, const Arm& arm, std::uint64_t seed);
// Its trunk and branches: a branch leaves where the schedule's decay to that budget begins.
RunPlan PlanOf(const Study& study, const Arm& arm);

}  // namespace fp4lab::study
