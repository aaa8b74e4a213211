// QuantizeAs for any dialect: maxima and elements in vectors, a block's few numbers by the
// constexpr functions of its stages.
#include "fp4lab/dialect/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/dialect/block_tables.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/ms_eden.h"
#include "fp4lab/dialect/outputs.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/dialect/statistic.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/dialect/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/base/transpose-inl.h"
#include "fp4lab/block/rows-inl.h"
#include "fp4lab/dialect/block_stage-inl.h"
#include "fp4lab/dialect/element_stage-inl.h"
#include "fp4lab/dialect/fp4_codes-inl.h"
#include "fp4lab/dialect/fp8_codes-inl.h"

#ifndef FP4LAB_DIALECT_QUANTIZE_CC_
#define FP4LAB_DIALECT_QUANTIZE_CC_
namespace fp4lab {
namespace {

constexpr std::size_t kSpare = 64;  // room for a vector behind an array

// One call. Its work is cut into groups of bands (the rows of a block) and chunks of columns (whole
// blocks); neither depends on the number of threads.
struct QuantizeJob {
  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;
  const std::vector<float>& amax;
  const QuantizeOutputs& out;
  BlockGrid grid;
  ElementConstants element;
  ScaleTables scale;
  std::array<float, 256> values = {};          // of the element's codes
  bool is_four_bits = false;                   // the element's codes
  std::array<std::uint8_t, 16> integers = {};  // of those: 12 + 2 * value
  std::size_t chunk = 0;                       // columns
  std::size_t group = 0;                       // bands
  bool joins_rows = false;                     // the bands of a group make one

  std::size_t BlocksOfChunk() const { return chunk / grid.block_cols; }
  // Numbers of a line of blocks, with a vector to spare.
  std::size_t LineStride() const { return BlocksOfChunk() + kSpare; }
  // Blocks are whole vectors on every target; else numbers are wanted by column, too.
  bool HasWholeVectors() const { return grid.block_cols % 16 == 0; }
  // Something is made of a row's codes.
  bool ReadsCodes() const {
    return out.values.data != nullptr || out.integers.data != nullptr ||
           dialect.unbias != Unbias::kNone;
  }
  std::size_t TileStride() const { return (chunk + 15) / 16 * 16; }
  std::size_t TileSize() const { return group * grid.block_rows * TileStride() + kSpare; }
};

// The numbers of a band's blocks: four over six has two candidates.
struct Candidate {
  std::vector<float> scale, factor;  // by block
  std::vector<std::uint8_t> byte;
  std::vector<float> column_scale, column_factor;  // by column
  std::vector<float> errors;                       // by line and block, of four over six

  explicit Candidate(const QuantizeJob& job)
      : scale(job.LineStride()),
        factor(job.LineStride()),
        byte(job.LineStride()),
        column_scale(job.HasWholeVectors() ? 0 : job.chunk + kSpare),
        column_factor(column_scale),
        errors(job.dialect.adaptive == Adaptive::kNo ? 0 : job.grid.block_rows * job.LineStride()) {
  }
};

// A thread's arrays.
struct QuantizeBuffers {
  FloatBuffer tile;                       // a group's part of a chunk, rows without gaps
  FloatBuffer values;                     // the same of its values, where those lie otherwise
  std::vector<std::int32_t> maxima;       // bits of magnitudes, by block or column
  std::vector<float> amax, scale_before;  // by block
  std::vector<float> line;                // errors of a row's elements
  std::vector<std::uint8_t> codes;        // of a row
  std::vector<std::uint16_t> fields;      // of a row's random bits
  std::vector<std::uint32_t> random;      // the same, one an element; zeros where none are wanted
  Candidate six;
  std::optional<Candidate> four;

