// The codes of a row's part of one chunk, and the random bits for their rounding.
#if defined(FP4LAB_QUANTIZE_ROW_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_ROW_CODES_INL_H_
#undef FP4LAB_QUANTIZE_ROW_CODES_INL_H_
#else
#define FP4LAB_QUANTIZE_ROW_CODES_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/kernels/quantize_job.h"

#include <hwy/highway.h>

#include "fp4lab/quantize/kernels/band_numbers-inl.h"
#include "fp4lab/quantize/kernels/element_stage-inl.h"
#include "fp4lab/quantize/kernels/fp4_codes-inl.h"
#include "fp4lab/quantize/kernels/fp8_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The numbers that the elements of a row share.
inline ElementRow ElementsUnder(const DialectJob& job, const TensorScale& tensor) {
  const Dialect& d = job.dialect;
  const bool searches =
      d.rounding == ElementRounding::kClosest || d.rounding == ElementRounding::kClosestScaled;
  const std::int32_t nan_code = searches ? 0  // no error compares less than a NaN, so code 0 stays
                                         : static_cast<std::int32_t>(job.element.nan_code);
  return {.element = job.element,
          .is_e2m1 = d.element == FormatId::kE2M1,
          .values = job.values.data(),
          .codes = std::size_t{1} << FormatOf(d.element).bits,
          .zero = d.keeps_negative_zero ? -0.0f : 0.0f,
          .nan_code = d.nan_code >= 0 ? d.nan_code : nan_code,
          .never_negative_zero = d.never_negative_zero,
          .has_short_scales = d.scale_encoding != ScaleEncoding::kBinary32,
          .decode = tensor.decode,
          .next = job.next};
}

// Finds the codes of x under the numbers of its blocks. `random`: one field per element.
inline void FindCodes(const DialectJob& job, const TensorScale& tensor, const float* x,
                      const std::uint32_t* random, std::size_t cols, const BandNumbers& c,
                      std::uint8_t* codes) {
  const ElementRow row = ElementsUnder(job, tensor);
  const ByBlock by_block{c.factor.data(), c.scale.data(), job.grid.block_cols};
  const ByColumn by_column{c.column_factor.data(), c.column_scale.data()};
  WithConstant<LastOf(ElementScaling{})>(ScalingOf(job.dialect.factor), [&](auto scaling) HWY_ATTR {
    WithConstant<LastOf(ElementRounding{})>(job.dialect.rounding, [&](auto how) HWY_ATTR {
      constexpr ElementScaling kScaling = decltype(scaling)::value;
      constexpr ElementRounding kRounding = decltype(how)::value;
      if (HasWholeVectors(job)) {
        if constexpr (kRounding == ElementRounding::kClosest &&
                      HasFastFp4Codes(ElementScaling::kDivide, ElementRounding::kClosestScaled)) {
          // As ClosestCode: the closest code of fl(x / s).
          const ByBlock by_scale{c.scale.data(), c.scale.data(), job.grid.block_cols};
          if (row.has_short_scales &&
              FastFp4Codes<ElementScaling::kDivide, ElementRounding::kClosestScaled>(
                  row, job.dialect.keeps_negative_zero, x, by_scale, cols, codes)) {
            return;
          }
        }
        if constexpr (HasFastFp4Codes(kScaling, kRounding)) {
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

// Finds the random bits of `cols` elements from element `first` on, one word per element.
inline void FindRandomBits(const DialectJob& job, std::size_t first, std::size_t cols,
                           DialectBuffers* b) {
  const int bits = RandomBitsOf(job.dialect.rounding);
  std::uint32_t* const random = b->random.data();
  const auto expand = [&](const auto* fields, int drop) {
    for (std::size_t i = 0; i < cols; ++i)
      random[i] = static_cast<std::uint32_t>(fields[i] >> drop);
  };
  const std::optional<RandomSource>& source = job.options.source;
  if (!source || source->generator != RandomGenerator::kPhilox) {
    for (std::size_t i = 0; i < cols; ++i) {
      random[i] = RandomBitsAt(job.dialect, job.options, first + i, job.x.rows, job.x.cols);
    }
    return;
  }
  const std::size_t bytes = bits == 32 ? 4 : bits == 16 ? 2 : 1, in_block = 16 / bytes;
  const std::size_t skipped = first % in_block;
  FillBlocks(source->stream, first / in_block, DivideUp(skipped + cols, in_block),
             b->fields.data());
  const auto* const run = reinterpret_cast<const std::uint8_t*>(b->fields.data()) + skipped * bytes;
  if (bits == 32) return static_cast<void>(std::memcpy(random, run, 4 * cols));
  if (bits == 16) return expand(b->fields.data() + skipped, 0);
  expand(run, 8 - bits);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_ROW_CODES_INL_H_
