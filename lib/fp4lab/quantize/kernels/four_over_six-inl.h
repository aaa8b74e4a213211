// Four over six for a band: the errors of its blocks under both candidates, and the choice.
#if defined(FP4LAB_QUANTIZE_FOUR_OVER_SIX_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_FOUR_OVER_SIX_INL_H_
#undef FP4LAB_QUANTIZE_FOUR_OVER_SIX_INL_H_
#else
#define FP4LAB_QUANTIZE_FOUR_OVER_SIX_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/quantize/kernels/quantize_job.h"

#include <hwy/highway.h>

#include "fp4lab/base/simd/transpose-inl.h"
#include "fp4lab/block/kernels/rows-inl.h"
#include "fp4lab/quantize/kernels/band_numbers-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"
#include "fp4lab/quantize/kernels/row_codes-inl.h"
#include "fp4lab/quantize/kernels/row_outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Division by c, correctly rounded for any dividend.
struct ExactDivision {
  VF c;
  HWY_INLINE VF operator()(VF a) const { return hn::Div(a, c); }
};

// AdaptiveElementError in lanes.
template <class Division>
HWY_INLINE VF ErrorLanes(const Dialect& d, const TensorScale& tensor, const Division& over_constant,
                         VF x, VF value, VF scale) {
  const DF df;
  const VF product = hn::Mul(value, scale);
  VF difference;
  if (d.adaptive_fp16) {
    difference = hn::Sub(product, hn::Mul(x, hn::Set(df, tensor.encode)));
  } else if (d.adaptive_decode) {
    difference = hn::Sub(hn::Mul(product, hn::Set(df, tensor.decode)), x);
  } else {
    difference = hn::Sub(over_constant(hn::Mul(product, hn::Set(df, tensor.amax))), x);
  }
  return d.adaptive == Adaptive::kMse ? hn::Mul(difference, difference) : hn::Abs(difference);
}

// FindErrorsOfRow by definition, for elements that round beyond the numbers that have codes.
inline void FindErrorsOfOpenRow(const DialectJob& job, const TensorScale& tensor, const float* x,
                                std::size_t cols, const BandNumbers& c, float* line) {
  const std::size_t width = job.grid.block_cols;
  for (std::size_t i = 0; i < cols; ++i) {
    const BlockNumbers n{.scale = c.scale[i / width], .factor = c.factor[i / width]};
    line[i] = AdaptiveElementError(job.dialect, n, tensor, x[i]);
  }
}

// Finds the errors of a row's elements under a candidate from its codes, into b->line.
inline void FindErrorsOfRow(const DialectJob& job, const TensorScale& tensor, const float* x,
                            std::size_t cols, const BandNumbers& c, DialectBuffers* b) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const Dialect d = job.dialect;
  const std::size_t lanes = hn::Lanes(df), width = job.grid.block_cols;
  const bool whole = HasWholeVectors(job);
  const ExactDivision division{hn::Set(df, TensorScaleConstant(d))};
  for (std::size_t i = 0; i < cols; i += lanes) {
    const VF s = whole ? hn::Set(df, c.scale[i / width]) : hn::LoadU(df, &c.column_scale[i]);
    const VI code = hn::PromoteTo(di, hn::LoadU(d8, &b->codes[i]));
    const VF value = ValuesOfCodes(job, code);
    const VF element = i + lanes <= cols ? hn::LoadU(df, x + i) : LoadPart(x + i, cols - i);
    hn::StoreU(ErrorLanes(d, tensor, division, element, value, s), df, &b->line[i]);
  }
}

// CombinedError.
HWY_INLINE VF Combined(const Dialect& d, VF sum, VF error) {
  if (d.adaptive != Adaptive::kAbsMax) return hn::Add(sum, error);
  return hn::IfThenElse(hn::Or(hn::Lt(sum, error), hn::IsNaN(error)), error, sum);
}

