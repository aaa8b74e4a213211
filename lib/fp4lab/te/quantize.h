// Transformer Engine's NVFP4 quantization of one tensor into the caller's memory: both directions
// in one pass, the random Hadamard transform (RHT) on the columns, stochastic rounding with the
// words of its kernels' streams. Layouts and calls are those of its JAX primitive
// te_dbias_quantize_ffi (transformer_engine 2.20.2, jax/csrc/extensions/quantization.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/te_counters.h"

namespace fp4lab {

template <class Request>
struct Implementation;  // quantize/implementation.h

// A row-major matrix (tokens, features) of BF16 bits or of binary32 numbers; one pointer is null.
struct TeMatrix {
  const std::uint16_t* bf16 = nullptr;
  const float* fp32 = nullptr;
  std::size_t rows = 0, cols = 0;
};

// One output. Its lines are the rows of x, or the columns of x; `length` elements each.
struct TeOutput {
  std::uint8_t* codes = nullptr;   // (lines, length / 2), even element in the low nibble; null:
                                   // the launch does not make the output
  std::uint8_t* scales = nullptr;  // E4M3, one a block of 16; 16x16 blocks repeat theirs a line
  std::size_t scale_stride = 0;    // bytes from line to line, at least length / 16
  float amax = 0.0f;               // of the tensor, or of the transformed tensor
};

struct TeQuantization {
  bool square = false;  // blocks of 16x16 (weights) instead of 1x16; without RHT
  bool hadamard = false;
  std::uint32_t sign_mask = 0;         // of the RHT, which the columnwise output takes
  bool stochastic = false;             // 8 random bits an element, by RandomForm::kTe8
  std::uint64_t seed = 0, offset = 0;  // Transformer Engine's rng_state
  TeOutput rows = {}, columns = {};
};

// The dialect of an output: nvfp4.te, nvfp4.te.2d, or nvfp4.te.rht-columns.
const Dialect& TeDialect(const TeQuantization& call, bool columnwise);
// The launch that makes an output, which decides on its random words. BF16 with rows and columns in
// multiples of 32 has the tuned kernel if it makes the rowwise output, and blocks of 16x16 the 2D
// kernel for any outputs; all else has the generic one. With RHT the columnwise output has a launch
// of its own.
TeLaunch TeLaunchOf(const TeMatrix& x, const TeQuantization& call, bool columnwise);

// Writes the outputs that have codes. Padding around the scales is not touched. Throws
// std::logic_error unless rows and columns are multiples of 16, and with RHT x is BF16.
void TeQuantize(const TeMatrix& x, const TeQuantization& call);

// max |x|, NaN ignored, and the amax of the transform of the columns (HadamardAmax) if
// `transformed` is not null. Null pointers leave a result out.
void TeAmaxes(const TeMatrix& x, std::uint32_t sign_mask, float* amax, float* transformed);

// The ways to serve a call that CheckTeQuantization accepts, from the fastest to the definition:
// tiles (vector kernels), reference. The arguments must outlive the request.
struct TeRequest {
  const TeMatrix& x;
  const TeQuantization& call;
};
std::span<const Implementation<TeRequest>> TeImplementations();

namespace reference {
void TeQuantize(const TeMatrix& x, const TeQuantization& call);
void TeAmaxes(const TeMatrix& x, std::uint32_t sign_mask, float* amax, float* transformed);
}  // namespace reference

// Throws std::logic_error for a call that TeQuantize refuses.
void CheckTeQuantization(const TeMatrix& x, const TeQuantization& call);

}  // namespace fp4lab
