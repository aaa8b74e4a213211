// Block quantization of matrices in device memory, with the bytes of block/quantize.h.
//
// The pointers in arguments (x.data, the members of QuantizedSide, amax, codes, scales, out) are
// device pointers. Work is in order with `stream` and not waited for. Matrices are row-major
// without padding. Every shape is quantized; the fast kernels (cuda/README.md) need 16-byte aligned
// data and whole tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/quantize/quantized_side.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::cuda {

// Whether the kernels of this header have the element format: E2M1, E4M3 or E5M2.
bool HasElement(FormatId element);

// Whether Quantize and QuantizeAs compute the dialect. False for dialects whose answer is a set
// (IsApproximate), for binary32 scales, QuEST and MS-EDEN, for element formats other than E2M1,
// E4M3 and E5M2, and for scale formats other than E8M0 and, with E2M1, E4M3.
bool CanQuantizeAs(const Dialect& dialect);

// Quantizes x in the dialect, by a fast kernel if one computes it; either side may be nullptr. If
// the dialect uses RNE and a side has random bits, that side is rounded stochastically with 16
// bits. If the dialect rounds stochastically, random_bits must not be kNone, and must be kGiven if
// elements take 8 bits. Row-scaled dialects take one amax for each row.
void Quantize(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
              const QuantizedSide* column, StreamHandle stream = nullptr);

// Quantize by the kernel that computes every dialect: one thread for each block, no fast kernels.
void QuantizeAs(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
                const QuantizedSide* column, StreamHandle stream = nullptr);

// amax[0] = max |x|; 0 for an empty matrix. NaN is ignored, or with keeps_nan gives 0x7FC00000.
void Amax(const DeviceMatrix& x, float* amax, bool keeps_nan = false,
          StreamHandle stream = nullptr);
// amax[r] = max |x| of row r, with NaN as in Amax.
void RowAmax(const DeviceMatrix& x, float* amax, bool keeps_nan = false,
             StreamHandle stream = nullptr);
// amax[0] = max |x| and transformed[0] = the amax of the columnwise random Hadamard transform of x
// (rounded to BF16), in one pass. hadamard is 16 or 32, the rows of x a multiple of it. Either
// pointer may be nullptr.
void AmaxWithHadamard(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask, float* amax,
                      float* transformed, StreamHandle stream = nullptr);

// The columnwise transform of AmaxWithHadamard: out is laid out as x, in BF16 bits.
void HadamardColumns(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask,
                     std::uint16_t* out, StreamHandle stream = nullptr);

// out = the decoded matrix (rows, cols) of a rowwise quantization with linear scales, tensor scale
// included, as Dequantize of block/quantize.h: floats, or BF16 bits (RNE). Only for dialects that
// tuned kernels compute (block/tuned.h).
void Dequantize(const Dialect& dialect, const std::uint8_t* codes, const std::uint8_t* scales,
                const float* amax, std::size_t rows, std::size_t cols, ElementType type, void* out,
                StreamHandle stream = nullptr);

}  // namespace fp4lab::cuda