  explicit QuantizeBuffers(const QuantizeJob& job)
      : tile(HasUnitRows(job.x) ? 0 : job.TileSize()),
        values(job.out.values.data == nullptr || HasUnitRows(job.out.values) ? 0 : job.TileSize()),
        maxima(job.HasWholeVectors() ? job.LineStride() : job.chunk + kSpare),
        amax(job.LineStride()),
        scale_before(job.LineStride()),
        line(job.dialect.adaptive == Adaptive::kNo ? 0 : job.chunk + kSpare),
        codes(job.chunk + kSpare),
        fields(IsStochastic(job.dialect) ? 2 * job.chunk + 512 : 0),
        random(job.chunk + kSpare),
        six(job),
        four(job.dialect.adaptive == Adaptive::kNo ? std::nullopt : std::optional(six)) {}
};

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_DIALECT_QUANTIZE_CC_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

// to(r, c) = from(r, c), any strides, in tiles that caches like.
void CopyPart(MatrixView<const float> from, MatrixView<float> to) {
  for (std::size_t r = 0; r < from.rows; r += 16) {
    const std::size_t rows = std::min<std::size_t>(16, from.rows - r);
    for (std::size_t c = 0; c < from.cols; ++c) {
      for (std::size_t k = 0; k < rows; ++k) to(r + k, c) = from(r + k, c);
    }
  }
}

// The same to rows of whole vectors, aligned.
void CopyTile(MatrixView<const float> from, MatrixView<float> to) {
  const std::size_t rows = from.row_stride == 1 ? from.rows / 16 * 16 : 0;
  const std::size_t cols = from.cols / 16 * 16;
  for (std::size_t r = 0; r < rows; r += 16) {
    for (std::size_t c = 0; c < cols; c += 16) {
      Transpose16x16(&from(r, c), from.col_stride, &to(r, c), to.row_stride);
    }
  }
  CopyPart(from.Block(0, cols, rows, from.cols - cols), to.Block(0, cols, rows, from.cols - cols));
  CopyPart(from.Block(rows, 0, from.rows - rows, from.cols),
           to.Block(rows, 0, from.rows - rows, from.cols));
}

// The largest magnitude of each block of a band: NaN left out, or making it NaN.
void FindMaxima(const QuantizeJob& job, const Tile& x, std::size_t blocks, QuantizeBuffers* b) {
  const DI di;
  const std::size_t width = job.grid.block_cols;
  std::size_t done = 0;
  if (width % hn::Lanes(di) == 0) {
    done = FullBlockMaxes(x, width, b->maxima.data());
  } else {
    const std::size_t columns = FullColumnMaxes(x, b->maxima.data());
    for (; (done + 1) * width <= columns; ++done) {
      std::int32_t max = 0;
      for (std::size_t c = 0; c < width; ++c) max = std::max(max, b->maxima[done * width + c]);
      b->maxima[done] = max;
    }
  }
  if (job.dialect.statistic != BlockStatistic::kAmax) {
    for (std::size_t j = 0; j < blocks; ++j) {
      const std::size_t col = j * job.grid.block_cols;
      const std::size_t cols = std::min(job.grid.block_cols, x.cols - col);
      b->amax[j] = StatisticOf(job.dialect, {x.data + col, x.rows, cols, x.stride, 1});
    }
    return;
  }
  const bool keeps_nan = job.dialect.nan != NanRule::kElement;
  std::size_t j = 0;
  for (; j + hn::Lanes(di) <= done; j += hn::Lanes(di)) {
    const VI bits = hn::LoadU(di, b->maxima.data() + j);
    if (!hn::AllFalse(di, hn::Gt(bits, hn::Set(di, kInfBits)))) break;
    hn::StoreU(Float(bits), DF(), b->amax.data() + j);
  }
  for (; j < blocks; ++j) {
    const std::size_t col = j * width, end = std::min(col + width, x.cols);
    if (j < done && b->maxima[j] <= kInfBits) {
      b->amax[j] = std::bit_cast<float>(b->maxima[j]);
    } else {
      b->amax[j] = MaxMagnitudeOf({x.data + col, x.rows, end - col, x.stride, 1}, keeps_nan);
    }
  }
}

// Whether blocks are whole vectors; else their numbers are spread over their columns.
bool HasWholeVectors(const QuantizeJob& job) { return job.grid.block_cols % hn::Lanes(DF()) == 0; }

void SpreadOverColumns(const QuantizeJob& job, std::size_t cols, Candidate* c) {
  for (std::size_t i = 0; i < cols; ++i) {
    c->column_factor[i] = c->factor[i / job.grid.block_cols];
    c->column_scale[i] = c->scale[i / job.grid.block_cols];
  }
}

// The numbers of a band's blocks for `raise` times t.
void FindCandidate(const QuantizeJob& job, const Level& level, float raise, std::size_t blocks,
                   std::size_t cols, QuantizeBuffers* b, Candidate* c) {
  FindNumbers(
      job.dialect, level, job.scale, raise, blocks,
      {b->amax.data(), b->scale_before.data(), c->scale.data(), c->factor.data(), c->byte.data()});
  if (!HasWholeVectors(job)) SpreadOverColumns(job, cols, c);
}

ElementRow ElementsUnder(const QuantizeJob& job, const Level& level) {
  const Dialect& d = job.dialect;
  const std::int32_t nan_code = d.rounding == ElementRounding::kTiesToLower
                                    ? 0  // no error is less than NaN
                                    : static_cast<std::int32_t>(job.element.nan_code);
  return {.element = job.element,
          .is_e2m1 = d.element == FormatId::kE2M1,
          .values = job.values.data(),
          .codes = std::size_t{1} << FormatOf(d.element).bits,
          .zero = d.keeps_negative_zero ? -0.0f : 0.0f,
          .nan_code = d.nan_code >= 0 ? d.nan_code : nan_code,
          .never_negative_zero = d.never_negative_zero,
          .decode = level.decode};
}

// `random`: one field an element.
void FindCodes(const QuantizeJob& job, const Level& level, const float* x,
               const std::uint32_t* random, std::size_t cols, const Candidate& c,
               std::uint8_t* codes) {
  const ElementRow row = ElementsUnder(job, level);
  const ByBlock by_block{c.factor.data(), c.scale.data(), job.grid.block_cols};
  const ByColumn by_column{c.column_factor.data(), c.column_scale.data()};
  WithConstant<Scaling::kTwoSteps>(ScalingOf(job.dialect.factor), [&](auto scaling) HWY_ATTR {
    WithConstant<kLastRoundingInLanes>(job.dialect.rounding, [&](auto how) HWY_ATTR {
      constexpr Scaling kScaling = decltype(scaling)::value;
      constexpr ElementRounding kRounding = decltype(how)::value;
      if (HasWholeVectors(job)) {
        if constexpr (HasFastFp4Codes(kRounding)) {
          if (FastFp4Codes<kScaling, kRounding>(row, job.dialect.keeps_negative_zero, x, by_block,
                                                cols, codes)) {
            return;
          }
        }
        if constexpr (HasFastFp8Codes<kScaling, kRounding>()) {
          if (FastFp8Codes(row, x, by_block, cols, codes)) return;
        }
        CodesOfRow<kScaling, kRounding>(row, x, by_block, random, cols, codes);
      } else {
        CodesOfRow<kScaling, kRounding>(row, x, by_column, random, cols, codes);
      }
    });
  });
}

// The values of a vector of codes.
HWY_INLINE VF ValuesOfCodes(const QuantizeJob& job, VI code) {
  const DF df;
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(df) >= 8) {
    if (job.is_four_bits) {  // a sign and eight magnitudes
      const VI magnitude = hn::And(code, hn::Set(DI(), 7));
      const VF values =
          hn::TableLookupLanes(hn::LoadU(df, job.values.data()), hn::IndicesFromVec(df, magnitude));
      return Float(hn::Or(Bits(values), hn::ShiftLeft<31>(hn::ShiftRight<3>(code))));
    }
  }
#endif
  return hn::GatherIndex(df, job.values.data(), code);
}

// By the processor, any numbers.
struct ExactDivision {
  VF c;
  HWY_INLINE VF operator()(VF a) const { return hn::Div(a, c); }
};
// AdaptiveElementError in lanes.
template <class Division>
HWY_INLINE VF ErrorLanes(const Dialect& d, const Level& level, const Division& over_constant, VF x,
                         VF value, VF scale) {
  const DF df;
  const VF product = hn::Mul(value, scale);
  VF difference;
  if (d.adaptive_fp16) {
    difference = hn::Sub(product, hn::Mul(x, hn::Set(df, level.encode)));
  } else {
    difference = hn::Sub(over_constant(hn::Mul(product, hn::Set(df, level.amax))), x);
  }
  return d.adaptive == Adaptive::kMse ? hn::Mul(difference, difference) : hn::Abs(difference);
}

// The errors of a row's elements under a candidate, b->line, from its codes.
void FindErrorsOfRow(const QuantizeJob& job, const Level& level, const float* x, std::size_t cols,
                     const Candidate& c, QuantizeBuffers* b) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const Dialect d = job.dialect;
  const std::size_t lanes = hn::Lanes(df), width = job.grid.block_cols;
  const bool whole = HasWholeVectors(job);
  const ExactDivision division{hn::Set(df, LevelTwoConstant(d))};
  for (std::size_t i = 0; i < cols; i += lanes) {
    const VF s = whole ? hn::Set(df, c.scale[i / width]) : hn::LoadU(df, &c.column_scale[i]);
    const VI code = hn::PromoteTo(di, hn::LoadU(d8, &b->codes[i]));
    const VF value = ValuesOfCodes(job, code);
    const VF element = i + lanes <= cols ? hn::LoadU(df, x + i) : LoadPart(x + i, cols - i);
    hn::StoreU(ErrorLanes(d, level, division, element, value, s), df, &b->line[i]);
  }
}

