#include "fp4lab/exchange/stored.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/scale_stage.h"
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

// The bytes of one stored scale.
std::size_t ScaleWidth(const StoredMatrix& m) { return Named(m.layout.scale_type).bytes; }

// The bytes of all stored scales in an order, padding included.
std::size_t ScaleBytesIn(const StoredMatrix& m, ScaleOrder order) {
  const Grid stored = ScaleGrid(m);
  return ScaleBytes(order, stored.rows, stored.cols) * ScaleWidth(m);
}

// Places the scales of all blocks, row by row, in the layout of m.
void PlaceScales(std::span<const std::uint8_t> blocks, StoredMatrix* m) {
  const Grid grid = BlockGrid(*m), stored = ScaleGrid(*m);
  const std::size_t width = ScaleWidth(*m);
  Expects(blocks.size() == grid.rows * grid.cols * width, "one scale per block");
  const bool as_they_are =
      m->layout.scales == ScaleOrder::kLinear && !m->layout.transposed && stored.rows == grid.rows;
  if (as_they_are) return m->scales.assign(blocks.begin(), blocks.end());
  m->scales.assign(ScaleBytesIn(*m, m->layout.scales), 0);
  for (std::size_t r = 0; r < stored.rows; ++r) {
    for (std::size_t c = 0; c < stored.cols; ++c) {
      const std::size_t place = ScaleOffset(m->layout.scales, r, c, stored.cols);
      std::copy_n(blocks.data() + BlockOf(*m, grid, r, c) * width, width,
                  m->scales.data() + place * width);
    }
  }
}

[[noreturn]] void RefuseScaleCount(const StoredMatrix& m, std::string_view where) {
  const Grid stored = ScaleGrid(m);
  std::string fits;
  for (const NamedScaleOrder& o : kScaleOrders) {
    if (ScaleBytesIn(m, o.order) != m.scales.size()) continue;
    fits += (fits.empty() ? "; they fit the order " : " or ") + std::string(o.name);
  }
  throw Error(
      where,
      std::to_string(m.scales.size()) + " bytes of scales; " +
          ShapeText({stored.rows, stored.cols}) + " scales" +
          (ScaleWidth(m) == 1 ? "" : " of " + std::to_string(ScaleWidth(m)) + " bytes each") +
          " in the order " + std::string(Named(m.layout.scales).name) + " take " +
          std::to_string(ScaleBytesIn(m, m.layout.scales)) + fits);
}

void CheckScaleBytes(const StoredMatrix& m, std::string_view where) {
  if (m.scales.size() != SizesOf(m, where).scales) RefuseScaleCount(m, where);
}

// A byte, or a number.
std::string StoredScaleText(const StoredMatrix& m, std::span<const std::uint8_t> scales,
                            std::size_t place) {
  const std::uint32_t code = ScaleCodeAt(scales, place, m.layout.scale_type);
  if (m.layout.scale_type == ScaleType::kByte) return std::to_string(code);
  return ShortestText(ScaleValueOf(m.layout.scale_type, m.scale, code));
}

