// QuantizeAs for any dialect: maxima and elements in vectors, a block's few numbers by the
// constexpr functions of its stages.
#include "fp4lab/dialect/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "fp4lab/base/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/dialect/blocks.h"
#include "fp4lab/dialect/block_tables.h"
#include "fp4lab/dialect/stages.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/dialect/quantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include "fp4lab/block/rows-inl.h"
#include "fp4lab/dialect/block_stage-inl.h"
#include "fp4lab/dialect/element_stage-inl.h"

#ifndef FP4LAB_DIALECT_QUANTIZE_CC_
#define FP4LAB_DIALECT_QUANTIZE_CC_
namespace fp4lab {
namespace {

// One call. Its work is cut into groups of bands (the rows of a block) and chunks of columns (whole
// blocks); neither depends on the number of threads.
struct QuantizeJob {
  const Dialect& dialect;
  MatrixView<const float> x;
  std::span<const std::uint16_t> random;  // empty: none
  BlockGrid grid;
  ElementConstants element;
  ScaleTables scale;
  std::array<float, 256> values = {};        // of the element's codes
  std::size_t chunk = 0;                     // columns
  std::size_t group = 0;                     // bands
};

constexpr std::size_t kSpare = 64;  // room for a vector behind an array

// The numbers of a band's blocks: four over six has two candidates.
struct Candidate {
  std::vector<float> scale, factor;  // by block
  std::vector<std::uint8_t> byte;
  std::vector<float> column_scale, column_factor;  // by column
  std::vector<float> errors;                       // by line and block, of four over six

  Candidate(const QuantizeJob& job, bool has_errors)
      : scale(job.chunk + kSpare),
        factor(job.chunk + kSpare),
        byte(job.chunk + kSpare),
        column_scale(job.chunk + kSpare),
        column_factor(job.chunk + kSpare),
        errors(has_errors ? job.grid.block_rows * job.chunk + kSpare : 0) {}
};

// A thread's arrays.
struct QuantizeBuffers {
  std::vector<float> tile;                // a group's part of a chunk, rows without gaps
  std::vector<std::int32_t> maxima;       // bits of magnitudes, by column
  std::vector<float> amax, scale_before;  // by block
  std::vector<float> line;                // errors of a row's elements
  std::vector<std::uint8_t> codes;        // of a row
  std::vector<std::uint16_t> zeros;       // for a row's random bits
  Candidate six, four;

