// Rows that restate packages: bytes that the packages gave on a CPU (compressed-tensors 0.20.0,
// ModelOpt 0.47.0, amd-quark 0.13, torchao 0.18.0, qwix 0.1.8 with JAX 0.10.2, MLX 0.32.4,
// fouroversix 1.0.5, torch 2.15.0), at the smallest inputs that tell neighbouring formulas apart.
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/dialect/exponent_bytes.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Bytes = std::vector<std::uint8_t>;
constexpr float kInf = std::numeric_limits<float>::infinity();

float OfBits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

const Dialect& Row(std::string_view name) {
  const Dialect* row = FindDialect(name);
  INFO(name);
  REQUIRE(row != nullptr);
  return *row;
}

// A row of 32 elements, zeros behind those given; `second` starts at column 16.
struct Result {
  Bytes scales, codes;  // the codes of the elements given, first block first
};
Result Of(std::string_view name, const std::vector<float>& first,
          const std::vector<float>& second = {}) {
  Matrix<float> x(1, 32);
  for (std::size_t i = 0; i < first.size(); ++i) x(0, i) = first[i];
  for (std::size_t i = 0; i < second.size(); ++i) x(0, 16 + i) = second[i];
  const Quantized q = QuantizeAs(Row(name), x.View());
  CHECK(q == reference::QuantizeAs(Row(name), x.View()));
  Result result{q.scales, Bytes(q.codes.begin(), q.codes.begin() + first.size())};
  for (std::size_t i = 0; i < second.size(); ++i) result.codes.push_back(q.codes[16 + i]);
  return result;
}
void Gives(const Result& got, const Bytes& scales, const Bytes& codes) {
  CHECK(got.scales == scales);
  CHECK(got.codes == codes);
}

std::uint32_t EncodeBits(std::string_view name, float amax) {
  return std::bit_cast<std::uint32_t>(TensorScaleOf(Row(name), amax).encode);
}

TEST_CASE("compressed-tensors multiplies 2688 by the rounded reciprocal of amax", "[quantize]") {
  constexpr std::string_view kRow = "nvfp4.compressed-tensors";
  CHECK(EncodeBits(kRow, OfBits(0x05280001)) == 0x7F7FFFFF);  // 2688 / amax is one less
  CHECK(EncodeBits(kRow, 5.9999995f) == 0x43E00002);
  CHECK(EncodeBits(kRow, 0.0f) == 0x3F800000);
  CHECK(EncodeBits(kRow, OfBits(0x05280000)) == 0x3F800000);  // Inf becomes 1
  CHECK(EncodeBits("nvfp4.compressed-tensors.0.14", 0.0f) == 0x7F800000);
  Gives(Of(kRow, {5.9999995f, -0.24999999f}), {0x7E, 0x20}, {7, 9});
  Gives(Of(kRow, {0.0f, -0.0f}), {0x20, 0x20}, {0, 0});
}

TEST_CASE("compressed-tensors rounds to BF16 between the steps of BF16 weights", "[quantize]") {
  constexpr std::string_view kRow = "nvfp4.compressed-tensors.bf16-input";
  CHECK(EncodeBits(kRow, OfBits(0x3DCD0000)) == 0x46D20000);  // 0.1
  CHECK(EncodeBits("nvfp4.compressed-tensors", OfBits(0x3DCD0000)) == 0x46D1CB8D);
  CHECK(EncodeBits(kRow, 0.0f) == 0x3F800000);
  Gives(Of(kRow, {2.484375f}, {1.8671875f}), {126, 122}, {7, 7});
  CHECK(Of("nvfp4.compressed-tensors", {2.484375f}, {1.8671875f}).scales == Bytes{126, 123});
}

