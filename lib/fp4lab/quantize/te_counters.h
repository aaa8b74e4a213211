// The random word of each element in Transformer Engine's NVFP4 kernels: the counters of their
// threads' Philox streams as pure functions, to make words for QuantizeReplayed and bits for
// training (quantize/random_source.h).
//
// Derived by hand from the kernels' source (snapshot d0067d0, 2026-08): **never run on a GPU**.
// Transformer Engine does not specify these numbers, and its kernels differ from each other, so a
// replay that fails with them proves nothing about the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fp4lab/base/divide_up.h"

namespace fp4lab {

enum class TeKernel : std::uint8_t {
  kTuned,           // quantize_transpose_nvfp4_tuned_1D: 128 threads a 128x128 chunk, BF16 input
  kOpt2d,           // quantize_transpose_nvfp4: 128 threads a 128x128 chunk
  kGeneric,         // quantize_transpose_vector_blockwise_fp4: 256 threads a 128x128 tile
  kFusedHadamard,   // RHT and cast fused (row_cast_col_hadamard_transform_cast_fusion)
  kHadamardColumns  // RHT and cast of the columns alone (hadamard_transform_cast_fusion), as
                    // Transformer Engine's JAX modules call it: columnwise output only
};

struct NamedTeKernel {
  TeKernel kernel;
  std::string_view name;
};
inline constexpr std::array kTeKernels = {
    NamedTeKernel{TeKernel::kTuned, "tuned"},
    NamedTeKernel{TeKernel::kOpt2d, "opt2d"},
    NamedTeKernel{TeKernel::kGeneric, "generic"},
    NamedTeKernel{TeKernel::kFusedHadamard, "fused-hadamard"},
    NamedTeKernel{TeKernel::kHadamardColumns, "hadamard-columns"},
};

// One launch over a (rows, cols) matrix; for the Hadamard kernels (tokens, features). The set of
// outputs changes the words of each output. kTuned always writes the rowwise output.
struct TeLaunch {
  TeKernel kernel = TeKernel::kTuned;
  std::size_t rows = 0, cols = 0;
  bool rowwise = true, columnwise = false;

  constexpr std::size_t Outputs() const { return (rowwise ? 1u : 0u) + (columnwise ? 1u : 0u); }
};

// The source of an element's random bits: the `word`-th 32-bit word of the stream of `subsequence`
// (component word % 4 of its block word / 4), and the element's place among the word's four
// elements.
struct TeWord {
  std::uint64_t subsequence = 0;
  std::uint32_t word = 0, lane = 0;
  friend constexpr bool operator==(const TeWord&, const TeWord&) = default;
};

// TeWordOf for a launch of kTuned, on host and device; the caller ensures the preconditions of
// TeWordOf.
constexpr TeWord TunedTeWord(const TeLaunch& launch, bool columnwise, std::size_t row,
                             std::size_t col) {
  const std::size_t tile = row / 128 * DivideUp(launch.cols, 128) + col / 128;
  const std::size_t stage = row % 128 / 64 * 2 + col % 128 / 64, r = row % 64, c = col % 64;
  std::size_t thread = 0, n = 8 * launch.Outputs() * stage, place = 0;
  if (!columnwise) {
    thread = r % 32 * 4 + c / 16;
    const std::size_t lane = thread % 32, it = r / 32, w = (c % 16 / 8 + lane / 16) % 2;
    n += 4 * it + 2 * w + c % 8 / 4;
    place = c % 4;
  } else {
    const std::size_t lane = c / 2, w = c % 2;
    const std::size_t warp = (r / 16 + 4 - lane / 2 % 4) % 4;  // r / 16 = (lane / 2 + warp) % 4
    thread = 32 * warp + lane;
    n += 8 + 4 * w + 2 * (r % 16 / 8) + r % 8 / 4;
    place = r % 4;
  }
  return {128 * tile + thread, static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(place)};
}

// The word of element (row, col) of the input in the rowwise or the columnwise output. Four
// elements along the output's blocks share a word: columns 4i to 4i + 3 in the rowwise, rows in the
// columnwise output. Throws std::logic_error for an output that the launch does not write, or an
// element outside the matrix.
TeWord TeWordOf(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col);

// Bounds of TeWord: the number of words taken from a thread's stream, and the number of
// subsequences (the last one plus 1).
std::uint32_t TeWordsAStream(const TeLaunch& launch);
std::uint64_t TeSubsequences(const TeLaunch& launch);

// All words of an output, in the layout of QuantizeReplayed: (rows, ceil(cols / 4)) for the rowwise
// output, (cols, ceil(rows / 4)) for the columnwise one. seed, offset: Transformer Engine's
// rng_state.
std::vector<std::uint32_t> TeWords(const TeLaunch& launch, bool columnwise, std::uint64_t seed,
                                   std::uint64_t offset);

}  // namespace fp4lab
