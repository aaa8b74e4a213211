// Dialects that JSON spells out: every row there and back, formulas beside the table, and errors.
#include "fp4lab/spelling/spelled_dialect.h"

#include <string>
#include <vector>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/spelling/dialect_json.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// The fields of nvfp4.te, written here.
Json FromScratch() {
  return {{"element", "e2m1"},
          {"scale", "e4m3"},
          {"block", {1, 16}},
          {"scale_max", 448},
          {"tensor_scale", "encode_scale"},
          {"block_scale", "folded"},
          {"scale_encoding", "nearest"},
          {"factor", "reciprocal"},
          {"element_rounding", "nearest_even"},
          {"nan", "element"},
          {"inf_scale", "rule"},
          {"signed_zeros", "keep"}};
}

// The rows whose formulas differ in the sign that a zero never has are equal.
bool SameBytes(Dialect a, Dialect b) {
  if (a.never_negative_zero) a.keeps_negative_zero = false;
  if (b.never_negative_zero) b.keeps_negative_zero = false;
  return SameFormulas(a, b);
}

TEST_CASE("What is printed of a row is read as the row", "[spelling]") {
  REQUIRE(Dialects().size() >= 165);
  for (const Dialect& row : Dialects()) {
    CAPTURE(row.name);
    const Dialect& printed = SpelledDialect(DialectJson(row), "row.json");
    const Dialect& fields = SpelledDialect(DialectFields(row), "row.json");
    const Dialect& base = SpelledDialect({{"base", row.name}}, "row.json");
    CHECK(SameBytes(printed, row));
    CHECK(&fields == &printed);
    CHECK(&base == &printed);
    CHECK(FindDialect(printed.name) == &printed);  // a row, not a copy of one
    for (const char* other : {"nvfp4.te", "mxfp4.floor", "fp8_e4m3", "nvfp4.te.stochastic"}) {
      Json changed = DialectFields(row);
      changed["base"] = other;
      CHECK(&SpelledDialect(changed, "row.json") == &printed);
    }
  }
}

TEST_CASE("A row spelled out from nothing is the row", "[spelling]") {
  CHECK(&SpelledDialect(FromScratch(), "mine.json") == FindDialect("nvfp4.te"));
  CHECK(&SpelledDialect(
            {{"rule", "rceil"}, {"element", "e2m1"}, {"scale", "e8m0"}, {"block", {1, 32}}},
            "mine.json") == FindDialect("mxfp4.rceil"));
}

TEST_CASE("Files of older versions spell the tensor scale's formula level_two", "[spelling]") {
  Json old = FromScratch();
  old["level_two"] = old["tensor_scale"];
  old.erase("tensor_scale");
  CHECK(&SpelledDialect(old, "old.json") == FindDialect("nvfp4.te"));
  const auto changed = [](const char* key) {
    return &SpelledDialect({{"base", "nvfp4.te"}, {key, "two_divisions"}}, "mine.json");
  };
  CHECK(changed("level_two") == changed("tensor_scale"));
  CHECK(changed("tensor_scale")->tensor_scale == TensorScaleRule::kTwoDivisions);
  // Beside a formula, a bool says whether there is a tensor scale at all.
  CHECK(&SpelledDialect(
            {{"base", "nvfp4.te"}, {"tensor_scale", true}, {"level_two", "two_divisions"}},
            "old.json") == changed("tensor_scale"));
}

TEST_CASE("A formula that is no row is kept, and named by the shortest object that spells it",
          "[spelling]") {
  Json json = FromScratch();
  json["scale_encoding"] = "up";
  const Dialect& up = SpelledDialect(json, "mine.json");
  CHECK(up.name == R"({"base":"nvfp4.te","scale_encoding":"up"})");
  CHECK(up.version.empty());
  CHECK(up.scale_encoding == ScaleEncoding::kUp);
  CHECK(FindDialect(up.name) == &up);
  CHECK(&SpelledDialect({{"like", "te"}, {"scale_encoding", "up"}}, "x") == &up);
  CHECK(DialectNamed(R"({ "scale_encoding": "up", "base": "nvfp4" })", "x") == &up);
  CHECK(&SpelledDialect(DialectJson(up), "again") == &up);
  CHECK(SameFormulas(WithOwnRounding(WithRounding(up, ElementRounding::kStochastic16)), up));
  for (const Dialect& row : Dialects()) CHECK(row.name != up.name);  // it is not in the table
}

