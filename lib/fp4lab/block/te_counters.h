// Which random word of which thread each element takes in Transformer Engine's NVFP4 kernels: the
// counters of their Philox streams as pure functions, to make words for QuantizeReplayed.
//
// Derived by hand from the kernels' source (snapshot d0067d0, 2026-08): **never run on a GPU**.
// Nothing in Transformer Engine pins these numbers, and its kernels differ from each other, so a
// replay that fails with them proves nothing about the kernel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fp4lab {

enum class TeKernel : std::uint8_t {
  kTuned,         // quantize_transpose_nvfp4_tuned_1D: 128 threads a 128x128 chunk, BF16 input
  kOpt2d,         // quantize_transpose_nvfp4: 128 threads a 128x128 chunk
  kGeneric,       // quantize_transpose_vector_blockwise_fp4: 256 threads a 128x128 tile
  kFusedHadamard  // RHT and cast fused (row_cast_col_hadamard_transform_cast_fusion)
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
};

// One launch over a (rows, cols) matrix; kFusedHadamard: (tokens, features). Which outputs are made
// changes the words of both. kTuned always makes the rowwise one.
struct TeLaunch {
  TeKernel kernel = TeKernel::kTuned;
  std::size_t rows = 0, cols = 0;
  bool rowwise = true, columnwise = false;
};

// Where an element's bits come from: the `word`-th 32-bit word of the stream of `subsequence`
// (component word % 4 of its block word / 4), and its place among the word's four elements.
struct TeWord {
  std::uint64_t subsequence = 0;
  std::uint32_t word = 0, lane = 0;
  friend constexpr bool operator==(const TeWord&, const TeWord&) = default;
};

// For element (row, col) of the input in the rowwise or the columnwise output. Four elements along
// the output's blocks share a word: columns 4i to 4i + 3, or rows. Throws std::logic_error for an
// output that the launch does not make, or an element outside.
TeWord TeWordOf(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col);

// Bounds of TeWord: words that a thread's stream gives out, and one more than the last subsequence.
std::uint32_t TeWordsAStream(const TeLaunch& launch);
std::uint64_t TeSubsequences(const TeLaunch& launch);

// All words of an output, in the layout of QuantizeReplayed: (rows, ceil(cols / 4)) for the rowwise
// one, (cols, ceil(rows / 4)) for the columnwise one. seed and offset: rng_state.
std::vector<std::uint32_t> TeWords(const TeLaunch& launch, bool columnwise, std::uint64_t seed,
                                   std::uint64_t offset);

}  // namespace fp4lab
