// The launches of the kernels of tiles: two sources of kernels, for the compiler's sake.
#pragma once

#include <cuda_runtime_api.h>

#include "fp4lab/cuda/check.cuh"
#include "fp4lab/cuda/quantize.h"

namespace fp4lab::cuda {

inline constexpr int kTileRows = 128;  // of a thread block's part of x
inline constexpr int kTileCols = 64;

struct TileJob {
  const std::uint16_t* x = nullptr;  // BF16 bits; LaunchFp32Tiles: floats
  std::size_t rows = 0, cols = 0;    // of x
  ScaleRule rule = ScaleRule::kNvfp4;
  QuantizedSide row = {}, column = {};
  KeyedStream row_random = {}, column_random = {};
  bool quantizes_rows = true;  // or square blocks: their scales are found by rows
  std::uint32_t tiles = 0;     // all of them, for the kernel
  // The maxima alone, for the pass before: bits, or nullptr.
  unsigned* amax = nullptr;
  unsigned* transformed = nullptr;
};

enum class TileMode : std::uint8_t {
  kPlain,     // 1 x kRows and kRows x 1
  kHadamard,  // the same, columns transformed
  kSquare     // kRows x kRows
};

// job.rows a multiple of kTileRows and job.cols of kTileCols, all data aligned to 16 bytes.
void LaunchNvfp4Tiles(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream);
void LaunchMxfp4Tiles(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream);
// x holds floats; no transform, no random bits.
void LaunchFp32Tiles(const TileJob& job, TileMode mode, cudaStream_t stream);
// Codes and scales alone, not values, of kPlain and kHadamard; fewer than 2^35 elements.
void LaunchNvfp4Codes(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream);
void LaunchAmaxOf16(const TileJob& job, cudaStream_t stream);
void LaunchAmaxOf32(const TileJob& job, cudaStream_t stream);

}  // namespace fp4lab::cuda