// The bytes of block scales of one matrix under scales rounded down, to nearest and up.
TEST_CASE("Scales of a formula of the user's are rounded as it says", "[spelling]") {
  const Matrix<float> x = NormalMatrix(7, 64, 256);
  const auto scales = [&](const char* base, const char* key, const char* label) {
    return QuantizeAs(SpelledDialect({{"base", base}, {key, label}}, "x"), x.View()).scales;
  };
  const auto down = scales("nvfp4.te", "scale_encoding", "down");
  const auto nearest = scales("nvfp4.te", "scale_encoding", "nearest");
  const auto up = scales("nvfp4.te", "scale_encoding", "up");
  CHECK(nearest == QuantizeAs(*FindDialect("nvfp4.te"), x.View()).scales);
  std::size_t apart = 0;
  for (std::size_t i = 0; i < up.size(); ++i) {
    CHECK((up[i] == down[i] || up[i] == down[i] + 1));
    CHECK((nearest[i] == up[i] || nearest[i] == down[i]));
    apart += up[i] != down[i] ? 1 : 0;
  }
  CHECK(apart > up.size() * 9 / 10);
  const auto floor = scales("mxfp4.ceil", "block_scale", "floor");
  CHECK(floor == QuantizeAs(*FindDialect("mxfp4.floor"), x.View()).scales);
  CHECK(floor != QuantizeAs(*FindDialect("mxfp4.ceil"), x.View()).scales);
}

// Formulas of which no row is one: the judge's kernel gives the quantizer's bytes.
TEST_CASE("The judge computes formulas that are no rows", "[spelling]") {
  const std::vector<Json> formulas = {
      {{"base", "nvfp4.te"}, {"scale_encoding", "up"}},
      {{"base", "nvfp4.te"}, {"scale_encoding", "down"}, {"scale_max", 256}},
      {{"base", "nvfp4.te"}, {"target", 5.5}},
      {{"base", "nvfp4.te"}, {"prescale", 0.75}},
      {{"base", "nvfp4.te"}, {"block", {1, 24}}},
      {{"base", "nvfp4.te"}, {"block", {8, 8}}, {"element", "int4"}},
      {{"base", "nvfp4.te"}, {"scale", "ue5m3"}, {"nan_scale", 255}},
      {{"base", "nvfp4.te"}, {"element", "e4m3"}, {"signed_zeros", "never"}},
      {{"base", "mxfp4.rceil"}, {"element", "e3m2"}, {"block", {1, 64}}},
      {{"base", "mxfp4.rceil"}, {"tensor_scale", false}, {"prescale", 0.5}},
      {{"base", "fp8_e4m3"}, {"block", {1, 0}}, {"signed_zeros", "add_zero"}},
  };
  Matrix<float> x = NormalMatrix(3, 48, 96, 3.0);
  x(1, 1) = -0.0f;
  x(40, 90) = 1e-30f;
  for (const Json& json : formulas) {
    CAPTURE(json.dump());
    const Dialect& d = SpelledDialect(json, "mine.json");
    CHECK(&SpelledDialect(
              ParseJson(
                  d.name.starts_with('{') ? d.name : "{\"base\":\"" + std::string(d.name) + "\"}",
                  "name"),
              "name") == &d);
    const StorageLayout layout{.codes = DefaultCodeOrder(d.element)};
    const StoredMatrix want = Store(d, QuantizeAs(d, x.View()), layout);
    const StoredMatrix got = RunKernel({.dialect = d, .layout = layout}, x.View());
    CHECK((got.codes == want.codes));
    CHECK((got.scales == want.scales));
    CHECK((got.tensor_scale == want.tensor_scale));
    CHECK(DequantizeAs(d, Load(d, want, "again")).values ==
          DequantizeAs(d, QuantizeAs(d, x.View())).values);
  }
}