// CombinedError.
HWY_INLINE VF Combined(const Dialect& d, VF sum, VF error) {
  return d.adaptive == Adaptive::kAbsMax ? hn::IfThenElse(hn::Lt(sum, error), error, sum)
                                         : hn::Add(sum, error);
}

// sums[j]: the errors of block j's line, combined in order.
void SumLines(const QuantizeJob& job, std::size_t blocks, std::size_t cols, const float* line,
              float* sums) {
  const DF df;
  const DI di;
  const Dialect d = job.dialect;
  const std::size_t width = job.grid.block_cols;
  std::size_t j = 0;
  const VI places = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int>(width)));
  for (; (j + hn::Lanes(df)) * width <= cols; j += hn::Lanes(df)) {
    VF sum = hn::Zero(df);
    for (std::size_t k = 0; k < width; ++k) {
      sum = Combined(d, sum, hn::GatherIndex(df, line + j * width + k, places));
    }
    hn::StoreU(sum, df, sums + j);
  }
  for (; j < blocks; ++j) {
    sums[j] = 0.0f;
    for (std::size_t i = j * width; i < std::min((j + 1) * width, cols); ++i) {
      sums[j] = CombinedError(d, sums[j], line[i]);
    }
  }
}

// Whether ErrorsOfE2m1 has the errors of the job's rows: wholly of blocks of 16, on targets whose
// multiply-add is fused.
bool HasErrorsOfE2m1(const QuantizeJob& job, std::size_t cols) {
  const Dialect& d = job.dialect;
  const Scaling scaling = ScalingOf(d.factor);
  return HWY_NATIVE_FMA && d.element == FormatId::kE2M1 && job.grid.block_cols == 16 &&
         cols % 16 == 0 && d.rounding == ElementRounding::kNearestEven &&
         (scaling == Scaling::kMultiply || scaling == Scaling::kZeroWhereZero);
}

