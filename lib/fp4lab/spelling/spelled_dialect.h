// A user's own formula: a dialect that JSON spells out, wherever a row's name may stand.
//
// The object has either
//   "base" (or "like"), the name of a row, and the keys that differ from it, or
//   "rule", "element", "scale" and "block", which choose the formulas together, or
//   every stage: "element", "scale", "block", "tensor_scale", "block_scale", "scale_encoding",
//   "factor", "element_rounding", "nan", "inf_scale", "signed_zeros".
// Keys and words are those of dialect_json.h; `fp4lab dialects NAME --json` prints them for each
// row. Members by which that command describes a row ("name", "source", "stages", ...) are read
// over.
#pragma once

#include <string>
#include <string_view>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

// The row whose formulas the object spells out. If no row has them: a dialect that is kept until
// the process ends, and whose name is the shortest such object as text, `{"base":"nvfp4.te",
// "scale_encoding":"up"}` without the space. Equal formulas give the same dialect, whatever the
// object. `where` is the object's place, for errors: "mine.json".
//
// Throws Error at the JSON pointer of what is missing, unknown or contradictory, and of what no
// kernel is judged by: "clip", "unbias".
const Dialect& SpelledDialect(const Json& json, const std::string& where);

// FindDialect, and SpelledDialect for a text that starts with "{". nullptr for an unknown name.
const Dialect* DialectNamed(std::string_view text, const std::string& where);

// DialectNamed, and SpelledDialect of the file for a path that ends in ".json".
const Dialect* DialectOfText(const std::string& text, const std::string& where);

// Whether a text, in place of a name, spells a dialect out.
bool SpellsDialectOut(std::string_view text);

}  // namespace fp4lab
