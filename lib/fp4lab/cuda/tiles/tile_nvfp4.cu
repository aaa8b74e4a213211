// Tiles of NVFP4: blocks of 16.
#include "fp4lab/cuda/tiles/tile_kernel.cuh"

namespace fp4lab::cuda {

void LaunchNvfp4Tiles(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream) {
  if (mode == TileMode::kSquare) {
    LaunchTile<16, TileMode::kSquare, RandomBits::kNone>(job, stream);
  } else if (mode == TileMode::kHadamard) {
    LaunchTile<16, TileMode::kHadamard>(job, bits, stream);
  } else {
    LaunchTile<16, TileMode::kPlain>(job, bits, stream);
  }
}

void LaunchAmaxOf16(const TileJob& job, cudaStream_t stream) { LaunchTileAmax<16>(job, stream); }

}  // namespace fp4lab::cuda
