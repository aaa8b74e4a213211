// Which families of cases catch which wrong kernels: the measure of a set of cases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/case.h"
#include "fp4lab/judge/deviation.h"

namespace fp4lab {

struct MutantCoverage {
  const Deviation* deviation = nullptr;
  // By CoverageReport::families: cases of the family on which the mutant's bytes differ.
  std::vector<std::size_t> caught = {};
  bool CaughtBySet(std::size_t set_size) const;      // by a family that is no control
  bool CaughtByControl(std::size_t set_size) const;  // by one that is
};

struct CoverageReport {
  std::string_view dialect;
  std::vector<const CaseFamily*> families = {};  // those with cases; the controls last
  std::vector<std::size_t> cases = {};           // of each family
  std::size_t set_size = 0;                      // families that are no controls
  std::vector<MutantCoverage> mutants = {};      // the deviations that can change a byte
  std::size_t caught_by_set = 0, caught_by_control = 0;
};

// Every deviation that applies to the dialect's kernel, run on every case. Kernels write codes low
// nibble first, scales in 128x4 tiles and the amax; those deviations that need a Hadamard transform
// are run behind Transformer Engine's. Padding does not count. With `until_caught`, a mutant's
// remaining families are skipped once one that is no control has caught it.
CoverageReport MeasureCoverage(const Dialect& dialect, const std::vector<Case>& cases,
                               bool until_caught = false);

std::string CoverageText(const CoverageReport& report);
Json CoverageJson(const CoverageReport& report);

}  // namespace fp4lab
