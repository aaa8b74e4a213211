// Quantize: codes and scale bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/staged.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/quantize_codes.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/block/fp4_units-inl.h"
#include "fp4lab/block/fp8_units-inl.h"
#include "fp4lab/block/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

// The codes of a unit, one a byte, in memory order: rows are a chunk and a vector apart.
struct CodeTile {
  std::uint8_t* codes;
  std::size_t stride;
  HWY_INLINE CodeSink Row(std::size_t r) const { return {codes + r * stride}; }
};

// Memory rows are rows of x.
HWY_INLINE void PackRows(const Unit& unit, const CodeTile& tile, const CodeLayout& layout,
                         std::uint8_t* codes) {
  for (std::size_t r = 0; r < unit.rows; ++r) {
    const std::uint8_t* from = tile.codes + r * tile.stride;
    std::uint8_t* to = codes + layout.Byte(unit.row + r, unit.col);
    if (!layout.packed) {
      std::copy_n(from, unit.cols, to);
      continue;
    }
    for (std::size_t i = 0; i < unit.cols / 2; ++i) {
      to[i] = static_cast<std::uint8_t>(from[2 * i] | from[2 * i + 1] << 4);
    }
    if (unit.cols % 2 == 1) to[unit.cols / 2] = from[unit.cols - 1];
  }
}

// Memory rows are columns of x.
HWY_INLINE void PackColumns(const Unit& unit, const CodeTile& tile, const CodeLayout& layout,
                            std::uint8_t* codes) {
  const std::uint8_t* from = tile.codes;
  for (std::size_t i = 0; i < unit.cols; ++i, ++from) {
    std::uint8_t* to = codes + layout.Byte(unit.col + i, unit.row);
    if (!layout.packed) {
      for (std::size_t r = 0; r < unit.rows; ++r) to[r] = from[r * tile.stride];
      continue;
    }
    for (std::size_t r = 0; r + 1 < unit.rows; r += 2) {
      to[r / 2] =
          static_cast<std::uint8_t>(from[r * tile.stride] | from[(r + 1) * tile.stride] << 4);
    }
    if (unit.rows % 2 == 1) to[unit.rows / 2] = from[(unit.rows - 1) * tile.stride];
  }
}

template <class Byte>
HWY_INLINE void StoreScales(const QuantizePlan& plan, const Unit& unit, std::size_t blocks,
                            const Byte* bytes, QuantizedMatrix* q) {
  const std::size_t bands = (plan.rows + plan.block_rows - 1) / plan.block_rows;
  const std::size_t columns = (plan.cols + plan.block_cols - 1) / plan.block_cols;
  const std::size_t band = unit.row / plan.block_rows, first = unit.col / plan.block_cols;
  std::uint8_t* to = q->scales.data();
  to += plan.transposed ? first * bands + band : band * columns + first;
  const std::size_t step = plan.transposed ? bands : 1;
  for (std::size_t b = 0; b < blocks; ++b) to[b * step] = static_cast<std::uint8_t>(bytes[b]);
}

#if HWY_TARGET <= HWY_AVX3_DL

struct PackedFp4Rows {
  std::uint8_t* out;
  std::size_t stride;
  HWY_INLINE PackedFp4Sink Row(std::size_t r) const { return {out + r * stride}; }
};

// Codes one a byte, kept for PackColumns.
struct ByteFp4Rows {
  std::uint8_t* codes;
  std::size_t stride;
  HWY_INLINE ByteFp4Sink Row(std::size_t r) const { return {codes + r * stride}; }
};