// The sums of errors of a vector of blocks of 16 columns, turned so that a block is a lane, without
// codes: the sign of a zero makes no error.
template <class Division>
HWY_INLINE VF SumsOfE2m1(const QuantizeJob& job, const Level& level, const Division& division,
                         const float* turned, VF factor, VF scale) {
  const DF df;
  const Dialect d = job.dialect;
  const ElementConstants e = job.element;
  VF sum = hn::Zero(df);
  for (std::size_t k = 0; k < 16; ++k) {
    const VF element = hn::Load(df, turned + 16 * k), v = hn::Mul(element, factor);
    const VF magnitude = RoundNearest(e, hn::Min(hn::Abs(v), hn::Set(df, e.max)));
    const VF value =
        hn::IfThenElse(hn::IsNaN(v), hn::Set(df, e.nan), hn::CopySignToAbs(magnitude, v));
    sum = Combined(d, sum, ErrorLanes(d, level, division, element, value, scale));
  }
  return sum;
}

// Those of row r under both candidates.
void ErrorsOfE2m1(const QuantizeJob& job, const Level& level, const float* x, std::size_t cols,
                  std::size_t r, Candidate* six, Candidate* four) {
  const DF df;
  const float constant = LevelTwoConstant(job.dialect);
  const ExactDivision exact{hn::Set(df, constant)};
  const DivisionByReciprocal fast(hn::Set(df, constant));
  const bool has_theorem = (std::bit_cast<std::uint32_t>(constant) & 0x7FFFFFu) != 0x7FFFFFu &&
                           constant >= 1.0f && constant <= 0x1p20f;
  HWY_ALIGN float turned[16 * 16], last[16 * 16] = {};
  for (std::size_t c = 0; c < cols; c += 16 * 16) {
    const float* from = x + c;
    if (c + 16 * 16 > cols) {
      std::copy_n(from, cols - c, last);
      from = last;
    }
    Transpose16x16(from, 16, turned, 16);
    for (std::size_t i = 0; i < 16; i += hn::Lanes(df)) {
      const std::size_t block = c / 16 + i;
      for (Candidate* const candidate : {six, four}) {
        const VF factor = hn::LoadU(df, &candidate->factor[block]);
        const VF scale = hn::LoadU(df, &candidate->scale[block]);
        // What is divided is 0 or 1/2 to 6 times this.
        const VF unit = hn::Mul(scale, hn::Set(df, level.amax));
        const auto moderate =
            hn::And(hn::Ge(unit, hn::Set(df, 0x1p-80f)), hn::Le(unit, hn::Set(df, 0x1p100f)));
        const bool by_reciprocal =
            has_theorem && hn::AllTrue(df, hn::Or(moderate, hn::Eq(scale, hn::Zero(df))));
        const VF sums = by_reciprocal ? SumsOfE2m1(job, level, fast, turned + i, factor, scale)
                                      : SumsOfE2m1(job, level, exact, turned + i, factor, scale);
        hn::StoreU(sums, df, &candidate->errors[r * job.LineStride() + block]);
      }
    }
  }
}

