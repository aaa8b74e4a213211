// Checks that a dialect's quick cases catch every wrong kernel that applies.
#pragma once

#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/judge/cases/case_coverage.h"
#include "fp4lab/judge/cases/case_family.h"
#include "tests/support/catch.h"

namespace fp4lab {

// Rows of the table whose answer follows from the input alone.
inline std::vector<const Dialect*> DeterministicDialects() {
  std::vector<const Dialect*> rows;
  for (const Dialect& d : Dialects()) {
    if (!IsStochastic(d) && !IsApproximate(d)) rows.push_back(&d);
  }
  return rows;
}

// The rows, in the table's order, with a block scale formula, scale encoding or element rounding
// that no row before them has, and the first row with two candidate scales.
inline std::vector<const Dialect*> OneOfEachFormula() {
  std::set<std::pair<int, int>> seen;
  std::vector<const Dialect*> rows;
  for (const Dialect* d : DeterministicDialects()) {
    const int formulas[] = {static_cast<int>(d->block_scale), static_cast<int>(d->scale_encoding),
                            static_cast<int>(d->rounding), d->adaptive != Adaptive::kNo ? 1 : 0};
    bool is_new = false;
    for (int stage = 0; stage < 4; ++stage) is_new |= seen.insert({stage, formulas[stage]}).second;
    if (is_new) rows.push_back(d);
  }
  return rows;
}

inline CoverageReport CheckCatchesAll(const Dialect& dialect) {
  CAPTURE(dialect.name);
  CoverageReport report = MeasureCoverage(dialect, MakeCases(dialect), true);
  for (const MutantCoverage& mutant : report.mutants) {
    CAPTURE(mutant.deviation->name);
    CHECK(mutant.CaughtBySet(report.set_size));
  }
  CHECK(report.mutants.size() >= 36);
  CHECK(report.caught_by_control + 9 <= report.mutants.size());
  return report;
}

}  // namespace fp4lab
