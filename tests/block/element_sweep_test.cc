// All BF16 numbers, and all decision points of the element formats with their binary32 neighbours,
// against the scalar reference.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/formats/format.h"
#include "tests/support/catch.h"
#include "tests/support/least_targets.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

std::vector<float> Bf16Numbers() {
  std::vector<float> numbers;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    numbers.push_back(std::bit_cast<float>(bits << 16));
  }
  return numbers;
}

// The midpoints between neighbours, where rounding to nearest decides, the values themselves, where
// truncation decides, and the binary32 neighbours of each.
std::vector<float> DecisionPoints(FormatId id) {
  std::vector<float> points;
  const float inf = std::numeric_limits<float>::infinity();
  for (std::uint32_t code = 0; code <= MaxFiniteCode(FormatOf(id)); ++code) {
    const float value = Decode(id, code), step = value - Decode(id, code == 0 ? 1 : code - 1);
    for (const float point : {value, value + 0.5f * std::fabs(step), value - 0.5f * step}) {
      for (const float x : {point, std::nextafter(point, inf), std::nextafter(point, -inf)}) {
        points.insert(points.end(), {x, -x});
      }
    }
  }
  return points;
}

// The numbers as a matrix of `cols` columns. Each block starts with the format's largest value, so
// that its scale is 1 unless a larger number follows.
Matrix<float> InBlocks(const std::vector<float>& numbers, const Dialect& format, std::size_t cols) {
  const auto block = static_cast<std::size_t>(format.block_cols == 0 ? 32 : format.block_cols);
  std::vector<float> x;
  for (const float number : numbers) {
    if (x.size() % cols % block == 0) x.push_back(MaxFinite(format.element));
    x.push_back(number);
  }
  Matrix<float> m((x.size() + cols - 1) / cols, cols);
  std::copy(x.begin(), x.end(), m.values.begin());
  return m;
}

void CheckOnEveryTarget(const Matrix<float>& m, const QuantizeOptions& options) {
  const MatrixView<const float> x = m.View();
  const Quantized want = reference::Quantize(x, options);
  Matrix<float> turned(m.cols, m.rows);
  for (std::size_t i = 0; i < turned.values.size(); ++i) {
    turned.values[i] = m(i % m.rows, i / m.rows);
  }
  REQUIRE(SimdTargets().size() >= kLeastTargets);
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    INFO("target " << target);
    const bool same = Quantize(x, options) == want;
    CHECK(same);
    const bool same_turned = Quantize(std::as_const(turned).View().Transposed(), options) == want;
    CHECK(same_turned);
  }
  PinSimdTarget("best");
}

TEST_CASE("Every BF16 number and every decision point gets the reference's code on every target",
          "[block][differential]") {
  for (const char* name : {"nvfp4", "mxfp4.floor", "mxfp6_e2m3.floor", "mxfp8_e4m3.rceil",
                           "mxfp8_e4m3.floor", "mxfp8_e5m2.rceil", "fp8_e4m3", "fp8_e5m2"}) {
    const Dialect format = *FindDialect(name);
    // The tensor scale becomes 1.
    const float amax =
        MaxFinite(format.element) * (format.block_scale == BlockScale::kFolded ? 448 : 1);
    for (const ElementRounding rounding :
         {ElementRounding::kNearestEven, ElementRounding::kStochastic16,
          ElementRounding::kStochastic32}) {
      const QuantizeOptions options{
          .dialect = WithRounding(format, rounding), .random = {.seed = 5}, .amax = amax};
      INFO(name << ", random bits " << RandomBitsOf(rounding));
      CheckOnEveryTarget(InBlocks(Bf16Numbers(), format, 1024), options);
      CheckOnEveryTarget(InBlocks(DecisionPoints(format.element), format, 999), options);
    }
  }
}

}  // namespace
}  // namespace fp4lab