TEST_CASE("ModelOpt clamps block scales to [2^-9, 448] since 0.45, static ones since 211c6b3",
          "[quantize]") {
  constexpr std::string_view kDynamic = "nvfp4.modelopt", kStatic = "nvfp4.modelopt.static";
  Gives(Of(kStatic, {0.0f, -0.0f}), {0x7E, 0x7E}, {7, 7});  // 0 / (448 * 0)
  Gives(Of(kStatic, {1.0f, 0.5f}, {0.0f}), {0x7E, 0x7E}, {7, 5, 0});
  Gives(Of(kDynamic, {1.0f, 0.5f}, {0.0f}), {0x7E, 0x38}, {7, 5, 0});
  CHECK(Of(kStatic, {std::numeric_limits<float>::max()}).scales == Bytes{0x7E, 0x01});
  CHECK(Of(kStatic, {0.0f}, {1e30f}).scales == Bytes{0x01, 0x7E});  // 448 / (1e30 / 6) is raised
  // D rounds 1.4 * 2^-138 / 2688 down to 2^-149, or to 0.
  CHECK(Of(kDynamic, {1.4f * 0x1p-138f}).scales == Bytes{0x7E, 0x38});
  CHECK(Of(kDynamic, {0x1p-139f}).scales == Bytes{0x7E, 0x7F});
  CHECK(Of("nvfp4.modelopt.0.44", {0x1p-139f}).scales == Bytes{0x7F, 0x7F});
  CHECK(Of(kDynamic, {1.0f}, {0x1p-30f}).scales == Bytes{0x7E, 0x01});
  CHECK(Of("nvfp4.modelopt.0.44", {1.0f}, {0x1p-30f}).scales == Bytes{0x7E, 0x00});
  CHECK(Of("nvfp4.modelopt.static.0.44", {1.0f}, {0x1p-30f}).scales == Bytes{0x7E, 0x00});
  CHECK(Of("nvfp4.modelopt.static.0.44", {1.0f}, {0.0f}).scales == Bytes{0x7E, 0x7E});
}

TEST_CASE("ModelOpt's MXFP4 rounds ties toward zero and gives zeros the code 8", "[quantize]") {
  constexpr std::string_view kRow = "mxfp4.modelopt";
  Gives(Of(kRow, {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, -0.26f, 0, -0.0f, 1e-9f}),
        {127}, {7, 0, 1, 2, 3, 4, 5, 6, 8, 9, 8, 8, 0});
  Gives(Of(kRow, {OfBits(0x40C00001), 3}), {128}, {5, 3});
  Gives(Of(kRow, {6 * 0x1p-127f}), {0}, {7});
  Gives(Of(kRow, {0.0f}), {0}, {8});
  // Beside the tie 1/4: every bit of v counts.
  Gives(Of(kRow, {6, OfBits(0x3E800001), OfBits(0x3E7FFFFF), -OfBits(0x3E800001)}), {127},
        {7, 1, 0, 9});
  CHECK(Of(kRow, {kInf, 1.0f}).codes == Bytes{8, 8});
}

TEST_CASE("compressed-tensors' MX scales step up at 1.75, for E4M3 too, and at 1.9375 for E2M3",
          "[quantize]") {
  constexpr std::string_view kFour = "mxfp4.compressed-tensors",
                             kSix = "mxfp6_e2m3.compressed-tensors",
                             kEight = "mxfp8_e4m3.compressed-tensors";
  const std::vector<float> x = {1.75f, -0.25f, -0.01f, -0.0f, 0.3f};
  Gives(Of(kFour, x), {126}, {6, 9, 8, 0, 1});
  Gives(Of(kSix, x), {125}, {30, 40, 32, 32, 10});
  Gives(Of(kEight, x), {120}, {118, 224, 186, 128, 98});
  CHECK(Of("mxfp8_e4m3.even", x).scales == Bytes{119});
  const std::vector<float> below = {OfBits(0x3FDFFFFF), 0.5f};
  Gives(Of(kFour, below), {125}, {7, 4});
  Gives(Of(kEight, below), {119}, {126, 112});
  Gives(Of(kSix, {1.9375f, 1.0f}), {126}, {24, 16});
  Gives(Of(kSix, {OfBits(0x3FF7FFFF), 1.0f}), {125}, {31, 24});
  // A maximum that rounds to 2^128 divides by Inf.
  Gives(Of(kFour, {OfBits(0x7F600000), -1.0f}), {0xFF}, {0, 0});
  Gives(Of(kEight, {OfBits(0x7F600000), -1.0f}), {0xFF}, {0, 128});
  Gives(Of(kFour, {OfBits(0x7FFFFF)}), {0}, {4});
}

