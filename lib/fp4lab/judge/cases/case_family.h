// The families of cases as a table, and the cases that they make.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/judge/cases/case.h"

namespace fp4lab {

class CaseBuilder;

struct CaseFamily {
  std::string_view name;
  std::string_view cause;  // the tested cause of error: "rounding of elements at and beside a tie"
  bool (*applies)(const Dialect& dialect);
  void (*make)(CaseBuilder& builder);
  bool is_control = false;  // plain random data, for comparison
};

// All families, in the order of their cases. The controls come last.
std::span<const CaseFamily> CaseFamilies();
const CaseFamily* FindCaseFamily(std::string_view name);

// The cases of the chosen families that apply to the dialect. Throws Error for an unknown family.
std::vector<Case> MakeCases(const Dialect& dialect, const CaseOptions& options = {});

}  // namespace fp4lab
