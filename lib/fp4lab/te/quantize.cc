// The vector kernels of TeQuantize. A tile of 16 lines x 16 elements lies in memory as [element]
// [line], so that a lane is a line: the amax, the scale and the codes of a block are made in its
// lane, and the codes leave as two words of eight nibbles. Rows reach that order by a
// transposition, columns have it.
#include "fp4lab/te/quantize.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/te/quantize.cc"
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/block_scale_rules.h"
#include "fp4lab/dialect/tensor_scale.h"
#include "fp4lab/dialect/tensor_scale_stage.h"
#include "fp4lab/te/implementation.h"
#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/kernels.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/base/simd/philox-inl.h"
#include "fp4lab/base/simd/transpose-inl.h"

#ifndef FP4LAB_TE_QUANTIZE_CC_ONCE_
#define FP4LAB_TE_QUANTIZE_CC_ONCE_
namespace fp4lab {
namespace {

constexpr std::size_t kTile = 16;
// A piece of work: rows so that a column's codes fill a cache line, columns so that the transformed
// band stays in the first-level cache.
constexpr std::size_t kPieceRows = 128, kPieceCols = 256;

// The numbers of one output that all of its blocks share.
struct TeCast {
  TeOutput out;
  TeLaunch launch;
  std::uint64_t seed, offset;
  float per_amax, decode;  // t = per_amax * b, d = s * decode
  bool columnwise, stochastic, nan_of_block;
};

// A launch as the kernels see it.
struct TeJob {
  TeMatrix x;
  bool square, hadamard;
  HadamardFactors factors;
  TeCast rows, columns;
};

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_TE_QUANTIZE_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using FTag = hn::CappedTag<float, 16>;
using ITag = hn::RebindToSigned<FTag>;
using FVec = hn::Vec<FTag>;
using IVec = hn::Vec<ITag>;

// Blocks of the 16 lines of a tile.
struct TileNumbers {
  alignas(64) float amax[kTile];
  alignas(64) std::uint32_t words[4][kTile];          // random words, four elements each
  alignas(64) std::uint32_t low[kTile], high[kTile];  // codes of elements 0 to 7, 8 to 15
  alignas(64) std::int32_t scale[kTile];
  alignas(64) std::int32_t nan[kTile];  // all bits set: the block holds a NaN
};

// The words of the tile's 16 blocks; (row, col): the first element of the tile in x.
HWY_INLINE void DrawWords(const TeCast& cast, std::size_t row, std::size_t col, TileNumbers* t) {
  std::uint64_t low[kTile], high[kTile];
  bool swap[kTile];
  for (std::size_t i = 0; i < kTile; ++i) {
    const TeWord at = cast.columnwise ? TeWordOf(cast.launch, true, row, col + i)
                                      : TeWordOf(cast.launch, false, row + i, col);
    low[i] = cast.offset + at.word / 4;
    high[i] = at.subsequence + (low[i] < cast.offset ? 1 : 0);
    swap[i] = at.word % 4 == 2;
  }
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kTile; ++i) {
    const PhiloxBlock block = Philox4x32(
        {static_cast<std::uint32_t>(low[i]), static_cast<std::uint32_t>(low[i] >> 32),
         static_cast<std::uint32_t>(high[i]), static_cast<std::uint32_t>(high[i] >> 32)},
        {static_cast<std::uint32_t>(cast.seed), static_cast<std::uint32_t>(cast.seed >> 32)});
    for (std::size_t k = 0; k < 4; ++k) t->words[k][i] = block[swap[i] ? k ^ 2 : k];
  }
#else
  const D64 d;
  const PhiloxKeys keys = RoundKeys(
      {static_cast<std::uint32_t>(cast.seed), static_cast<std::uint32_t>(cast.seed >> 32)});
  alignas(64) std::uint64_t out[4][kTile];  // the upper halves are not used
  for (std::size_t i = 0; i < kTile; i += hn::Lanes(d)) {
    const V64 lo = hn::LoadU(d, low + i), hi = hn::LoadU(d, high + i);
    const PhiloxLanes w = Philox(keys, {lo, hn::ShiftRight<32>(lo), hi, hn::ShiftRight<32>(hi)});
    hn::Store(w.w0, d, out[0] + i);
    hn::Store(w.w1, d, out[1] + i);
    hn::Store(w.w2, d, out[2] + i);
    hn::Store(w.w3, d, out[3] + i);
  }
  for (std::size_t k = 0; k < 4; ++k) {
    for (std::size_t i = 0; i < kTile; ++i) {
      t->words[k][i] = static_cast<std::uint32_t>(out[swap[i] ? k ^ 2 : k][i]);
    }
  }
#endif
}

// max |x| of each line, NaN ignored, and whether it has a NaN. x[k * stride + line].
HWY_INLINE void TileAmaxes(const float* x, std::size_t stride, TileNumbers* t) {
  const FTag d;
  for (std::size_t i = 0; i < kTile; i += hn::Lanes(d)) {
    FVec largest = hn::Zero(d), total = hn::Zero(d);
    for (std::size_t k = 0; k < kTile; ++k) {
      const FVec a = hn::Abs(hn::LoadU(d, x + k * stride + i));
      largest = hn::IfThenElse(hn::Gt(a, largest), a, largest);
      total = hn::Add(total, a);  // NaN if an element is; all are >= 0, so Inf adds up to Inf
    }
    hn::Store(largest, d, t->amax + i);
    hn::Store(hn::VecFromMask(ITag(), hn::RebindMask(ITag(), hn::IsNaN(total))), ITag(),
              t->nan + i);
  }
}

// The code of a magnitude a, truncated to E2M1's grid: 0 to 7.
HWY_INLINE IVec TruncatedCode(FVec a) {
  const FTag d;
  const ITag di;
  const IVec bits = hn::ShiftRight<22>(hn::BitCast(di, a));
  const IVec normal = hn::Sub(bits, hn::Set(di, 252));
  const auto half = hn::RebindMask(di, hn::Ge(a, hn::Set(d, 0.5f)));
  const IVec small = hn::IfThenElseZero(half, hn::Set(di, 1));
  const auto one = hn::RebindMask(di, hn::Ge(a, hn::Set(d, 1.0f)));
  return hn::Min(hn::IfThenElse(one, normal, small), hn::Set(di, 7));
}

// The grid's step at a magnitude.
HWY_INLINE FVec StepAt(FVec a) {
  const FTag d;
  return hn::IfThenElse(
      hn::Lt(a, hn::Set(d, 2.0f)), hn::Set(d, 0.5f),
      hn::IfThenElse(hn::Lt(a, hn::Set(d, 4.0f)), hn::Set(d, 1.0f), hn::Set(d, 2.0f)));
}

// The sign bit of v's code.
HWY_INLINE IVec SignOf(FVec v) {
  const hn::RebindToUnsigned<FTag> du;
  return hn::And(hn::BitCast(ITag(), hn::ShiftRight<28>(hn::BitCast(du, v))), hn::Set(ITag(), 8));
}

// The E2M1 code of v, to nearest even.
HWY_INLINE IVec CodeOf(FVec v, FVec a) {
  const FTag d;
  const ITag di;
  // Beyond 6 the result is cut to 7; up to there the addition rounds to a multiple of the step.
  const FVec magic = hn::Mul(StepAt(a), hn::Set(d, 0x1.8p23f));
  const IVec code = TruncatedCode(hn::Sub(hn::Add(a, magic), magic));
  const IVec sign = SignOf(v);
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)), hn::Set(di, 7), hn::Or(code, sign));
}

