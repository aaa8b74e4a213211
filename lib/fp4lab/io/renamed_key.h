// Keys and members that had another name in older versions, whose files are still read.
#pragma once

#include <string_view>

#include "fp4lab/io/json.h"

namespace fp4lab {

// The tensor scale's name in files of older versions.
inline constexpr std::string_view kOldTensorScale = "level_two";

// The name by which `o` has the key: `old_name` if only that is there, else `key`.
inline std::string_view RenamedKey(const JsonObject& o, std::string_view key,
                                   std::string_view old_name) {
  return !o.Has(key) && o.Has(old_name) ? old_name : key;
}

}  // namespace fp4lab
