// What an H200 made of rcp.approx.ftz against the sets that the approximate dialects allow.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/block/packing.h"
#include "fp4lab/dialect/approximate.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/io/file.h"
#include "tests/support/catch.h"
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

// Blocks whose t or e, with the stored scale that follows from t, lies outside the dialect's set.
std::size_t CountOutside(const Dialect& d, float DeviceBlock::*t, float DeviceBlock::*e,
                         std::span<const DeviceBlock> blocks) {
  std::size_t outside = 0;
  for (const DeviceBlock& block : blocks) {
    const Level level{block.encode, 1.0f / block.encode};
    const std::uint32_t byte = Encode(FormatId::kE4M3, block.*t);
    const float scale = Decode(FormatId::kE4M3, byte);
    outside += !IsInside(block.*t, ScaleInterval(d, block.amax, level)) ||
               !IsInside(block.*e, FactorInterval(d, block.amax, scale,
                                                  static_cast<std::uint8_t>(byte), level));
  }
  return outside;
}

TEST_CASE("What an H200 computed with rcp.approx lies in the approximate dialects' sets",
          "[dialect][golden]") {
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
          "[dialect][golden]") {
  const Json counts = ParseJson(ReadFile(GoldenPath("h200_rcp_approx.json")), "counts");
  CHECK(counts["more_than_one_ulp"] == 0);
  CHECK(counts["not_flushed"] == 0);
  CHECK(counts["subnormal_argument_not_inf"] == 0);
}

struct DeviceAnswer {
  Matrix<float> x;
  Quantized q;
};

DeviceAnswer ReadAnswer(const NpzFile& file, const std::string& name) {
  const NpyArray x = file.Read(name + ".x"), codes = file.Read(name + ".codes"),
                 scales = file.Read(name + ".scales"), amax = file.Read(name + ".amax");
  DeviceAnswer answer{Matrix<float>(x.shape.at(0), x.shape.at(1)), {}};
  std::transform(x.As<std::uint32_t>().begin(), x.As<std::uint32_t>().end(),
                 answer.x.values.begin(), [](std::uint32_t u) { return std::bit_cast<float>(u); });
  Quantized& q = answer.q;
  q.rows = answer.x.rows;
  q.cols = answer.x.cols;
  q.codes = UnpackCodes(codes.As<std::uint8_t>(), q.rows, q.cols, CodeOrder::kLowFirst);
  q.scale_rows = scales.shape.at(0);
  q.scale_cols = scales.shape.at(1);
  q.scales.assign(scales.As<std::uint8_t>().begin(), scales.As<std::uint8_t>().end());
  q.amax = {std::bit_cast<float>(amax.As<std::uint32_t>()[0])};
  return answer;
}

TEST_CASE("A kernel that an H200 ran under -use_fast_math lies in the set, and not on the formulas",
          "[dialect][golden]") {
  const NpzFile file = OpenGolden("h200_use_fast_math.npz");
  const Dialect &te = *FindDialect("nvfp4.te"), &fast = *FindDialect("nvfp4.te.use-fast-math");
  for (const char* name : {"c03", "c07", "c11", "c14", "c17", "c75"}) {
    CAPTURE(name);
    DeviceAnswer answer = ReadAnswer(file, name);
    CHECK(IsAllowed(fast, answer.x.View(), answer.q).ok);
    CHECK(QuantizeAs(te, answer.x.View()) != answer.q);
    answer.q.codes[0] ^= 1u;
    CHECK_FALSE(IsAllowed(fast, answer.x.View(), answer.q).ok);
  }
  const DeviceAnswer randn = ReadAnswer(file, "c90");  // which does not notice
  CHECK(QuantizeAs(te, randn.x.View()) == randn.q);
}

}  // namespace
}  // namespace fp4lab
