// The indices are those of the kernels: T thread, L lane, W warp, s stage, it iteration, w which of
// a thread's two vectors, e (or h) which group of four; n = the word's number in the thread's
// stream.
#include "fp4lab/block/te_counters.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"

namespace fp4lab {
namespace {

constexpr std::size_t Tiles(std::size_t size, std::size_t tile) { return (size + tile - 1) / tile; }

TeWord Word(std::size_t subsequence, std::size_t n, std::size_t lane) {
  return {subsequence, static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(lane)};
}

std::size_t Outputs(const TeLaunch& launch) {
  return (launch.rowwise ? 1u : 0u) + (launch.columnwise ? 1u : 0u);
}

// A place in its tile of 128 rows and columns, and the threads of the tiles before.
struct Place {
  std::size_t row, col, threads_before;
};
Place PlaceOf(const TeLaunch& launch, std::size_t threads, std::size_t row, std::size_t col) {
  const std::size_t tile = row / 128 * Tiles(launch.cols, 128) + col / 128;
  return {row % 128, col % 128, threads * tile};
}

TeWord Tuned(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  const Place at = PlaceOf(launch, 128, row, col);
  const std::size_t stage = at.row / 64 * 2 + at.col / 64, r = at.row % 64, c = at.col % 64;
  const std::size_t first = 8 * Outputs(launch) * stage;
  if (!columnwise) {
    const std::size_t thread = r % 32 * 4 + c / 16, lane = thread % 32;
    const std::size_t it = r / 32, w = (c % 16 / 8 + lane / 16) % 2, h = c % 8 / 4;
    return Word(at.threads_before + thread, first + 4 * it + 2 * w + h, c % 4);
  }
  const std::size_t lane = c / 2, w = c % 2;
  const std::size_t warp = (r / 16 + 4 - lane / 2 % 4) % 4;  // r / 16 = (lane / 2 + warp) % 4
  const std::size_t e = r % 16 / 8, h = r % 8 / 4;
  return Word(at.threads_before + 32 * warp + lane, first + 8 + 4 * w + 2 * e + h, r % 4);
}

TeWord Opt2d(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  const Place at = PlaceOf(launch, 128, row, col);
  const std::size_t stage = at.row / 32, r = at.row % 32;
  const std::size_t first = 8 * Outputs(launch) * stage, it = r / 16;
  if (columnwise) {
    return Word(at.threads_before + at.col, first + 4 * it + r % 16 / 4, r % 4);
  }
  const std::size_t thread = r % 16 * 8 + at.col / 16, lane = thread % 32;
  const std::size_t w = (at.col % 16 / 8 + lane / 16) % 2, e = at.col % 8 / 4;
  const std::size_t after_columns = launch.columnwise ? 8 : 0;
  return Word(at.threads_before + thread, first + after_columns + 4 * it + 2 * w + e, at.col % 4);
}

TeWord Generic(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  const Place at = PlaceOf(launch, 256, row, col);
  if (!columnwise) {
    const std::size_t thread = at.row % 32 * 8 + at.col / 16;
    return Word(at.threads_before + thread, at.row / 32 * 4 + at.col % 16 / 4, at.col % 4);
  }
  const std::size_t pair = at.col / 2, m = at.col % 2;  // pair = T / 8 + 32 iter
  const std::size_t thread = pair % 32 * 8 + at.row / 16;
  const std::size_t n = (launch.rowwise ? 16 : 0) + pair / 32 * 8 + 4 * m + at.row % 16 / 4;
  return Word(at.threads_before + thread, n, at.row % 4);
}

// Tiles of 128 features by 1024 tokens, of KT slices of 128 tokens.
std::size_t HadamardSlices(const TeLaunch& launch) {
  return std::min<std::size_t>(Tiles(launch.rows, 128), 8);
}

TeWord FusedHadamard(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  const std::size_t slices = HadamardSlices(launch);
  const std::size_t tile = col / 128 + row / 1024 * Tiles(launch.cols, 128);
  const std::size_t k = row % 1024 / 128, base = 512 * slices * tile;
  if (columnwise) {
    const std::size_t group = 128 + col % 128, v = row % 128 / 16;
    return Word(group + 512 * k + base, 4 * v + row % 16 / 4, row % 4);
  }
  const std::size_t group = 256 + 2 * (row % 128) + col % 128 / 64, v = col % 64 / 16;
  // The kernel has counted the slice already when it seeds this stream.
  return Word(group + 512 * (k + 1) + base, 4 * v + col % 16 / 4, col % 4);
}

}  // namespace

TeWord TeWordOf(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  Expects(row < launch.rows && col < launch.cols, "an element of the matrix");
  Expects(columnwise ? launch.columnwise : launch.rowwise, "an output that the launch makes");
  switch (launch.kernel) {
    case TeKernel::kTuned:
      Expects(launch.rowwise, "the tuned kernel makes the rowwise output always");
      return Tuned(launch, columnwise, row, col);
    case TeKernel::kOpt2d:
      return Opt2d(launch, columnwise, row, col);
    case TeKernel::kGeneric:
      return Generic(launch, columnwise, row, col);
    case TeKernel::kFusedHadamard:
      return FusedHadamard(launch, columnwise, row, col);
  }
  return {};
}

std::uint32_t TeWordsAStream(const TeLaunch& launch) {
  const auto outputs = static_cast<std::uint32_t>(Outputs(launch));
  switch (launch.kernel) {
    case TeKernel::kTuned:
    case TeKernel::kOpt2d:
      return 32 * outputs;
    case TeKernel::kGeneric:
      return 16 * outputs;
    case TeKernel::kFusedHadamard:
      return launch.columnwise ? 32 : 16;
  }
  return 0;
}

std::uint64_t TeSubsequences(const TeLaunch& launch) {
  const std::uint64_t tiles = Tiles(launch.rows, 128) * Tiles(launch.cols, 128);
  switch (launch.kernel) {
    case TeKernel::kTuned:
    case TeKernel::kOpt2d:
      return 128 * tiles;
    case TeKernel::kGeneric:
      return 256 * tiles;
    case TeKernel::kFusedHadamard: {
      const std::uint64_t large = Tiles(launch.rows, 1024) * Tiles(launch.cols, 128);
      return 512 * (HadamardSlices(launch) * large + 1);
    }
  }
  return 0;
}

std::vector<std::uint32_t> TeWords(const TeLaunch& launch, bool columnwise, std::uint64_t seed,
                                   std::uint64_t offset) {
  const std::size_t lines = columnwise ? launch.cols : launch.rows;
  const std::size_t length = columnwise ? launch.rows : launch.cols;
  std::vector<std::uint32_t> words;
  words.reserve(lines * Tiles(length, 4));
  for (std::size_t line = 0; line < lines; ++line) {
    for (std::size_t i = 0; i < length; i += 4) {
      const TeWord at =
          columnwise ? TeWordOf(launch, true, i, line) : TeWordOf(launch, false, line, i);
      const TransformerEngineStream stream{
          .seed = seed, .subsequence = at.subsequence, .offset = offset};
      words.push_back(stream.Block(at.word / 4)[at.word % 4]);
    }
  }
  return words;
}

}  // namespace fp4lab