// sums[j] = the errors of block j in `line`, combined in column order.
inline void SumLines(const DialectJob& job, std::size_t blocks, std::size_t cols, const float* line,
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

// Whether ErrorsOfE2m1 serves the job's rows: E2M1 in whole blocks of 16, on targets with a fused
// multiply-add.
inline bool HasErrorsOfE2m1(const DialectJob& job, std::size_t cols) {
  const Dialect& d = job.dialect;
  const ElementScaling scaling = ScalingOf(d.factor);
  return HWY_NATIVE_FMA && d.element == FormatId::kE2M1 && job.grid.block_cols == 16 &&
         cols % 16 == 0 &&
         (d.rounding == ElementRounding::kNearestEven ||
          d.rounding == ElementRounding::kNearestEvenOpen) &&
         (scaling == ElementScaling::kMultiply || scaling == ElementScaling::kZeroWhereZero);
}

// The sums of errors of a vector of blocks of 16 columns, transposed so that each lane is a block.
// Computed without codes, because the sign of a zero does not change the error.
template <class Division>
HWY_INLINE VF SumsOfE2m1(const DialectJob& job, const TensorScale& tensor, const Division& division,
                         const float* turned, VF factor, VF scale) {
  const DF df;
  const Dialect d = job.dialect;
  const ElementConstants e = job.element;
  const bool open = d.rounding == ElementRounding::kNearestEvenOpen;
  const VF most = hn::Set(df, open ? NextAfterLargest(FormatId::kE2M1) : e.max);
  const VF nan = open ? Float(hn::Set(DI(), 0x7FC00000)) : hn::Set(df, e.nan);
  VF sum = hn::Zero(df);
  for (std::size_t k = 0; k < 16; ++k) {
    const VF element = hn::Load(df, turned + 16 * k), v = hn::Mul(element, factor);
    const VF magnitude = RoundNearest(e, hn::Min(hn::Abs(v), most));
    const auto no_number = open ? hn::Not(hn::IsFinite(v)) : hn::IsNaN(v);
    const VF value = hn::IfThenElse(no_number, nan, hn::CopySignToAbs(magnitude, v));
    sum = Combined(d, sum, ErrorLanes(d, tensor, division, element, value, scale));
  }
  return sum;
}

// Finds the sums of errors of row r's blocks under both candidates.
inline void ErrorsOfE2m1(const DialectJob& job, const TensorScale& tensor, const float* x,
                         std::size_t cols, std::size_t r, BandNumbers* six, BandNumbers* four) {
  const DF df;
  const float constant = TensorScaleConstant(job.dialect);
  const ExactDivision exact{hn::Set(df, constant)};
  const DivisionByReciprocal fast(hn::Set(df, constant));
  // DivisionByReciprocal's condition on the divisor.
  const bool has_reciprocal = (std::bit_cast<std::uint32_t>(constant) & 0x7FFFFFu) != 0x7FFFFFu &&
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
      for (BandNumbers* const candidate : {six, four}) {
        const VF factor = hn::LoadU(df, &candidate->factor[block]);
        const VF scale = hn::LoadU(df, &candidate->scale[block]);
        // The dividends are 0 or between 1/2 and 6 times `unit`.
        const VF unit = hn::Mul(scale, hn::Set(df, tensor.amax));
        const auto moderate =
            hn::And(hn::Ge(unit, hn::Set(df, 0x1p-80f)), hn::Le(unit, hn::Set(df, 0x1p100f)));
        const bool by_reciprocal =
            has_reciprocal && hn::AllTrue(df, hn::Or(moderate, hn::Eq(scale, hn::Zero(df))));
        const VF sums = by_reciprocal ? SumsOfE2m1(job, tensor, fast, turned + i, factor, scale)
                                      : SumsOfE2m1(job, tensor, exact, turned + i, factor, scale);
        hn::StoreU(sums, df, &candidate->errors[r * job.LineStride() + block]);
      }
    }
  }
}

// Sets the errors of lines that a block at the edge lacks to 0.
inline void ClearMissingLines(const DialectJob& job, std::size_t rows, BandNumbers* c) {
  std::fill(c->errors.begin() + static_cast<std::ptrdiff_t>(rows * job.LineStride()),
            c->errors.end(), 0.0f);
}

// Finds the errors of a candidate by line and block; lines that a block lacks have error 0.
inline void FindErrors(const DialectJob& job, const TensorScale& tensor, const Tile& x,
                       std::size_t blocks, DialectBuffers* b, BandNumbers* c) {
  for (std::size_t r = 0; r < x.rows; ++r) {
    const float* row = x.data + r * x.stride;
    FindCodes(job, tensor, row, b->random.data(), x.cols, *c, b->codes.data());
    if (job.dialect.rounding == ElementRounding::kNearestEvenOpen) {
      FindErrorsOfOpenRow(job, tensor, row, x.cols, *c, b->line.data());
    } else {
      FindErrorsOfRow(job, tensor, row, x.cols, *c, b);
    }
    SumLines(job, blocks, x.cols, b->line.data(), c->errors.data() + r * job.LineStride());
  }
  ClearMissingLines(job, x.rows, c);
}

// CombinedLines for a vector of blocks from block j on; overwrites c->errors.
HWY_INLINE VF BlockErrors(const DialectJob& job, std::size_t j, BandNumbers* c) {
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

// Replaces the numbers in `six` by those in `four` for every block where `four` has the lesser
// error.
inline void ChooseCandidates(const DialectJob& job, const TensorScale& tensor, const Tile& x,
                             std::size_t blocks, DialectBuffers* b) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  BandNumbers &six = b->six, &four = *b->four;
  FindBandNumbers(job, tensor, 1.5f, blocks, x.cols, b, &four);
  if (HasErrorsOfE2m1(job, x.cols)) {
    for (std::size_t r = 0; r < x.rows; ++r) {
      ErrorsOfE2m1(job, tensor, x.data + r * x.stride, x.cols, r, &six, &four);
    }
    ClearMissingLines(job, x.rows, &six);
    ClearMissingLines(job, x.rows, &four);
  } else {
    FindErrors(job, tensor, x, blocks, b, &six);
    FindErrors(job, tensor, x, blocks, b, &four);
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

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_FOUR_OVER_SIX_INL_H_
