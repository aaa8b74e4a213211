// Stochastic rounding under explicit device bits, in both published forms.
#include "fp4lab/quantize/replay.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "fp4lab/block/quantize.h"
#include "fp4lab/oracle/block.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

std::vector<std::uint32_t> Words(std::size_t count, std::uint64_t seed = 31) {
  const RandomStream stream{.seed = seed};
  std::vector<std::uint32_t> words(count);
  for (std::size_t i = 0; i < count; ++i) words[i] = stream.Bits32(i);
  return words;
}

// The field of element i of four under cvt.rs, bit by bit from the table of the measurements: an
// odd element reads its half backwards; a nibble form takes its halves from bytes 3, 1 and 2, 0.
std::uint32_t FieldBitByBit(bool nibbles, std::uint32_t word, std::size_t i) {
  std::uint32_t field = 0;
  for (unsigned bit = 0; bit < 16; ++bit) {
    const unsigned from = i % 2 == 0 ? bit : 15 - bit;
    unsigned source = i < 2 ? from : from + 16;
    if (nibbles) source = from % 8 + 8 * (i < 2 ? (from < 8 ? 0 : 2) : (from < 8 ? 1 : 3));
    field |= (word >> source & 1u) << bit;
  }
  return field;
}

TEST_CASE("Four values under one word are Transformer Engine's four under its bytes",
          "[block][replay][golden]") {
  const NpzFile file = OpenGolden("te_sr_host.npz");
  const NpyArray inputs = file.Read("sr_x_f32_bits"), nibbles = file.Read("sr_nibble");
  const auto bits = inputs.As<std::uint32_t>();
  const auto want = nibbles.As<std::uint8_t>();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i + 4 <= bits.size(); i += 4) {
    std::vector<float> v(4);
    for (std::size_t k = 0; k < 4; ++k) v[k] = std::bit_cast<float>(bits[i + k]);
    for (const std::uint32_t word : Words(64, i)) {
      std::vector<std::uint32_t> codes(4);
      EncodeReplayed(FormatId::kE2M1, RandomForm::kTe8, v, std::vector{word}, codes);
      for (std::size_t k = 0; k < 4; ++k) {
        wrong += codes[k] != want[256 * (i + k) + (word >> (8 * k) & 0xFF)];
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Under cvt.rs an element goes up exactly from its field on", "[block][replay]") {
  // `v` is 1 plus the least fraction of a step that carries under this field; `less` is one step of
  // the field below.
  for (const std::uint32_t word : Words(2000)) {
    for (const FormatId id : {FormatId::kE2M1, FormatId::kE2M3, FormatId::kE3M2, FormatId::kE4M3,
                              FormatId::kE5M2, FormatId::kBF16}) {
      const Format& f = FormatOf(id);
      const std::size_t n = ElementsAWord(id, RandomForm::kCvtRs);
      REQUIRE(n == (id == FormatId::kBF16 ? 2u : 4u));
      for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t field = id == FormatId::kBF16
                                        ? (i == 0 ? word & 0xFFFF : word >> 16)
                                        : FieldBitByBit(id == FormatId::kE2M1, word, i);
        const float unit = std::ldexp(1.0f, -f.mantissa_bits - 16);
        const std::uint32_t one = Encode(id, 1.0f), need = 0x10000 - field;
        std::vector<float> v(n, 1.0f + static_cast<float>(need) * unit);
        std::vector<float> less(n, 1.0f + static_cast<float>(need - 1) * unit);
        std::vector<std::uint32_t> codes(n);
        EncodeReplayed(id, RandomForm::kCvtRs, v, std::vector{word}, codes);
        REQUIRE(codes[i] == one + 1);
        EncodeReplayed(id, RandomForm::kCvtRs, less, std::vector{word}, codes);
        REQUIRE(codes[i] == one);
      }
    }
  }
}

TEST_CASE("The 13-bit fields of cvt.rs.f16x2 carry at the 13 bits that a normal result drops",
          "[block][replay]") {
  const std::uint32_t word = 0x1FFF0001;
  const std::vector<float> v = {1.0f + 0x1.FFFp-11f, 1.0f + 0x1p-23f};
  std::vector<std::uint32_t> codes(2);
  EncodeReplayed(FormatId::kFP16, RandomForm::kCvtRs, v, std::vector{word}, codes);
  CHECK(codes == std::vector<std::uint32_t>{0x3C01, 0x3C01});
  EncodeReplayed(FormatId::kFP16, RandomForm::kCvtRs, v, std::vector{0x1FFE0000u}, codes);
  CHECK(codes == std::vector<std::uint32_t>{0x3C00, 0x3C00});
}

TEST_CASE(
    "Replayed block quantization is the oracle's under the fields of the words, for every "
    "format and tail, rowwise and columnwise",
    "[block][replay][oracle]") {
  for (const Dialect& d : TestDialects()) {
    if (d.block_rows > 1) continue;
    const std::size_t width = d.block_cols == 0 ? 32 : static_cast<std::size_t>(d.block_cols);
    for (const std::size_t cols : {std::size_t{1}, std::size_t{6}, width - 1, width}) {
      const Matrix<float> x = TestMatrix(Kind::kNormal, 9, cols, cols);
      Matrix<float> turned(cols, 9);
      for (std::size_t i = 0; i < x.values.size(); ++i) turned(i % cols, i / cols) = x.values[i];
      const std::size_t row_words = (cols + 3) / 4;
      const std::vector<std::uint32_t> words = Words(9 * row_words, cols);
      const std::vector<float> amax = {TensorAmax(x.View())};
      const Quantized q = QuantizeReplayed(d, x.View(), amax, RandomForm::kCvtRs, words);
      CHECK((QuantizeReplayed(d, std::as_const(turned).View().Transposed(), amax,
                              RandomForm::kCvtRs, words) == q));
      const oracle::BlockQuantizer quantizer(d, amax[0]);
      std::size_t wrong = 0;
      for (std::size_t r = 0; r < 9; ++r) {
        std::vector<std::uint32_t> fields;
        for (std::size_t c = 0; c < cols; ++c) {
          fields.push_back(
              FieldBitByBit(d.element == FormatId::kE2M1, words[r * row_words + c / 4], c % 4));
        }
        const oracle::Block want =
            quantizer.Quantize({&x(r, 0), cols}, Rounding::kStochastic, fields);
        if (!q.scales.empty()) wrong += q.scales[r] != want.scale;
        for (std::size_t c = 0; c < cols; ++c) wrong += q.codes[r * cols + c] != want.codes[c];
      }
      INFO(d.name << ", " << cols << " columns");
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Replayed NVFP4 under Transformer Engine's form rounds the scaled elements by its bytes",
          "[block][replay]") {
  const Matrix<float> x = TestMatrix(Kind::kNormal, 7, 45);
  const Dialect nvfp4 = *FindDialect("nvfp4");
  const std::vector<std::uint32_t> words = Words(7 * 12);
  const Quantized q = QuantizeReplayed(nvfp4, x.View(), {}, RandomForm::kTe8, words);
  CHECK(q.scales == reference::QuantizeAs(nvfp4, x.View()).scales);
  const Matrix<float> v = ScaledElements(nvfp4, x.View(), q);
  std::size_t wrong = 0, not_nearest = 0;
  for (std::size_t r = 0; r < 7; ++r) {
    for (std::size_t c = 0; c < 45; ++c) {
      const std::uint32_t byte = words[r * 12 + c / 4] >> (c % 4 * 8) & 0xFF;
      const std::uint32_t code = q.codes[r * 45 + c];
      wrong += code != EncodeTransformerEngineStochastic(v(r, c), byte);
      not_nearest += code != Encode(FormatId::kE2M1, v(r, c));
    }
  }
  CHECK(wrong == 0);
  CHECK(not_nearest > 20);
}

TEST_CASE("A replay refuses words that do not fit and forms that the element does not take",
          "[block][replay]") {
  const Matrix<float> x(2, 18, 1.0f);
  Dialect dialect = *FindDialect("mxfp4.floor");
  const auto replay = [&](std::size_t words, RandomForm form) {
    return QuantizeReplayed(dialect, x.View(), {}, form, Words(words));
  };
  CHECK_NOTHROW(replay(10, RandomForm::kTe8));
  CHECK_THROWS_AS(replay(9, RandomForm::kTe8), std::logic_error);
  dialect = *FindDialect("mxfp6_e2m3.floor");
  CHECK_NOTHROW(replay(10, RandomForm::kCvtRs));
  CHECK_THROWS_AS(replay(10, RandomForm::kTe8), std::logic_error);
}

}  // namespace
}  // namespace fp4lab