std::vector<std::uint8_t> TakeScales(const StoredMatrix& m, std::string_view where) {
  const Grid grid = BlockGrid(m), stored = ScaleGrid(m);
  CheckScaleBytes(m, where);
  const std::size_t width = ScaleWidth(m);
  std::vector<std::uint8_t> blocks(grid.rows * grid.cols * width);
  std::vector<bool> known(grid.rows * grid.cols, false);
  for (std::size_t r = 0; r < stored.rows; ++r) {
    for (std::size_t c = 0; c < stored.cols; ++c) {
      const std::size_t place = ScaleOffset(m.layout.scales, r, c, stored.cols);
      const std::size_t block = BlockOf(m, grid, r, c);
      const std::uint8_t* const scale = m.scales.data() + place * width;
      if (known[block] && !std::equal(scale, scale + width, blocks.data() + block * width)) {
        throw Error(where, "scale (" + std::to_string(r) + ", " + std::to_string(c) + ") is " +
                               StoredScaleText(m, m.scales, place) +
                               " where the first row of its tile has " +
                               StoredScaleText(m, blocks, block) + ": the scales are not expanded");
      }
      std::copy_n(scale, width, blocks.data() + block * width);
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
  if (HasFormatsOf(m, d)) return;
  const auto describe = [](FormatId element, std::string_view scale, int rows, int cols) {
    return std::string(Named(element).short_name) + " elements in " + std::to_string(rows) + "x" +
           std::to_string(cols) + " blocks with " + std::string(scale) + " scales";
  };
  const ScaleType own = ScaleTypeOf(d, {});
  throw Error(
      where,
      "holds " + describe(m.element, ScaleText(m), m.block_rows, m.block_cols) + "; the dialect " +
          std::string(d.name) + " has " +
          describe(d.element, own == ScaleType::kByte ? Named(d.scale).short_name : Named(own).name,
                   d.block_rows, d.block_cols));
}

// The scales of all blocks of a quantization, row by row, as they are stored.
std::vector<std::uint8_t> ScalesOf(const Dialect& d, const Quantized& q, ScaleType type) {
  if (type == ScaleType::kByte) return q.scales;
  const bool numbers = d.scale_encoding == ScaleEncoding::kBinary32;
  const std::size_t count = numbers ? q.scale_values.size() : q.scales.size();
  std::vector<std::uint8_t> scales(count * Named(type).bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = numbers ? q.scale_values[i] : ScaleValueOf(d, q.scales[i]);
    PutScaleCode(ScaleCodeOf(type, d.scale, value), i, type, scales);
  }
  return scales;
}

// The bytes of the dialect that have the values of scales that are stored as numbers.
std::vector<std::uint8_t> BytesOfNumbers(const Dialect& d, const StoredMatrix& m,
                                         std::span<const std::uint8_t> scales,
                                         std::string_view where) {
  std::vector<std::uint8_t> bytes(scales.size() / ScaleWidth(m));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::uint32_t code = ScaleCodeAt(scales, i, m.layout.scale_type);
    const float value = ScaleValueOf(m.layout.scale_type, m.scale, code);
    bytes[i] = static_cast<std::uint8_t>(Encode(d.scale, value));
    const float has = Decode(d.scale, bytes[i]);
    if (has == value || (std::isnan(has) && std::isnan(value))) continue;
    throw Error(where, "a block's scale is " + StoredScaleText(m, scales, i) +
                           ", which no byte of " + std::string(Named(d.scale).name) +
                           " has: " + std::string(d.name) + " does not write it");
  }
  return bytes;
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

ScaleType ScaleTypeOf(const Dialect& dialect, const StorageLayout& layout) {
  if (dialect.block_rows == 0) return ScaleType::kByte;
  if (layout.scale_type != ScaleType::kByte) return layout.scale_type;
  if (dialect.scale_encoding != ScaleEncoding::kBinary32) return ScaleType::kByte;
  return dialect.block_scale == BlockScale::kDivideFirstBf16 ? ScaleType::kBF16 : ScaleType::kFP32;
}

StoredMatrix ShapeOf(const Dialect& dialect, std::size_t rows, std::size_t cols,
                     const StorageLayout& layout) {
  StoredMatrix m{.rows = rows,
                 .cols = cols,
                 .element = dialect.element,
                 .scale = dialect.scale,
                 .block_rows = dialect.block_rows,
                 .block_cols = dialect.block_cols,
                 .layout = layout};
  m.layout.scale_type = ScaleTypeOf(dialect, layout);
  if (m.layout.scale_type != ScaleType::kByte) m.scale = FormatId::kE4M3;
  return m;
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
          .scales = ScaleBytesIn(shape, shape.layout.scales),
          .scale_bytes = ScaleWidth(shape)};
}

std::string_view ScaleText(const StoredMatrix& m) {
  const bool numbers = m.layout.scale_type != ScaleType::kByte;
  return numbers ? Named(m.layout.scale_type).name : Named(m.scale).short_name;
}

bool HasFormatsOf(const StoredMatrix& m, const Dialect& d) {
  if (d.element != m.element || d.block_rows != m.block_rows || d.block_cols != m.block_cols) {
    return false;
  }
  if (m.block_rows == 0 || m.layout.scale_type != ScaleType::kByte) return true;
  return d.scale == m.scale && d.scale_encoding != ScaleEncoding::kBinary32;
}

std::size_t SplitGroup(const StoredMatrix& m) {
  return m.block_cols > 0 && m.block_cols % 2 == 0 ? static_cast<std::size_t>(m.block_cols) : 16;
}

bool NeedsTensorScale(const StoredMatrix& stored, const Dialect* dialect) {
  if (stored.rows == 0 || stored.cols == 0) return false;
  if (dialect != nullptr) return HasTensorScale(*dialect);
  return stored.block_rows == 0 ||
         (stored.scale == FormatId::kE4M3 && stored.layout.scale_type == ScaleType::kByte);
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
  PlaceScales(ScalesOf(dialect, quantized, m.layout.scale_type), &m);
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
  const std::vector<std::uint8_t> scales = TakeScales(stored, where);
  if (stored.layout.scale_type == ScaleType::kByte) {
    q.scales = scales;
  } else if (dialect.scale_encoding != ScaleEncoding::kBinary32) {
    q.scales = BytesOfNumbers(dialect, stored, scales, where);
  } else {
    for (std::size_t i = 0; i < grid.rows * grid.cols; ++i) {
      const std::uint32_t code = ScaleCodeAt(scales, i, stored.layout.scale_type);
      q.scale_values.push_back(ScaleValueOf(stored.layout.scale_type, stored.scale, code));
    }
  }
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

StoredMatrix WithScaleType(const StoredMatrix& stored, ScaleType type, FormatId scale,
                           std::string_view where) {
  const IeeeArithmetic ieee;
  if (stored.block_rows == 0 || type == stored.layout.scale_type) return stored;
  StoredMatrix m = stored;
  m.layout.scale_type = type;
  m.scale = type == ScaleType::kByte ? scale : FormatId::kE4M3;
  const std::size_t count = stored.scales.size() / ScaleWidth(stored);
  m.scales.assign(count * ScaleWidth(m), 0);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = ScaleCodeAt(stored.scales, i, stored.layout.scale_type);
    const float value = ScaleValueOf(stored.layout.scale_type, stored.scale, code);
    const std::uint32_t other = ScaleCodeOf(type, m.scale, value);
    const float has = ScaleValueOf(type, m.scale, other);
    if (has != value && !(std::isnan(has) && std::isnan(value))) {
      throw Error(where, "a block's scale is " + StoredScaleText(stored, stored.scales, i) +
                             ", which " + std::string(ScaleText(m)) + " does not have");
    }
    PutScaleCode(other, i, type, m.scales);
  }
  return m;
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
  result.layout.scale_type = stored.layout.scale_type;
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
