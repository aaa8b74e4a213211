// A study file: arms x seeds x token budgets, and the question asked of them before they are run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "fp4lab/io/json.h"
#include "fp4lab/study/run/file/study_types.h"
#include "fp4lab/study/run/run_plan.h"
#include "fp4lab/train/config.h"

namespace fp4lab::study {

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
