// Sources of the random bits of stochastic rounding: a good generator, Transformer Engine's, and
// poor generators that published kernels have had.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fp4lab/base/random.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/te_counters.h"

namespace fp4lab {

enum class RandomGenerator : std::uint8_t {
  kPhilox,             // independent bits for every element: RandomStream's Bits8, Bits16, Bits32
  kTransformerEngine,  // 8 bits from the streams of TE's threads: TeBits
  kLinearCounter,      // the element's index plus a random start
  kWordPerRow          // every element of a row takes the bits of the row's first element
};

struct NamedGenerator {
  RandomGenerator generator;
  std::string_view name;
};
inline constexpr std::array kRandomGenerators = {
    NamedGenerator{RandomGenerator::kPhilox, "philox"},
    NamedGenerator{RandomGenerator::kTransformerEngine, "transformer_engine"},
    NamedGenerator{RandomGenerator::kLinearCounter, "linear_counter"},
    NamedGenerator{RandomGenerator::kWordPerRow, "word_per_row"},
};

// Whether the generator can serve the dialect: as many random bits as its elements take, and 16
// bits for the scales of MS-EDEN. True for a dialect that takes none.
constexpr bool Feeds(RandomGenerator generator, const Dialect& dialect) {
  const int bits = RandomBitsOf(dialect.rounding);
  return generator != RandomGenerator::kTransformerEngine ||
         ((bits == 0 || bits == 8) && dialect.unbias == Unbias::kNone);
}

struct RandomSource {
  RandomStream stream = {};
  RandomGenerator generator = RandomGenerator::kPhilox;
  // kTransformerEngine only. True: the matrix is the transpose of the tensor, the columnwise output
  // of the launch. False: the matrix is the tensor itself, the rowwise output.
  bool columnwise = false;

  // The random bits of element i, row-major, of a matrix (rows, cols), in the low `bits` bits (4,
  // 8, 16 or 32; 8 for Transformer Engine's generator). 4 bits are the upper half of 8.
  constexpr std::uint32_t Bits(int bits, std::uint64_t i, std::size_t rows,
                               std::size_t cols) const {
    if (generator == RandomGenerator::kTransformerEngine) return TeBits(i, rows, cols);
    return CounterBits(bits, i, cols);
  }

  // Bits() of any generator but Transformer Engine's, which alone depends on the number of rows.
  constexpr std::uint32_t CounterBits(int bits, std::uint64_t i, std::size_t cols) const {
    if (generator == RandomGenerator::kLinearCounter) {
      return static_cast<std::uint32_t>(stream.Block(0)[0] + i) & (~0u >> (32 - bits));
    }
    if (generator == RandomGenerator::kWordPerRow) i -= i % cols;
    if (bits == 32) return stream.Bits32(i);
    if (bits == 16) return stream.Bits16(i);
    return stream.Bits8(i) >> (8 - bits);
  }

  // The 8 bits that element i takes (RandomForm::kTe8) where quantize_transpose_nvfp4_tuned_1D
  // (TeKernel::kTuned) makes both outputs of the tensor in one launch, as in training, with
  // rng_state = {seed, TeOffset}. Each operand has a launch of its own, as `stream` differs. The
  // kernel is that of tensors without a Hadamard transform; a transformed operand takes the same
  // bits here. Its mapping is derived from source and was never run (quantize/te_counters.h).
  constexpr std::uint32_t TeBits(std::uint64_t i, std::size_t rows, std::size_t cols) const {
    const std::size_t line = i / cols, at = i % cols;
    const TeLaunch launch{.rows = columnwise ? cols : rows,
                          .cols = columnwise ? rows : cols,
                          .rowwise = true,
                          .columnwise = true};
    const TeWord word =
        TunedTeWord(launch, columnwise, columnwise ? at : line, columnwise ? line : at);
    const TransformerEngineStream te{
        .seed = stream.seed, .subsequence = word.subsequence, .offset = TeOffset()};
    return te.Block(word.word / 4)[word.word % 4] >> (8 * word.lane) & 0xFFu;
  }
  // The Philox offset (step + 1) * 2^36 + tensor * 16, modulo 2^64. A launch takes 16 blocks of a
  // thread's stream, so the streams of launches differ for 2^28 steps, and none of their counters
  // is among RandomStream's first 2^32.
  constexpr std::uint64_t TeOffset() const {
    return (std::uint64_t{stream.step} + 1) << 36 | std::uint64_t{stream.tensor} << 4;
  }
};

}  // namespace fp4lab