// EncodeTransformerEngineStochastic with 8 random bits.
HWY_INLINE IVec StochasticCodeOf(FVec v, FVec a, IVec random) {
  const FTag d;
  const ITag di;
  const FVec up = hn::Mul(hn::ConvertTo(d, random), hn::Set(d, 0x1p-8f));
  const IVec code = TruncatedCode(hn::Add(hn::Mul(up, StepAt(a)), a));
  const IVec sign = SignOf(v);
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)), hn::Set(di, 7), hn::Or(code, sign));
}

// s = the E4M3 number nearest to t >= 0 (ties to even, at most 448) and its byte.
HWY_INLINE FVec ScaleOf(FVec t, IVec* byte) {
  const FTag d;
  const ITag di;
  t = hn::Min(t, hn::Set(d, 448.0f));
  // Below 2^-6 the step is 2^-9; above, 2^-3 of the power of two below t.
  const IVec power = hn::And(hn::BitCast(di, t), hn::Set(di, 0x7F800000));
  const FVec step =
      hn::Max(hn::Mul(hn::BitCast(d, power), hn::Set(d, 0x1p-3f)), hn::Set(d, 0x1p-9f));
  const FVec magic = hn::Mul(step, hn::Set(d, 0x1.8p23f));
  const FVec s = hn::Sub(hn::Add(t, magic), magic);
  const IVec normal = hn::Sub(hn::ShiftRight<20>(hn::BitCast(di, s)), hn::Set(di, 120 << 3));
  const IVec small = hn::ConvertTo(di, hn::Mul(s, hn::Set(d, 512.0f)));
  *byte = hn::IfThenElse(hn::RebindMask(di, hn::Ge(s, hn::Set(d, 0x1p-6f))), normal, small);
  return s;
}

