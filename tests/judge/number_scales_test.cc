// FP8 with block scales that are numbers, and with a scale per row: verdicts, causes and names.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/identify/identify.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/judge/verify/verify.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr const char* kNumberRows[] = {"fp8_e4m3.1x128.fp32", "fp8_e4m3.128x128.fp32",
                                       "fp8_e5m2.1x128.fp32", "fp8_e5m2.128x128.fp32",
                                       "fp8_e4m3.1x128.bf16", "fp8_e4m3.128x128.bf16"};

// Normal numbers, with a block of zeros and partial blocks at both edges.
Matrix<float> Input(std::size_t rows, std::size_t cols, std::uint64_t seed) {
  Matrix<float> x(rows, cols);
  FillNormalValues(seed, 0.02, x.values);
  for (std::size_t r = 0; r < std::min<std::size_t>(rows, 128); ++r) {
    for (std::size_t c = 128; c < std::min<std::size_t>(cols, 256); ++c) x(r, c) = 0.0f;
  }
  return x;
}

Kernel KernelOf(const Dialect& d, ScaleType type = ScaleType::kByte) {
  Kernel kernel{.dialect = d, .layout = {.codes = DefaultCodeOrder(d.element)}};
  kernel.layout.tensor_scale =
      HasTensorScale(d) ? TensorScaleConvention::kMultiplier : TensorScaleConvention::kNone;
  kernel.layout.scale_type = type;
  return kernel;
}

bool Names(const Explanation& e, std::string_view name) {
  return std::any_of(e.causes.exact.begin(), e.causes.exact.end(),
                     [&](const Cause& c) { return Name(c) == name; });
}

Explanation ExplainWrong(const Kernel& kernel, const Matrix<float>& x, std::string_view name,
                         const DeviationValue* value = nullptr) {
  const Deviation* const one[] = {FindDeviation(name)};
  return Explain(kernel, x.View(), RunKernel(kernel, x.View(), one, {}, value),
                 {.deciding_case = false});
}

TEST_CASE("Scales that are numbers are judged to the last bit", "[judge]") {
  const Matrix<float> x = Input(200, 300, 3);
  for (const char* name : kNumberRows) {
    CAPTURE(name);
    const Dialect& d = *FindDialect(name);
    const Kernel kernel = KernelOf(d);
    const StoredMatrix right = RunKernel(kernel, x.View());
    CHECK(right == QuantizeStored(d, x.View(), {}, kernel.layout));
    CHECK(Verify(d, x.View(), right, "x").Equal());
    StoredMatrix wrong = right;
    wrong.scales[0] ^= 1;  // one unit in the last place of the first scale
    const Verdict v = Verify(d, x.View(), wrong, "x");
    CHECK_FALSE(v.Accepted());
    CHECK(v.codes.different == 0);
    REQUIRE(v.scales.different == 1);
    CHECK(v.scales.total == right.scales.size() / Named(right.layout.scale_type).bytes);
    CHECK_THAT(VerdictText(d, v),
               ContainsSubstring(ShortestText(
                   ScaleValueOf(right.layout.scale_type, d.scale, v.scales.first[0].expected))));
    wrong = right;
    wrong.codes[77] ^= 1;
    CHECK(Verify(d, x.View(), wrong, "x").codes.different == 1);
  }
}

TEST_CASE("A NaN scale of any payload is the NaN scale", "[judge]") {
  Dialect d = *FindDialect("fp8_e4m3.1x128.fp32");
  d.nan = NanRule::kBlock;
  Matrix<float> x = Input(4, 256, 5);
  x(1, 3) = std::nanf("");
  StoredMatrix answer = RunKernel(KernelOf(d), x.View());
  CHECK(Verify(d, x.View(), answer, "x").Equal());
  PutScaleCode(0xFFFFFFFFu, 2, ScaleType::kFP32, answer.scales);  // of block (1, 0)
  CHECK(Verify(d, x.View(), answer, "x").Equal());
  CHECK(Explain(KernelOf(d), x.View(), answer).equal);
  PutScaleCode(0x7F800000u, 2, ScaleType::kFP32, answer.scales);
  CHECK(Verify(d, x.View(), answer, "x").scales.different == 1);
}

