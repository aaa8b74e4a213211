// Writes the codes and scale bytes of a unit to the result: packed, and transposed where memory
// rows are columns of x. With AVX-512 (VBMI) also for the fast FP4 and FP8 kernels.
#if defined(FP4LAB_BLOCK_PACK_CODES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_PACK_CODES_INL_H_
#undef FP4LAB_BLOCK_PACK_CODES_INL_H_
#else
#define FP4LAB_BLOCK_PACK_CODES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/block/quantize.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_columns-inl.h"
#include "fp4lab/block/kernels/fp4_rows_avx2-inl.h"
#include "fp4lab/block/kernels/fp4_units-inl.h"
#include "fp4lab/block/kernels/fp8_units-inl.h"
#include "fp4lab/block/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// The codes of a unit, one per byte, in memory order, rows `stride` (a chunk and a vector) apart.
struct CodeTile {
  std::uint8_t* codes;
  std::size_t stride;
  HWY_INLINE CodeSink Row(std::size_t r) const { return {codes + r * stride}; }
};

// Packs the codes of a unit whose memory rows are rows of x.
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

// Packs the codes of a unit whose memory rows are columns of x.
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
                            const Byte* bytes, const CodeOutput& q) {
  const std::size_t bands = DivideUp(plan.rows, plan.block_rows);
  const std::size_t columns = DivideUp(plan.cols, plan.block_cols);
  const std::size_t band = unit.row / plan.block_rows, first = unit.col / plan.block_cols;
  std::uint8_t* to = q.scales;
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

// Codes, one per byte, as input of PackSixteenRows.
struct ByteFp4Rows {
  std::uint8_t* codes;
  std::size_t stride;
  HWY_INLINE ByteFp4Sink Row(std::size_t r) const { return {codes + r * stride}; }
};

// Packs 16 rows of 64 codes: two rows per byte, transposed.
HWY_INLINE void PackSixteenRows(const CodeTile& tile, std::size_t sixteen, TurnedCodes* out) {
  __m512i pairs[8];
  for (std::size_t i = 0; i < 8; ++i) {
    const __m512i low = _mm512_load_si512(tile.codes + 2 * i * tile.stride);
    const __m512i high = _mm512_load_si512(tile.codes + (2 * i + 1) * tile.stride);
    pairs[i] = _mm512_or_si512(low, _mm512_slli_epi16(high, 4));
  }
  TurnBytes(pairs, out->bytes[0][sixteen], sizeof(out->bytes[0]));
}

// Returns false if the generic kernel must process the unit. Memory rows are rows of x.
HWY_INLINE bool PackFp4Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                            const CodeLayout& layout, const CodeOutput& q) {
  Fp4Scales scales;
  const PackedFp4Rows rows{q.codes + layout.Byte(unit.row, unit.col), layout.row_bytes};
  if (!QuantizeFp4Unit(plan, unit, x, &scales, rows)) return false;
  StoreScales(plan, unit, DivideUp(unit.cols, plan.block_cols), scales.byte, q);
  return true;
}

// The codes and scale bytes of kPanelRows memory rows that are columns of x, so that the codes of
// one row of x fill a cache line.
struct CodePanel {
  static constexpr std::size_t kColumns = 256;
  TurnedCodes codes[kColumns / 64];
  alignas(64) std::uint8_t bytes[kPanelRows / 16][kColumns];
};

// Quantizes one unit of a panel, `band` units below the first, of whole blocks. `tile`: a buffer
// for codes. Returns false if the generic kernel must process the unit.
HWY_INLINE bool FillPanel(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                          std::size_t band, const CodeTile& tile, CodePanel* panel,
                          const CodeOutput& q) {
  const std::size_t sixteen = band * plan.block_rows / 16;
  if (plan.block_cols == 1 && plan.rounding == Rounding::kNearestEven) {
    std::uint8_t* bytes = panel->bytes[band];
    return plan.block_rows == 16
               ? QuantizeFp4Columns<16>(plan.scale, x, sixteen, panel->codes, bytes)
               : QuantizeFp4Columns<32>(plan.scale, x, sixteen, panel->codes, bytes);
  }
  Fp4Scales scales;
  if (!QuantizeFp4Unit(plan, unit, x, &scales, ByteFp4Rows{tile.codes, tile.stride})) return false;
  for (std::size_t r = 0; r < unit.rows; r += 16) {
    for (std::size_t c = 0; c < unit.cols; c += 64) {
      PackSixteenRows({tile.codes + r * tile.stride + c, tile.stride}, sixteen + r / 16,
                      &panel->codes[c / 64]);
    }
  }
  if (plan.block_cols == 1) {
    std::copy_n(scales.byte, unit.cols, panel->bytes[band]);
  } else {
    StoreScales(plan, unit, DivideUp(unit.cols, plan.block_cols), scales.byte, q);
  }
  return true;
}

