// Tiles of MXFP4: blocks of 32.
#include "fp4lab/cuda/tiles/tile_kernel.cuh"

namespace fp4lab::cuda {

void LaunchMxfp4Tiles(const TileJob& job, TileMode mode, RandomBits bits, cudaStream_t stream) {
  if (mode == TileMode::kSquare) {
    LaunchTile<32, TileMode::kSquare, RandomBits::kNone>(job, stream);
  } else if (mode == TileMode::kHadamard) {
    LaunchTile<32, TileMode::kHadamard>(job, bits, stream);
  } else {
    LaunchTile<32, TileMode::kPlain>(job, bits, stream);
  }
}

void LaunchAmaxOf32(const TileJob& job, cudaStream_t stream) { LaunchTileAmax<32>(job, stream); }

}  // namespace fp4lab::cuda