// Scales and codes of the blocks of a tile, from the amaxes (and words) in *t.
template <bool kStochastic>
HWY_INLINE void QuantizeTile(const TeCast& cast, const float* x, std::size_t stride,
                             TileNumbers* t) {
  const FTag d;
  const ITag di;
  const FVec largest = hn::Set(d, std::bit_cast<float>(0x7F7FFFFFu));
  for (std::size_t i = 0; i < kTile; i += hn::Lanes(d)) {
    IVec byte;
    const FVec s = ScaleOf(hn::Mul(hn::Load(d, t->amax + i), hn::Set(d, cast.per_amax)), &byte);
    const FVec e = hn::Min(hn::Div(hn::Set(d, 1.0f), hn::Mul(s, hn::Set(d, cast.decode))), largest);
    IVec codes[2];
    for (std::size_t half = 0; half < 2; ++half) {
      IVec word = hn::Zero(di);
      IVec random = hn::Zero(di);
      // Element 7 first, so that the shifts are constants.
      for (std::size_t n = 8; n-- > 0;) {
        const std::size_t k = 8 * half + n;
        const FVec v = hn::Mul(hn::LoadU(d, x + k * stride + i), e);
        const FVec a = hn::Abs(v);
        IVec code;
        if constexpr (kStochastic) {
          if (n % 4 == 3) {
            random = hn::Load(di, reinterpret_cast<const std::int32_t*>(t->words[k / 4]) + i);
          }
          // The highest byte is the last element's.
          const IVec field = hn::BitCast(
              di, hn::ShiftRight<24>(hn::BitCast(hn::RebindToUnsigned<FTag>(), random)));
          random = hn::ShiftLeft<8>(random);
          code = StochasticCodeOf(v, a, field);
        } else {
          code = CodeOf(v, a);
        }
        word = hn::Or(hn::ShiftLeft<4>(word), code);
      }
      codes[half] = word;
    }
    if (cast.nan_of_block) {
      const auto nan = hn::MaskFromVec(hn::Load(di, t->nan + i));
      const IVec all = hn::Set(di, 0x77777777);
      byte = hn::IfThenElse(nan, hn::Set(di, 0x7F), byte);
      codes[0] = hn::IfThenElse(nan, all, codes[0]);
      codes[1] = hn::IfThenElse(nan, all, codes[1]);
    }
    hn::Store(byte, di, t->scale + i);
    hn::Store(codes[0], di, reinterpret_cast<std::int32_t*>(t->low) + i);
    hn::Store(codes[1], di, reinterpret_cast<std::int32_t*>(t->high) + i);
  }
}

