// The page of the keys of a dialect in JSON, and scales rounded up and down.
#include "fp4lab/spelling/dialect_json.h"

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <regex>
#include <set>
#include <string>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/io/file.h"
#include "fp4lab/spelling/dialect_keys.h"
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
      ReadFile(SourceDirectory() / "lib" / "fp4lab" / "spelling" / "dialect_json.cc");
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

TEST_CASE("E4M3 scales are rounded up and down where a format says so", "[train]") {
  const Dialect up = ReadDialect({{"scale_encoding", "up"}}, "d");
  const Dialect down = ReadDialect({{"scale_encoding", "down"}}, "d");
  const Dialect& nearest = *FindDialect("nvfp4.te");
  CHECK(ReadDialect(ToJson(up), "again") == up);
  CHECK(ReadDialect(ToJson(down), "again") == down);
  int apart = 0;
  for (float t = 0x1p-12f; t < 700.0f; t *= 1.0078125f) {  // subnormal scales to beyond 448
    CAPTURE(t);
    const int above = EncodedScale(up, t), below = EncodedScale(down, t);
    const int middle = EncodedScale(nearest, t);
    const float high = Decode(FormatId::kE4M3, static_cast<std::uint32_t>(above));
    const float low = Decode(FormatId::kE4M3, static_cast<std::uint32_t>(below));
    CHECK(low <= t);
    CHECK((high >= t || above == 0x7E));
    const bool on_grid = low == t || t > 448.0f;
    CHECK(above - below == (on_grid ? 0 : 1));
    CHECK((middle == above || middle == below));
    apart += above != below ? 1 : 0;
  }
  CHECK(apart > 1000);
  for (const Dialect& d : {up, down}) {
    CHECK(EncodedScale(d, 0.0f) == 0);
    CHECK(EncodedScale(d, std::numeric_limits<float>::quiet_NaN()) == 0x7F);
  }
  CHECK(EncodedScale(up, 0x1p-140f) == 1);
  CHECK(EncodedScale(down, 0x1p-140f) == 0);
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
