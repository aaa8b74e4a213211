// JSON in, strictly: every key must be known, every error names its place by JSON pointer.
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

// Deeper documents are refused: whoever walks them recursively must not run out of stack.
inline constexpr int kMaxJsonDepth = 256;

// What nlohmann's exception says, without its name and number: for a document that was checked
// before, so that no better place is known than the file.
std::string ProblemOf(const Json::exception& error);

// Where a key stands: "study.json#/arms", the pointer of its object.
using JsonPlace = std::function<std::string()>;
// Sees a key, and whether its object had it before.
using JsonKeyVisitor =
    std::function<void(const std::string& key, bool repeated, const JsonPlace& place)>;
// Shows every key to `visit`; Error(where, ...) for JSON nested too deep. One walk through the
// text, which need be no JSON: syntax is the parser's affair. (nlohmann's parser with a callback
// takes time quadratic in the members of an object.)
void WalkJson(std::string_view text, std::string_view where, const JsonKeyVisitor& visit);

// Parses a file or text; syntax errors become Error("path", "line L, column C: ..."). A key that
// stands twice in an object, of which the parser would keep the last, is refused.
Json ParseJson(std::string_view text, std::string_view where);
Json ReadJsonFile(const std::filesystem::path& path);

// One JSON object being read into a struct:
//   JsonObject o(json, "study.json#/model");
//   o.Read("layers", &config.layers);            // keeps the default when absent
//   o.Require("d_model", &config.d_model);       // Error when absent
//   o.Finish();                                  // Error for any key that nobody read
class JsonObject {
 public:
  JsonObject(const Json& json, std::string where);

  bool Has(std::string_view key) const;
  // "study.json#/model/layers"
  std::string Where(std::string_view key) const;

  // T: bool, int, int64_t, uint64_t (4e6 is accepted for 4000000), float, double, std::string, or a
  // std::vector of int64_t, uint64_t, double or std::string.
  template <class T>
  void Read(std::string_view key, T* out);

  template <class T>
  void Require(std::string_view key, T* out) {
    if (!Has(key)) throw Error(where_, "needs the key \"" + std::string(key) + "\"");
    Read(key, out);
  }

  // The raw member, marked as read; nullptr when absent. For nested objects and arrays.
  const Json* Member(std::string_view key);

  // Error for the first unread key, with the nearest known ones as a remedy.
  void Finish() const;

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace fp4lab
