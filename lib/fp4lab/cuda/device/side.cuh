// One side of a quantization as an argument of kernels: reading elements, random bits, places of
// scales.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/random.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/formats/replay.h"

namespace fp4lab::cuda {

struct SideJob {
  const void* x = nullptr;
  bool bf16 = true;
  bool transposed = false;
  std::size_t rows = 0, cols = 0;  // of the quantized matrix
  QuantizedSide side;

  // The index of element (r, c) of the quantized matrix in memory that is laid out as x.
  __device__ std::size_t Place(std::size_t r, std::size_t c) const {
    return transposed ? c * rows + r : r * cols + c;
  }
  __device__ float Element(std::size_t r, std::size_t c) const {
    const std::size_t i = Place(r, c);
    if (!bf16) return static_cast<const float*>(x)[i];
    return __uint_as_float(std::uint32_t{static_cast<const std::uint16_t*>(x)[i]} << 16);
  }
  // The random bits of element (r, c): 16, or the given 8 bits in dialects whose roundings take 8.
  template <FormatId kElement>
  __device__ std::uint32_t Random(std::size_t r, std::size_t c) const {
    const std::uint64_t i = std::uint64_t{r} * cols + c;
    switch (side.random_bits) {
      case RandomBits::kNone:
        return 0;
      case RandomBits::kCounter:
        return side.random.Bits16(i);
      case RandomBits::kInstruction:
        return kElement == FormatId::kE2M1 ? CvtRsNibbleFields(side.random.Bits32(i / 4))[i % 4]
                                           : CvtRsByteFields(side.random.Bits32(i / 4))[i % 4];
      case RandomBits::kGiven:
        return side.given[i];
    }
    return 0;
  }
  // The index of the scale of block (i, j) in side.scales; scale_cols: columns of the matrix of
  // scales.
  __device__ std::size_t ScalePlace(std::size_t i, std::size_t j, std::size_t scale_cols) const {
    return side.scale_order == ScaleOrder::kLinear ? i * scale_cols + j
                                                   : Offset128x4(i, j, scale_cols);
  }
};

inline SideJob JobOf(const DeviceMatrix& x, const QuantizedSide& side, bool transposed) {
  SideJob job;
  job.x = x.data;
  job.bf16 = x.type == ElementType::kBf16;
  job.transposed = transposed;
  job.rows = transposed ? x.cols : x.rows;
  job.cols = transposed ? x.rows : x.cols;
  job.side = side;
  return job;
}

// The bits of x rounded to BF16, RNE; 0x7FC0 for NaN.
__device__ inline std::uint16_t Bf16Bits(float x) {
  return static_cast<std::uint16_t>(__float_as_uint(RoundToBf16(x)) >> 16);
}

}  // namespace fp4lab::cuda
