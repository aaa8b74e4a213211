#include "fp4lab/base/random.h"

#include "tests/support/catch.h"

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

}  // namespace
}  // namespace fp4lab
