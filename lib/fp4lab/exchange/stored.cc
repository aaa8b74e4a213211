#include "fp4lab/exchange/stored.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/dialect/tensor_scale_stage.h"
#include "fp4lab/exchange/shape.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMost = std::size_t{1} << 40;           // elements of one matrix
constexpr std::size_t kMostOfNothing = std::size_t{1} << 20;  // rows of a matrix without columns

std::size_t CeilDiv(std::size_t a, std::size_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The shape as stored: with `transposed`, rows and columns are exchanged.
struct Oriented {
  std::size_t rows, cols, block_rows, block_cols;
};
Oriented AsStored(const StoredMatrix& m) {
  const auto block_rows = static_cast<std::size_t>(m.block_rows);
  const auto block_cols = static_cast<std::size_t>(m.block_cols);
  if (m.layout.transposed) return {m.cols, m.rows, block_cols, block_rows};
  return {m.rows, m.cols, block_rows, block_cols};
}

struct Grid {
  std::size_t rows = 0, cols = 0;
};
// The grid of blocks, not transposed; empty if the tensor is one block.
Grid BlockGrid(const StoredMatrix& m) {
  if (m.block_rows == 0) return {};
  return {CeilDiv(m.rows, static_cast<std::size_t>(m.block_rows)),
          CeilDiv(m.cols, static_cast<std::size_t>(m.block_cols))};
}
// The grid of scales as stored.
Grid ScaleGrid(const StoredMatrix& m) {
  if (m.block_rows == 0) return {};
  const Oriented o = AsStored(m);
  return {m.layout.expanded_scales ? o.rows : CeilDiv(o.rows, o.block_rows),
          CeilDiv(o.cols, o.block_cols)};
}

void CheckCodeOrder(const StoredMatrix& m, std::string_view where) {
  const int bits = FormatOf(m.element).bits;
  const CodeOrder order = m.layout.codes;
  const bool fits =
      order == CodeOrder::kBytes || (order == CodeOrder::kDense6 ? bits == 6 : bits == 4);
  if (fits) return;
  throw Error(where, "the code order " + std::string(Name(order)) + " does not hold codes of " +
                         std::string(Named(m.element).name) + "; bytes does");
}

void CheckShape(const StoredMatrix& m, std::string_view where) {
  const bool blocks = m.block_rows > 0 && m.block_cols > 0;
  Expects(blocks || (m.block_rows == 0 && m.block_cols == 0), "blocks with both sides, or none");
  const std::size_t side = m.rows == 0 || m.cols == 0 ? kMostOfNothing : kMost;
  if (m.rows > side || m.cols > side || (m.cols > 0 && m.rows > kMost / m.cols)) {
    throw Error(where, "a matrix of " + ShapeText({m.rows, m.cols}) + " elements is too large");
  }
}

// Writes codes (rows, cols), one a byte, to m->codes in the layout of m.
void PlaceCodes(std::span<const std::uint8_t> codes, StoredMatrix* m) {
  const Oriented o = AsStored(*m);
  if (!m->layout.transposed) {
    m->codes = PackCodes(codes, o.rows, o.cols, m->layout.codes, SplitGroup(*m));
    return;
  }
  m->codes = PackCodes(TransposedBytes(codes, m->rows, m->cols), o.rows, o.cols, m->layout.codes,
                       SplitGroup(*m));
}

void CheckCodeBytes(const StoredMatrix& m, std::string_view where) {
  const StoredSizes sizes = SizesOf(m, where);
  if (m.codes.size() == sizes.codes) return;
  const Oriented o = AsStored(m);
  throw Error(where,
              std::to_string(m.codes.size()) + " bytes of codes; " + ShapeText({o.rows, o.cols}) +
                  " codes of " + std::string(Named(m.element).name) + " in the order " +
                  std::string(Name(m.layout.codes)) + " take " + std::to_string(sizes.codes));
}

// Throws Error for a byte that is no code. `codes`: in stored order, one a byte.
void CheckCodes(std::span<const std::uint8_t> codes, const StoredMatrix& m,
                std::string_view where) {
  const std::uint32_t limit = 1u << FormatOf(m.element).bits;
  const auto bad =
      std::find_if(codes.begin(), codes.end(), [=](auto code) { return code >= limit; });
  if (bad == codes.end()) return;
  const auto i = static_cast<std::size_t>(bad - codes.begin());
  const std::size_t cols = AsStored(m).cols;
  throw Error(where, "byte " + std::to_string(*bad) + " at (" + std::to_string(i / cols) + ", " +
                         std::to_string(i % cols) + ") is not a code of " +
                         std::string(Named(m.element).name));
}

// Throws Error for all that TakeCodes refuses. Packed bytes are always valid codes.
void CheckCodes(const StoredMatrix& m, std::string_view where) {
  CheckCodeBytes(m, where);
  if (m.layout.codes == CodeOrder::kBytes) CheckCodes(m.codes, m, where);
}

// Whether the codes lie at the same bytes in the layout `to` as in m, without padding.
bool HasSameCodes(const StoredMatrix& m, const StorageLayout& to) {
  const std::size_t bits = to.codes == CodeOrder::kBytes    ? 8
                           : to.codes == CodeOrder::kDense6 ? 6
                                                            : 4;
  return m.layout.codes == to.codes && m.layout.transposed == to.transposed &&
         AsStored(m).cols * bits % 8 == 0;
}

// Whether the scales lie at the same bytes in the layout `to` as in m.
bool HasSameScales(const StoredMatrix& m, const StorageLayout& to) {
  return m.layout.scales == ScaleOrder::kLinear && to.scales == ScaleOrder::kLinear &&
         m.layout.transposed == to.transposed && !m.layout.expanded_scales && !to.expanded_scales;
}

void CopyBytes(const std::vector<std::uint8_t>& from, std::vector<std::uint8_t>* to) {
  ReserveHugePages(to, from.size());
  to->assign(from.begin(), from.end());
}

std::vector<std::uint8_t> TakeCodes(const StoredMatrix& m, std::string_view where) {
  CheckCodeBytes(m, where);
  const Oriented o = AsStored(m);
  std::vector<std::uint8_t> codes =
      UnpackCodes(m.codes, o.rows, o.cols, m.layout.codes, SplitGroup(m));
  CheckCodes(codes, m, where);
  return m.layout.transposed ? TransposedBytes(codes, o.rows, o.cols) : codes;
}

// The index in `grid` of the block whose scale is stored at row r and column c.
std::size_t BlockOf(const StoredMatrix& m, const Grid& grid, std::size_t r, std::size_t c) {
  const std::size_t tile = m.layout.expanded_scales ? r / AsStored(m).block_rows : r;
  return m.layout.transposed ? c * grid.cols + tile : tile * grid.cols + c;
}

void PlaceScales(std::span<const std::uint8_t> blocks, StoredMatrix* m) {
  const Grid grid = BlockGrid(*m), stored = ScaleGrid(*m);
  Expects(blocks.size() == grid.rows * grid.cols, "one scale per block");
  const bool as_they_are =
      m->layout.scales == ScaleOrder::kLinear && !m->layout.transposed && stored.rows == grid.rows;
  if (as_they_are) return m->scales.assign(blocks.begin(), blocks.end());
  m->scales.assign(ScaleBytes(m->layout.scales, stored.rows, stored.cols), 0);
  for (std::size_t r = 0; r < stored.rows; ++r) {
    for (std::size_t c = 0; c < stored.cols; ++c) {
      m->scales[ScaleOffset(m->layout.scales, r, c, stored.cols)] = blocks[BlockOf(*m, grid, r, c)];
    }
  }
}

[[noreturn]] void RefuseScaleCount(const StoredMatrix& m, std::string_view where) {
  const Grid stored = ScaleGrid(m);
  std::string fits;
  for (const NamedScaleOrder& o : kScaleOrders) {
    if (ScaleBytes(o.order, stored.rows, stored.cols) != m.scales.size()) continue;
    fits += (fits.empty() ? "; they fit the order " : " or ") + std::string(o.name);
  }
  throw Error(where, std::to_string(m.scales.size()) + " bytes of scales; " +
                         ShapeText({stored.rows, stored.cols}) + " scales in the order " +
                         std::string(Named(m.layout.scales).name) + " take " +
                         std::to_string(ScaleBytes(m.layout.scales, stored.rows, stored.cols)) +
                         fits);
}

void CheckScaleBytes(const StoredMatrix& m, std::string_view where) {
  if (m.scales.size() != SizesOf(m, where).scales) RefuseScaleCount(m, where);
}

std::vector<std::uint8_t> TakeScales(const StoredMatrix& m, std::string_view where) {
  const Grid grid = BlockGrid(m), stored = ScaleGrid(m);
  CheckScaleBytes(m, where);
  std::vector<std::uint8_t> blocks(grid.rows * grid.cols);
  std::vector<bool> known(blocks.size(), false);
  for (std::size_t r = 0; r < stored.rows; ++r) {
    for (std::size_t c = 0; c < stored.cols; ++c) {
      const std::uint8_t scale = m.scales[ScaleOffset(m.layout.scales, r, c, stored.cols)];
      const std::size_t block = BlockOf(m, grid, r, c);
      if (known[block] && blocks[block] != scale) {
        throw Error(where, "scale (" + std::to_string(r) + ", " + std::to_string(c) + ") is " +
                               std::to_string(scale) + " where the first row of its tile has " +
                               std::to_string(blocks[block]) + ": the scales are not expanded");
      }
      blocks[block] = scale;
      known[block] = true;
    }
  }
  return blocks;
}

void CheckTensorScale(const StoredMatrix& m, std::string_view where) {
  if (m.tensor_scale.size() <= 1 || m.tensor_scale.size() == m.rows) return;
  throw Error(where, std::to_string(m.tensor_scale.size()) + " tensor scales; 1 or one per row (" +
                         std::to_string(m.rows) + ") fit");
}

void CheckDialect(const Dialect& d, const StoredMatrix& m, std::string_view where) {
  const bool blocks_agree = d.block_rows == m.block_rows && d.block_cols == m.block_cols;
  const bool scales_agree = d.scale == m.scale || m.block_rows == 0;
  if (d.element == m.element && scales_agree && blocks_agree) return;
  const auto describe = [](FormatId element, FormatId scale, int rows, int cols) {
    return std::string(Named(element).short_name) + " elements in " + std::to_string(rows) + "x" +
           std::to_string(cols) + " blocks with " + std::string(Named(scale).short_name) +
           " scales";
  };
  throw Error(where, "holds " + describe(m.element, m.scale, m.block_rows, m.block_cols) +
                         "; the dialect " + std::string(d.name) + " has " +
                         describe(d.element, d.scale, d.block_rows, d.block_cols));
}

// The number that a convention stores for an amax; `constant` is C.
float FromAmax(float amax, TensorScaleConvention convention, float constant) {
  if (convention == TensorScaleConvention::kMultiplier) return amax / constant;
  if (convention == TensorScaleConvention::kDivisor) return constant / amax;
  return amax;
}

// The amax next to `nearest` of which `number_of` makes `value`; `nearest` if there is none.
template <class NumberOf>
float AmaxNear(float nearest, float value, const NumberOf& number_of) {
  float up = nearest, down = nearest;
  for (int step = 0; step < 3; ++step) {
    for (const float amax : {up, down}) {
      if (number_of(amax) == value) return amax;
    }
    up = std::nextafter(up, std::numeric_limits<float>::infinity());
    down = std::nextafter(down, 0.0f);
  }
  return nearest;
}

float ToAmax(float value, TensorScaleConvention convention, float constant) {
  if (convention == TensorScaleConvention::kAmax) return value;
  return AmaxNear(
      convention == TensorScaleConvention::kMultiplier ? value * constant : constant / value, value,
      [&](float amax) { return FromAmax(amax, convention, constant); });
}

// Whether files with a divisor hold the dialect's S.
bool StoresEncodeScale(const Dialect& dialect) {
  switch (dialect.tensor_scale) {
    case TensorScaleRule::kDivisor:
    case TensorScaleRule::kDivisorOrOne:
    case TensorScaleRule::kDivisorBf16:
    case TensorScaleRule::kTimesReciprocal:
    case TensorScaleRule::kTimesReciprocalOrZero:
      return true;
    default:
      return false;
  }
}

void SetTensorScale(const StoredMatrix& from, float constant, std::string_view where,
                    StoredMatrix* to) {
  const TensorScaleConvention wanted = to->layout.tensor_scale;
  to->tensor_scale.clear();
  if (wanted == TensorScaleConvention::kNone) return;
  if (from.layout.tensor_scale == TensorScaleConvention::kNone && !from.tensor_scale.empty()) {
    throw Error(where, "stores a tensor scale of unknown convention; state the convention");
  }
  for (const float v : from.tensor_scale) {
    to->tensor_scale.push_back(ConvertTensorScale(v, from.layout.tensor_scale, wanted, constant));
  }
}

}  // namespace