// Writes a tile: its lines from `line` on, at block `block` of each.
HWY_INLINE void WriteTile(const TeOutput& out, std::size_t length, std::size_t line,
                          std::size_t block, const TileNumbers& t) {
  for (std::size_t i = 0; i < kTile; ++i) {
    std::uint8_t* const to = out.codes + (line + i) * (length / 2) + block * (kTile / 2);
    const std::uint64_t codes = t.low[i] | std::uint64_t{t.high[i]} << 32;
    std::memcpy(to, &codes, sizeof(codes));
    out.scales[(line + i) * out.scale_stride + block] = static_cast<std::uint8_t>(t.scale[i]);
  }
}

HWY_INLINE void MakeTile(const TeJob& job, const TeCast& cast, const float* x, std::size_t stride,
                         std::size_t row, std::size_t col, TileNumbers* t) {
  TileAmaxes(x, stride, t);
  if (job.square) {
    std::fill(t->amax, t->amax + kTile, *std::max_element(t->amax, t->amax + kTile));
  }
  if (cast.stochastic) {
    DrawWords(cast, row, col, t);
    QuantizeTile<true>(cast, x, stride, t);
  } else {
    QuantizeTile<false>(cast, x, stride, t);
  }
  if (cast.columnwise) {
    WriteTile(cast.out, job.x.rows, col, row / kTile, *t);
  } else {
    WriteTile(cast.out, job.x.cols, row, col / kTile, *t);
  }
}

// to[r * kPieceCols + c] = x(row + r, col + c) for 16 rows.
HWY_INLINE void LoadBand(const TeMatrix& x, std::size_t row, std::size_t col, std::size_t cols,
                         float* HWY_RESTRICT to) {
  for (std::size_t r = 0; r < kTile; ++r) {
    const std::size_t at = (row + r) * x.cols + col;
    float* const line = to + r * kPieceCols;
    if (x.fp32 != nullptr) {
      std::memcpy(line, x.fp32 + at, cols * sizeof(float));
      continue;
    }
    auto* const words = reinterpret_cast<std::uint32_t*>(line);
    const std::uint16_t* const from = x.bf16 + at;
    for (std::size_t c = 0; c < cols; ++c) words[c] = std::uint32_t{from[c]} << 16;
  }
}

