#include "fp4lab/exchange/quantize_stored.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "fp4lab/base/huge_pages.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/operand.h"
#include "fp4lab/dialect/outputs.h"

namespace fp4lab {
namespace {

// Elements of a stripe, at least a band of blocks: its codes stay in a core's cache.
constexpr std::size_t kStripe = std::size_t{1} << 18;

// What depends on the place of an element in the whole matrix, random bits, must be known of a
// stripe: fields that are given, or those of Philox.
bool HasStripes(const Dialect& d, const DialectOptions& options, const StorageLayout& layout) {
  if (layout.transposed || d.scale_encoding == ScaleEncoding::kBinary32) return false;
  if (d.unbias != Unbias::kNone) return false;
  if (!IsStochastic(d) || !options.source) return true;
  return d.rounding == ElementRounding::kStochastic16 &&
         options.source->generator == RandomGenerator::kPhilox;
}

// One call: stripe after stripe goes into `stored`'s codes and `scales`, the grid of blocks.
struct Stripes {
  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;
  BlockGrid grid;
  std::vector<float> amax;
  std::size_t bands;      // of a stripe
  std::size_t row_bytes;  // of the codes
  StoredMatrix* stored;
  std::uint8_t* scales;  // nullptr where the tensor is one block

  std::size_t Count() const { return (grid.rows + bands - 1) / bands; }
};

// The options of x's rows from `top` on. Random bits that come from a source go into `fields`.
DialectOptions OptionsOfRows(const Stripes& s, std::size_t top, std::size_t rows,
                             std::vector<std::uint16_t>* fields) {
  DialectOptions options;
  if (HasLevelTwo(s.dialect)) {
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
  const CodeOrder order = s.stored->layout.codes;
  std::uint8_t* const codes = s.stored->codes.data() + top * s.row_bytes;
  std::uint8_t* const scales = s.scales == nullptr ? nullptr : s.scales + band * s.grid.cols;
  // An amax that is given may be any number; the tuned kernels are for those of matrices.
  const bool own_amax = s.options.amax.empty();
  const auto tuned = own_amax ? TunedOptions(s.dialect, options) : std::nullopt;
  if (tuned && order == DefaultCodeOrder(s.dialect.element)) {  // as those kernels write them
    thread_local QuantizedMatrix q;
    Quantize(x, *tuned, &q);
    std::copy(q.codes.begin(), q.codes.end(), codes);
    if (scales != nullptr) std::copy(q.scales.begin(), q.scales.end(), scales);
    return;
  }
  std::vector<std::uint8_t> plain(x.size());
  QuantizeInto(s.dialect, x, options, options.amax, {.codes = plain.data(), .scale_bytes = scales});
  const std::vector<std::uint8_t> packed =
      PackCodes(plain, x.rows, x.cols, order, SplitGroup(*s.stored));
  std::copy(packed.begin(), packed.end(), codes);
}

}  // namespace

StoredMatrix QuantizeStored(const Dialect& dialect, MatrixView<const float> x,
                            const DialectOptions& options, const StorageLayout& layout) {
  if (!HasStripes(dialect, options, layout)) {
    return Store(dialect, QuantizeAs(dialect, x, options), layout);
  }
  StoredMatrix stored = ShapeOf(dialect, x.rows, x.cols, layout);
  const StoredSizes sizes = SizesOf(stored, "layout");
  CheckOptions(dialect, x, options);
  const BlockGrid grid(dialect, x.rows, x.cols);
  Quantized q{.rows = x.rows, .cols = x.cols};
  q.amax = LevelTwoAmax(dialect, x, options);
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
