// Wrong kernels whose deviation has a value (a sign, rows, an amax): explain finds the value.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

Kernel Te(ScaleOrder order = ScaleOrder::kLinear) {
  Kernel kernel{.dialect = *FindDialect("nvfp4.te"), .layout = {}};
  kernel.layout.scales = order;
  return kernel;
}
Kernel Transformed() {
  Kernel kernel = Te();
  kernel.hadamard = 16;
  kernel.sign_mask = 0xD7E8;
  return kernel;
}
Matrix<float> Input(std::uint32_t seed) { return RandomMatrix(seed, 96, 128, 8, -4, 5); }

const Cause* Found(const Explanation& e, std::string_view name) {
  for (const Cause& c : e.causes.exact) {
    if (Name(c) == name) return &c;
  }
  return nullptr;
}

// Checks that explain names the deviation with its value, shows the value in its text, and states
// no other cause.
void CheckFound(const Kernel& kernel, const Matrix<float>& x, std::string_view name,
                const DeviationValue& value) {
  const Deviation* const one[] = {FindDeviation(name)};
  const std::string what = Text(one[0]->kind, value);
  CAPTURE(name, what);
  const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one, {}, &value));
  REQUIRE_FALSE(e.equal);
  const Cause* const found = Found(e, name);
  REQUIRE(found != nullptr);
  REQUIRE(found->value.has_value());
  CHECK(Text(one[0]->kind, *found->value) == what);
  CHECK_THAT(Text(kernel, e), Catch::Matchers::ContainsSubstring(what));
  const bool stated = e.causes.certainty == Certainty::kForced;
  CHECK((!stated || &e.causes.exact[0] == found));
}

TEST_CASE("explain names the wrong sign or the negated row of the Hadamard transform", "[judge]") {
  for (int place = 0; place < 16; ++place) {
    const Matrix<float> x = Input(20 + static_cast<std::uint32_t>(place));
    CheckFound(Transformed(), x, "rht-sign-wrong", {.number = place});
    CheckFound(Transformed(), x, "rht-row-negated", {.number = place});
  }
}

TEST_CASE("explain tells by how many rows the scales are shifted", "[judge]") {
  for (const ScaleOrder order : {ScaleOrder::kLinear, ScaleOrder::k128x4}) {
    for (const int rows : {1, -1, 2, 16, -32}) {
      CheckFound(Te(order), Input(40), "scales-rows-down", {.number = rows});
    }
  }
}

TEST_CASE("explain finds a stale amax from the stored number or from scales and codes", "[judge]") {
  for (std::uint32_t seed = 50; seed < 56; ++seed) {
    for (const float amax : {3.25f, 1.7f, 40.0f}) {
      const DeviationValue value{.amax = amax};
      CheckFound(Te(), Input(seed), "amax-stale", value);
      // Without the stored number, codes and scales determine S only approximately.
      const Deviation* const one[] = {FindDeviation("amax-stale")};
      const Matrix<float> x = Input(seed);
      StoredMatrix bytes = RunKernel(Te(), x.View(), one, {}, &value);
      bytes.tensor_scale.clear();
      const Explanation e = Explain(Te(), x.View(), bytes);
      const Cause* const found = Found(e, "amax-stale");
      CAPTURE(seed, amax);
      REQUIRE(found != nullptr);
      CHECK(std::fabs(found->value->amax - amax) <= 1e-3f * amax);
    }
  }
}

TEST_CASE("explain tells how many last rows the tensor's amax leaves out", "[judge]") {
  for (const int rows : {1, 16, 32, 64}) {
    Matrix<float> x = Input(60);
    const std::size_t end = x.rows - static_cast<std::size_t>(rows);
    x(end, 3) = 7.5f;  // the largest, in the first row left out; the next in the last that counts
    x(end - 1, 5) = 7.25f;
    CAPTURE(rows);
    const DeviationValue value{.number = rows};
    const Deviation* const one[] = {FindDeviation("amax-without-last-rows")};
    const Explanation e = Explain(Te(), x.View(), RunKernel(Te(), x.View(), one, {}, &value));
    const Cause* const found = Found(e, "amax-without-last-rows");
    REQUIRE(found != nullptr);
    CHECK(found->value->number == rows);
    // The bytes determine the wrong amax, not its origin.
    CHECK(Name(e.causes.exact[0]) == "amax-stale");
    CHECK_THAT(Text(Te(), e), Catch::Matchers::ContainsSubstring(Name(*found)));
  }
}