void QuantizePiece(const TeJob& job, std::size_t first_row, std::size_t first_col) {
  alignas(64) float band[kTile * kPieceCols], transformed[kTile * kPieceCols];
  alignas(64) float tile[kTile * kTile];
  TileNumbers numbers;
  const std::size_t end = std::min(job.x.rows, first_row + kPieceRows);
  const std::size_t cols = std::min(kPieceCols, job.x.cols - first_col);
  for (std::size_t row = first_row; row < end; row += kTile) {
    LoadBand(job.x, row, first_col, cols, band);
    for (std::size_t c = 0; job.rows.out.codes != nullptr && c < cols; c += kTile) {
      Transpose16x16(band + c, kPieceCols, tile, kTile);
      MakeTile(job, job.rows, tile, kTile, row, first_col + c, &numbers);
    }
    if (job.columns.out.codes == nullptr) continue;
    const float* lines = band;
    if (job.hadamard) {
      HadamardColumns(band, kPieceCols, cols, job.factors, transformed, kPieceCols);
      lines = transformed;
    }
    for (std::size_t c = 0; c < cols; c += kTile) {
      MakeTile(job, job.columns, lines + c, kPieceCols, row, first_col + c, &numbers);
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

HWY_EXPORT(QuantizePiece);

TeCast CastOf(const TeMatrix& x, const TeQuantization& call, bool columnwise) {
  const Dialect& dialect = TeDialect(call, columnwise);
  const TeOutput& out = columnwise ? call.columns : call.rows;
  const TensorScale tensor = TensorScaleOf(dialect, out.amax);
  return {.out = out,
          .launch = TeLaunchOf(x, call, columnwise),
          .seed = call.seed,
          .offset = call.offset,
          .per_amax = FoldedFactor(tensor.encode, TargetOf(dialect)),
          .decode = tensor.decode,
          .columnwise = columnwise,
          .stochastic = call.stochastic,
          .nan_of_block = call.hadamard && columnwise};
}

// Whether the kernels' arithmetic covers the tensor scale: NaN has no place in it.
bool IsOrdinary(const TeCast& cast) {
  return cast.out.codes == nullptr ||
         (cast.per_amax == cast.per_amax && cast.decode == cast.decode);
}

std::string_view WhyNotTiles(const TeRequest& request) {
  const bool ordinary = IsOrdinary(CastOf(request.x, request.call, false)) &&
                        IsOrdinary(CastOf(request.x, request.call, true));
  return ordinary ? std::string_view() : "a tensor scale that is NaN";
}

bool MakeByTiles(const TeRequest& request) {
  const TeMatrix& x = request.x;
  const TeQuantization& call = request.call;
  if (x.rows * x.cols == 0) return true;
  const TeJob job = {.x = x,
                     .square = call.square,
                     .hadamard = call.hadamard,
                     .factors = FactorsOf(MaskTransform(16, call.sign_mask)),
                     .rows = CastOf(x, call, false),
                     .columns = CastOf(x, call, true)};
  const std::size_t across = DivideUp(x.cols, kPieceCols);
  ParallelFor(DivideUp(x.rows, kPieceRows) * across, [&](std::size_t i) {
    HWY_DYNAMIC_DISPATCH(QuantizePiece)(job, i / across * kPieceRows, i % across * kPieceCols);
  });
  return true;
}

bool MakeByReference(const TeRequest& request) {
  reference::TeQuantize(request.x, request.call);
  return true;
}

using TeRow = Implementation<TeRequest>;
constexpr std::array kRows = {
    TeRow{"tiles", WhyNotTiles, MakeByTiles},
    TeRow{"reference", [](const TeRequest&) { return std::string_view(); }, MakeByReference},
};

constexpr std::size_t kAmaxCols = 1024;

}  // namespace

std::span<const TeRow> TeImplementations() { return kRows; }

void TeQuantize(const TeMatrix& x, const TeQuantization& call) {
  const IeeeArithmetic ieee;
  CheckTeQuantization(x, call);
  const TeRequest request{x, call};
  FirstThatCan(TeImplementations(), request)->make(request);  // the last row can make all
}

void TeAmaxes(const TeMatrix& x, std::uint32_t sign_mask, float* amax, float* transformed) {
  const IeeeArithmetic ieee;
  Expects(x.bf16 != nullptr || x.rows * x.cols == 0, "a BF16 matrix");
  Expects(transformed == nullptr || x.rows % kTile == 0, "rows are a multiple of 16");
  const HadamardFactors factors = FactorsOf(MaskTransform(16, sign_mask));
  const std::size_t across = DivideUp(x.cols, kAmaxCols), bands = DivideUp(x.rows, kTile);
  std::vector<float> of_x(bands * across), of_y(bands * across);
  ParallelFor(of_x.size(), [&](std::size_t i) {
    alignas(64) float band[kTile * kAmaxCols];
    const std::size_t row = i / across * kTile, col = i % across * kAmaxCols;
    const std::size_t rows = std::min(kTile, x.rows - row),
                      cols = std::min(kAmaxCols, x.cols - col);
    for (std::size_t r = 0; r < rows; ++r) {
      auto* const words = reinterpret_cast<std::uint32_t*>(band + r * kAmaxCols);
      const std::uint16_t* const from = x.bf16 + (row + r) * x.cols + col;
      for (std::size_t c = 0; c < cols; ++c) words[c] = std::uint32_t{from[c]} << 16;
    }
    if (amax != nullptr) {
      of_x[i] = TensorAmax(MatrixView<const float>(band, rows, cols, kAmaxCols, 1));
    }
    if (transformed != nullptr) of_y[i] = HadamardColumnsAmax(band, kAmaxCols, cols, factors);
  });
  if (amax != nullptr) *amax = 0.0f;
  if (transformed != nullptr) *transformed = 0.0f;
  for (std::size_t i = 0; i < of_x.size(); ++i) {
    if (amax != nullptr) *amax = std::max(*amax, of_x[i]);
    if (transformed != nullptr) *transformed = std::max(*transformed, of_y[i]);
  }
}

}  // namespace fp4lab
#endif  // HWY_ONCE
