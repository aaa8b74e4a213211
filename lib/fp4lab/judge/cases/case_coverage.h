// Measures a set of cases: which families of cases catch which wrong kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/kernels/deviation.h"

namespace fp4lab {

struct MutantCoverage {
  const Deviation* deviation = nullptr;
  // By CoverageReport::families: cases of the family on which the mutant's bytes differ.
  std::vector<std::size_t> caught = {};
  bool CaughtBySet(std::size_t set_size) const;      // by a family that is not a control
  bool CaughtByControl(std::size_t set_size) const;  // by a control family
};

struct CoverageReport {
  std::string_view dialect;
  std::vector<const CaseFamily*> families = {};  // families with cases; the controls last
  std::vector<std::size_t> cases = {};           // of each family
  std::size_t set_size = 0;                      // families that are not controls
  std::vector<MutantCoverage> mutants = {};      // the deviations that can change a byte
  std::size_t caught_by_set = 0, caught_by_control = 0;
};

// Runs every deviation that applies to the dialect's kernel on every case. The kernels write codes
// low nibble first, scales in 128x4 tiles and the amax; deviations that need a Hadamard transform
// run behind Transformer Engine's. Padding is not compared. With `until_caught`, the remaining
// families are skipped for a mutant that a family which is not a control has caught. `progress` is
// called after each mutant, from any thread, with the numbers of those measured and of all.
CoverageReport MeasureCoverage(const Dialect& dialect, const std::vector<Case>& cases,
                               bool until_caught = false,
                               const std::function<void(std::size_t, std::size_t)>& progress = {});

std::string CoverageText(const CoverageReport& report);
Json CoverageJson(const CoverageReport& report);

}  // namespace fp4lab