// Pairs of rows of codes joined, and turned: column c's 16 codes become the 8 bytes at out + c *
// stride. 64 columns.
HWY_INLINE void PackSixteenRows(const CodeTile& tile, std::uint8_t* out, std::size_t stride,
                                std::size_t columns) {
  __m512i a[8], b[8];
  for (std::size_t i = 0; i < 8; ++i) {
    const __m512i low = _mm512_load_si512(tile.codes + 2 * i * tile.stride);
    const __m512i high = _mm512_load_si512(tile.codes + (2 * i + 1) * tile.stride);
    a[i] = _mm512_or_si512(low, _mm512_slli_epi16(high, 4));
  }
  for (std::size_t i = 0; i < 8; i += 2) {
    b[i / 2] = _mm512_unpacklo_epi8(a[i], a[i + 1]);
    b[4 + i / 2] = _mm512_unpackhi_epi8(a[i], a[i + 1]);
  }
  for (std::size_t i = 0; i < 8; i += 2) {
    a[i] = _mm512_unpacklo_epi16(b[i], b[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi16(b[i], b[i + 1]);
  }
  // Of each 128-bit lane's columns: a[0], a[2] have 0-3, a[1], a[3] 4-7, a[4], a[6] 8-11, ...
  alignas(64) std::uint64_t turned[8][8];
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t j = i / 2 * 4 + i % 2;
    _mm512_store_si512(turned[2 * i], _mm512_unpacklo_epi32(a[j], a[j + 2]));
    _mm512_store_si512(turned[2 * i + 1], _mm512_unpackhi_epi32(a[j], a[j + 2]));
  }
  for (std::size_t c = 0; c < columns; ++c) {
    const std::uint64_t bytes = turned[c % 16 / 2][c / 16 * 2 + c % 2];
    std::memcpy(out + c * stride, &bytes, 8);
  }
}

// The codes of a unit whose memory rows are columns of x.
HWY_INLINE void PackTile(const Unit& unit, const CodeTile& tile, const CodeLayout& layout,
                         std::uint8_t* codes) {
  if (unit.rows % 16 != 0) return PackColumns(unit, tile, layout, codes);
  for (std::size_t r = 0; r < unit.rows; r += 16) {
    for (std::size_t c = 0; c < unit.cols; c += 64) {
      PackSixteenRows({tile.codes + r * tile.stride + c, tile.stride},
                      codes + layout.Byte(unit.col + c, unit.row + r), layout.row_bytes,
                      std::min<std::size_t>(64, unit.cols - c));
    }
  }
}

// False: the generic kernel must do this unit.
HWY_INLINE bool PackFp4Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                            const CodeLayout& layout, const CodeTile& tile, QuantizedMatrix* q) {
  Fp4Scales scales;
  if (plan.transposed) {
    if (!QuantizeFp4Unit(plan, unit, x, &scales, ByteFp4Rows{tile.codes, tile.stride}))
      return false;
    PackTile(unit, tile, layout, q->codes.data());
  } else {
    const PackedFp4Rows rows{q->codes.data() + layout.Byte(unit.row, unit.col), layout.row_bytes};
    if (!QuantizeFp4Unit(plan, unit, x, &scales, rows)) return false;
  }
  StoreScales(plan, unit, (unit.cols + plan.block_cols - 1) / plan.block_cols, scales.byte, q);
  return true;
}

// False: the generic kernel must do this unit.
HWY_INLINE bool PutFp8Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                           const CodeLayout& layout, QuantizedMatrix* q) {
  Fp4Scales scales;
  if (!QuantizeFp8Unit(plan, x, &scales, q->codes.data() + layout.Byte(unit.row, unit.col))) {
    return false;
  }
  if (!q->scales.empty()) StoreScales(plan, unit, (unit.cols + 31) / 32, scales.byte, q);
  return true;
}

#else

HWY_INLINE bool HasFp8Units(const QuantizePlan& /*plan*/) { return false; }
HWY_INLINE bool PutFp8Unit(const QuantizePlan&, const Unit&, const Tile&, const CodeLayout&,
                           QuantizedMatrix*) {
  return false;
}
HWY_INLINE bool HasFp4Units(const QuantizePlan& /*plan*/) { return false; }
HWY_INLINE bool PackFp4Unit(const QuantizePlan&, const Unit&, const Tile&, const CodeLayout&,
                            const CodeTile&, QuantizedMatrix*) {
  return false;
}

#endif

struct CodeBuffers {
  UnitScales scales;
  RandomBuffer random;
  alignas(64) std::uint8_t codes[kMaxBlock * (128 + 64)];  // or 1 x (1024 + 64), 16 x (256 + 64)
};