// Lines that a block at the edge lacks have no error.
void ClearMissingLines(const QuantizeJob& job, std::size_t rows, Candidate* c) {
  std::fill(c->errors.begin() + static_cast<std::ptrdiff_t>(rows * job.LineStride()),
            c->errors.end(), 0.0f);
}

// The errors of a candidate by line and block; lines that a block lacks are 0.
void FindErrors(const QuantizeJob& job, const Level& level, const Tile& x, std::size_t blocks,
                QuantizeBuffers* b, Candidate* c) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    FindCodes(job, level, row, b->random.data(), x.cols, *c, b->codes.data());
    FindErrorsOfRow(job, level, row, x.cols, *c, b);
    SumLines(job, blocks, x.cols, b->line.data(), c->errors.data() + r * job.LineStride());
  }
  ClearMissingLines(job, x.rows, c);
}

// CombinedLines of a vector of blocks from block j on; overwrites lines.
HWY_INLINE VF BlockErrors(const QuantizeJob& job, std::size_t j, Candidate* c) {
  const DF df;
  const std::size_t lines = job.grid.block_rows, stride = job.LineStride();
  float* const errors = c->errors.data() + j;
  for (std::size_t half = std::bit_ceil(lines) / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i + half < std::min(lines, 2 * half); ++i) {
      const VF sum = Combined(job.dialect, hn::LoadU(df, errors + i * stride),
                              hn::LoadU(df, errors + (i + half) * stride));
      hn::StoreU(sum, df, errors + i * stride);
    }
  }
  return hn::LoadU(df, errors);
}

// Puts the numbers of `four` into those blocks of `six` that are better off so.
void ChooseCandidates(const QuantizeJob& job, const Level& level, const Tile& x, std::size_t blocks,
                      QuantizeBuffers* b) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  Candidate &six = b->six, &four = *b->four;
  FindCandidate(job, level, 1.5f, blocks, x.cols, b, &four);
  if (HasErrorsOfE2m1(job, x.cols)) {
    for (std::size_t r = 0; r < x.rows; ++r) {
      ErrorsOfE2m1(job, level, x.data + r * x.stride, x.cols, r, &six, &four);
    }
    ClearMissingLines(job, x.rows, &six);
    ClearMissingLines(job, x.rows, &four);
  } else {
    FindErrors(job, level, x, blocks, b, &six);
    FindErrors(job, level, x, blocks, b, &four);
  }
  const auto choose = [&](auto chosen, float* kept, const float* other) HWY_ATTR {
    hn::StoreU(hn::IfThenElse(chosen, hn::LoadU(df, other), hn::LoadU(df, kept)), df, kept);
  };
  for (std::size_t j = 0; j < blocks; j += hn::Lanes(df)) {
    const auto better = hn::Lt(BlockErrors(job, j, &four), BlockErrors(job, j, &six));
    choose(better, &six.factor[j], &four.factor[j]);
    choose(better, &six.scale[j], &four.scale[j]);
    const VI kept = hn::PromoteTo(di, hn::LoadU(d8, &six.byte[j]));
    const VI other = hn::PromoteTo(di, hn::LoadU(d8, &four.byte[j]));
    const VI byte = hn::IfThenElse(hn::RebindMask(di, better), other, kept);
    hn::StoreU(hn::DemoteTo(d8, byte), d8, &six.byte[j]);
  }
  if (!HasWholeVectors(job)) SpreadOverColumns(job, x.cols, &six);
}

