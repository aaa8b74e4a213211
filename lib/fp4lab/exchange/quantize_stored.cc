#include "fp4lab/exchange/quantize_stored.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/implementation.h"

namespace fp4lab {
namespace {

// Elements of a stripe, so that its codes stay in a core's cache. A stripe is at least one band of
// blocks.
constexpr std::size_t kStripe = std::size_t{1} << 18;

// Whether the matrix can be quantized stripe by stripe. Random bits depend on an element's place in
// the whole matrix, so that a stripe needs given fields or fields of Philox.
bool HasStripes(const Dialect& d, const DialectOptions& options, const StorageLayout& layout) {
  if (layout.transposed || d.scale_encoding == ScaleEncoding::kBinary32) return false;
  if (d.unbias != Unbias::kNone) return false;
  if (!IsStochastic(d) || !options.source) return true;
  return d.rounding == ElementRounding::kStochastic16 &&
         options.source->generator == RandomGenerator::kPhilox;
}

// One call of QuantizeStored: each stripe writes its part of stored->codes and of `scales`, the
// row-major grid of block scales.
struct Stripes {
  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;
  BlockGrid grid;
  std::vector<float> amax;
  std::size_t bands;      // bands of blocks in a stripe
  std::size_t row_bytes;  // bytes of a row of codes
  StoredMatrix* stored;
  std::uint8_t* scales;  // nullptr if the tensor is one block

  std::size_t Count() const { return DivideUp(grid.rows, bands); }
};

// The options for `rows` rows of x from `top` on. `fields` receives random bits that come from a
// source.
DialectOptions OptionsOfRows(const Stripes& s, std::size_t top, std::size_t rows,
                             std::vector<std::uint16_t>* fields) {
  DialectOptions options;
  if (HasTensorScale(s.dialect)) {
    options.amax = s.amax;
    if (s.dialect.row_scaled) {
      const auto first = s.amax.begin() + static_cast<std::ptrdiff_t>(top);
      options.amax.assign(first, first + static_cast<std::ptrdiff_t>(rows));
    }
  }
  if (!IsStochastic(s.dialect)) return options;
  const std::size_t first = top * s.x.cols, count = rows * s.x.cols;
  options.random = s.options.random;
  if (s.options.source) {
    fields->resize(count);
    FillBits16(s.options.source->stream, first, *fields);
    options.random = *fields;
  } else {
    options.random = options.random.subspan(first, count);
  }
  return options;
}

void QuantizeStripe(const Stripes& s, std::size_t stripe) {
  const std::size_t band = stripe * s.bands, top = band * s.grid.block_rows;
  const std::size_t bottom = std::min((band + s.bands) * s.grid.block_rows, s.x.rows);
  const MatrixView<const float> x = s.x.Block(top, 0, bottom - top, s.x.cols);
  std::vector<std::uint16_t> fields;
  const DialectOptions options = OptionsOfRows(s, top, x.rows, &fields);
  std::uint8_t* const scales = s.scales == nullptr ? nullptr : s.scales + band * s.grid.cols;
  Make({s.dialect,
        x,
        options,
        {.codes = s.stored->codes.data() + top * s.row_bytes,
         .scale_bytes = scales,
         .order = s.stored->layout.codes,
         .split = SplitGroup(*s.stored)}});
}

}  // namespace

StoredMatrix QuantizeStored(const Dialect& dialect, MatrixView<const float> x,
                            const DialectOptions& options, const StorageLayout& layout) {
  const IeeeArithmetic ieee;
  if (!HasStripes(dialect, options, layout)) {
    return Store(dialect, QuantizeAs(dialect, x, options), layout);
  }
  StoredMatrix stored = ShapeOf(dialect, x.rows, x.cols, layout);
  const StoredSizes sizes = SizesOf(stored, "layout");
  CheckOptions(dialect, x, options);
  const BlockGrid grid(dialect, x.rows, x.cols);
  Quantized q{.rows = x.rows, .cols = x.cols};
  q.amax = TensorAmaxes(dialect, x, options);
  if (grid.stores_scales) {
    ReserveHugePages(&q.scales, grid.rows * grid.cols);
    q.scales.resize(grid.rows * grid.cols);
  }
  ReserveHugePages(&stored.codes, sizes.codes);
  stored.codes.resize(sizes.codes);
  const std::size_t band = grid.block_rows * std::max<std::size_t>(x.cols, 1);
  const Stripes stripes{.dialect = dialect,
                        .x = x,
                        .options = options,
                        .grid = grid,
                        .amax = q.amax,
                        .bands = std::max<std::size_t>(kStripe / band, 1),
                        .row_bytes = sizes.code_row_bytes,
                        .stored = &stored,
                        .scales = grid.stores_scales ? q.scales.data() : nullptr};
  if (x.size() != 0) {
    ParallelFor(stripes.Count(), [&](std::size_t i) { QuantizeStripe(stripes, i); });
  }
  std::vector<std::uint8_t> codes = std::move(stored.codes);
  stored = StoreScales(dialect, q, layout);
  stored.codes = std::move(codes);
  return stored;
}

}  // namespace fp4lab