void CodesOfUnit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                 const CodeLayout& layout, CodeBuffers* buffers, QuantizedMatrix* q) {
  const CodeTile codes{buffers->codes, plan.chunk + 64};
  const std::size_t blocks = FindScales(plan.scale, x, plan.block_cols, &buffers->scales);
  RoundUnit(plan, unit, x, buffers->scales, &buffers->random, codes);
  if (!q->scales.empty()) StoreScales(plan, unit, blocks, buffers->scales.byte, q);
  if (plan.transposed) {
    PackColumns(unit, codes, layout, q->codes.data());
  } else {
    PackRows(unit, codes, layout, q->codes.data());
  }
}

// Units [begin, end). x is in memory order, q is not.
void CodesOfUnits(const QuantizePlan& plan, const MatrixView<const float>& x, std::size_t begin,
                  std::size_t end, QuantizedMatrix* q) {
  CodeBuffers buffers;
  StageBuffer staged;
  const bool fp4 = HasFp4Units(plan), fp8 = !plan.transposed && HasFp8Units(plan);
  const CodeTile codes{buffers.codes, plan.chunk + 64};
  const CodeLayout layout(q->format, plan.transposed ? plan.rows : plan.cols);
  for (std::size_t i = begin, n = 1; i < end; i += n) {
    n = fp4 || fp8 ? UnitsOfSpan(plan, i, end) : 1;
    const Unit span = SpanOf(plan, i, n);
    if (fp8 && PutFp8Unit(plan, span, TileOf(plan, x, span, &staged), layout, q)) continue;
    if (fp4 && PackFp4Unit(plan, span, TileOf(plan, x, span, &staged), layout, codes, q)) continue;
    for (std::size_t k = i; k < i + n; ++k) {
      const Unit unit = UnitOf(plan, k);
      CodesOfUnit(plan, unit, TileOf(plan, x, unit, &staged), layout, &buffers, q);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(CodesOfUnits);

}  // namespace

void Quantize(MatrixView<const float> x, const QuantizeOptions& options, const UnitStage& stage,
              QuantizedMatrix* q) {
  ShapeQuantizedMatrix(x.rows, x.cols, options, q);
  if (x.size() == 0) return;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const bool transposed = !HasUnitRows(x);
  x = transposed ? x.Transposed() : AsOneRow(x, options.format);
  const QuantizePlan plan = MakePlan(x.rows, x.cols, transposed, options, stage);
  ParallelFor(GroupsOf(plan), [&](std::size_t group) {
    HWY_DYNAMIC_DISPATCH(CodesOfUnits)(plan, x, group * kUnitsAGroup, EndOfGroup(plan, group), q);
  });
}

void Quantize(MatrixView<const float> x, const QuantizeOptions& options, QuantizedMatrix* q) {
  Quantize(x, options, UnitStage{}, q);
}

QuantizedMatrix Quantize(MatrixView<const float> x, const QuantizeOptions& options) {
  QuantizedMatrix q;
  Quantize(x, options, &q);
  return q;
}

void QuantizeBothWays(MatrixView<const float> x, const QuantizeOptions& row_options,
                      const QuantizeOptions& column_options, QuantizedMatrix* rows,
                      QuantizedMatrix* columns) {
  ShapeQuantizedMatrix(x.rows, x.cols, row_options, rows);
  ShapeQuantizedMatrix(x.cols, x.rows, column_options, columns);
  if (x.size() == 0) return;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const bool turned = !HasUnitRows(x);  // then it is x's transpose that lies in memory as rows
  if (turned) x = x.Transposed();
  const QuantizePlan plans[] = {MakePlan(x.rows, x.cols, turned, row_options),
                                MakePlan(x.rows, x.cols, !turned, column_options)};
  QuantizedMatrix* const results[] = {rows, columns};
  const std::size_t band = std::lcm(plans[0].block_rows, plans[1].block_rows);
  ParallelFor((x.rows + band - 1) / band, [&](std::size_t i) {
    for (const std::size_t k : {0, 1}) {
      const QuantizePlan& plan = plans[k];
      const std::size_t units = band / plan.block_rows * plan.chunks;
      HWY_DYNAMIC_DISPATCH(CodesOfUnits)
      (plan, x, i * units, std::min((i + 1) * units, plan.units), results[k]);
    }
  });
}

}  // namespace fp4lab
#endif  // HWY_ONCE