// The bits of the row's elements from number `first` on, one word an element.
void FindRandomBits(const QuantizeJob& job, std::size_t first, std::size_t cols,
                    QuantizeBuffers* b) {
  const int bits = RandomBitsOf(job.dialect.rounding);
  std::uint32_t* const random = b->random.data();
  const auto expand = [&](const auto* fields, int drop) {
    for (std::size_t i = 0; i < cols; ++i)
      random[i] = static_cast<std::uint32_t>(fields[i] >> drop);
  };
  const std::optional<RandomSource>& source = job.options.source;
  if (!source || source->generator != RandomGenerator::kPhilox) {
    for (std::size_t i = 0; i < cols; ++i) {
      random[i] = RandomBitsAt(job.dialect, job.options, first + i, job.x.cols);
    }
    return;
  }
  const std::size_t bytes = bits == 32 ? 4 : bits == 16 ? 2 : 1, in_block = 16 / bytes;
  const std::size_t skipped = first % in_block;
  FillBlocks(source->stream, first / in_block, (skipped + cols + in_block - 1) / in_block,
             b->fields.data());
  const auto* const run = reinterpret_cast<const std::uint8_t*>(b->fields.data()) + skipped * bytes;
  if (bits == 32) return static_cast<void>(std::memcpy(random, run, 4 * cols));
  if (bits == 16) return expand(b->fields.data() + skipped, 0);
  expand(run, 8 - bits);
}

// values[i] of codes[i].
void FindValues(const QuantizeJob& job, const std::uint8_t* codes, std::size_t cols,
                const Candidate& c, float* values) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const std::size_t lanes = hn::Lanes(df), width = job.grid.block_cols;
  const bool whole = HasWholeVectors(job);
  for (std::size_t i = 0; i < cols; i += lanes) {
    const VF s = whole ? hn::Set(df, c.scale[i / width]) : hn::LoadU(df, &c.column_scale[i]);
    const VI code = hn::PromoteTo(di, hn::LoadU(d8, codes + i));
    const VF value = hn::Mul(ValuesOfCodes(job, code), s);
    if (i + lanes <= cols) {
      hn::StoreU(value, df, values + i);
    } else {
      StorePart(value, cols - i, values + i);
    }
  }
}

// integers[i] of codes[i], E2M1.
void FindIntegers(const QuantizeJob& job, const std::uint8_t* codes, std::size_t cols,
                  std::uint8_t* integers) {
  std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<std::uint8_t, 16> d8;
  const auto table = hn::LoadU(d8, job.integers.data());
  for (; i + hn::Lanes(d8) <= cols; i += hn::Lanes(d8)) {
    hn::StoreU(hn::TableLookupBytes(table, hn::LoadU(d8, codes + i)), d8, integers + i);
  }
#endif
  for (; i < cols; ++i) integers[i] = job.integers[codes[i]];
}

void StoreScales(const QuantizeJob& job, std::size_t band, std::size_t block, std::size_t blocks,
                 const Candidate& c) {
  if (!job.grid.stores_scales) return;
  if (job.out.scale_bytes != nullptr) {
    std::copy_n(c.byte.data(), blocks, job.out.scale_bytes + band * job.grid.cols + block);
  }
  if (job.out.scales.data == nullptr) return;
  for (std::size_t j = 0; j < blocks; ++j) job.out.scales(band, block + j) = c.scale[j];
}

