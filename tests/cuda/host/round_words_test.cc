// The rounding of blocks in a GPU's registers, compiled for the host: against the formulas of
// dialect/stages.h for every dialect of the table that these kernels take.
#include "fp4lab/cuda/quantize/values/round_words.cuh"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>

#include "tests/support/catch.h"

namespace fp4lab::cuda {
namespace {

template <int kBlock>
using Words = std::array<std::uint32_t, kBlock / 2>;

// A block of random numbers: exponents within `binades` of each other, some zeros and subnormals;
// with `specials` Inf and NaN too.
template <int kBlock>
Words<kBlock> RandomBlock(std::mt19937_64& random, int top, int binades, bool specials) {
  Words<kBlock> words{};
  for (int i = 0; i < kBlock; ++i) {
    int exponent = std::max(0, top - static_cast<int>(random() % static_cast<unsigned>(binades)));
    if (random() % 9 == 0) exponent = 0;
    if (specials && random() % 20 == 0) exponent = 255;
    const std::uint32_t fraction = exponent == 0 && random() % 2 == 0 ? 0 : random() % 128;
    const std::uint32_t bf16 = static_cast<std::uint32_t>(random() % 2 << 15) |
                               static_cast<std::uint32_t>(exponent) << 7 | fraction;
    words[static_cast<std::size_t>(i) / 2] |= bf16 << (i % 2 * 16);
  }
  return words;
}

template <int kBlock>
float ElementOf(const Words<kBlock>& words, std::size_t i) {
  return HalfOf(words[i / 2], static_cast<int>(i % 2));
}

// The numbers of the block by the definition.
template <int kBlock>
BlockNumbers Defined(const Dialect& d, const TensorScale& l, const Words<kBlock>& words) {
  float b = 0.0f;
  bool nan = false;
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float magnitude = std::fabs(ElementOf<kBlock>(words, i));
    nan = nan || magnitude != magnitude;
    if (magnitude > b) b = magnitude;
  }
  if (nan && d.nan != NanRule::kElement) b = __uint_as_float(0x7FC00000u);
  const float t = ScaleBefore(d, b, l);
  const BlockNumbers six = NumbersFrom(d, b, t, l);
  if (d.adaptive == Adaptive::kNo) return six;
  const BlockNumbers four = NumbersFrom(d, b, t * 1.5f, l);
  const auto at = [&](std::size_t, std::size_t c) { return ElementOf<kBlock>(words, c); };
  const float of_six = AdaptiveBlockError(d, six, l, 1, kBlock, at);
  const float of_four = AdaptiveBlockError(d, four, l, 1, kBlock, at);
  return of_four < of_six ? four : six;
}

bool AreSame(float a, float b) {
  return __float_as_uint(a) == __float_as_uint(b) || (a != a && b != b);
}

// Blocks whose scale or values differ from the definition.
template <ElementRounding kRounding, bool kDivides, int kBlock, bool kAdaptive, class Formulas>
int Different(const Dialect& argument) {
  Dialect d = argument;
  Formulas::Set(&d);
  std::mt19937_64 random(3);
  int different = 0;
  for (int i = 0; i < 2000; ++i) {
    const int top =
        i % 7 == 0 ? static_cast<int>(random() % 255) : 110 + static_cast<int>(random() % 30);
    const Words<kBlock> block =
        RandomBlock<kBlock>(random, top, 1 + static_cast<int>(random() % 12), i % 50 == 0);
    constexpr std::array kLarger = {1.0f, 3.7f, 1000.0f, 1e6f};  // the tensor's amax
    const float largest = std::ldexp(1.9f, top - 127) * kLarger[static_cast<std::size_t>(i) % 4];
    const float amax = std::fmin(RoundToBf16(largest), 0x1.FEp127f);
    const TensorScale l = HasTensorScale(d) ? TensorScaleOf(d, amax) : TensorScale{};
    std::uint32_t words[kBlock / 2], rounded[kBlock / 2];
    std::copy(block.begin(), block.end(), words);
    const BlockNumbers n =
        RoundWords<kRounding, kDivides, kBlock, kAdaptive>(d, argument, l, words, rounded);
    const BlockNumbers want = Defined<kBlock>(argument, l, block);
    bool same = AreSame(n.scale, want.scale);
    for (std::size_t c = 0; c < kBlock; ++c) {
      const std::uint8_t code = QuantizedElement(argument, want, l, ElementOf<kBlock>(block, c), 0);
      const float value = Decode(FormatId::kE2M1, code) * want.scale;
      const float got = HalfOf(TimesScale(d, rounded[c / 2], n.scale), static_cast<int>(c % 2));
      same = same && AreSame(got, RoundToBf16(value));
    }
    different += same ? 0 : 1;
  }
  return different;
}

template <ElementRounding kRounding, bool kDivides, bool kAdaptive, class Formulas>
int DifferentInBlocks(const Dialect& d) {
  return d.block_cols == 16 ? Different<kRounding, kDivides, 16, kAdaptive, Formulas>(d)
                            : Different<kRounding, kDivides, 32, kAdaptive, Formulas>(d);
}

// Compares every kernel that takes the dialect; the number of these kernels.
int CheckKernels(const Dialect& d) {
  int kernels = 0;
  const auto check = [&]<ElementRounding kRounding, bool kDivides, bool kAdaptive, class Own>() {
    if (d.rounding != kRounding || Divides(d.factor) != kDivides || !Has<Own>(d)) return;
    if ((d.adaptive != Adaptive::kNo) != kAdaptive) return;
    CHECK(DifferentInBlocks<kRounding, kDivides, kAdaptive, Own>(d) == 0);
    ++kernels;
  };
  using enum ElementRounding;
  check.template operator()<kNearestEven, false, false, AnyFormulas>();
  check.template operator()<kNearestEven, true, false, AnyFormulas>();
  check.template operator()<kNearestEven, false, true, AnyFormulas>();
  check.template operator()<kNearestEven, false, true, FourOverSixFormulas<Adaptive::kMse>>();
  check.template operator()<kNearestEven, false, true, FourOverSixFormulas<Adaptive::kMae>>();
  check.template operator()<kTiesAway, true, false, QuartetFormulas<Adaptive::kNo>>();
  check.template operator()<kTiesAway, true, true, QuartetFormulas<Adaptive::kMse>>();
  return kernels;
}

TEST_CASE("Blocks in a GPU's registers have the values of their dialects", "[cuda]") {
  int dialects = 0;
  const auto check = [&](const Dialect& d) {
    const bool scales = Divides(d.factor) || HasScaling<ElementScaling::kMultiply>(d.factor) ||
                        HasScaling<ElementScaling::kZeroWhereZero>(d.factor);
    const bool blocks = d.block_rows == 1 && (d.block_cols == 16 || d.block_cols == 32);
    if (d.element != FormatId::kE2M1 || !scales || !blocks) return;
    CAPTURE(std::string(d.name));
    dialects += CheckKernels(d) > 0 ? 1 : 0;
  };
  for (const Dialect& d : Dialects()) check(d);
  for (const Adaptive adaptive : {Adaptive::kNo, Adaptive::kMse}) {  // as Quartet II trains
    Dialect d = *FindDialect("nvfp4.quartet2");
    d.adaptive = adaptive;
    d.scale_max = 256;
    d.target = adaptive == Adaptive::kNo ? 6.072f : 0.0f;
    check(d);
  }
  CHECK(dialects > 80);
}

TEST_CASE("Corrected scales of MS-EDEN in a GPU's registers are rounded as defined", "[cuda]") {
  std::mt19937_64 random(5);
  const Dialect d = *FindDialect("nvfp4.quartet2");
  int different = 0;
  for (int i = 0; i < 200'000; ++i) {
    const float scale = Decode(FormatId::kE4M3, static_cast<std::uint32_t>(random() % 127));
    const float correction = std::ldexp(1.0f + static_cast<float>(random() % 8192) / 8192.0f,
                                        i % 3 == 0 ? 0 : static_cast<int>(random() % 40) - 30);
    const auto bits = static_cast<std::uint32_t>(random() % 65536);
    const float want = ScaleValueOf(d, CorrectedScaleByte(d, scale, correction, bits));
    different += AreSame(CorrectedScale(d, scale, correction, bits), want) ? 0 : 1;
  }
  CHECK(different == 0);
}

}  // namespace
}  // namespace fp4lab::cuda
