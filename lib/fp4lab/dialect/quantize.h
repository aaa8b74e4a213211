// A matrix quantized as a dialect says, with every intermediate on request.
//
// fp4lab::reference holds the scalar definition, fp4lab the kernels for every dialect: the same
// bytes on every SIMD target and for any number of threads. For rows of Transformer Engine's and
// OCP's formulas block/quantize.h is several times faster still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/random_source.h"

namespace fp4lab {

// What a quantizer makes, free of any layout.
struct Quantized {
  std::size_t rows = 0, cols = 0;
  std::vector<std::uint8_t> codes = {};  // (rows, cols), one code a byte
  std::size_t scale_rows = 0, scale_cols = 0;
  std::vector<std::uint8_t> scales =
      {};                        // the grid of blocks, row-major: a 16x16 tile has one entry
  std::vector<float> amax = {};  // one for the tensor or one a row; empty without level 2
  std::vector<float> scale_values = {};  // the grid, instead of `scales`, where those are binary32
  friend bool operator==(const Quantized&, const Quantized&) = default;
};

struct DialectOptions {
  // The level-2 amax where the caller has it (a reduced or a post-RHT one): 1 value, or one a row
  // for row_scaled. Empty: max |x|; a NaN element is left out or makes it NaN as the dialect says.
  std::vector<float> amax = {};
  // The bits of stochastic rounding (at most 16 an element): one field an element, row-major, or
  // those of a source.
  std::span<const std::uint16_t> random = {};
  std::optional<RandomSource> source = {};
};

Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options = {});

namespace reference {
Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options = {});
}  // namespace reference

// The values that codes, scales and amax stand for: element * scale * D with TE's order
// fl(value * fl(fl(s * amax) * fl(1/C))) where level 2 is TE's, fl(value * fl(s * D)) elsewhere.
Matrix<float> DequantizeAs(const Dialect& dialect, const Quantized& q);

// Every number on the way to one element's code.
struct Trace {
  std::size_t row = 0, col = 0;            // of the element
  float amax = 0, encode = 1, decode = 1;  // level 2: amax, S, D
  float block_amax = 0;                    // b
  float scale_before = 0;                  // t (MX: b); four over six: that of the kept candidate
  std::uint8_t scale_byte = 0;
  float scale = 0;   // s
  float factor = 0;  // e, or the divisor where the dialect divides
  bool divides = false;
  bool maps_to_four = false;  // four over six: the candidate for a largest element of 4 was kept
  float x = 0, scaled = 0;    // v
  std::uint8_t code = 0;
  // Distance of t and of v to the nearest rounding boundary of their formats, counted in binary32
  // numbers; 0 is a tie. The boundary is the middle of two neighbours, under truncation and
  // stochastic rounding a grid value, and for E8M0 the nearest amax that has another byte. Beyond
  // 2^31, and where there is none: 2^31.
  double scale_tie_ulps = 0, code_tie_ulps = 0;
};
Trace TraceAs(const Dialect& dialect, MatrixView<const float> x, std::size_t row, std::size_t col,
              const DialectOptions& options = {});

// For dialects whose answer is a set (IsApproximate): is this scale byte, and are these codes under
// it, among the answers that the stated error of the approximate instructions allows? Equality with
// QuantizeAs for all other dialects. The first element or block outside the set is named.
//
// What is assumed of rcp.approx.ftz.f32 is in dialect/approximate.h.
struct Allowed {
  bool ok = true;
  std::size_t scales_outside = 0, codes_outside = 0;
  std::size_t first_row = 0, first_col = 0;  // of an element of the first block that is outside
};
Allowed IsAllowed(const Dialect& dialect, MatrixView<const float> x, const Quantized& q,
                  const DialectOptions& options = {});

}  // namespace fp4lab
