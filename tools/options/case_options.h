// The options that select a set of cases. `cases` and `verify` share them, so that the same options
// select the same cases.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/judge/cases/case.h"
#include "tools/help/help_group.h"
#include "tools/options/number_option.h"

namespace fp4lab::tools {

struct CaseSetOptions {
  std::string level = "quick";
  std::uint64_t seed = 1;
  std::vector<std::string> families;
  bool bf16 = false;
};

inline void AddCaseSetOptions(CLI::App* command, CaseSetOptions* options) {
  const HelpGroup group(command, kCasesGroup);
  command->add_option("--level", options->level, "quick or thorough")->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the values that are drawn")
      ->transform(AnySeed())
      ->capture_default_str();
  command->add_option("--family", options->families, "Only the cases of these families")
      ->type_name("NAME");
  command->add_flag("--bf16", options->bf16, "Only cases whose values are BF16, written as BF16");
}

inline CaseOptions CasesOf(const CaseSetOptions& options) {
  CaseOptions cases{.seed = options.seed, .families = options.families, .bf16_only = options.bf16};
  for (const NamedCaseLevel& named : kCaseLevels) {
    if (named.name != options.level) continue;
    cases.level = named.level;
    return cases;
  }
  throw Error(
      "--level " + options.level,
      "is not a level; " + DidYouMean(options.level, NamesOf(kCaseLevels), "quick or thorough"));
}

}  // namespace fp4lab::tools