StoredMatrix ShapeOf(const Dialect& dialect, std::size_t rows, std::size_t cols,
                     const StorageLayout& layout) {
  return {.rows = rows,
          .cols = cols,
          .element = dialect.element,
          .scale = dialect.scale,
          .block_rows = dialect.block_rows,
          .block_cols = dialect.block_cols,
          .layout = layout};
}

StoredSizes SizesOf(const StoredMatrix& shape, std::string_view where) {
  CheckShape(shape, where);
  CheckCodeOrder(shape, where);
  const Oriented o = AsStored(shape);
  const Grid grid = ScaleGrid(shape);
  const std::size_t row_bytes = PackedRowBytes(shape.layout.codes, o.cols, SplitGroup(shape));
  return {.code_rows = o.rows,
          .code_row_bytes = row_bytes,
          .scale_rows = grid.rows,
          .scale_cols = grid.cols,
          .codes = o.rows * row_bytes,
          .scales = ScaleBytes(shape.layout.scales, grid.rows, grid.cols)};
}

std::size_t SplitGroup(const StoredMatrix& m) {
  return m.block_cols > 0 && m.block_cols % 2 == 0 ? static_cast<std::size_t>(m.block_cols) : 16;
}

bool NeedsTensorScale(const StoredMatrix& stored, const Dialect* dialect) {
  if (stored.rows == 0 || stored.cols == 0) return false;
  if (dialect != nullptr) return HasTensorScale(*dialect);
  return stored.block_rows == 0 || stored.scale == FormatId::kE4M3;
}

