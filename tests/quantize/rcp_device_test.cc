// Results of rcp.approx.ftz on an H200 against the sets that the approximate dialects allow.
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "fp4lab/dialect/approximate.h"
#include "fp4lab/io/file.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/device_answer.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

struct DeviceBlock {
  float encode, amax;
  float flashinfer_t, flashinfer_e, cutlass_t, cutlass_e;
};

bool IsInside(float value, FloatInterval interval) {
  return value >= interval.lower && value <= interval.upper;
}

// The number of blocks whose t or e, with the stored scale that follows from t, lies outside the
// dialect's set.
std::size_t CountOutside(const Dialect& d, float DeviceBlock::*t, float DeviceBlock::*e,
                         std::span<const DeviceBlock> blocks) {
  std::size_t outside = 0;
  for (const DeviceBlock& block : blocks) {
    const TensorScale tensor{block.encode, 1.0f / block.encode};
    const std::uint32_t byte = Encode(FormatId::kE4M3, block.*t);
    const float scale = Decode(FormatId::kE4M3, byte);
    outside += !IsInside(block.*t, ScaleInterval(d, block.amax, tensor)) ||
               !IsInside(block.*e, FactorInterval(d, block.amax, scale,
                                                  static_cast<std::uint8_t>(byte), tensor));
  }
  return outside;
}

TEST_CASE("What an H200 computed with rcp.approx lies in the approximate dialects' sets",
          "[quantize][golden]") {
  const NpyArray array = OpenGolden("h200_rcp_approx.npz").Read("blocks");
  const auto words = array.As<std::uint32_t>();
  std::vector<DeviceBlock> blocks(words.size() / 6);
  REQUIRE(blocks.size() == 4096);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto word = [&](std::size_t j) { return std::bit_cast<float>(words[i * 6 + j]); };
    blocks[i] = {word(0), word(1), word(2), word(3), word(4), word(5)};
  }
  const Dialect& flashinfer = *FindDialect("nvfp4.flashinfer");
  const Dialect& cutlass = *FindDialect("nvfp4.cutlass.epilogue");
  CHECK(CountOutside(flashinfer, &DeviceBlock::flashinfer_t, &DeviceBlock::flashinfer_e, blocks) ==
        0);
  CHECK(CountOutside(cutlass, &DeviceBlock::cutlass_t, &DeviceBlock::cutlass_e, blocks) == 0);
}

TEST_CASE("All reciprocals of the H200 were within the assumed unit in the last place",
          "[quantize][golden]") {
  const Json counts = ParseJson(ReadFile(GoldenPath("h200_rcp_approx.json")), "counts");
  CHECK(counts["more_than_one_ulp"] == 0);
  CHECK(counts["not_flushed"] == 0);
  CHECK(counts["subnormal_argument_not_inf"] == 0);
}

TEST_CASE("A kernel that an H200 ran under -use_fast_math lies in the set, and not on the formulas",
          "[quantize][golden]") {
  const Dialect &te = *FindDialect("nvfp4.te"), &fast = *FindDialect("nvfp4.te.use-fast-math");
  for (const char* name : kFastMathCases) {
    CAPTURE(name);
    const DeviceAnswer answer = ReadFastMathAnswer(name);
    Quantized q = Load(te, answer.bytes, name);
    CHECK(IsAllowed(fast, answer.x.View(), q).ok);
    CHECK(QuantizeAs(te, answer.x.View()) != q);
    q.codes[0] ^= 1u;
    CHECK_FALSE(IsAllowed(fast, answer.x.View(), q).ok);
  }
  const DeviceAnswer randn = ReadFastMathAnswer(kFastMathRandn);
  CHECK(QuantizeAs(te, randn.x.View()) == Load(te, randn.bytes, kFastMathRandn));
}

}  // namespace
}  // namespace fp4lab