// Writes the scale bytes of 64 columns from c on, `bands` bytes per column. `to`: the first byte of
// column c; `all`: scale bytes per column of the whole matrix.
HWY_INLINE void FlushScales(const CodePanel& panel, std::size_t c, std::size_t columns,
                            std::size_t bands, std::size_t all, std::uint8_t* to) {
  __m512i rows[8];
  for (std::size_t b = 0; b < 8; ++b) rows[b] = _mm512_load_si512(&panel.bytes[b][c]);
  alignas(64) std::uint8_t turned[8][4][2][8];
  TurnBytes(rows, turned[0][0][0], 64);
  if (HWY_LIKELY(columns == 64 && bands == 8)) {
    for (std::size_t l = 0; l < 4; ++l) {
      for (std::size_t i = 0; i < 8; ++i, to += 2 * all) {
        std::memcpy(to, turned[i][l][0], 8);
        std::memcpy(to + all, turned[i][l][1], 8);
      }
    }
    return;
  }
  for (std::size_t p = 0; p < columns; ++p) {
    std::copy_n(turned[p % 16 / 2][p / 16][p % 2], bands, to + p * all);
  }
}

// Writes the panel whose first unit is `unit`, `bands` units high.
HWY_INLINE void FlushPanel(const QuantizePlan& plan, const Unit& unit, std::size_t bands,
                           const CodeLayout& layout, const CodePanel& panel, const CodeOutput& q) {
  const std::size_t count = bands * plan.block_rows / 2;
  std::uint8_t* to = q.codes + layout.Byte(unit.col, unit.row);
  const __mmask64 bytes = count >= 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
  const std::size_t all = DivideUp(plan.rows, plan.block_rows);
  std::uint8_t* scales = q.scales + unit.col * all + unit.row / plan.block_rows;
  for (std::size_t c = 0; c < unit.cols; c += 64, to += 64 * layout.row_bytes, scales += 64 * all) {
    const std::size_t columns = std::min<std::size_t>(64, unit.cols - c);
    panel.codes[c / 64].ForEachColumn([&](std::size_t j, __m512i codes) HWY_ATTR {
      if (j < columns) _mm512_mask_storeu_epi8(to + j * layout.row_bytes, bytes, codes);
    });
    if (plan.block_cols == 1) FlushScales(panel, c, columns, bands, all, scales);
  }
}

// Returns false if the generic kernel must process the unit.
HWY_INLINE bool PutFp8Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                           const CodeLayout& layout, const CodeOutput& q) {
  Fp4Scales scales;
  if (!QuantizeFp8Unit(plan, x, &scales, q.codes + layout.Byte(unit.row, unit.col))) {
    return false;
  }
  if (q.scales != nullptr) StoreScales(plan, unit, DivideUp(unit.cols, 32), scales.byte, q);
  return true;
}

#else

HWY_INLINE bool HasFp8Units(const QuantizePlan& /*plan*/) { return false; }
HWY_INLINE bool PutFp8Unit(const QuantizePlan&, const Unit&, const Tile&, const CodeLayout&,
                           const CodeOutput&) {
  return false;
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_INLINE bool HasFp4Units(const QuantizePlan& plan) { return HasFp4Rows(plan); }
// Returns false if the generic kernel must process the unit.
HWY_INLINE bool PackFp4Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                            const CodeLayout& layout, const CodeOutput& q) {
  UnitScales scales;
  const std::size_t blocks = FindScales(plan.scale, x, plan.block_cols, &scales);
  if (!PackFp4Row(x, plan.block_cols, scales, q.codes + layout.Byte(unit.row, unit.col))) {
    return false;
  }
  StoreScales(plan, unit, blocks, scales.byte, q);
  return true;
}
#else
HWY_INLINE bool HasFp4Units(const QuantizePlan& /*plan*/) { return false; }
HWY_INLINE bool PackFp4Unit(const QuantizePlan&, const Unit&, const Tile&, const CodeLayout&,
                            const CodeOutput&) {
  return false;
}
#endif

struct CodePanel {};
HWY_INLINE bool FillPanel(const QuantizePlan&, const Unit&, const Tile&, std::size_t,
                          const CodeTile&, CodePanel*, const CodeOutput&) {
  return false;
}
HWY_INLINE void FlushPanel(const QuantizePlan&, const Unit&, std::size_t, const CodeLayout&,
                           const CodePanel&, const CodeOutput&) {}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_PACK_CODES_INL_H_
