// Members of a configuration in JSON: their reading, their checks and the names of their values.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

// A row of a table of names.
template <class T>
struct NamedValue {
  T value;
  std::string_view name;
};

// The name of a value in its table.
template <class T, std::size_t kRows>
constexpr std::string_view NameIn(const NamedValue<T> (&table)[kRows], T value) {
  for (const NamedValue<T>& row : table) {
    if (row.value == value) return row.name;
  }
  return "";
}

// The value that `name` has in its table. Throws Error at `where` with all names if there is none.
template <class T, std::size_t kRows>
T ValueIn(const NamedValue<T> (&table)[kRows], std::string_view name, const std::string& where) {
  std::string names;
  for (std::size_t i = 0; i < kRows; ++i) {
    if (table[i].name == name) return table[i].value;
    names += (i == 0 ? "" : i + 1 < kRows ? ", " : " or ") + std::string(table[i].name);
  }
  throw Error(where, "must be " + names + ", not \"" + std::string(name) + "\"");
}

// Reads into *value what `key` names, if it is there.
template <class T, std::size_t kRows>
void ReadNamed(JsonObject* o, std::string_view key, const NamedValue<T> (&table)[kRows], T* value) {
  std::string name(NameIn(table, *value));
  o->Read(key, &name);
  *value = ValueIn(table, name, o->Where(key));
}

template <class T>
void CheckAtLeast(const JsonObject& o, std::string_view key, T value, T least) {
  if (value >= least) return;
  throw Error(o.Where(key), "must be at least " + Json(least).dump());
}

inline void CheckFraction(const JsonObject& o, std::string_view key, float value) {
  if (value >= 0.0f && value < 1.0f) return;
  throw Error(o.Where(key), "must be in [0, 1)");
}

// Refuses sizes beyond those of any model, so that products of sizes stay within 64 bits.
inline void CheckSize(const JsonObject& o, std::string_view key, int value, int least, int most) {
  CheckAtLeast(o, key, value, least);
  if (value > most) throw Error(o.Where(key), "must be at most " + std::to_string(most));
}

// The double that prints like the float: 0.95, not 0.949999988079071.
inline double Shortest(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double result = 0.0;
  std::from_chars(text, end, result);
  return result;
}

// Throws Error unless the value is a power of two from `least` to `most`.
inline void CheckPowerOfTwo(const JsonObject& o, std::string_view key, float value, float least,
                            float most) {
  int exponent = 0;
  if (std::frexp(value, &exponent) == 0.5f && value >= least && value <= most) return;
  throw Error(o.Where(key), "must be a power of two from " + Json(Shortest(least)).dump() + " to " +
                                Json(Shortest(most)).dump());
}

template <class Config>
void ReadMember(JsonObject* o, std::string_view key,
                Config (*read)(const Json&, const std::string&), Config* config) {
  if (const Json* json = o->Member(key)) *config = read(*json, o->Where(key));
}

}  // namespace fp4lab
