// The quantizations that the kernels of tiles compute, and their launch.
#include "fp4lab/cuda/quantize/launch.h"
#include "fp4lab/cuda/tiles/tile_launch.cuh"

namespace fp4lab::cuda {
namespace {

bool IsSideAligned(const QuantizedSide* side) {
  return side == nullptr ||
         (IsAligned(side->codes) && IsAligned(side->scales) && IsAligned(side->values));
}

RandomBits BitsOf(const QuantizedSide* side) {
  return side == nullptr ? RandomBits::kNone : side->random_bits;
}

bool WantsCodesAlone(const QuantizedSide* side) {
  return side == nullptr ||
         (side->codes != nullptr && side->scales != nullptr && side->values == nullptr);
}

}  // namespace

bool FitsTileShape(const DeviceMatrix& x) {
  return x.rows % kTileRows == 0 && x.cols % kTileCols == 0 && x.rows > 0 && x.cols > 0 &&
         IsAligned(x.data) && x.rows / kTileRows * (x.cols / kTileCols) < (std::size_t{1} << 31);
}

std::string_view WhyNotTiles(const DeviceQuantization& call) {
  const auto& [x, dialect, row, column, stream] = call;
  if (!FitsTileShape(x)) return "whole tiles of 128x64, aligned to 16 bytes";
  if (!IsSideAligned(row) || !IsSideAligned(column)) return "outputs aligned to 16 bytes";
  const bool nvfp4 = dialect.block_scale == BlockScale::kFolded;
  const int block = nvfp4 ? 16 : 32;
  const bool square = dialect.block_rows == block;
  if (dialect.element != FormatId::kE2M1 || dialect.block_cols != block ||
      (dialect.block_rows != 1 && !square)) {
    return "E2M1 in blocks of 16 (NVFP4) or 32, in rows or squares";
  }
  if (row != nullptr && row->hadamard != 0) return "a transform of the rowwise side";
  const RandomBits bits = column != nullptr ? column->random_bits : BitsOf(row);
  if (row != nullptr && row->random_bits != bits) return "sides that are rounded alike";
  if (bits == RandomBits::kGiven || (square && bits != RandomBits::kNone)) {
    return "random bits that are given, or of squares";
  }
  const bool transforms = column != nullptr && column->hadamard != 0;
  if (x.type == ElementType::kFp32 && (!nvfp4 || transforms || bits != RandomBits::kNone)) {
    return "FP32 but for NVFP4, rounded to nearest without transform";
  }
  if (column == nullptr) return square ? std::string_view() : "rows alone";
  const bool fits = column->hadamard == 0 || column->hadamard == block;
  return fits ? std::string_view() : "a transform of another size than the blocks";
}

void LaunchTiles(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
                 const QuantizedSide* column, StreamHandle stream) {
  TileJob job{.x = static_cast<const std::uint16_t*>(x.data),
              .rows = x.rows,
              .cols = x.cols,
              .rule = dialect.block_scale};
  job.quantizes_rows = row != nullptr || dialect.block_rows > 1;
  if (row != nullptr) job.row = *row;
  if (column != nullptr) job.column = *column;
  job.row_random = KeyedStream(job.row.random);
  job.column_random = KeyedStream(job.column.random);
  // A side that was not asked for has no outputs, but its scaler still reads an amax.
  if (job.row.amax == nullptr) job.row.amax = job.column.amax;
  if (job.column.amax == nullptr) job.column.amax = job.row.amax;
  const TileMode mode = dialect.block_rows > 1     ? TileMode::kSquare
                        : job.column.hadamard != 0 ? TileMode::kHadamard
                                                   : TileMode::kPlain;
  const RandomBits bits = column != nullptr ? column->random_bits : BitsOf(row);
  if (x.type == ElementType::kFp32) return LaunchFp32Tiles(job, mode, NativeStream(stream));
  if (dialect.block_scale == BlockScale::kFolded && mode != TileMode::kSquare &&
      WantsCodesAlone(row) && WantsCodesAlone(column) && x.rows * x.cols < std::size_t{1} << 35) {
    return LaunchNvfp4Codes(job, mode, bits, NativeStream(stream));
  }
  const auto launch =
      dialect.block_scale == BlockScale::kFolded ? LaunchNvfp4Tiles : LaunchMxfp4Tiles;
  launch(job, mode, bits, NativeStream(stream));
}

void LaunchTileAmax(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask, float* amax,
                    float* transformed, StreamHandle stream) {
  TileJob job{.x = static_cast<const std::uint16_t*>(x.data), .rows = x.rows, .cols = x.cols};
  job.column.sign_mask = sign_mask;
  job.amax = reinterpret_cast<unsigned*>(amax);
  job.transformed = reinterpret_cast<unsigned*>(transformed);
  const auto launch = hadamard == 16 ? LaunchAmaxOf16 : LaunchAmaxOf32;
  launch(job, NativeStream(stream));
}

}  // namespace fp4lab::cuda
