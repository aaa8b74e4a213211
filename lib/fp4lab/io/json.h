// Strict reading of JSON: every key must be known, and every error names its place by JSON pointer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"

namespace fp4lab {

using Json = nlohmann::json;

// The deepest nesting that is accepted, so that recursive code does not run out of stack.
inline constexpr int kMaxJsonDepth = 256;

// The message of nlohmann's exception without the exception's name and number. For errors in a
// document that was checked before, for which no better place than the file is known.
std::string ProblemOf(const Json::exception& error);

// Returns the place of a key, which is the pointer of its object: "study.json#/arms".
using JsonPlace = std::function<std::string()>;
// Called for a key; `repeated`: the object had the same key before.
using JsonKeyVisitor =
    std::function<void(const std::string& key, bool repeated, const JsonPlace& place)>;
// Calls `visit` for every key, in one pass over the text. Throws Error(where, ...) for JSON nested
// deeper than kMaxJsonDepth. The pass stops silently at a syntax error, which the caller's parser
// reports. (nlohmann's parser with a callback takes time quadratic in the members of an object.)
void WalkJson(std::string_view text, std::string_view where, const JsonKeyVisitor& visit);

// Parses a text or file; syntax errors become Error("path", "line L, column C: ..."). Throws Error
// for a key that an object has twice, of which nlohmann's parser would keep the last.
Json ParseJson(std::string_view text, std::string_view where);
Json ReadJsonFile(const std::filesystem::path& path);

// The number as Integer: int, int64_t or uint64_t; 4e6 is 4000000. Throws Error(where, ...) for
// another type, a fraction or a value out of range, which nlohmann's get<Integer>() would convert,
// undefined for a float.
template <class Integer>
Integer WholeNumber(const Json& json, const std::string& where);

// One JSON object being read into a struct:
//   JsonObject o(json, "study.json#/model");
//   o.Read("layers", &config.layers);            // keeps the default when absent
//   o.Require("d_model", &config.d_model);       // Error when absent
//   o.Finish();                                  // Error for any key that was not read
class JsonObject {
 public:
  JsonObject(const Json& json, std::string where);

  bool Has(std::string_view key) const;
  // The place of a member: "study.json#/model/layers".
  std::string Where(std::string_view key) const;

  // Reads a member into *out, which keeps its value if the member is absent. T: bool, int, int64_t,
  // uint64_t (4e6 is accepted for 4000000), float, double, std::string, or a std::vector of
  // int64_t, uint64_t, double or std::string. Throws Error for another type or a value out of
  // range.
  template <class T>
  void Read(std::string_view key, T* out);

  template <class T>
  void Require(std::string_view key, T* out) {
    if (!Has(key)) throw Error(where_, "needs the key \"" + std::string(key) + "\"");
    Read(key, out);
  }

  // The raw member, marked as read; nullptr when absent. For nested objects and arrays.
  const Json* Member(std::string_view key);

  // Throws Error for the first key that was not read; the remedy names the nearest known keys.
  void Finish() const;

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace fp4lab