float ConvertTensorScale(float value, TensorScaleConvention from, TensorScaleConvention to,
                         float constant) {
  const IeeeArithmetic ieee;
  Expects(from != TensorScaleConvention::kNone && to != TensorScaleConvention::kNone,
          "conventions that store a number");
  if (from == to) return value;
  if (from == TensorScaleConvention::kAmax) return FromAmax(value, to, constant);
  if (to == TensorScaleConvention::kAmax) return ToAmax(value, from, constant);
  return 1.0f / value;
}

float NumberOfAmax(const Dialect& dialect, float amax, TensorScaleConvention convention) {
  const IeeeArithmetic ieee;
  if (convention == TensorScaleConvention::kDivisor && StoresEncodeScale(dialect)) {
    return TensorScaleOf(dialect, amax).encode;
  }
  return FromAmax(amax, convention, TensorScaleConstant(dialect));
}

float AmaxOfNumber(const Dialect& dialect, float number, TensorScaleConvention convention) {
  const IeeeArithmetic ieee;
  return AmaxNear(ToAmax(number, convention, TensorScaleConstant(dialect)), number,
                  [&](float amax) { return NumberOfAmax(dialect, amax, convention); });
}

StoredMatrix Store(const Dialect& dialect, const Quantized& quantized,
                   const StorageLayout& layout) {
  const IeeeArithmetic ieee;
  StoredMatrix m = StoreScales(dialect, quantized, layout);
  PlaceCodes(quantized.codes, &m);
  return m;
}

