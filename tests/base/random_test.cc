#include "fp4lab/base/random.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

TEST_CASE("Philox4x32-10 gives Random123's known answer", "[base][golden]") {
  STATIC_REQUIRE(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
                 PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("The 16-bit fields of a stream are its blocks in little-endian order", "[base]") {
  const RandomStream stream{.seed = 0x123456789abcdef0, .step = 7, .tensor = 3};
  for (std::uint64_t element = 0; element < 64; ++element) {
    const PhiloxBlock block = stream.Block(element / 8);
    const std::uint32_t word = block[(element % 8) / 2];
    CHECK(stream.Bits16(element) == (element % 2 == 0 ? word & 0xffff : word >> 16));
  }
}

TEST_CASE("FillBits16 gives the stream's fields on every SIMD target, from any element on",
          "[base][differential]") {
  const RandomStream stream{.seed = 0xfedcba9876543210, .step = 0xffffffff, .tensor = 0x80000001};
  // The last two values of `first`: the blocks cross number 2^32; block numbers above 32 bits.
  for (const std::uint64_t first : {0ull, 1ull, 7ull, 8ull, (1ull << 35) - 600, (5ull << 40) + 3}) {
    for (const std::size_t count : {0u, 1u, 5u, 8u, 63u, 64u, 511u, 513u, 1500u}) {
      std::vector<std::uint16_t> expected(count), fields(count);
      for (std::size_t i = 0; i < count; ++i) {
        expected[i] = static_cast<std::uint16_t>(stream.Bits16(first + i));
      }
      for (const std::string& target : SimdTargets()) {
        PinSimdTarget(target);
        std::fill(fields.begin(), fields.end(), std::uint16_t{0});
        FillBits16(stream, first, fields);
        INFO(target << ", first " << first << ", count " << count);
        CHECK(fields == expected);
      }
    }
  }
  PinSimdTarget("best");
}

TEST_CASE("Transformer Engine's Philox streams are reproduced, 128-bit carries included",
          "[base][golden]") {
  const NpzFile file = OpenGolden("te_sr_host.npz");
  const NpyArray states = file.Read("philox_seed_subseq_offset");
  const NpyArray words = file.Read("philox_words");
  REQUIRE(words.shape == std::vector<std::size_t>{8, 6, 4});
  bool carried = false;
  for (std::size_t i = 0; i < 8; ++i) {
    const auto state = states.As<std::uint64_t>().subspan(3 * i, 3);
    const TransformerEngineStream stream{
        .seed = state[0], .subsequence = state[1], .offset = state[2]};
    carried |= stream.offset + 5 < stream.offset;
    for (std::size_t n = 0; n < 6; ++n) {
      const auto expected = words.As<std::uint32_t>().subspan(4 * (6 * i + n), 4);
      const PhiloxBlock block = stream.Block(n);
      INFO("state " << i << ", block " << n);
      CHECK(std::equal(block.begin(), block.end(), expected.begin()));
    }
  }
  CHECK(carried);
}

}  // namespace
}  // namespace fp4lab
