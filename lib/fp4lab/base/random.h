// Counter-based random bits: pure functions of (seed, step, tensor, element). Host and device.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

namespace fp4lab {

using PhiloxBlock = std::array<std::uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;
inline constexpr std::array<std::uint32_t, 2> kPhiloxMultipliers = {0xD2511F53, 0xCD9E8D57};
inline constexpr std::array<std::uint32_t, 2> kPhiloxWeyl = {0x9E3779B9, 0xBB67AE85};

// The full 64-bit product. (Device code uses mul.wide.u32: nvcc adds a third instruction to the
// plain expression.)
constexpr std::uint64_t WideProduct(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) {
    std::uint64_t product;
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
    return product;
  }
#endif
  return std::uint64_t{a} * b;
}

using PhiloxKey = std::array<std::uint32_t, 2>;
using PhiloxKeys = std::array<PhiloxKey, kPhiloxRounds>;

// The key of each round.
constexpr PhiloxKeys RoundKeys(PhiloxKey key) {
  PhiloxKeys keys{};
  for (PhiloxKey& of_round : keys) {
    of_round = key;
    key = {key[0] + kPhiloxWeyl[0], key[1] + kPhiloxWeyl[1]};
  }
  return keys;
}

// Philox4x32-10 (Salmon et al., SC 2011; Random123 constants and key schedule, as cuRAND and
// Transformer Engine use it).
constexpr PhiloxBlock PhiloxWithKeys(PhiloxBlock counter, const PhiloxKeys& keys) {
  for (const PhiloxKey& key : keys) {
    const std::uint64_t p0 = WideProduct(kPhiloxMultipliers[0], counter[0]);
    const std::uint64_t p1 = WideProduct(kPhiloxMultipliers[1], counter[2]);
    counter = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
  }
  return counter;
}
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, PhiloxKey key) {
  return PhiloxWithKeys(counter, RoundKeys(key));
}

// One stream of random bits: fp4lab's contract for stochastic rounding, data order and initial
// weights. The stream is the same on every machine, thread count and SIMD target.
struct RandomStream {
  std::uint64_t seed = 0;
  std::uint32_t step = 0;    // optimizer step, or any other index of time
  std::uint32_t tensor = 0;  // identifies the tensor (and the copy of it) that uses the bits

  friend constexpr bool operator==(const RandomStream&, const RandomStream&) = default;

  constexpr PhiloxKey Key() const {  // low word first
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  }

  // 128 bits: Philox4x32-10 with counter = {block, tensor, step}.
  constexpr PhiloxBlock Block(std::uint64_t block) const {
    return Philox4x32(Counter(block), Key());
  }
  constexpr PhiloxBlock Counter(std::uint64_t block) const {
    return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), tensor,
            step};
  }

  // The 16 bits of an element: half (element % 2), low half first, of word (element % 8) / 2 of
  // block element / 8. In little-endian memory the fields of a block are eight uint16 in a row.
  constexpr std::uint32_t Bits16(std::uint64_t element) const {
    const std::uint32_t word = Block(element / 8)[(element % 8) / 2];
    return (element % 2 == 0 ? word : word >> 16) & 0xFFFFu;
  }

  // 8 bits: byte element % 4, lowest first, of word (element % 16) / 4 of block element / 16.
  constexpr std::uint32_t Bits8(std::uint64_t element) const {
    return Block(element / 16)[(element % 16) / 4] >> (element % 4 * 8) & 0xFFu;
  }

  // 32 bits: word element % 4 of block element / 4.
  constexpr std::uint32_t Bits32(std::uint64_t element) const {
    return Block(element / 4)[element % 4];
  }
};

// A stream with precomputed round keys, for callers that draw many blocks. If a KeyedStream is a
// parameter of a GPU kernel, the keys are constant operands of the kernel's instructions.
struct KeyedStream {
  RandomStream stream;
  PhiloxKeys keys = {};

  KeyedStream() = default;
  constexpr explicit KeyedStream(const RandomStream& s) : stream(s), keys(RoundKeys(s.Key())) {}

  constexpr PhiloxBlock Block(std::uint64_t block) const {
    return PhiloxWithKeys(stream.Counter(block), keys);
  }
};

// fields[i] = stream.Bits16(first + i), by a vector kernel: the same bits, many times faster.
void FillBits16(const RandomStream& stream, std::uint64_t first, std::span<std::uint16_t> fields);

// Transformer Engine's stream of one thread (common/util/curanddx.hpp in use with its NVFP4
// kernels): key = seed, low word first; block n has the 128-bit counter subsequence * 2^64 + offset
// + n. Offset counts blocks, not words.
struct TransformerEngineStream {
  std::uint64_t seed = 0, subsequence = 0, offset = 0;

  constexpr PhiloxBlock Block(std::uint64_t n) const {
    const std::uint64_t low = offset + n;
    const std::uint64_t high = subsequence + (low < offset ? 1 : 0);
    return Philox4x32({static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                       static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)},
                      {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  }
};

// Uniform in (0, 1): (bits + 0.5) / 2^32, exact in double.
constexpr double UniformOpen(std::uint32_t bits) {
  return (static_cast<double>(bits) + 0.5) * 0x1p-32;
}

}  // namespace fp4lab
