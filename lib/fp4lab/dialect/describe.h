// Dialects in words: the formula of every enumerator, the lines of a row, and what a row does with
// zeros, NaN, Inf and subnormals, found out by running it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/dialect.h"

namespace fp4lab {

// The formulas as dialect.h states them; fl(.) is one rounding to binary32.
std::string_view FormulaOf(LevelTwo rule);
std::string_view FormulaOf(BlockScale rule);
std::string_view ShortFormulaOf(BlockScale rule);  // without roundings and guards
std::string_view FormulaOf(ScaleEncoding rule);
std::string_view FormulaOf(Factor rule);
std::string_view FormulaOf(ElementRounding rule);
std::string_view FormulaOf(Adaptive rule);
std::string_view FormulaOf(NanRule rule);
std::string_view FormulaOf(ScaleRule rule);
std::string_view FormulaOf(InfScale rule);  // empty for kRule

// The scale before rounding, or the E8M0 rule, of this row.
std::string_view ScaleFormulaOf(const Dialect& dialect);

// "1x16", "16x16", "tensor".
std::string BlockText(const Dialect& dialect);

struct DialectLine {
  std::string_view stage;  // "level 2"
  std::string text;
};
// What holds for the row, stage by stage; stages that the row lacks are left out.
std::vector<DialectLine> Describe(const Dialect& dialect);

// One input of two blocks and what becomes of it: the first block holds the case, the second is
// ordinary.
struct Behaviour {
  std::string_view input;
  std::uint8_t scale = 0, code = 0;  // of the first block, and of the element in question
  std::uint8_t neighbour = 0;        // the code of an element of half the others' size
  std::uint8_t other_scale = 0;      // of the second block
};
std::vector<Behaviour> Behaviours(const Dialect& dialect);

}  // namespace fp4lab
