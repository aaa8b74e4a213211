// The launches of the kernels of tiles. The kernels are split over several sources to keep each
// compilation small.
#pragma once

#include <cuda_runtime_api.h>

#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/quantize.h"

namespace fp4lab::cuda {

inline constexpr int kTileRows = 128;  // rows and columns of a thread block's tile of x
inline constexpr int kTileCols = 64;

struct TileJob {
  const std::uint16_t* x = nullptr;  // BF16 bits; floats for LaunchFp32Tiles
  std::size_t rows = 0, cols = 0;    // of x
  BlockScale rule = BlockScale::kFolded;
  QuantizedSide row = {}, column = {};
  KeyedStream row_random = {}, column_random = {};
  bool quantizes_rows = true;  // also true for square blocks, whose scales come from rows
  std::uint32_t tiles = 0;     // number of tiles; LaunchTile sets it
  // Outputs of LaunchAmaxOf16 and LaunchAmaxOf32: bits of the maxima before and after the
  // transform; either may be nullptr.
  unsigned* amax = nullptr;
  unsigned* transformed = nullptr;
};

enum class TileMode : std::uint8_t {
  kPlain,     // blocks of 1 x kRows and kRows x 1
  kHadamard,  // the same, with transformed columns
  kSquare     // blocks of kRows x kRows
};

// The launches need job.rows to be a multiple of kTileRows, job.cols a multiple of kTileCols, and
// all data aligned to 16 bytes.
void LaunchNvfp4Tiles(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream);
void LaunchMxfp4Tiles(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream);
// job.x points to floats; only kPlain and kSquare, RNE.
void LaunchFp32Tiles(const TileJob& job, TileMode mode, cudaStream_t stream);
// Writes codes and scales but no values; only kPlain and kHadamard, fewer than 2^35 elements.
void LaunchNvfp4Codes(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream);
void LaunchAmaxOf16(const TileJob& job, cudaStream_t stream);
void LaunchAmaxOf32(const TileJob& job, cudaStream_t stream);

}  // namespace fp4lab::cuda