TEST_CASE("explain locates an unwritten part and names its constant content", "[judge]") {
  using Byte = std::uint8_t;
  const Rectangle parts[] = {{16, 0, 16, 128}, {0, 64, 96, 16}, {95, 0, 1, 128}, {32, 32, 32, 64}};
  for (std::uint32_t seed = 70; seed < 73; ++seed) {
    for (const Rectangle& part : parts) {
      const Matrix<float> x = Input(seed);
      CheckFound(Te(), x, "part-unwritten",
                 {.region = part, .even_code = Byte{0}, .odd_code = Byte{0}, .scale = Byte{0}});
      CheckFound(
          Te(), x, "part-unwritten",
          {.region = part, .even_code = Byte{0xD}, .odd_code = Byte{0xC}, .scale = Byte{0xCD}});
      CheckFound(Te(), x, "part-unwritten", {.region = part, .scale = Byte{0x38}});
    }
  }
}

TEST_CASE("explain locates two swapped parts", "[judge]") {
  const DeviationValue pairs[] = {
      {.region = {4, 0, 1, 128}, .other_row = 5, .other_col = 0},     // neighbouring rows
      {.region = {10, 0, 1, 128}, .other_row = 77, .other_col = 0},   // rows apart
      {.region = {0, 0, 32, 128}, .other_row = 64, .other_col = 0},   // tiles of rows
      {.region = {0, 32, 96, 16}, .other_row = 0, .other_col = 96},   // columns of blocks
      {.region = {0, 0, 32, 64}, .other_row = 32, .other_col = 64},   // tiles on a diagonal
      {.region = {32, 64, 32, 64}, .other_row = 64, .other_col = 0},  // on the other diagonal
  };
  for (std::uint32_t seed = 80; seed < 83; ++seed) {
    for (const DeviationValue& pair : pairs) CheckFound(Te(), Input(seed), "parts-swapped", pair);
  }
}

// Rows of the table that take no value, on random inputs.
TEST_CASE("explain names scale-tile, 16-bit-number, block-length and tie deviations", "[judge]") {
  for (const std::string_view name :
       {"scale-tiles-by-column", "scale-tiles-not-interleaved", "scale-tiles-transposed",
        "amax-fp16", "encode-scale-bf16", "encode-scale-fp16", "decode-scale-bf16",
        "decode-scale-fp16", "block-amax-fp16", "block-of-one-more", "block-of-even-lanes",
        "factor-rounded-fp16", "ties-toward-positive", "ties-toward-negative"}) {
    const Deviation* const one[] = {FindDeviation(name)};
    REQUIRE(one[0] != nullptr);
    std::size_t shown = 0;
    for (std::uint32_t seed = 90; seed < 94; ++seed) {
      CAPTURE(name, seed);
      const Matrix<float> x = RandomMatrix(seed, 144, 96, seed % 2 == 0 ? 8 : 24, -4, 5);
      const Kernel kernel = Te(ScaleOrder::k128x4);
      ExplainOptions options;
      options.search.pairs = options.deciding_case = false;
      const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one), options);
      if (e.equal) continue;
      ++shown;
      CHECK(Found(e, name) != nullptr);
      const bool other =
          e.causes.certainty == Certainty::kForced && Name(e.causes.exact[0]) != name;
      CHECK((!other || Name(e.causes.exact[0]) == "amax-stale"));
    }
    CHECK(shown >= 1);
  }
}

TEST_CASE(
    "explain names random bits of the first row, random bits from a counter and zeros, which it "
    "does not call certain",
    "[judge]") {
  Kernel kernel = Te();
  const RandomStream stream{.seed = 9};
  for (const std::string_view dialect : {"nvfp4.te.stochastic", "nvfp4.te.stochastic.software"}) {
    kernel.dialect = *FindDialect(dialect);
    for (std::uint32_t seed = 95; seed < 98; ++seed) {
      const Matrix<float> x = Input(seed);
      std::vector<std::uint16_t> random;
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        const std::uint32_t bits = stream.Bits16(i + seed);
        const bool eight = kernel.dialect.rounding == ElementRounding::kStochastic8;
        random.push_back(static_cast<std::uint16_t>(eight ? bits & 0xFFu : bits));
      }
      const DialectOptions options{.amax = {}, .random = random};
      for (const std::string_view name :
           {"random-bits-of-first-row", "random-bits-counter", "codes-zero"}) {
        CAPTURE(dialect, name, seed);
        const Deviation* const one[] = {FindDeviation(name)};
        const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one, options),
                                      {.dialect = options, .search = {}});
        // Any error that makes all elements small gives zeros as well.
        CHECK(e.causes.certainty ==
              (name == "codes-zero" ? Certainty::kFitted : Certainty::kForced));
        CHECK(Name(e.causes.exact.at(0)) == name);
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
