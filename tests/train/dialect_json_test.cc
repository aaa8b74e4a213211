// The page of the keys of a dialect in JSON, and scales rounded up and down.
#include "fp4lab/train/dialect_json.h"

#include <cstdlib>
#include <regex>
#include <set>
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/train/dialect_keys.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

std::set<std::string> KeysOfTable() {
  std::set<std::string> keys;
  for (const DialectKey& key : DialectKeys()) keys.emplace(key.key);
  return keys;
}

TEST_CASE("The table of a dialect's keys is what ReadDialect reads", "[train]") {
  const std::string source =
      ReadFile(SourceDirectory() / "lib" / "fp4lab" / "train" / "dialect_json.cc");
  const std::regex key(
      R"re((?:(?:->|\.)(?:Read|Has)\(|Read(?:Stage|Format|NanByte)\(&?o, )"([a-z0-9_]+)")re");
  std::set<std::string> keys;
  for (std::sregex_iterator i(source.begin(), source.end(), key), end; i != end; ++i) {
    keys.insert((*i)[1].str());
  }
  CHECK(keys == KeysOfTable());
  CHECK(KeysOfTable().size() == DialectKeys().size());
  for (const std::string& name : KeysOfTable()) {
    CAPTURE(name);  // a value of no type: the error is of the value, not of the key
    const std::string error = ErrorOf([&] { ReadDialect({{name, Json::object()}}, "d"); });
    CHECK_THAT(error, ContainsSubstring("d#/" + name) && !ContainsSubstring("unknown key"));
  }
  CHECK_THAT(ErrorOf([] {
               ReadDialect({{"scale_encodign", "up"}}, "d");
             }),
             ContainsSubstring("unknown key; did you mean \"scale_encoding\"?"));
}

TEST_CASE("Every label of the page has its formula", "[train]") {
  CHECK_THAT(DialectKeysText(), !ContainsSubstring("|  |"));
}

TEST_CASE("studies/dialects.md has the table of keys and labels", "[train]") {
  const std::filesystem::path path = SourceDirectory() / "studies" / "dialects.md";
  const std::string text = ReadFile(path);
  const std::string begin = "<!-- keys: begin -->\n", end = "<!-- keys: end -->";
  const std::size_t from = text.find(begin), to = text.find(end);
  REQUIRE((from != std::string::npos && to != std::string::npos));
  const std::string made =
      text.substr(0, from + begin.size()) + DialectKeysText() + text.substr(to);
  if (std::getenv("FP4LAB_APPROVE") != nullptr) WriteFileAtomically(path, made);
  CHECK(ReadFile(path) == made);
}

}  // namespace
}  // namespace fp4lab
