// Rows of inference: bytes that their packages (MLX, comfy-kitchen, AMD Quark, auto-round) or a
// NumPy restatement of their source gave, and the sets of the approximate ones.
#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "fp4lab/dialect/approximate.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

const Dialect& Row(std::string_view name) {
  const Dialect* row = FindDialect(name);
  REQUIRE(row != nullptr);
  return *row;
}

// Ties and zeros, then a block of small numbers.
const std::vector<float> kInput = {
    0.75f,   -0.75f,  0.25f,    -0.25f,  1.75f,    -1.75f,   2.5f,    3.5f,
    5.0f,    -5.0f,   6.0f,     0.1f,    -0.0f,    0.0f,     -0.1f,   1.25f,
    0.001f,  -0.003f, 0.0005f,  0.0071f, -0.0123f, 0.02f,    0.0199f, -0.0101f,
    0.0002f, 0.013f,  -0.0167f, 0.0044f, 0.0058f,  -0.0092f, 0.0033f, 0.0151f};

std::string Hex(const std::vector<std::uint8_t>& bytes, bool nibbles) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    if (!nibbles) text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

struct Expected {
  const char *name, *scales, *codes;
};
const Expected kExpected[] = {
    {"nvfp4.flashinfer.te-exact", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.torchao.cutedsl", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.fastvideo", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.sageattention3", "3802", "2a084c466e7080821a04d77d05e23c26"},
    {"nvfp4.mlx", "3802", "2a084c466e7080821a04d77d05e23c26"},
    {"nvfp4.flashinfer.4over6.mae.448", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.flashinfer.4over6.mae.448.fast-error", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.flashinfer.4over6.mae.448.per-token", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.flashinfer.4over6.mae.256", "7c36", "19082a345d6080821a04e77d06e33d26"},
    {"nvfp4.flashinfer.4over6.mae.256.fast-error", "7c36", "19082a345d6080821a04e77d06e33d26"},
    {"nvfp4.flashinfer.4over6.mae.256.per-token", "7c36", "19082a345d6080821a04e77d06e33d26"},
    {"nvfp4.flashinfer.4over6.mse.448", "7e41", "2a084c466e7080820903c66c05d22c15"},
    {"nvfp4.flashinfer.4over6.mse.448.fast-error", "7e41", "2a084c466e7080820903c66c05d22c15"},
    {"nvfp4.flashinfer.4over6.mse.448.per-token", "7e41", "2a084c466e7080820903c66c05d22c15"},
    {"nvfp4.flashinfer.4over6.mse.256", "7c3a", "19082a345d6080820903d66c05d22c15"},
    {"nvfp4.flashinfer.4over6.mse.256.fast-error", "7c3a", "19082a345d6080820903d66c05d22c15"},
    {"nvfp4.flashinfer.4over6.mse.256.per-token", "7c3a", "19082a345d6080820903d66c05d22c15"},
    {"mxfp4.flashinfer", "7f", "2a084c466e7080820800800800800800"},
    {"nvfp4.mlx.cpu", "3802", "19003b456e7000021a04d77d05e23c26"},
    {"mxfp4.mlx.cpu", "7f", "19003b456e7000020000000000000000"},
    {"mxfp8_e4m3.mlx.cpu", "79",
     "64e458d86eee72767afa7c4d8000cd6a18a4102fb53a3ab20735b9292cb12637"},
    {"nvfp4.comfyui", "7e3c", "2a084c466e7080821a04e77d06e33d26"},
    {"nvfp4.comfyui.stochastic-centre", "7e3c", "2a082a466e7080821a04e77d06e33d26"},
    {"amdfp4.quark", "7836", "2a004c466e7000021a04e77d06e33d26"},
    {"amdfp4.quark.g32", "78", "2a004c466e7000020000000000000000"},
    {"amdfp4.quark.global16", "febc", "2a004c466e7000021a04e77d06e33d26"},
    {"amdfp4.quark.global32", "fe", "2a004c466e7000020000000000000000"},
    {"nvfp4.auto-round", "7e3c", "2a004c466e7000021a04e77d06e33d26"},
    {"mxfp4.auto-round", "7f", "2a084c466e7000820800800800800800"},
    {"mxfp4.auto-round.rceil", "7f", "2a084c466e7000820800800800800800"},
    {"mxfp8_e4m3.auto-round", "79",
     "64e458d86eee72767afa7c4d0000cd6a18a4102fb53a3ab20735b9292cb12637"},
};

TEST_CASE("Rows of inference have the bytes of their code bases", "[dialect]") {
  const MatrixView<const float> x(kInput.data(), 1, kInput.size());
  for (const Expected& row : kExpected) {
    CAPTURE(row.name);
    const Dialect& d = Row(row.name);
    for (const Quantized& q : {QuantizeAs(d, x), reference::QuantizeAs(d, x)}) {
      CHECK(Hex(q.scales, false) == row.scales);
      CHECK(Hex(q.codes, d.element == FormatId::kE2M1) == row.codes);
    }
  }
}

// The bytes of one block of zeros with a -0, beside a block of ones.
Quantized WithZeroBlock(std::string_view name) {
  const Dialect& d = Row(name);
  Matrix<float> x(1, 2 * static_cast<std::size_t>(d.block_cols), 1.0f);
  std::fill_n(x.values.begin(), d.block_cols, 0.0f);
  x(0, 1) = -0.0f;
  return QuantizeAs(d, x.View());
}

TEST_CASE("Blocks of zeros, as each code base stores them", "[dialect]") {
  struct Zero {
    const char* name;
    int scale, code, negative;  // the codes of 0 and -0
  };
  for (const Zero& zero :
       {Zero{"nvfp4.flashinfer.te-exact", 0, 0, 8},
        Zero{"nvfp4.flashinfer.4over6.mae.448", 0, 0, 0}, Zero{"nvfp4.sageattention3", 0, 0, 8},
        Zero{"nvfp4.mlx.cpu", 0, 0, 0}, Zero{"mxfp4.mlx.cpu", 127, 0, 0},
        Zero{"nvfp4.comfyui", 0, 0, 0}, Zero{"nvfp4.fastvideo", 0, 7, 7},
        Zero{"amdfp4.quark", 0, 0, 0}, Zero{"mxfp4.auto-round", 126, 0, 0},
        Zero{"mxfp4.auto-round.rceil", 128, 0, 0}}) {
    CAPTURE(zero.name);
    const Quantized q = WithZeroBlock(zero.name);
    CHECK(q.scales[0] == zero.scale);
    CHECK(q.codes[0] == zero.code);
    CHECK(q.codes[1] == zero.negative);
  }
}

TEST_CASE("FlashInfer's S for a tensor of zeros is FLT_MAX and for a tiny one Inf", "[dialect]") {
  const Dialect& d = Row("nvfp4.flashinfer.te-exact");
  CHECK(TensorScaleOf(d, 0.0f).encode == kFloatMax);
  Matrix<float> x(1, 32, 0.0f);
  x(0, 16) = 1e-40f;
  const Quantized q = QuantizeAs(d, x.View());
  CHECK(TensorScaleOf(d, 1e-40f).encode > kFloatMax);
  CHECK(q.scales == std::vector<std::uint8_t>{0, 0x7E});  // the guard for b = 0; without it 0x7F
}

TEST_CASE("MLX's exponents wrap below 2^-127 and elements are divided by the exact power",
          "[dialect]") {
  // log2(1e-38 / 6) = -128.8: byte 127 - 128 mod 256, divisor 2^-128; MLX 0.32.4 gives 255 and 5.
  const std::vector<float> x(32, 1e-38f);
  const Quantized q = QuantizeAs(Row("mxfp4.mlx.cpu"), MatrixView<const float>(x.data(), 1, 32));
  CHECK(q.scales[0] == 255);
  CHECK(q.codes[0] == 5);
}

TEST_CASE("ComfyUI's rounding merges exponent and fraction by OR", "[dialect]") {
  const auto code = [](float v) { return EncodeComfyCentre(v); };
  CHECK(code(1.7499999f) == 3);
  CHECK(code(1.75f) == 2);  // 1, where nearest even is 2
  CHECK(code(1.7501f) == 2);
  CHECK(code(1.7502f) == 4);
  CHECK(code(-6.0f) == 15);
  CHECK(code(7.0f) == 6);  // 4
  CHECK(code(-0.0f) == 8);
}

TEST_CASE("FlashInfer's MXFP4 allows both powers of two around 6 * 2^k, and no other",
          "[dialect]") {
  const Dialect& d = Row("mxfp4.flashinfer");
  const Matrix<float> x(1, 32, 6.0f);
  for (const int byte : {126, 127, 128, 129}) {
    Quantized q = QuantizeAs(d, x.View());
    q.scales[0] = static_cast<std::uint8_t>(byte);
    const float v = 6.0f * E8m0Reciprocal(q.scales[0]);
    std::fill(q.codes.begin(), q.codes.end(),
              static_cast<std::uint8_t>(Encode(FormatId::kE2M1, v)));
    CAPTURE(byte);
    CHECK(IsAllowed(d, x.View(), q).ok == (byte == 127 || byte == 128));
  }
  const Matrix<float> y(1, 32, 5.0f);  // far from a boundary: one answer
  Quantized q = QuantizeAs(d, y.View());
  CHECK(IsAllowed(d, y.View(), q).ok);
  q.codes[3] ^= 1;
  CHECK_FALSE(IsAllowed(d, y.View(), q).ok);
}

TEST_CASE("torchao's CuTeDSL kernel may have the reciprocal a unit off, and no more", "[dialect]") {
  const Dialect& d = Row("nvfp4.torchao.cutedsl");
  const MatrixView<const float> x(kInput.data(), 1, kInput.size());
  const Quantized q = QuantizeAs(d, x);
  const TensorScale l = TensorScaleOf(d, q.amax.at(0));
  const float e = FactorOf(d, 6.0f, ScaleValueOf(d, q.scales[0]), q.scales[0], l);
  const auto codes_under = [&](int units) {
    Quantized other = q;
    const float moved =
        std::bit_cast<float>(std::bit_cast<std::uint32_t>(e) + static_cast<std::uint32_t>(units));
    for (std::size_t i = 0; i < 16; ++i) {
      other.codes[i] = CodeOf(d, kInput[i], 1.0f, Scaled(d, kInput[i], moved, l), 0);
    }
    return other;
  };
  std::size_t differ = 0;
  for (const int units : {-1, 0, 1}) {
    CHECK(IsAllowed(d, x, codes_under(units)).ok);
    differ += codes_under(units).codes != q.codes;
  }
  CHECK(differ > 0);                                      // 2.5 and 0.75 are ties under e
  CHECK_FALSE(IsAllowed(d, x, codes_under(1 << 22)).ok);  // 1.5 e
  // Without .ftz a subnormal product has a reciprocal.
  CHECK(RcpApproxSubnormal(0x1p-127f).lower < 0x1p127f);
  CHECK(RcpApproxSubnormal(0x1p-127f).upper > 0x1p127f);
  CHECK(RcpApprox(0x1p-127f).lower > kFloatMax);
}

}  // namespace
}  // namespace fp4lab
