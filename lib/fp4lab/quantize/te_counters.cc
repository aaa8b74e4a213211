// Names of indices, as in the kernels: T thread, L lane, W warp, s stage, it iteration, w one of a
// thread's two vectors, e (or h) a group of four elements; n = the word's number in the thread's
// stream.
#include "fp4lab/quantize/te_counters.h"

#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"

namespace fp4lab {
namespace {

TeWord Word(std::size_t subsequence, std::size_t n, std::size_t lane) {
  return {subsequence, static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(lane)};
}

// The place of an element in its tile of 128 rows and columns, and the number of threads of all
// tiles before.
struct Place {
  std::size_t row, col, threads_before;
};
Place PlaceOf(const TeLaunch& launch, std::size_t threads, std::size_t row, std::size_t col) {
  const std::size_t tile = row / 128 * DivideUp(launch.cols, 128) + col / 128;
  return {row % 128, col % 128, threads * tile};
}

TeWord Opt2d(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  const Place at = PlaceOf(launch, 128, row, col);
  const std::size_t stage = at.row / 32, r = at.row % 32;
  const std::size_t first = 8 * launch.Outputs() * stage, it = r / 16;
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

// The kernel's tiles are 128 features by 1024 tokens; HadamardSlices is the number of KT slices of
// 128 tokens per tile.
std::size_t HadamardSlices(const TeLaunch& launch) {
  return std::min<std::size_t>(DivideUp(launch.rows, 128), 8);
}

TeWord FusedHadamard(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  const std::size_t slices = HadamardSlices(launch);
  const std::size_t tile = col / 128 + row / 1024 * DivideUp(launch.cols, 128);
  const std::size_t k = row % 1024 / 128, base = 512 * slices * tile;
  if (columnwise) {
    const std::size_t group = 128 + col % 128, v = row % 128 / 16;
    return Word(group + 512 * k + base, 4 * v + row % 16 / 4, row % 4);
  }
  const std::size_t group = 256 + 2 * (row % 128) + col % 128 / 64, v = col % 64 / 16;
  // The kernel has already counted the slice when it seeds this stream, so k + 1.
  return Word(group + 512 * (k + 1) + base, 4 * v + col % 16 / 4, col % 4);
}

// kHadamardColumns divides the tokens into tiles, in slices of 64; the size of a tile depends on
// the shape, for some shapes by a list.
struct HadamardTile {
  std::size_t rows, cols, tokens;
};
constexpr HadamardTile kHadamardTiles[] = {
    {8192, 5120, 512},   {8192, 10240, 1024}, {8192, 2560, 1280},  {8192, 11328, 1024},
    {8192, 512, 256},    {8192, 3584, 512},   {11328, 8192, 1024}, {5120, 8192, 512},
    {10240, 8192, 1024}, {2560, 8192, 1280},  {512, 8192, 256},    {3584, 8192, 512}};

std::size_t HadamardTileTokens(const TeLaunch& launch) {
  for (const HadamardTile& tile : kHadamardTiles) {
    if (tile.rows == launch.rows && tile.cols == launch.cols) return tile.tokens;
  }
  return launch.rows < 1024 || launch.cols < 1024 ? 512 : 1024;
}

TeWord HadamardColumns(const TeLaunch& launch, std::size_t row, std::size_t col) {
  const std::size_t tokens = HadamardTileTokens(launch);
  const std::size_t slices = DivideUp(std::min(launch.rows, tokens), 64);
  const std::size_t tile = col / 128 + row / tokens * DivideUp(launch.cols, 128);
  const std::size_t k = row % tokens / 64, v = row % 64 / 16;
  return Word(col % 128 + 256 * k + 256 * slices * tile, 4 * v + row % 16 / 4, row % 4);
}

}  // namespace

TeWord TeWordOf(const TeLaunch& launch, bool columnwise, std::size_t row, std::size_t col) {
  Expects(row < launch.rows && col < launch.cols, "an element of the matrix");
  Expects(columnwise ? launch.columnwise : launch.rowwise, "an output that the launch makes");
  switch (launch.kernel) {
    case TeKernel::kTuned:
      Expects(launch.rowwise, "the tuned kernel makes the rowwise output always");
      return TunedTeWord(launch, columnwise, row, col);
    case TeKernel::kOpt2d:
      return Opt2d(launch, columnwise, row, col);
    case TeKernel::kGeneric:
      return Generic(launch, columnwise, row, col);
    case TeKernel::kFusedHadamard:
      return FusedHadamard(launch, columnwise, row, col);
    case TeKernel::kHadamardColumns:
      Expects(!launch.rowwise, "the kernel of Hadamard columns makes no rowwise output");
      return HadamardColumns(launch, row, col);
  }
  return {};
}

std::uint32_t TeWordsAStream(const TeLaunch& launch) {
  const auto outputs = static_cast<std::uint32_t>(launch.Outputs());
  switch (launch.kernel) {
    case TeKernel::kTuned:
    case TeKernel::kOpt2d:
      return 32 * outputs;
    case TeKernel::kGeneric:
      return 16 * outputs;
    case TeKernel::kFusedHadamard:
      return launch.columnwise ? 32 : 16;
    case TeKernel::kHadamardColumns:
      return 16;
  }
  return 0;
}

std::uint64_t TeSubsequences(const TeLaunch& launch) {
  const std::uint64_t tiles = DivideUp(launch.rows, 128) * DivideUp(launch.cols, 128);
  switch (launch.kernel) {
    case TeKernel::kTuned:
    case TeKernel::kOpt2d:
      return 128 * tiles;
    case TeKernel::kGeneric:
      return 256 * tiles;
    case TeKernel::kFusedHadamard: {
      const std::uint64_t large = DivideUp(launch.rows, 1024) * DivideUp(launch.cols, 128);
      return 512 * (HadamardSlices(launch) * large + 1);
    }
    case TeKernel::kHadamardColumns: {
      const std::size_t tokens = HadamardTileTokens(launch);
      const std::uint64_t large = DivideUp(launch.rows, tokens) * DivideUp(launch.cols, 128);
      return 256 * DivideUp(std::min(launch.rows, tokens), 64) * large;
    }
  }
  return 0;
}

std::vector<std::uint32_t> TeWords(const TeLaunch& launch, bool columnwise, std::uint64_t seed,
                                   std::uint64_t offset) {
  const std::size_t lines = columnwise ? launch.cols : launch.rows;
  const std::size_t length = columnwise ? launch.rows : launch.cols;
  std::vector<std::uint32_t> words;
  words.reserve(lines * DivideUp(length, 4));
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
