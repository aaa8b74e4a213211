// A study small enough for any machine, with everything of the file that can go wrong.
#pragma once

#include "fp4lab/study/run/study.h"

namespace fp4lab::study {

// A rehearsal of a study on the CPU, in seconds to minutes: the study's arms with their recipes and
// schedules, its first two seeds, rates, budgets in nearly the same proportions, contrasts,
// criteria and depth, with a width of at most 128, sequences of at most 64, steps of 256 tokens, at
// most kRehearsalSteps steps, and synthetic text. Of "evaluation.texts" token files are left out,
// whose vocabulary is not bytes. It says whether every recipe trains and the
// analysis and the report come out; its losses, gaps and verdicts mean nothing. The name ends in
// "-quick". Throws Error where a recipe does not fit that width.
inline constexpr std::int64_t kRehearsalSteps = 48;
Study RehearsalOf(const Study& study);

}  // namespace fp4lab::study