  explicit QuantizeBuffers(const QuantizeJob& job)
      : tile(HasUnitRows(job.x) ? 0 : job.group * job.grid.block_rows * job.chunk + kSpare),
        maxima(job.chunk + kSpare),
        amax(job.chunk + kSpare),
        scale_before(job.chunk + kSpare),
        line(job.chunk + kSpare),
        codes(job.chunk + kSpare),
        zeros(job.chunk + kSpare),
        six(job, job.dialect.adaptive != Adaptive::kNo),
        four(six) {}
};

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_DIALECT_QUANTIZE_CC_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

// to(r, c) = from(r, c): rows of unit stride from any view.
void CopyTile(MatrixView<const float> from, MatrixView<float> to) {
  for (std::size_t r = 0; r < from.rows; r += 16) {
    const std::size_t rows = std::min<std::size_t>(16, from.rows - r);
    for (std::size_t c = 0; c < from.cols; ++c) {
      for (std::size_t k = 0; k < rows; ++k) to(r + k, c) = from(r + k, c);
    }
  }
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
  const bool keeps_nan = job.dialect.nan != NanRule::kElement;
  for (std::size_t j = 0; j < blocks; ++j) {
    const std::size_t col = j * width, end = std::min(col + width, x.cols);
    if (j < done && b->maxima[j] <= kInfBits) {
      b->amax[j] = std::bit_cast<float>(b->maxima[j]);
    } else {
      b->amax[j] = MaxMagnitudeOf({x.data + col, x.rows, end - col, x.stride, 1}, keeps_nan);
    }
  }
}

// Whether blocks are whole vectors; else their numbers are spread over their columns.
bool HasWholeVectors(const QuantizeJob& job) {
  return job.grid.block_cols % hn::Lanes(DF()) == 0;
}

void SpreadOverColumns(const QuantizeJob& job, std::size_t cols, Candidate* c) {
  for (std::size_t i = 0; i < cols; ++i) {
    c->column_factor[i] = c->factor[i / job.grid.block_cols];
    c->column_scale[i] = c->scale[i / job.grid.block_cols];
  }
}

// The numbers of a band's blocks for `raise` times t.
void FindCandidate(const QuantizeJob& job, const Level& level, float raise, std::size_t blocks,
                   std::size_t cols, QuantizeBuffers* b, Candidate* c) {
  FindNumbers(job.dialect, level, job.scale, raise, blocks,
              {b->amax.data(), b->scale_before.data(), c->scale.data(), c->factor.data(),
               c->byte.data()});
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
               const std::uint16_t* random, std::size_t cols, const Candidate& c,
               std::uint8_t* codes) {
  const ElementRow row = ElementsUnder(job, level);
  const ByBlock by_block{c.factor.data(), c.scale.data(), job.grid.block_cols};
  const ByColumn by_column{c.column_factor.data(), c.column_scale.data()};
  WithConstant<Scaling::kTwoSteps>(ScalingOf(job.dialect.factor), [&](auto scaling) HWY_ATTR {
    WithConstant<kLastRoundingInLanes>(job.dialect.rounding, [&](auto how) HWY_ATTR {
      constexpr Scaling kScaling = decltype(scaling)::value;
      constexpr ElementRounding kRounding = decltype(how)::value;
      if (HasWholeVectors(job)) {
        CodesOfRow<kScaling, kRounding>(row, x, by_block, random, cols, codes);
      } else {
        CodesOfRow<kScaling, kRounding>(row, x, by_column, random, cols, codes);
      }
    });
  });
}

// AdaptiveElementError in lanes.
HWY_INLINE VF ErrorLanes(const Dialect& d, const Level& level, VF x, VF value, VF scale) {
  const DF df;
  const VF product = hn::Mul(value, scale);
  VF difference;
  if (d.adaptive_fp16) {
    difference = hn::Sub(product, hn::Mul(x, hn::Set(df, level.encode)));
  } else {
    const VF constant = hn::Set(df, LevelTwoConstant(d));
    difference = hn::Sub(hn::Div(hn::Mul(product, hn::Set(df, level.amax)), constant), x);
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
  for (std::size_t i = 0; i < cols; i += lanes) {
    const VF s = whole ? hn::Set(df, c.scale[i / width]) : hn::LoadU(df, &c.column_scale[i]);
    const VI code = hn::PromoteTo(di, hn::LoadU(d8, &b->codes[i]));
    const VF value = hn::GatherIndex(df, job.values.data(), code);
    const VF element = i + lanes <= cols ? hn::LoadU(df, x + i) : LoadPart(x + i, cols - i);
    hn::StoreU(ErrorLanes(d, level, element, value, s), df, &b->line[i]);
  }
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
      const VF error = hn::GatherIndex(df, line + j * width + k, places);
      sum = d.adaptive == Adaptive::kAbsMax
                ? hn::IfThenElse(hn::Lt(sum, error), error, sum)
                : hn::Add(sum, error);
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

// The errors of a candidate by line and block; lines that a block lacks are 0.
void FindErrors(const QuantizeJob& job, const Level& level, const Tile& x, std::size_t blocks,
                QuantizeBuffers* b, Candidate* c) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    FindCodes(job, level, row, b->zeros.data(), x.cols, *c, b->codes.data());
    FindErrorsOfRow(job, level, row, x.cols, *c, b);
    SumLines(job, blocks, x.cols, b->line.data(), c->errors.data() + r * job.chunk);
  }
  std::fill(c->errors.begin() + static_cast<std::ptrdiff_t>(x.rows * job.chunk),
            c->errors.begin() + static_cast<std::ptrdiff_t>(job.grid.block_rows * job.chunk), 0.0f);
}

float BlockErrorOf(const QuantizeJob& job, const Candidate& c, std::size_t block) {
  float lines[kMostAdaptiveLines] = {};
  for (std::size_t r = 0; r < job.grid.block_rows; ++r) {
    lines[r] = c.errors[r * job.chunk + block];
  }
  return CombinedLines(job.dialect, lines);
}

// Puts the numbers of `four` into those blocks of `six` that are better off so.
void ChooseCandidates(const QuantizeJob& job, const Level& level, const Tile& x,
                      std::size_t blocks, QuantizeBuffers* b) {
  FindCandidate(job, level, 1.5f, blocks, x.cols, b, &b->four);
  FindErrors(job, level, x, blocks, b, &b->six);
  FindErrors(job, level, x, blocks, b, &b->four);
  for (std::size_t j = 0; j < blocks; ++j) {
    if (!(BlockErrorOf(job, b->four, j) < BlockErrorOf(job, b->six, j))) continue;
    b->six.byte[j] = b->four.byte[j];
    b->six.factor[j] = b->four.factor[j];
    b->six.scale[j] = b->four.scale[j];
  }
  if (!HasWholeVectors(job)) SpreadOverColumns(job, x.cols, &b->six);
}

// A band's part of one chunk: its scale bytes and codes.
void QuantizeBand(const QuantizeJob& job, const Tile& x, std::size_t band, std::size_t col,
                  QuantizeBuffers* b, Quantized* q) {
  const std::size_t row = band * job.grid.block_rows;
  const std::size_t blocks = (x.cols + job.grid.block_cols - 1) / job.grid.block_cols;
  const Level level = LevelOfRow(job.dialect, q->amax, row);
  FindMaxima(job, x, blocks, b);
  FindScalesBefore(job.dialect, level, blocks, {b->amax.data(), b->scale_before.data()});
  FindCandidate(job, level, 1.0f, blocks, x.cols, b, &b->six);
  if (job.dialect.adaptive != Adaptive::kNo) ChooseCandidates(job, level, x, blocks, b);
  if (job.grid.stores_scales) {
    std::copy_n(b->six.byte.data(), blocks,
                q->scales.data() + band * job.grid.cols + col / job.grid.block_cols);
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    const std::size_t at = (row + r) * q->cols + col;
    FindCodes(job, level, x.data + r * x.stride,
              job.random.empty() ? b->zeros.data() : job.random.data() + at, x.cols, b->six,
              q->codes.data() + at);
  }
}

bool CanRound(ElementRounding rounding) { return IsInLanes(rounding); }

void QuantizeGroup(const QuantizeJob& job, std::size_t group, Quantized* q) {
  QuantizeBuffers buffers(job);
  const MatrixView<const float>& x = job.x;
  const std::size_t height = job.grid.block_rows, first = group * job.group;
  const std::size_t last = std::min(first + job.group, job.grid.rows);
  const std::size_t top = first * height, bottom = std::min(last * height, x.rows);
  for (std::size_t col = 0; col < x.cols; col += job.chunk) {
    const std::size_t cols = std::min(job.chunk, x.cols - col);
    MatrixView<const float> part = x.Block(top, col, bottom - top, cols);
    if (!buffers.tile.empty()) {
      const MatrixView<float> tile(buffers.tile.data(), part.rows, cols, job.chunk, 1);
      CopyTile(part, tile);
      part = tile;
    }
    for (std::size_t band = first; band < last; ++band) {
      const std::size_t r = band * height - top, rows = std::min(height, part.rows - r);
      QuantizeBand(job, {&part(r, 0), part.row_stride, rows, cols}, band, col, &buffers, q);
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

HWY_EXPORT(QuantizeGroup);
HWY_EXPORT(CanRound);

QuantizeJob JobOf(const Dialect& d, MatrixView<const float> x, const DialectOptions& options) {
  QuantizeJob job{.dialect = d,
                  .x = x,
                  .random = IsStochastic(d) ? options.random : decltype(options.random){},
                  .grid = BlockGrid(d, x.rows, x.cols),
                  .element = ElementConstantsOf(d.element),
                  .scale = {.constants = ElementConstantsOf(d.scale)}};
  const std::uint32_t codes = 1u << FormatOf(d.element).bits;
  for (std::uint32_t code = 0; code < 256; ++code) {
    job.values[code] = Decode(d.element, code % codes);
    job.scale.values[code] = ScaleValueOf(d, static_cast<std::uint8_t>(code));
  }
  constexpr std::size_t kColumns = 512, kElements = 32768;
  if (!job.grid.stores_scales) job.grid.block_cols = kColumns;  // any cut will do
  job.chunk = std::max<std::size_t>(kColumns / job.grid.block_cols, 1) * job.grid.block_cols;
  const std::size_t band = job.grid.block_rows * std::max<std::size_t>(x.cols, 1);
  const std::size_t least = HasUnitRows(x) ? 1 : (15 + job.grid.block_rows) / job.grid.block_rows;
  job.group = std::max(least, kElements / band);
  return job;
}

}  // namespace

Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options) {
  CheckOptions(dialect, x, options);
  Expects(HWY_DYNAMIC_DISPATCH(CanRound)(dialect.rounding), "a rounding that the kernels have");
  const QuantizeJob job = JobOf(dialect, x, options);
  Quantized q{.rows = x.rows, .cols = x.cols};
  q.codes.resize(x.size());
  if (job.grid.stores_scales) {
    q.scale_rows = job.grid.rows;
    q.scale_cols = job.grid.cols;
    q.scales.resize(q.scale_rows * q.scale_cols);
  }
  q.amax = LevelTwoAmax(dialect, x, options);
  if (x.size() == 0) return q;
  ParallelFor((job.grid.rows + job.group - 1) / job.group, [&](std::size_t group) {
    HWY_DYNAMIC_DISPATCH(QuantizeGroup)(job, group, &q);
  });
  return q;
}

}  // namespace fp4lab
#endif  // HWY_ONCE
