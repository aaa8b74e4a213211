// Test matrices as functions of a counter, the same on host and device, so that no large matrix is
// copied.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <string_view>

#include "fp4lab/base/random.h"
#include "fp4lab/cuda/quantize/quantize.h"

namespace fp4lab::cuda {

enum class Distribution : std::uint8_t {
  kNormal,  // close to N(0, 1): the sum of four uniform numbers
  kWide,    // random significands, exponents uniform from -40 to 40
  kTiny,    // random significands, exponents from 2^-149 to 2^-100: extreme scales, subnormals
  kTies,    // multiples of 1/4 in [-3, 3]
  kAnyBits  // every bit pattern with the same probability, NaN and Inf too
};
struct NamedDistribution {
  Distribution distribution;
  std::string_view name;
};
inline constexpr std::array kDistributions = {
    NamedDistribution{Distribution::kNormal, "normal"},
    NamedDistribution{Distribution::kWide, "wide"},
    NamedDistribution{Distribution::kTiny, "tiny"},
    NamedDistribution{Distribution::kTies, "ties"},
    NamedDistribution{Distribution::kAnyBits, "any-bits"},
};

// Element `index` as binary32 bits; a BF16 matrix takes the upper 16 bits.
constexpr std::uint32_t GeneratedBits(Distribution distribution, const RandomStream& stream,
                                      std::uint64_t index) {
  const PhiloxBlock block = stream.Block(index / 2);
  const std::uint32_t a = index % 2 == 0 ? block[0] : block[2];
  const std::uint32_t b = index % 2 == 0 ? block[1] : block[3];
  const std::uint32_t sign_and_fraction = a & 0x807FFFFFu;
  switch (distribution) {
    case Distribution::kNormal: {
      const auto sum =
          static_cast<std::int32_t>((a & 0xFFFFu) + (a >> 16) + (b & 0xFFFFu) + (b >> 16));
      return std::bit_cast<std::uint32_t>(static_cast<float>(sum - 131070) * 0x1.bb68p-16f);
    }
    case Distribution::kWide:
      return sign_and_fraction | (87 + b % 81) << 23;
    case Distribution::kTiny:
      return sign_and_fraction | (b % 28) << 23;
    case Distribution::kTies:
      return std::bit_cast<std::uint32_t>(
          static_cast<float>(static_cast<std::int32_t>(b % 25) - 12) * 0.25f);
    case Distribution::kAnyBits:
      return a;
  }
  return 0;
}

// Writes element r * cols + c to x(r, c), in device memory (x.data is written). In order with the
// stream's other work, not waited for.
void Generate(Distribution distribution, const RandomStream& stream, const DeviceMatrix& x,
              StreamHandle handle = nullptr);

}  // namespace fp4lab::cuda
