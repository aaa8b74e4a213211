// The bounds of Hadamard transforms on tensor cores, by the models of tensor cores. No GPU needed.
#include "fp4lab/gpu/quantize/hadamard_parts.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"

namespace fp4lab::gpu {
namespace {

// The sums of the transform of x as the kernels make them: products over 16 neighbours, additions
// in binary32 over the rest.
std::vector<float> SumsOf(const TensorCoreModel& model, const std::vector<float>& x) {
  const Format& bf16 = FormatOf(FormatId::kBF16);
  std::vector<float> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t first = i / 16 * 16;
    std::vector<std::uint32_t> signs(16), numbers(16);
    for (std::size_t k = 0; k < 16; ++k) {
      signs[k] = std::popcount(i % 16 & k) % 2 == 0 ? 0x3F80u : 0xBF80u;
      numbers[k] = std::bit_cast<std::uint32_t>(x[first + k]) >> 16;
    }
    y[i] = std::bit_cast<float>(TensorCoreDot(model, bf16, signs, bf16, numbers, 0));
  }
  for (std::size_t stride = 16; stride < x.size(); stride *= 2) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      if ((i & stride) != 0) continue;
      const float a = y[i], b = y[i + stride];
      y[i] = a + b;
      y[i + stride] = a - b;
    }
  }
  return y;
}

// The largest error of these sums. The numbers span few enough binades for binary64.
double LargestError(const std::vector<float>& x, const std::vector<float>& sums) {
  double largest = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    double sum = 0.0;
    for (std::size_t k = 0; k < x.size(); ++k) {
      sum += std::popcount(i & k) % 2 == 0 ? x[k] : -static_cast<double>(x[k]);
    }
    largest = std::max(largest, std::fabs(sum - static_cast<double>(sums[i])));
  }
  return largest;
}

// Numbers below 2 whose exponents are spread over `binades`; `full`: with all fraction bits.
std::vector<float> Spread(std::uint64_t seed, std::size_t size, std::uint32_t binades, bool full) {
  const RandomStream stream(seed, 0, 0);
  std::vector<float> x(size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto bits = stream.Block(i);
    const std::uint32_t exponent = i == 0 ? 127 : 127 - bits[0] % binades;
    const std::uint32_t fraction = full ? 127 : bits[1] % 128;
    x[i] = std::bit_cast<float>((bits[2] % 2 << 15 | exponent << 7 | fraction) << 16);
  }
  return x;
}

TEST_CASE("Sums of a part are exact, and those of any binades have the stated bound", "[gpu]") {
  for (const char* name : {"ampere.f16.f32", "hopper.f16.f32"}) {
    const TensorCoreModel& model = *FindTensorCoreModel(name);
    for (const int size : {16, 32, 64, 128}) {
      double largest = 0.0;
      for (std::uint64_t seed = 0; seed < 40; ++seed) {
        CAPTURE(name, size, seed);
        const auto few = Spread(seed, static_cast<std::size_t>(size), BinadesOfPart(size), true);
        CHECK(LargestError(few, SumsOf(model, few)) == 0.0);
        for (const std::uint32_t binades : {BinadesOfPart(size) + 8, 20u, 24u, 28u, 32u}) {
          const auto x = Spread(seed, static_cast<std::size_t>(size), binades, seed % 2 == 0);
          largest = std::max(largest, LargestError(x, SumsOf(model, x)));
        }
      }
      const double bound = std::ldexp(1.0, -static_cast<int>(BinadesAboveError(size, 1)));
      CHECK(largest < bound);
      CHECK(largest > bound / 256);  // errors do occur
    }
  }
}

}  // namespace
}  // namespace fp4lab::gpu
