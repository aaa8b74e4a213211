// The scalar reference against the oracle, which finds scales and codes by search.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/oracle/block.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

const RandomStream kStream{.seed = 77, .step = 1, .tensor = 2};

// Compares the reference with the oracle on each row of `x`, a block of a tensor with amax `amax`.
void CheckBlocks(const Matrix<float>& x, const Dialect& format, float amax) {
  const oracle::BlockQuantizer quantizer(format, amax);
  for (const Rounding rounding :
       {Rounding::kNearestEven, Rounding::kTowardZero, Rounding::kStochastic}) {
    const ElementRounding elements =
        rounding == Rounding::kNearestEven  ? ElementRounding::kNearestEven
        : rounding == Rounding::kTowardZero ? ElementRounding::kTowardZero
                                            : ElementRounding::kStochastic16;
    const Quantized q = reference::Quantize(
        x.View(), {.dialect = WithRounding(format, elements), .random = kStream, .amax = amax});
    int wrong = 0;
    for (std::size_t r = 0; r < x.rows; ++r) {
      std::vector<std::uint32_t> random;
      for (std::size_t c = 0; c < x.cols && rounding == Rounding::kStochastic; ++c) {
        random.push_back(kStream.Bits16(r * x.cols + c));
      }
      const oracle::Block want = quantizer.Quantize({&x(r, 0), x.cols}, rounding, random);
      if (!q.scales.empty()) wrong += q.scales[r] != want.scale;
      for (std::size_t c = 0; c < x.cols; ++c) wrong += reference::CodeAt(q, r, c) != want.codes[c];
    }
    CHECK(wrong == 0);
  }
}

Dialect OneRow(Dialect format) {
  if (format.block_rows > 0) format.block_rows = 1;
  return format;
}
std::size_t BlockCols(const Dialect& format) {
  return format.block_scale == BlockScale::kOneBlock ? 32
                                                     : static_cast<std::size_t>(format.block_cols);
}

TEST_CASE("The reference quantizes blocks of all kinds as the oracle does", "[block][oracle]") {
  for (const Dialect& named : TestDialects()) {
    const Dialect format = OneRow(named);
    for (const Kind kind : kKinds) {
      const Matrix<float> x = TestMatrix(kind, 60, BlockCols(format), 11);
      const float amax = reference::TensorAmax(x.View());
      INFO(named.name << " kind " << static_cast<int>(kind));
      CheckBlocks(x, format, amax);
      // The same blocks in tensors with another amax: far larger, subnormal, zero, Inf.
      for (const float other : {amax * 1000.0f, 1e30f, 1e-40f, 0.0f, INFINITY}) {
        CheckBlocks(x, format, other);
      }
    }
  }
}

// a moved by `steps` binary32 neighbours.
float Step(float a, int steps) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(steps));
}

TEST_CASE("Block amaxes around every tie of the scale are rounded as the oracle rounds them",
          "[block][oracle]") {
  const float amax = 37.25f;
  const Dialect nvfp4 = *FindDialect("nvfp4");
  const float per_amax = FoldedFactor(TensorScaleOf(nvfp4, amax).encode, TargetOf(nvfp4));
  for (std::uint32_t code = 0; code < 0x7E; ++code) {
    const double tie =
        (static_cast<double>(Decode(FormatId::kE4M3, code)) + Decode(FormatId::kE4M3, code + 1)) /
        2.0;
    Matrix<float> x(7, 16);
    for (std::size_t r = 0; r < 7; ++r) {
      x(r, 3) = -Step(static_cast<float>(tie / per_amax), static_cast<int>(r) - 3);
    }
    CheckBlocks(x, nvfp4, amax);
  }
  for (const Dialect& named : TunedRows()) {
    const Dialect format = named;
    if (format.scale != FormatId::kE8M0 || format.block_rows != 1) continue;
    INFO(named.name);
    Matrix<float> x(277 * 4 * 5, 32);
    std::size_t r = 0;
    for (int e = -149; e < 128; ++e) {
      for (const float edge : {1.0f, 1.5f, 1.75f, 1.875f}) {
        for (int step = -2; step <= 2; ++step) {
          x(r++, 31) = std::fabs(Step(std::max(std::ldexp(edge, e), 0x1p-148f), step));
        }
      }
    }
    REQUIRE(r == x.rows);
    CheckBlocks(x, format, 0.0f);
  }
}

TEST_CASE("Elements around every tie of the element format are rounded as the oracle rounds them",
          "[block][oracle]") {
  for (const Dialect& named : TestDialects()) {
    const Dialect format = OneRow(named);
    const std::size_t cols = BlockCols(format);
    const Format& element = FormatOf(format.element);
    for (const float block_amax : {1.0f, 0.7f, 3.1f, 1.9e-3f}) {
      const float amax = 5.0f;
      const TensorScale tensor =
          HasTensorScale(format) ? TensorScaleOf(format, amax) : TensorScale{};
      const float t = ScaleBefore(format, block_amax, tensor);
      const float e = NumbersFrom(format, block_amax, t, tensor).factor;
      Matrix<float> x(MaxFiniteCode(element), cols);
      for (std::uint32_t code = 0; code < MaxFiniteCode(element); ++code) {
        const double tie =
            (static_cast<double>(Decode(element, code)) + Decode(element, code + 1)) / 2.0;
        x(code, 0) = block_amax;
        for (std::size_t c = 1; c < cols; ++c) {
          const float near = Step(static_cast<float>(tie / e), static_cast<int>(c % 7) - 3);
          x(code, c) = std::fabs(near) > block_amax ? 0.0f : (c % 2 == 0 ? near : -near);
        }
      }
      INFO(named.name << " block amax " << block_amax);
      CheckBlocks(x, format, amax);
    }
  }
}

}  // namespace
}  // namespace fp4lab