// Scales of E8M0's values in F32, as Transformer Engine and DeepSeek-V3.1 store them.
TEST_CASE("Powers of two that are stored as numbers are judged by the E8M0 row", "[judge]") {
  const Dialect& d = *FindDialect("fp8_e4m3.128x128.e8m0");
  const Matrix<float> x = Input(256, 256, 8);
  for (const ScaleType type : {ScaleType::kFP32, ScaleType::kBF16}) {
    const Kernel kernel = KernelOf(d, type);
    const StoredMatrix right = RunKernel(kernel, x.View());
    CHECK(right.scales.size() == 4 * Named(type).bytes);
    CHECK(Verify(d, x.View(), right, "x").Equal());
    // The elements were scaled by b/448, the stored scale is rounded up: not the same numbers.
    const Explanation e = ExplainWrong(kernel, x, "factor-from-unrounded-scale");
    CHECK(Names(e, "factor-from-unrounded-scale"));
    CHECK(e.counts.scales_differ == 0);
    // The stored scale is not rounded.
    const Dialect& numbers = *FindDialect("fp8_e4m3.128x128.fp32");
    if (type != ScaleType::kFP32) continue;
    const StoredMatrix other = RunKernel(KernelOf(numbers), x.View());
    CHECK(Verify(d, x.View(), other, "x").scales.different > 0);
    CHECK(Names(Explain(kernel, x.View(), other), numbers.name));
  }
}

TEST_CASE("explain names every wrong kernel of FP8 rows that the input shows", "[judge]") {
  const std::vector<std::string> rows = {"fp8_e4m3.1x128.fp32", "fp8_e5m2.128x128.fp32",
                                         "fp8_e4m3.1x128.bf16", "fp8_e4m3.row",
                                         "fp8_e4m3.1x128.e8m0"};
  const Matrix<float> x = Input(20, 280, 11);
  for (const std::string& row : rows) {
    const Kernel kernel = KernelOf(*FindDialect(row));
    const StoredMatrix right = RunKernel(kernel, x.View());
    std::size_t shown = 0;
    for (const Deviation& deviation : Deviations()) {
      if (!Applies(deviation, kernel)) continue;
      const Deviation* const one[] = {&deviation};
      const StoredMatrix wrong = RunKernel(kernel, x.View(), one);
      if (wrong == right) continue;
      ++shown;
      CAPTURE(row, deviation.name);
      const Explanation e =
          Explain(kernel, x.View(), wrong, {.search = {.pairs = false}, .deciding_case = false});
      const bool alone = Names(e, deviation.name);
      // Other causes of the same bytes may stand for a value that is read off the bytes.
      CHECK((alone || (deviation.kind != ValueKind::kNone && !e.causes.exact.empty())));
    }
    CAPTURE(row);
    CHECK(shown >= 25);
  }
}

