// What a study file holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
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

}  // namespace fp4lab::study
