// Dialects in words: the formula of every enumerator and the lines of a row.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// The exact formula, as the enumerator's struct states it (kText); fl(.) is one rounding to
// binary32.
template <class Enum>
constexpr std::string_view FormulaOf(Enum rule) {
  return WithFormula<std::string_view>(rule, TextOfFormula{});
}
// The formula without roundings and guards (kShort), for block scales and factors.
template <class Enum>
constexpr std::string_view ShortFormulaOf(Enum rule) {
  return WithFormula<std::string_view>(rule, ShortOfFormula{});
}

// "1x16", "16x16", "tensor".
std::string BlockText(const Dialect& dialect);

struct DialectLine {
  std::string_view stage;  // "the tensor scale"
  std::string text;
};
// The formulas of a row, one line per stage; stages that the row lacks are left out.
std::vector<DialectLine> Describe(const Dialect& dialect);

}  // namespace fp4lab