TEST_CASE("The wrong kernels of numbers that are known best are named alone", "[judge]") {
  const Matrix<float> x = Input(20, 280, 21);
  const Kernel kernel = KernelOf(*FindDialect("fp8_e4m3.1x128.fp32"));
  for (const char* name :
       {"scale-stored-inverted", "scale-stored-bf16", "scale-stored-power-of-two",
        "scale-power-of-two-up", "scale-power-of-two", "factor-reciprocal", "scale-one-up"}) {
    CAPTURE(name);
    const Explanation e = ExplainWrong(kernel, x, name);
    REQUIRE_FALSE(e.causes.exact.empty());
    CHECK(Name(e.causes.exact[0]) == name);
  }
  for (const float least : {1e-12f, 1e-10f}) {
    const DeviationValue value{.amax = least};
    const Explanation e = ExplainWrong(kernel, x, "block-amax-at-least", &value);
    REQUIRE(Names(e, "block-amax-at-least"));
    CHECK(e.causes.exact[0].value->amax == least);
  }
  const DeviationValue of_deepgemm{.amax = 1e-4f};
  const Explanation whole = ExplainWrong(kernel, x, "block-amax-at-least", &of_deepgemm);
  REQUIRE_FALSE(whole.causes.exact.empty());
  CHECK(Name(whole.causes.exact[0]) == "fp8_e4m3.deepgemm.1x128.fp32");
  const DeviationValue times{.amax = 1.25f};
  const Explanation e = ExplainWrong(kernel, x, "input-times", &times);
  REQUIRE(Names(e, "input-times"));
  CHECK(e.causes.exact[0].value->amax == 1.25f);
}

// The scale of a row from the columns that one of several devices has.
TEST_CASE("explain tells from how many first columns a row's amax was taken", "[judge]") {
  const Kernel kernel = KernelOf(*FindDialect("fp8_e4m3.row"));
  Matrix<float> x(32, 128);
  FillNormalValues(4, 1.0, x.values);
  for (const int cols : {32, 64, 96}) {
    CAPTURE(cols);
    const DeviationValue value{.number = cols};
    const Explanation e = ExplainWrong(kernel, x, "row-amax-of-first-columns", &value);
    REQUIRE(e.causes.exact.size() == 1);
    CHECK(Name(e.causes.exact[0]) == "row-amax-of-first-columns");
    CHECK(e.causes.exact[0].value->number == cols);
    CHECK_THAT(Text(kernel, e), ContainsSubstring("the first " + std::to_string(cols)));
  }
}

TEST_CASE("Rows whose scales are numbers are identified by their bytes", "[judge]") {
  const Matrix<float> x = Input(200, 300, 31);
  for (const char* name : kNumberRows) {
    CAPTURE(name);
    const Dialect& d = *FindDialect(name);
    StoredMatrix bytes = RunKernel(KernelOf(d), x.View());
    for (const bool typed : {true, false}) {  // an array of numbers, and bytes of unknown type
      bytes.layout = {};
      bytes.layout.scale_type = typed ? ScaleTypeOf(d, {}) : ScaleType::kByte;
      const Identification r = Identify(x.View(), bytes, {.dialect = {}, .dialects = {}});
      const auto is_row = [&](const Candidate& c) { return c.kernel.dialect.name == d.name; };
      CHECK(std::any_of(r.exact.begin(), r.exact.end(), is_row));
    }
  }
}

TEST_CASE("A formula of the user's has scales of numbers", "[judge]") {
  const Dialect& times = SpelledDialect(
      {{"base", "fp8_e4m3.128x128.fp32"}, {"factor", "reciprocal_plain"}}, "mine.json");
  const Dialect& bf16 = SpelledDialect({{"rule", "nvfp4"},
                                        {"element", "e4m3"},
                                        {"scale", "bf16"},
                                        {"block", {1, 64}},
                                        {"factor", "divide_by_scale"}},
                                       "mine.json");
  CHECK(ScaleTypeOf(times, {}) == ScaleType::kFP32);
  CHECK(ScaleTypeOf(bf16, {}) == ScaleType::kBF16);
  const Matrix<float> x = Input(130, 200, 41);
  for (const Dialect* d : {&times, &bf16}) {
    CAPTURE(d->name);
    const Kernel kernel = KernelOf(*d);
    const StoredMatrix right = RunKernel(kernel, x.View());
    CHECK(Verify(*d, x.View(), right, "x").Equal());
    CHECK(DialectNamed(d->name, "x") == d);
    CHECK(Names(ExplainWrong(kernel, x, "scale-power-of-two-up"), "scale-power-of-two-up"));
  }
}

}  // namespace
}  // namespace fp4lab
