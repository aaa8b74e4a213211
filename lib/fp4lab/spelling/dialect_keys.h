// The keys of a dialect in JSON (dialect_json.h) as a table, for pages and tests.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fp4lab {

struct DialectKey {
  std::string_view key;
  std::string_view values;   // what may stand there; Markdown
  std::string_view meaning;  // one sentence or two, without a stop at the end
};
// In the order in which ReadDialect reads them.
std::span<const DialectKey> DialectKeys();

// Markdown: the table of keys, then a table of labels and exact formulas for each key whose value
// is a label. studies/dialects.md has it between marks.
std::string DialectKeysText();

}  // namespace fp4lab
