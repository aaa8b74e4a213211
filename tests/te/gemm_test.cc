// PackedFp4Gemm gives the bits of its scalar definition.
#include "fp4lab/te/gemm.h"

#include <bit>
#include <cstring>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

struct Operand {
  std::vector<std::uint8_t> codes, scales;
  PackedFp4 view;
};

// Any codes; scales of some binades or, if `special`, any bytes: NaN and negative ones as well.
Operand RandomOperand(std::size_t rows, std::size_t depth, std::uint32_t tensor, bool special) {
  const RandomStream stream{.seed = 9, .tensor = tensor};
  Operand out;
  const std::size_t stride = depth / 16 + 3;
  out.codes.resize(rows * depth / 2);
  out.scales.resize(rows * stride);
  for (std::size_t i = 0; i < out.codes.size(); ++i) {
    out.codes[i] = static_cast<std::uint8_t>(stream.Bits8(i));
  }
  for (std::size_t i = 0; i < out.scales.size(); ++i) {
    const std::uint32_t byte = stream.Bits8(i + (std::uint64_t{1} << 40));
    out.scales[i] = static_cast<std::uint8_t>(special && byte % 61 == 0 ? byte : byte % 0x7F);
  }
  out.view = {.codes = out.codes.data(),
              .scales = out.scales.data(),
              .scale_stride = stride,
              .rows = rows,
              .depth = depth};
  return out;
}

// NaN has one meaning, whatever its bits.
bool SameNumber(std::uint16_t a, std::uint16_t b) {
  const auto is_nan = [](std::uint16_t x) { return (x & 0x7FFFu) > 0x7F80u; };
  return a == b || (is_nan(a) && is_nan(b));
}

TEST_CASE("Products of packed operands equal the definition's", "[te][differential]") {
  struct Size {
    std::size_t m, n, k;
  };
  for (const Size size : {Size{1, 1, 16}, Size{33, 47, 64}, Size{128, 96, 528}, Size{5, 64, 0}}) {
    for (const bool special : {false, true}) {
      const Operand a = RandomOperand(size.m, size.k, 1, special);
      const Operand b = RandomOperand(size.n, size.k, 2, special);
      std::vector<std::uint16_t> bias_words(size.n);
      std::vector<float> bias(size.n);
      for (std::size_t i = 0; i < size.n; ++i) {
        bias[i] = 1.5f * static_cast<float>(i);
        bias_words[i] = static_cast<std::uint16_t>(Encode(FormatId::kBF16, bias[i]));
      }
      CAPTURE(size.m, size.n, size.k, special);
      const std::size_t count = size.m * size.n;
      std::vector<std::uint16_t> words(count), expected_words(count);
      for (const GemmBias& with : {GemmBias{}, GemmBias{.bf16 = bias_words.data()}}) {
        PackedFp4Gemm(a.view, b.view, 0.0123f, with,
                      {.bf16 = words.data(), .rows = size.m, .cols = size.n});
        reference::PackedFp4Gemm(a.view, b.view, 0.0123f, with,
                                 {.bf16 = expected_words.data(), .rows = size.m, .cols = size.n});
        std::size_t different = 0;
        for (std::size_t i = 0; i < count; ++i) {
          different += !SameNumber(words[i], expected_words[i]);
        }
        CHECK(different == 0);
      }
      if (special) continue;
      std::vector<float> sums(count), expected(count);
      PackedFp4Gemm(a.view, b.view, 1e-6f, {.fp32 = bias.data()},
                    {.fp32 = sums.data(), .rows = size.m, .cols = size.n});
      reference::PackedFp4Gemm(a.view, b.view, 1e-6f, {.fp32 = bias.data()},
                               {.fp32 = expected.data(), .rows = size.m, .cols = size.n});
      CHECK(sums == expected);
    }
  }
}

}  // namespace
}  // namespace fp4lab