TEST_CASE("compressed-tensors' MXFP4 of BF16 weights divides in BF16: what underflows has code 0",
          "[quantize]") {
  const float one = 0x1p4f, least = -0x1p-127f, less = -0x1p-130f;  // over s = 2^2 or 2^5
  Gives(Of("mxfp4.compressed-tensors", {one, least}), {129}, {6, 8});
  Gives(Of("mxfp4.compressed-tensors.bf16-input", {one, least}), {129}, {6, 8});
  Gives(Of("mxfp4.compressed-tensors", {0x1p7f, less}), {132}, {6, 8});
  Gives(Of("mxfp4.compressed-tensors.bf16-input", {0x1p7f, less}), {132}, {6, 0});
}

TEST_CASE("MLX rounds the exact logarithm up", "[quantize]") {
  // log2 of the floats above 6 * 2^26 rounds to 26 in binary32.
  Gives(Of("mxfp4.mlx.cpu", {-OfBits(0x4DC00002)}), {154}, {0x0D});
  Gives(Of("mxfp4.mlx.cpu", {-OfBits(0x4DC00000)}), {153}, {0x0F});
  CHECK(Of("mxfp8_e4m3.mlx.cpu", {448 * 0x1p40f}).scales == Bytes{127 + 40});
  CHECK(Of("mxfp8_e4m3.mlx.cpu", {OfBits(0x57E00001)}).scales == Bytes{127 + 41});
}

TEST_CASE("fouroversix's PyTorch code rounds 7 to 8, which is code 8 for both signs",
          "[quantize]") {
  // S is 1, and the scale 2^-9 of 0.017456 takes it to 8.94.
  const float b = OfBits(0x3C8F0000), just = 6.99f * 0x1p-9f;
  Gives(Of("nvfp4.fouroversix", {2688.0f}, {b, -b, just, 7 * 0x1p-9f}), {0x7E, 1}, {7, 8, 8, 7, 8});
  // Under a factor of Inf the errors are NaN, and the scale for 6 is kept.
  const std::vector<float> small = {0x1.8p-126f, -0x1p-127f, 0x1p-128f};
  for (const char* rule : {"mse", "mae", "abs-max"}) {
    CAPTURE(rule);
    const std::string row = std::string("nvfp4.fouroversix.") + rule;
    CHECK(Of(row, {4.513899e-36f}, small).scales == Bytes{120, 56});
  }
  // Errors count it as 8, not as the -0 of its code: else the other scale, 2^-8, would be chosen.
  for (const char* rule : {"mse", "mae", "abs-max"}) {
    CAPTURE(rule);
    Gives(Of(std::string("nvfp4.fouroversix.") + rule, {1536.0f}, {b, -b}), {0x78, 1}, {7, 8, 8});
  }
}

