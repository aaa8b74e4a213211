// Block quantization of matrices that lie in device memory: the bytes of block/quantize.h.
//
// All pointers but those of the arguments themselves are device pointers; work is in order with
// `stream` and not waited for. Matrices are row-major without padding. Any shape is served; the
// fast kernels (README.md) want 16-byte aligned data and whole tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/base/random.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/cuda/device.h"
#include "fp4lab/dialect/dialect.h"

namespace fp4lab::cuda {

enum class ElementType : std::uint8_t { kFp32, kBf16 };

struct DeviceMatrix {
  const void* data = nullptr;  // (rows, cols) floats or BF16 bits
  ElementType type = ElementType::kBf16;
  std::size_t rows = 0, cols = 0;
};

// Where the bits of stochastic rounding come from. Element (r, c) of the quantized (for a
// columnwise side: transposed) matrix has the number i = r * cols + c.
enum class RandomBits : std::uint8_t {
  kNone,         // rounding to nearest even
  kCounter,      // random.Bits16(i): the CPU's contract, the same bits on every chip
  kInstruction,  // the words of cvt.rs: element i % 4 of the word random.Bits32(i / 4), its field
                 // as formats/ptx_stochastic.h says; cols must be a multiple of 4. On sm_100a and
                 // sm_103a the instruction itself, the same bits in software elsewhere
  kGiven         // given[i], 16 bits
};

// One quantization of a matrix: of itself ("rowwise", blocks along its rows), or of its transpose
// ("columnwise", blocks down its columns). Outputs that are nullptr are not written.
struct QuantizedSide {
  // (rows, ceil(cols / 2)) bytes of packed 4-bit codes, even column in the low nibble, or (rows,
  // cols) wider codes; rows and cols of the quantized, for a columnwise side transposed, matrix.
  std::uint8_t* codes = nullptr;
  // The grid of scale bytes, kLinear or k128x4 (ScaleBytes of padding included: Quantize writes 0
  // there). Square blocks with k128x4: one byte for each row of a block, as matrix instructions
  // read them.
  std::uint8_t* scales = nullptr;
  ScaleOrder scale_order = ScaleOrder::kLinear;
  // What a GEMM multiplies, element value * block scale without the tensor's scale, as BF16 bits.
  // Laid out as the input, (rows, cols) of x, for a columnwise side too.
  std::uint16_t* values = nullptr;
  // One float, the tensor's amax (after the Hadamard transform); where the format has level 2.
  const float* amax = nullptr;

  RandomBits random_bits = RandomBits::kNone;
  RandomStream random = {};
  const std::uint16_t* given = nullptr;

  // The random Hadamard transform before: 0, 16 or 32, along the blocks; blocks of one row, cols a
  // multiple of it. FP32 elements are rounded to BF16 before the transform.
  int hadamard = 0;
  std::uint32_t sign_mask = 0;
};

// The element formats of the kernels.
bool HasElement(FormatId element);

// Not dialects whose answer is a set (IsApproximate), binary32 scales, QuEST and MS-EDEN, and not
// FP6 elements.
bool CanQuantizeAs(const Dialect& dialect);

// x as the dialect says, by the fast kernels where those serve it; either side may be nullptr. A
// side with random bits of a dialect that rounds to nearest even rounds at random, with 16 bits.
// For dialects with stochastic rounding random_bits must not be kNone (kGiven only with 8 bits an
// element). Row-scaled dialects take one amax a row.
void Quantize(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
              const QuantizedSide* column, StreamHandle stream = nullptr);

// The same by the kernel that serves every dialect: one thread a block.
void QuantizeAs(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
                const QuantizedSide* column, StreamHandle stream = nullptr);

// amax[0] = max |x|, NaN left out or, with keeps_nan, returned as 0x7FC00000; 0 for an empty
// matrix.
void Amax(const DeviceMatrix& x, float* amax, bool keeps_nan = false,
          StreamHandle stream = nullptr);
// amax[r] of each row.
void RowAmax(const DeviceMatrix& x, float* amax, bool keeps_nan = false,
             StreamHandle stream = nullptr);
// amax[0] = max |x| and transformed[0] = max of the columnwise Hadamard transform of x (BF16,
// rows a multiple of `hadamard`), in one pass. Either may be nullptr.
void AmaxWithHadamard(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask, float* amax,
                      float* transformed, StreamHandle stream = nullptr);

// The columnwise transform itself: out is laid out as x, BF16.
void HadamardColumns(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask,
                     std::uint16_t* out, StreamHandle stream = nullptr);

// out = the whole decoding, Dequantize of block/quantize.h, of a rowwise quantization (rows, cols)
// with linear scales: floats, or BF16 (rounded to nearest even) bits. For dialects that tuned
// kernels compute (dialect/tuned.h).
void Dequantize(const Dialect& dialect, const std::uint8_t* codes, const std::uint8_t* scales,
                const float* amax, std::size_t rows, std::size_t cols, ElementType type, void* out,
                StreamHandle stream = nullptr);

}  // namespace fp4lab::cuda
