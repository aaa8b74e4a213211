// The arguments of quantize.h: a matrix in device memory, and the memory of its quantizations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/random.h"
#include "fp4lab/block/scale_swizzle.h"

namespace fp4lab::cuda {

enum class ElementType : std::uint8_t { kFp32, kBf16 };

struct DeviceMatrix {
  const void* data = nullptr;  // (rows, cols) floats or BF16 bits
  ElementType type = ElementType::kBf16;
  std::size_t rows = 0, cols = 0;
};

// The source of the random bits of stochastic rounding. Element (r, c) of the quantized matrix (for
// a columnwise side the transpose of x) has the number i = r * cols + c.
enum class RandomBits : std::uint8_t {
  kNone,         // rounding to nearest even
  kCounter,      // random.Bits16(i): the CPU's contract, the same bits on every chip
  kInstruction,  // words of cvt.rs: element i takes field i % 4 (formats/ptx_stochastic.h) of the
                 // word random.Bits32(i / 4); cols must be a multiple of 4. sm_100a and sm_103a run
                 // the instruction itself, other chips software with the same bits
  kGiven         // given[i], 16 bits
};

// One quantization of a matrix: of the matrix itself ("rowwise", blocks along its rows), or of its
// transpose ("columnwise", blocks down its columns). Outputs that are nullptr are not written.
struct QuantizedSide {
  // (rows, ceil(cols / 2)) bytes of packed 4-bit codes, even column in the low nibble, or (rows,
  // cols) codes of 8 bits; rows and cols are those of the quantized matrix, for a columnwise side
  // the transpose of x.
  std::uint8_t* codes = nullptr;
  // Scale bytes, one for each block, in order kLinear or k128x4 (ScaleBytes with padding, which
  // Quantize sets to 0). Square blocks in k128x4 have one byte for each of their rows, as matrix
  // instructions read scales.
  std::uint8_t* scales = nullptr;
  ScaleOrder scale_order = ScaleOrder::kLinear;
  // Values for a GEMM, element value * block scale without the tensor scale, as BF16 bits. Laid out
  // as x, (rows, cols) of x, for a columnwise side too.
  std::uint16_t* values = nullptr;
  // The tensor's amax, after the Hadamard transform if there is one: one float, or in row-scaled
  // dialects one for each row. Read only if the dialect has a tensor scale.
  const float* amax = nullptr;

  RandomBits random_bits = RandomBits::kNone;
  RandomStream random = {};
  const std::uint16_t* given = nullptr;

  // Size of the random Hadamard transform along the blocks before quantization: 0 (none), 16 or 32.
  // The transform needs blocks of one row and cols a multiple of its size. FP32 elements are
  // rounded to BF16 before the transform.
  int hadamard = 0;
  std::uint32_t sign_mask = 0;
};

}  // namespace fp4lab::cuda