// A row's part of one chunk, from (row, col) on; `values`: where its values go.
void QuantizeRow(const QuantizeJob& job, const Level& level, const float* x, std::size_t row,
                 std::size_t col, std::size_t cols, float* values, QuantizeBuffers* b) {
  const std::size_t at = row * job.x.cols + col;
  if (IsStochastic(job.dialect)) FindRandomBits(job, at, cols, b);
  std::uint8_t* const codes = job.out.codes != nullptr ? job.out.codes + at : b->codes.data();
  FindCodes(job, level, x, b->random.data(), cols, b->six, codes);
  // Others read codes by whole vectors.
  if (job.ReadsCodes() && codes != b->codes.data()) std::copy_n(codes, cols, b->codes.data());
  if (job.dialect.unbias == Unbias::kMsEden) {
    const std::size_t block = col / job.grid.block_cols;
    CorrectScales(job.dialect, level, job.options,
                  {.x = {x, cols},
                   .codes = {b->codes.data(), cols},
                   .block_cols = job.grid.block_cols,
                   .first_block = row * job.grid.cols + block,
                   .bytes = b->six.byte.data(),
                   .scales = b->six.scale.data()});
    if (!HasWholeVectors(job)) SpreadOverColumns(job, cols, &b->six);
  }
  if (values != nullptr) FindValues(job, b->codes.data(), cols, b->six, values);
  if (job.out.integers.data != nullptr) {
    FindIntegers(job, b->codes.data(), cols, &job.out.integers(row, col));
  }
}

// A band's part of one chunk.
void QuantizeBand(const QuantizeJob& job, const Tile& x, std::size_t band, std::size_t col,
                  MatrixView<float> values, QuantizeBuffers* b) {
  const std::size_t row = band * job.grid.block_rows;
  const std::size_t blocks = (x.cols + job.grid.block_cols - 1) / job.grid.block_cols;
  const Level level = LevelOfRow(job.dialect, job.amax, row);
  FindMaxima(job, x, blocks, b);
  FindScalesBefore(job.dialect, level, blocks, {b->amax.data(), b->scale_before.data()});
  FindCandidate(job, level, 1.0f, blocks, x.cols, b, &b->six);
  if (job.dialect.adaptive != Adaptive::kNo) {
    std::fill(b->random.begin(), b->random.end(), 0u);
    ChooseCandidates(job, level, x, blocks, b);
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    QuantizeRow(job, level, x.data + r * x.stride, row + r, col, x.cols,
                values.data == nullptr ? nullptr : &values(r, 0), b);
  }
  StoreScales(job, band, col / job.grid.block_cols, blocks, b->six);
}

bool CanRound(ElementRounding rounding) { return IsInLanes(rounding); }

// A group's bands, each a row of blocks and one after the other in memory, as one long row.
void QuantizeAsOneRow(const QuantizeJob& job, std::size_t first, std::size_t rows) {
  QuantizeBuffers buffers(job);
  const float* x = &job.x(first, 0);
  const std::size_t size = rows * job.x.cols;
  for (std::size_t i = 0; i < size; i += job.chunk) {
    const std::size_t cols = std::min(job.chunk, size - i);
    MatrixView<float> values;
    if (job.out.values.data != nullptr) values = {&job.out.values(first, 0) + i, 1, cols};
    QuantizeBand(job, {x + i, cols, 1, cols}, first, i, values, &buffers);
  }
}