TEST_CASE("AMD Quark divides by scales that its export raises to 2^-126", "[quantize]") {
  const std::vector<float> least = {OfBits(1), OfBits(0x7FFFFF), -OfBits(0x600000), -OfBits(1)};
  Gives(Of("mxfp4.quark.even", least), {1}, {0, 4, 11, 0});   // by 2^-127
  Gives(Of("mxfp4.quark.floor", least), {1}, {0, 6, 13, 0});  // by 2^-128: log2 rounds to -126
  Gives(Of("mxfp4.quark.ceil", least), {1}, {0, 6, 13, 0});
  Gives(Of("mxfp4.quark.even", {0.0f}), {1}, {0});
  Gives(Of("mxfp4.quark.floor", {0.0f}), {104}, {0});
  Gives(Of("mxfp4.quark.ceil", {0.0f}), {104}, {0});
  CHECK(Of("mxfp4.quark.even", {kInf, 1.0f}).scales == Bytes{254});
  // Elements that round to 0 lose their sign.
  const std::vector<float> x = {1.75f, OfBits(0x3FDFFFFF), -0.1f, -1e-9f, -0.0f};
  Gives(Of("mxfp4.quark.even", x), {126}, {6, 5, 0, 0, 0});
  Gives(Of("mxfp4.quark.floor", x), {125}, {7, 7, 9, 0, 0});
  Gives(Of("mxfp4.quark.ceil", x), {126}, {6, 5, 0, 0, 0});
}

TEST_CASE("torchao 0.18 multiplies by 1 under RCEIL's byte 0, divides by 2^-126 elsewhere",
          "[quantize]") {
  for (const std::string_view format : {"mxfp4", "mxfp8_e4m3"}) {
    const std::string row = std::string(format) + ".torchao.";
    Gives(Of(row + "rceil.0.18", {0x1p-126f}), {0}, {0});
    CHECK(Of(row + "rceil", {0x1p-126f}).codes != Bytes{0});
    CHECK(Of(row + "rceil.0.18", {kInf}).scales == Bytes{254});
    CHECK(Of(row + "ceil", {kInf}).scales == Bytes{0xFF});
  }
  for (const char* rule : {"floor", "even", "ceil"}) {
    CAPTURE(rule);
    const std::string row = std::string("mxfp8_e4m3.torchao.") + rule + ".0.18";
    Gives(Of(row, {0x1p-126f}), {0}, {56});
    CHECK(Of(row, {kInf}).scales == Bytes{247});
  }
}

TEST_CASE("qwix on XLA multiplies by reciprocals, and its log2 may step past a power of two",
          "[quantize]") {
  // 0.5859375 / 0.46875 is the tie 1.25; fl(1/s) lies above 1/s.
  Gives(Of("nvfp4.qwix", {2.75f, 0.5859375f}), {47, 56}, {7, 3});
  Gives(Of("nvfp4.qwix.bf16-input", {2.75f, 0.5859375f}), {47, 56}, {7, 2});
  Gives(Of("mxfp4.qwix", {48.0f}), {130}, {7});
  Gives(Of("mxfp4.qwix", {OfBits(0x42400002)}), {131}, {5});
  CHECK(Of("mxfp4.qwix", {6 * 0x1p-60f}).scales == Bytes{127 - 59});
  CHECK(Of("mxfp4.qwix", {6 * 0x1p-64f}).scales == Bytes{127});
  CHECK(Of("mxfp4.qwix", {kInf, 1.0f, -1.0f}).codes == Bytes{8, 0, 8});
}

TEST_CASE("vLLM without a GPU keeps the sign of elements under a zero scale", "[quantize]") {
  Gives(Of("nvfp4.vllm.emulation.cpu", {6.0f}, {-0x1p-30f, 0x1p-30f, -0.0f}), {0x7E, 0},
        {7, 8, 0, 0});
  CHECK(Of("nvfp4.flashinfer.reference", {6.0f}, {-0x1p-30f}).codes == Bytes{7, 0});
}

TEST_CASE("Logarithms of subnormals round to the power of two next to them", "[dialect]") {
  CHECK(FloorLog2(OfBits(0x7FFFFF)) == -126);
  CHECK(FloorLog2(OfBits(0x7FFFE0)) == -127);
  CHECK(CeilLog2(OfBits(0x400005)) == -127);
  CHECK(CeilLog2(OfBits(0x400020)) == -126);
  CHECK(FloorLog2(OfBits(1)) == -149);
  CHECK(CeilLog2(OfBits(3)) == -147);
}

}  // namespace
}  // namespace fp4lab
