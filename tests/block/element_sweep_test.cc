// Every element that rounds differently from its neighbour: all BF16 numbers, and all decision
// points of the formats with the binary32 numbers beside them, against the scalar reference.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/base/simd.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/formats/format.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

std::vector<float> Bf16Numbers() {
  std::vector<float> numbers;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    numbers.push_back(std::bit_cast<float>(bits << 16));
  }
  return numbers;
}

// The middle between neighbours, where nearest rounding decides, the values themselves, where
// truncation does, and what lies one bit beside both.
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

// The numbers in rows; the first of each block is the format's largest, which makes the scale of
// blocks of smaller numbers 1.
Matrix<float> InBlocks(const std::vector<float>& numbers, const BlockFormat& format,
                       std::size_t cols) {
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
  const QuantizedMatrix want = reference::Quantize(x, options);
  Matrix<float> turned(m.cols, m.rows);
  for (std::size_t i = 0; i < turned.values.size(); ++i) {
    turned.values[i] = m(i % m.rows, i / m.rows);
  }
  REQUIRE(SimdTargets().size() >= 2);
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
    const BlockFormat format = *FindBlockFormat(name);
    // The tensor scale becomes 1.
    const float amax = MaxFinite(format.element) * (format.rule == ScaleRule::kNvfp4 ? 448 : 1);
    for (const int bits : {0, 8, 16, 32}) {
      const QuantizeOptions options{
          .format = format,
          .rounding = bits == 0 ? Rounding::kNearestEven : Rounding::kStochastic,
          .random = {.seed = 5},
          .random_bits = bits == 0 ? 16 : bits,
          .amax = amax};
      INFO(name << ", random bits " << bits);
      CheckOnEveryTarget(InBlocks(Bf16Numbers(), format, 1024), options);
      CheckOnEveryTarget(InBlocks(DecisionPoints(format.element), format, 999), options);
    }
  }
}

}  // namespace
}  // namespace fp4lab
