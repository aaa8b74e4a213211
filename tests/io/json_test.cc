#include "fp4lab/io/json.h"

#include <cstdint>

#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

TEST_CASE("A syntax error names line and column", "[io]") {
  CHECK(ErrorOf([] { ParseJson("{\n  \"a\": 1,\n  b\n}", "f.json"); }).find("f.json: line 3") == 0);
}

TEST_CASE("A key that stands twice in an object is refused with the object's pointer", "[io]") {
  const auto error = [](const std::string& text) {
    return ErrorOf([&] { ParseJson(text, "f.json"); });
  };
  CHECK(error(R"({"a": 1, "b": 2, "a": 3})") ==
        "f.json: has the key \"a\" twice; keep one of them");
  CHECK(error(R"({"arms": {"x": {"recipe": "bf16"}, "y": 1, "x": {}}})") ==
        "f.json#/arms: has the key \"x\" twice; keep one of them");
  CHECK(error(R"([1, [{}], {"l": [0, {}, {"a~/b": {"k": 1, "k": 1}}]}])") ==
        "f.json#/2/l/2/a~0~1b: has the key \"k\" twice; keep one of them");
  CHECK(error(R"([[], {"a": 1, "\u0061": 1}])") ==
        "f.json#/1: has the key \"a\" twice; keep one of them");
  // The same key in different objects is no duplicate.
  CHECK(error(R"({"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 1}]})") == "no error");
}

TEST_CASE("An unknown key is refused with its pointer and the nearest known key", "[io]") {
  const Json json = Json::parse(R"({"layers": 2, "layrs": 3})");
  int layers = 0;
  const std::string error = ErrorOf([&] {
    JsonObject o(json, "f.json#/model");
    o.Read("layers", &layers);
    o.Finish();
  });
  CHECK(layers == 2);
  CHECK(error == "f.json#/model/layrs: unknown key; did you mean \"layers\"?");
}

TEST_CASE("Numbers are read exactly or refused", "[io]") {
  const Json json = Json::parse(R"({"tokens": 4e6, "half": 0.5, "minus": -1, "list": [1, 2]})");
  JsonObject o(json, "f.json");
  std::int64_t tokens = 0;
  std::uint64_t minus = 0;
  int half = 0;
  std::vector<std::int64_t> list;
  o.Read("tokens", &tokens);
  o.Read("list", &list);
  CHECK(tokens == 4000000);
  CHECK(list == std::vector<std::int64_t>{1, 2});
  CHECK(ErrorOf([&] { o.Read("half", &half); }) == "f.json#/half: must be a whole number, not 0.5");
  CHECK(ErrorOf([&] { o.Read("minus", &minus); }).find("f.json#/minus: must be") == 0);
  CHECK(ErrorOf([&] { o.Require("absent", &half); }) == "f.json: needs the key \"absent\"");
}

TEST_CASE("Numbers beyond double and documents without end are refused in one line", "[io]") {
  const auto error = [](const std::string& text) {
    return ErrorOf([&] { ParseJson(text, "x.json"); });
  };
  CHECK(error(R"({"a": 4e888})") == "x.json: not JSON: number overflow parsing '4e888'");
  CHECK(error(std::string(100000, '[')).find("x.json: JSON nested too deep") == 0);
  CHECK(error(std::string(200, '[') + std::string(200, ']')) == "no error");
}

}  // namespace
}  // namespace fp4lab