StoredMatrix StoreScales(const Dialect& dialect, const Quantized& quantized,
                         const StorageLayout& layout) {
  const IeeeArithmetic ieee;
  StoredMatrix m = ShapeOf(dialect, quantized.rows, quantized.cols, layout);
  SizesOf(m, "layout");  // throws Error if the layout cannot hold the dialect's codes
  PlaceScales(quantized.scales, &m);
  if (layout.tensor_scale == TensorScaleConvention::kNone) return m;
  for (const float amax : quantized.amax) {
    m.tensor_scale.push_back(NumberOfAmax(dialect, amax, layout.tensor_scale));
  }
  return m;
}

Quantized Load(const Dialect& dialect, const StoredMatrix& stored, std::string_view where) {
  const IeeeArithmetic ieee;
  CheckDialect(dialect, stored, where);
  Quantized q;
  q.rows = stored.rows;
  q.cols = stored.cols;
  q.codes = TakeCodes(stored, where);
  const Grid grid = BlockGrid(stored);
  q.scale_rows = grid.rows;
  q.scale_cols = grid.cols;
  q.scales = TakeScales(stored, where);
  const bool says_what = stored.layout.tensor_scale != TensorScaleConvention::kNone;
  if (dialect.tensor_scale == TensorScaleRule::kNone || stored.tensor_scale.empty() || !says_what)
    return q;
  const std::size_t numbers = dialect.row_scaled ? stored.rows : 1;
  if (stored.tensor_scale.size() != numbers) {
    throw Error(where, std::to_string(stored.tensor_scale.size()) + " tensor scales; " +
                           std::string(dialect.name) + " has " + std::to_string(numbers) + " for " +
                           std::to_string(stored.rows) + " rows");
  }
  for (const float v : stored.tensor_scale) {
    q.amax.push_back(AmaxOfNumber(dialect, v, stored.layout.tensor_scale));
  }
  return q;
}