void QuantizeGroup(const QuantizeJob& job, std::size_t group) {
  const MatrixView<const float>& x = job.x;
  const std::size_t height = job.grid.block_rows, first = group * job.group;
  const std::size_t last = std::min(first + job.group, job.grid.rows);
  if (job.joins_rows) return QuantizeAsOneRow(job, first, last - first);
  QuantizeBuffers buffers(job);
  const std::size_t top = first * height, bottom = std::min(last * height, x.rows);
  for (std::size_t col = 0; col < x.cols; col += job.chunk) {
    const std::size_t cols = std::min(job.chunk, x.cols - col);
    MatrixView<const float> part = x.Block(top, col, bottom - top, cols);
    if (!buffers.tile.empty()) {
      const MatrixView<float> tile(buffers.tile.data(), part.rows, cols, job.TileStride(), 1);
      CopyTile(part, tile);
      part = tile;
    }
    MatrixView<float> out, values;
    if (job.out.values.data != nullptr) {
      out = values = job.out.values.Block(top, col, part.rows, cols);
      if (!buffers.values.empty()) {
        values = {buffers.values.data(), part.rows, cols, job.TileStride(), 1};
      }
    }
    for (std::size_t band = first; band < last; ++band) {
      const std::size_t r = band * height - top, rows = std::min(height, part.rows - r);
      QuantizeBand(job, {&part(r, 0), part.row_stride, rows, cols}, band, col,
                   values.data == nullptr ? values : values.Block(r, 0, rows, cols), &buffers);
    }
    if (!buffers.values.empty()) CopyPart(values, out);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(QuantizeGroup);
HWY_EXPORT(CanRound);

// Whether rows may be joined: they lie in memory without gaps, as whole blocks, and share all else.
bool JoinsRows(const Dialect& d, const BlockGrid& grid, MatrixView<const float> x,
               const QuantizeOutputs& out) {
  const auto lies_so = [](const auto& view) { return view.data == nullptr || view.IsRowMajor(); };
  return grid.block_rows == 1 && x.cols % grid.block_cols == 0 && x.IsRowMajor() &&
         lies_so(out.values) && lies_so(out.integers) && lies_so(out.scales) && !d.row_scaled &&
         d.unbias == Unbias::kNone;
}

ScaleConstants ExponentConstantsOf(const Dialect& d) {
  const BlockFormat format{d.element, FormatId::kE8M0, 1, 32, d.mx_rule};
  return MakePlan(1, 32, false, {.format = format}).scale;
}

QuantizeJob JobOf(const Dialect& d, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out) {
  QuantizeJob job{
      .dialect = d,
      .x = x,
      .options = options,
      .amax = amax,
      .out = out,
      .grid = BlockGrid(d, x.rows, x.cols),
      .element = ElementConstantsOf(d.element),
      .scale = {.constants = ElementConstantsOf(d.scale), .exponent = ExponentConstantsOf(d)}};
  const std::uint32_t codes = 1u << FormatOf(d.element).bits;
  for (std::uint32_t code = 0; code < 256; ++code) {
    job.values[code] = Decode(d.element, code % codes);
    job.scale.values[code] = ScaleValueOf(d, static_cast<std::uint8_t>(code));
  }
  job.is_four_bits = codes == job.integers.size();
  if (job.is_four_bits) {
    std::transform(job.values.begin(), job.values.begin() + codes, job.integers.begin(),
                   [](float v) { return static_cast<std::uint8_t>(12 + static_cast<int>(2 * v)); });
  }
  constexpr std::size_t kColumns = 1024, kElements = 32768;
  if (!job.grid.stores_scales) job.grid.block_cols = kColumns;  // any cut will do
  job.chunk = std::max<std::size_t>(kColumns / job.grid.block_cols, 1) * job.grid.block_cols;
  const std::size_t band = job.grid.block_rows * std::max<std::size_t>(x.cols, 1);
  const std::size_t least = HasUnitRows(x) ? 1 : (15 + job.grid.block_rows) / job.grid.block_rows;
  job.group = std::max(least, kElements / band);
  job.joins_rows = JoinsRows(d, job.grid, x, out);
  return job;
}

}  // namespace

void QuantizeInto(const Dialect& dialect, MatrixView<const float> x, const DialectOptions& options,
                  const std::vector<float>& amax, const QuantizeOutputs& out) {
  CheckOptions(dialect, x, options);
  Expects(HWY_DYNAMIC_DISPATCH(CanRound)(dialect.rounding), "a rounding that the kernels have");
  if (x.size() == 0) return;
  const QuantizeJob job = JobOf(dialect, x, options, amax, out);
  ParallelFor((job.grid.rows + job.group - 1) / job.group, [&](std::size_t group) {
    HWY_DYNAMIC_DISPATCH(QuantizeGroup)(job, group);
  });
}

Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options) {
  CheckOptions(dialect, x, options);
  const BlockGrid grid(dialect, x.rows, x.cols);
  Quantized q{.rows = x.rows, .cols = x.cols};
  ShapeQuantized(dialect, grid, &q);
  q.amax = LevelTwoAmax(dialect, x, options);
  QuantizeOutputs out{.codes = q.codes.data()};
  if (!q.scales.empty()) out.scale_bytes = q.scales.data();
  if (!q.scale_values.empty()) out.scales = {q.scale_values.data(), grid.rows, grid.cols};
  QuantizeInto(dialect, x, options, q.amax, out);
  return q;
}

}  // namespace fp4lab
#endif  // HWY_ONCE
