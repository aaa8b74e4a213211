#include "fp4lab/measure/vector_instructions.h"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <vector>

#include "fp4lab/base/threads_scope.h"
#include "fp4lab/measure/probes.h"
#include "tests/support/catch.h"

namespace fp4lab::measure {
namespace {

struct Encoded {
  const char* text;  // as GNU as reads it
  std::vector<unsigned char> code;
  int bytes;
};

// As GNU binutils 2.40 assembles them.
const std::array kEncoded = {
    Encoded{"vpaddd %zmm1,%zmm2,%zmm3", {0x62, 0xf1, 0x6d, 0x48, 0xfe, 0xd9}, 64},
    Encoded{"vpaddd %ymm1,%ymm2,%ymm3", {0xc5, 0xed, 0xfe, 0xd9}, 32},
    Encoded{"vpaddd %xmm1,%xmm2,%xmm3", {0xc5, 0xe9, 0xfe, 0xd9}, 16},
    Encoded{"vpaddd (%rdi),%ymm2,%ymm3", {0xc5, 0xed, 0xfe, 0x1f}, 32},
    Encoded{"vaddps {rn-sae},%zmm1,%zmm2,%zmm3", {0x62, 0xf1, 0x6c, 0x18, 0x58, 0xd9}, 64},
    Encoded{"vpmulld %zmm17,%zmm2,%zmm3", {0x62, 0xb2, 0x6d, 0x48, 0x40, 0xd9}, 64},
    Encoded{"vpternlogd $5,%zmm1,%zmm2,%zmm3", {0x62, 0xf3, 0x6d, 0x48, 0x25, 0xd9, 0x05}, 64},
    Encoded{"vpmovdb %zmm1,(%rdi)", {0x62, 0xf2, 0x7e, 0x48, 0x31, 0x0f}, 64},
    Encoded{"vcmpltps %zmm1,%zmm2,%k1", {0x62, 0xf1, 0x6c, 0x48, 0xc2, 0xc9, 0x01}, 64},
    Encoded{"vfmadd231ps %ymm8,%ymm9,%ymm10", {0xc4, 0x42, 0x35, 0xb8, 0xd0}, 32},
    Encoded{"vbroadcastss %xmm1,%ymm1", {0xc4, 0xe2, 0x7d, 0x18, 0xc9}, 32},
    Encoded{"vpxor %ymm1,%ymm2,%ymm1", {0xc5, 0xed, 0xef, 0xc9}, 32},
    Encoded{"vpxord %zmm17,%zmm1,%zmm1", {0x62, 0xb1, 0x75, 0x48, 0xef, 0xc9}, 64},
    Encoded{"vpxord %zmm17,%zmm17,%zmm1", {0x62, 0xb1, 0x75, 0x40, 0xef, 0xc9}, 0},
    Encoded{"vpxor %ymm9,%ymm9,%ymm1", {0xc4, 0xc1, 0x35, 0xef, 0xc9}, 0},
    Encoded{"vpxor %ymm9,%ymm1,%ymm1", {0xc4, 0xc1, 0x75, 0xef, 0xc9}, 32},
    Encoded{"vpxor %ymm1,%ymm1,%ymm1", {0xc5, 0xf5, 0xef, 0xc9}, 0},
    Encoded{"vpxord %zmm1,%zmm1,%zmm1", {0x62, 0xf1, 0x75, 0x48, 0xef, 0xc9}, 0},
    Encoded{"vbroadcastss (%rdi),%ymm1", {0xc4, 0xe2, 0x7d, 0x18, 0x0f}, 0},
    Encoded{"vmovups (%rdi),%zmm1", {0x62, 0xf1, 0x7c, 0x48, 0x10, 0x0f}, 0},
    Encoded{"vmovups %zmm1,(%rdi)", {0x62, 0xf1, 0x7c, 0x48, 0x11, 0x0f}, 0},
    Encoded{"vmovdqa %ymm1,%ymm2", {0xc5, 0xfd, 0x6f, 0xd1}, 0},
    Encoded{"vmovd %eax,%xmm1", {0xc5, 0xf9, 0x6e, 0xc8}, 0},
    Encoded{"vzeroupper", {0xc5, 0xf8, 0x77}, 0},
    Encoded{"kmovw %k1,%eax", {0xc5, 0xf8, 0x93, 0xc1}, 0},
    Encoded{"kshiftrw $8,%k1,%k1", {0xc4, 0xe3, 0xf9, 0x30, 0xc9, 0x08}, 0},
    Encoded{"andn %eax,%ebx,%ecx", {0xc4, 0xe2, 0x60, 0xf2, 0xc8}, 0},
    Encoded{"rorx $3,%eax,%ebx", {0xc4, 0xe3, 0x7b, 0xf0, 0xd8, 0x03}, 0},
    Encoded{"add %eax,%ebx", {0x01, 0xc3}, 0},
    Encoded{"paddd %xmm1,%xmm2", {0x66, 0x0f, 0xfe, 0xd1}, 0}};

TEST_CASE("Vector instructions of x86-64 are told by their prefixes", "[measure]") {
  for (const Encoded& e : kEncoded) {
    INFO(e.text);
    std::array<unsigned char, 16> code{};
    std::ranges::copy(e.code, code.begin());
    CHECK(VectorInstructionBytes(code.data()) == e.bytes);
  }
}

#if defined(__x86_64__) && defined(__linux__)
// 1, or 0 on a processor without AVX2, where kernels take SSE's instructions, which are not
// counted.
int Counted() { return __builtin_cpu_supports("avx2") != 0 ? 1 : 0; }

void SevenAdditionsAndAMove() {
  if (Counted() == 0) return;
  asm volatile(
      ".rept 7\n vpaddd %%ymm0, %%ymm1, %%ymm2\n .endr\n vmovdqa %%ymm2, %%ymm1\n vzeroupper"
      :
      :
      : "xmm1", "xmm2");
}

TEST_CASE("Vector instructions are counted one by one, also where the work throws", "[measure]") {
  const auto count = CountVectorInstructions(SevenAdditionsAndAMove);
  REQUIRE(count);
  CHECK(count->narrow == 7 * Counted());
  CHECK(count->wide == 0);
  CHECK_THROWS_AS(CountVectorInstructions([] { throw std::runtime_error("work"); }),
                  std::runtime_error);
  const auto again = CountVectorInstructions([] {
    for (int i = 0; i < 3; ++i) SevenAdditionsAndAMove();
  });
  REQUIRE(again);
  CHECK(again->narrow == 21 * Counted());
}

TEST_CASE("As many vector instructions are spent as are asked for", "[measure]") {
  const auto counted = [](double wide, double narrow) {
    const auto count =
        CountVectorInstructions([&] { SpendVectorInstructions({.wide = wide, .narrow = narrow}); });
    REQUIRE(count);
    return count->wide + count->narrow;
  };
  counted(2400, 4800);  // binds what it calls, which the first call alone does
  // Differences leave out what a call costs beside its loops.
  CHECK(counted(4800, 0) - counted(2400, 0) == 2400 * Counted());
  CHECK(counted(0, 9600) - counted(0, 4800) == 4800 * Counted());
}

TEST_CASE("SpendFlop executes the multiply-adds of its FLOP", "[measure]") {
  const ThreadsScope one(1);
  const auto flop = [](double asked) {
    const auto count = CountVectorInstructions([&] { SpendFlop(asked); });
    REQUIRE(count);
    return 32 * count->wide + 16 * count->narrow;  // of 16 and of 8 lanes
  };
  flop(38400);
  CHECK(flop(76800) - flop(38400) == 38400 * Counted());
}
#else
TEST_CASE("Where vector instructions cannot be counted, the work runs all the same", "[measure]") {
  bool ran = false;
  CHECK(CountVectorInstructions([&] { ran = true; }) == std::nullopt);
  CHECK(ran);
}
#endif

}  // namespace
}  // namespace fp4lab::measure