TEST_CASE("What cannot be said is refused in one line at its place", "[spelling]") {
  struct Refused {
    Json json;
    std::string pointer;
    std::vector<std::string> parts;
  };
  const auto changed = [](const char* key, const Json& value) {
    return Json{{"base", "nvfp4.te"}, {key, value}};
  };
  Json lacking = FromScratch();
  lacking.erase("factor");
  const std::vector<Refused> cases = {
      {changed("scale_encoding", "upp"),
       "mine.json#/scale_encoding",
       {"\"upp\"", "did you mean \"up\"?", "one of: nearest", " down"}},
      {changed("scale_encoding", "sideways"), "mine.json#/scale_encoding", {"one of: nearest"}},
      {changed("scale_encodign", "up"),
       "mine.json#/scale_encodign",
       {"unknown key; did you mean \"scale_encoding\"?"}},
      {changed("element", "float4_e2m1f"),
       "mine.json#/element",
       {"did you mean \"float4_e2m1fn\"", "one of:"}},
      {changed("element", "bfloat16"), "mine.json#/element", {"at most 8 bits"}},
      {{{"base", "fp8_e4m3.1x128.fp32"}, {"nan_scale", 127}}, "mine.json#/nan_scale", {"binary32"}},
      {{{"base", "fp8_e4m3.1x128.fp32"}, {"block_scale", "approximate"}},
       "mine.json#/scale",
       {"approximate"}},
      {{{"base", "nvfp4.te.4over6.mse.256"}, {"scale", "fp32"}},
       "mine.json#/adaptive",
       {"binary32"}},
      {changed("nan_code", 16), "mine.json#/nan_code", {"a code of the element, of 4 bits"}},
      {Json{{"base", "mxfp4.nearest-log2"}, {"target", 5.5}}, "mine.json#/target", {"must be 0"}},
      {Json{{"base", "mxfp4.torchao.even.0.18"}, {"element", "int4"}},
       "mine.json#/inf_scale",
       {"2 or more"}},
      {changed("clip", "quest"), "mine.json#/clip", {"must be \"none\""}},
      {changed("unbias", "ms_eden"), "mine.json#/unbias", {"must be \"none\""}},
      {changed("block", {3, 5}), "mine.json#/block", {"[1, N] or [N, N]"}},
      {changed("block", 16), "mine.json#/block", {}},
      {changed("scale_max", -1), "mine.json#/scale_max", {"positive"}},
      {changed("nan_scale", 256), "mine.json#/nan_scale", {"a byte"}},
      {changed("block_scale", "floor"), "mine.json#/block_scale", {"e8m0"}},
      {changed("factor", "power_of_two"), "mine.json#/factor", {"e8m0"}},
      {changed("tensor_scale", "none"), "no error", {}},
      {Json{{"base", "nvfp4.te"}, {"level_two", "none"}, {"tensor_scale", true}},
       "mine.json#/tensor_scale",
       {"contradicts"}},
      {Json{{"base", "nvfp4.te"}, {"tensor_scale", "encode_scale"}, {"level_two", "none"}},
       "mine.json#/level_two",
       {"old name", "tensor_scale"}},
      {Json{{"base", "nvfp4.te"}, {"tensor_scale", 3}}, "mine.json#/tensor_scale", {}},
      {Json{{"base", "nvfp4.tee"}}, "mine.json#/base", {"did you mean \"nvfp4.te\""}},
      {Json{{"base", "nvfp4.te"}, {"like", "nvfp4.te"}}, "mine.json#/like", {"another word"}},
      {lacking, "mine.json#/factor", {"is missing", "\"base\""}},
      {Json::object(), "mine.json#/element", {"is missing"}},
      {Json::array(), "mine.json", {"object"}},
  };
  for (const Refused& c : cases) {
    CAPTURE(c.json.dump());
    const std::string error = ErrorOf([&] { SpelledDialect(c.json, "mine.json"); });
    CHECK(error.find(c.pointer) == 0);
    CHECK(error.find('\n') == std::string::npos);
    for (const std::string& part : c.parts) CHECK_THAT(error, ContainsSubstring(part));
  }
}

TEST_CASE("A name, a text and a path stand for a dialect", "[spelling]") {
  CHECK(DialectNamed("nvfp4", "x") == FindDialect("nvfp4.te"));
  CHECK(DialectNamed("no-such", "x") == nullptr);
  CHECK(DialectNamed("mine.json", "x") == nullptr);  // a path is no name
  CHECK(DialectOfText("mxfp4.floor", "x") == FindDialect("mxfp4.floor"));
  CHECK_THAT(ErrorOf([] { DialectOfText("no/such.json", "x"); }),
             ContainsSubstring("no/such.json: "));
  CHECK_THAT(ErrorOf([] { DialectNamed("{", "--dialect {"); }), ContainsSubstring("--dialect {"));
}

}  // namespace
}  // namespace fp4lab