void CheckStored(const StoredMatrix& stored, std::string_view where) {
  const IeeeArithmetic ieee;
  CheckTensorScale(stored, where);
  CheckCodes(stored, where);
  CheckScaleBytes(stored, where);
  if (stored.layout.expanded_scales) TakeScales(stored, where);
}

StoredMatrix Convert(const StoredMatrix& stored, const StorageLayout& to, float scale_max,
                     std::string_view where) {
  const IeeeArithmetic ieee;
  CheckTensorScale(stored, where);
  StoredMatrix result{.rows = stored.rows,
                      .cols = stored.cols,
                      .element = stored.element,
                      .scale = stored.scale,
                      .block_rows = stored.block_rows,
                      .block_cols = stored.block_cols,
                      .layout = to};
  SizesOf(result, where);
  if (HasSameCodes(stored, to)) {
    CheckCodes(stored, where);
    CopyBytes(stored.codes, &result.codes);
  } else {
    PlaceCodes(TakeCodes(stored, where), &result);
  }
  if (HasSameScales(stored, to)) {
    CheckScaleBytes(stored, where);
    CopyBytes(stored.scales, &result.scales);
  } else {
    PlaceScales(TakeScales(stored, where), &result);
  }
  SetTensorScale(stored, TensorScaleConstant(stored, scale_max), where, &result);
  return result;
}

}  // namespace fp4lab
