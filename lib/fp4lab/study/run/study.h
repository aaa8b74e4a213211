// A study file: arms x seeds x token budgets, and the question asked of them before they are run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run/run_plan.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

// One precision of a study, with its recipe, optimizer and schedule; and its model, where a study
// has several sizes. Sequence length, vocabulary, data, batch and validation are those of the
// study, so that all arms see the same tokens in the same order.
struct Arm {
  std::string name;
  ModelConfig model;
  RecipeConfig recipe;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  int nudge_ulps = 0;  // of TrainConfig; above 0 in a null arm
  // The arm of the file whose learning rate is swept; `name` is then ArmAtRate of it. Empty: no
  // sweep.
  std::string swept = {};
  std::string start = {};  // of TrainConfig: the checkpoint with the first weights
  TeacherConfig teacher = {};

  friend bool operator==(const Arm&, const Arm&) = default;
};

// A file with what the runs are expected to give, made before them: a law (several/law.h), numbers.
struct Prediction {
  std::string file;    // relative to the working folder
  std::string sha256;  // of its content, 64 lower-case hexadecimal digits

  friend bool operator==(const Prediction&, const Prediction&) = default;
};

// The analysis registered before the runs: the arms and the budget that are compared, and the
// criteria of an answer.
struct AnalysisConfig {
  // The arm that gaps are taken to, one for each model; default: the first arm of the model.
  std::vector<std::string> references;
  // {f, R} of one model: the headline token ratio of f against R; at most one for each model.
  std::vector<std::vector<std::string>> contrasts;
  std::int64_t primary_tokens = 0;  // the budget of the headline; default: the largest
  double confidence = 0.95;         // level of every interval
  // Twins of the reference, whose gap to it is the noise floor: arms that were named, and every arm
  // that is the reference but for "nudge_ulps".
  std::vector<std::string> null_arms;
  Json criteria = Json::array();  // criteria.h; may be empty
  std::vector<Prediction> predictions;

  friend bool operator==(const AnalysisConfig&, const AnalysisConfig&) = default;
};

struct Study {
  std::string name, title, description;
  TrainConfig base;  // the settings that arms share; its recipe, seed and tokens are not used,
                     // and its model is that of arms without one
  // In the order of the file; in a sweep, each arm of the file at each of its rates. `analysis`
  // names arms of the file.
  std::vector<Arm> arms;
  std::vector<double> rates;  // learning rates of the sweep, ascending; empty: none
  std::vector<std::uint64_t> seeds;
  std::vector<std::int64_t> budgets;  // tokens, ascending
  AnalysisConfig analysis;
};

// Read a study strictly: an unknown key or an invalid value throws Error at its JSON pointer.
Study ReadStudy(const std::filesystem::path& path);

// Throws Error, at the JSON pointer of the member within the file `where`, for an arm that the
// study's device does not train (CheckDevice, train/config.h).
void CheckDevice(const Study& study, const std::string& where);

// Throws Error, at the JSON pointer of the member within the file `where`, for an arm whose start
// is no checkpoint or does not fit its model (CheckStart, train/start/start.h), or whose teacher
// is none (CheckTeacher, train/start/teacher.h).
void CheckStarts(const Study& study, const std::string& where);
Study ParseStudy(std::string_view text, const std::string& where);

// Throws Error for a prediction whose file cannot be read or has another SHA-256 than the study
// says. `where`: the study file.
void CheckPredictions(const Study& study, const std::string& where);

// The resolved study: every default spelled out. Parsing its text gives the same study back; the
// member "arm_order" keeps the order of arms, since Json sorts keys.
Json ToJson(const Study& study);

// The configuration of one run. `tokens` is the largest budget.
TrainConfig ConfigOf(const Study& study, const Arm& arm, std::uint64_t seed);
// The plan of an arm's runs: a branch leaves the trunk where the schedule's decay to its budget
// begins.
RunPlan PlanOf(const Study& study, const Arm& arm);
// Optimizer steps of all runs.
std::int64_t TotalSteps(const Study& study);

}  // namespace fp4lab::study
