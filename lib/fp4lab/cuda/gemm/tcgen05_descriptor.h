// Descriptors and addresses of the operands of tcgen05.mma on E2M1 with block scales. PTX ISA 9.0,
// "Tensorcore 5th Generation Family": the shared memory descriptor (table 40), the instruction
// descriptor for kind::mxf4 and kind::mxf4nvf4 (table 44), the scale factor layouts. Functions of
// host and device; tests read the fields back as the tables name them.
#pragma once

#include <cstdint>

#include "fp4lab/cuda/gemm/block_scaled_gemm.h"

namespace fp4lab::cuda {

// ---- Matrices in shared memory: K-major, no swizzle ----

// The descriptor of a matrix that consists of core matrices of 8 rows x 16 bytes of k, each in 128
// consecutive bytes. Neighbours along k are `leading` bytes apart, neighbours along the rows
// `stride` bytes. Addresses and distances are multiples of 16 below 2^18.
constexpr std::uint64_t SharedMatrix(std::uint32_t address, std::uint32_t leading,
                                     std::uint32_t stride) {
  const auto encoded = [](std::uint32_t x) { return std::uint64_t{(x & 0x3FFFFu) >> 4}; };
  return encoded(address) | encoded(leading) << 16 | encoded(stride) << 32 |
         std::uint64_t{1} << 46;  // bits 46 to 48: 0b001; no swizzle: bits 61 to 63 are 0
}

// The layout of fp4lab for a tile of 128 rows x 64 bytes: 16 bytes of k of all rows, then the next
// 16 bytes.
inline constexpr std::uint32_t kTileRows = 128, kCoreRow = 16;
inline constexpr std::uint32_t kTileLeading = kTileRows * kCoreRow, kTileStride = 8 * kCoreRow;
constexpr std::uint32_t TileOffset(std::uint32_t row, std::uint32_t byte) {
  return byte / kCoreRow * kTileLeading + row * kCoreRow + byte % kCoreRow;
}

// ---- The instruction ----

// `scale_id`, for both operands: 0 with one scale for 16 elements. With one scale for 32 elements,
// the byte (0 or 2) of a tensor memory word from which the instruction takes its two scales.
constexpr std::uint32_t InstructionDescriptor(BlockScaling scaling, std::uint32_t m,
                                              std::uint32_t n, std::uint32_t scale_id) {
  constexpr std::uint32_t kE2m1 = 1;
  const std::uint32_t e8m0 = scaling == BlockScaling::kMxfp4 ? 1 : 0;
  return scale_id << 4 | kE2m1 << 7 | kE2m1 << 10 | n / 8 << 17 | e8m0 << 23 | m / 128 << 27 |
         scale_id << 29;
}

// ---- Tensor memory addresses: lane in bits 16 to 31, 32-bit column in bits 0 to 15 ----

constexpr std::uint32_t TensorAddress(std::uint32_t base, std::uint32_t lane,
                                      std::uint32_t column) {
  return base + (lane << 16) + column;
}

// The place of the scale of (row, group) among 128 rows x 4 groups, which take four columns: lane
// row % 32 (the same in each quarter of the lanes), column row / 32, byte group. A tile of
// ScaleOrder::k128x4 is 32 rows of 16 bytes, which tcgen05.cp.32x128b.warpx4 copies there
// unchanged.
struct ScalePlace {
  std::uint32_t lane, column, byte;
  friend constexpr bool operator==(const ScalePlace&, const ScalePlace&) = default;
};
constexpr ScalePlace PlaceOfScale(std::uint32_t row, std::uint32_t group) {
  return {row % 32, row / 32, group};
}
inline constexpr std::uint32_t kScaleTileColumns = 4;
constexpr std::uint64_t SharedScales(std::uint32_t address) {
  return SharedMatrix(address, 0, 8 * kCoreRow);  // one core matrix along k, four below each other
}

}  // namespace fp4lab::cuda
