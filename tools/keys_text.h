// The tables of the keys of JSON files, data/*-keys.json.
#pragma once

#include <span>
#include <string_view>

namespace fp4lab::tools {

struct KeyTable {
  std::string_view name;  // "study"
  std::string_view text;  // JSON: "title", "text", "objects" and "lists" of {"at", "title", "text",
                          // "keys": [[key, what may stand there, what it means], ...]}
};
std::span<const KeyTable> KeyTables();

}  // namespace fp4lab::tools
