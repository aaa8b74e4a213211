// Quantization of a matrix by any dialect, with every intermediate on request.
//
// fp4lab::reference holds the scalar definition. fp4lab::QuantizeAs takes the fastest
// implementation that computes the dialect (implementation.h); it returns the same bytes on every
// SIMD target and for any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/quantized.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/random_source.h"

namespace fp4lab {

struct DialectOptions {
  // The tensor scale's amax, if the caller has it (a reduced or a post-RHT one): 1 value, or one
  // per row for row_scaled. If empty, it is computed: max |x|, where a NaN element is ignored or
  // makes it NaN, as the dialect says.
  std::vector<float> amax = {};
  // The random bits of stochastic rounding: `random` holds one field of at most 16 bits per
  // element, row-major; or `source` generates them, with a generator that Feeds the dialect.
  std::span<const std::uint16_t> random = {};
  std::optional<RandomSource> source = {};
};

// Quantizes x (rows, cols) with blocks along cols. Throws std::logic_error (Expects) if the options
// do not fit x and the dialect.
Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options = {});

namespace reference {
Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options = {});
}  // namespace reference

// Decodes codes, scales and amax: element * scale * D, in TE's order fl(value * fl(fl(s * amax) *
// fl(1/C))) where the tensor scale is TE's, fl(value * fl(s * D)) elsewhere.
Matrix<float> DequantizeAs(const Dialect& dialect, const Quantized& q);
// out(r, c) = element value * block scale, without the tensor scale: an operand's values
// (operand.h).
void ToOperandValues(const Dialect& dialect, const Quantized& quantized, MatrixView<float> out);

// All intermediate numbers of the quantization of one element.
struct Trace {
  std::size_t row = 0, col = 0;            // of the element
  float amax = 0, encode = 1, decode = 1;  // the tensor scale: amax, S, D
  float block_amax = 0;                    // b
  float scale_before = 0;                  // t (MX: b); four over six: t of the kept candidate
  std::uint8_t scale_byte = 0;
  float scale = 0;   // s
  float factor = 0;  // e, or the divisor where the dialect divides
  bool divides = false;
  bool maps_to_four = false;  // four over six: the candidate that maps the amax to 4 was kept
  float x = 0, scaled = 0;    // v
  std::uint8_t code = 0;
  // The distance of t and of v to the nearest rounding boundary of their formats, in binary32
  // numbers; 0 is a tie. The boundary is the middle of two neighbours; under truncation and
  // stochastic rounding a value of the format; for E8M0 the nearest amax that has another byte.
  // 2^31 if the distance is larger or no boundary exists.
  double scale_tie_ulps = 0, code_tie_ulps = 0;
};
Trace TraceAs(const Dialect& dialect, MatrixView<const float> x, std::size_t row, std::size_t col,
              const DialectOptions& options = {});

// For dialects that allow a set of answers (IsApproximate): whether the scale bytes, and the codes
// under them, are among the answers that the stated error of the approximate instructions allows,
// or equal QuantizeAs. For all other dialects: whether q equals QuantizeAs. Allowed names the first
// element or block outside the set.
//
// The assumptions about rcp.approx.ftz.f32 are in dialect/approximate.h.
struct Allowed {
  bool ok = true;
  std::size_t scales_outside = 0, codes_outside = 0;
  std::size_t first_row = 0, first_col = 0;  // the first element of the first block outside the set
};
Allowed IsAllowed(const Dialect& dialect, MatrixView<const float> x, const Quantized& q,
                  const DialectOptions& options = {});

}  // namespace fp4lab
