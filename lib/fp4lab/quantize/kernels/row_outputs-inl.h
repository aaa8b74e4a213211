// The outputs of a row, values and integers from its codes, and the scales of a band.
#if defined(FP4LAB_QUANTIZE_ROW_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_QUANTIZE_ROW_OUTPUTS_INL_H_
#undef FP4LAB_QUANTIZE_ROW_OUTPUTS_INL_H_
#else
#define FP4LAB_QUANTIZE_ROW_OUTPUTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/dialect/decoded_product.h"
#include "fp4lab/quantize/kernels/quantize_job.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/rows-inl.h"
#include "fp4lab/quantize/kernels/band_numbers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The values of a vector of codes.
HWY_INLINE VF ValuesOfCodes(const DialectJob& job, VI code) {
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

// DecodedProduct of each lane.
HWY_INLINE VF DecodedProducts(VF a, VF b) {
  const VF product = hn::Mul(a, b);
  if constexpr (kMakesInvalidNan) return product;
  const auto of_nan = hn::Or(hn::IsNaN(a), hn::IsNaN(b));
  const VF nan = Float(hn::Set(DI(), static_cast<std::int32_t>(kInvalidNanBits)));
  return hn::IfThenElse(hn::AndNot(of_nan, hn::IsNaN(product)), nan, product);
}

// values[i] = the value of codes[i] times its block scale.
inline void FindValues(const DialectJob& job, const std::uint8_t* codes, std::size_t cols,
                       const BandNumbers& c, float* values) {
  const DF df;
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  const std::size_t lanes = hn::Lanes(df), width = job.grid.block_cols;
  const bool whole = HasWholeVectors(job);
  for (std::size_t i = 0; i < cols; i += lanes) {
    const VF s = whole ? hn::Set(df, c.scale[i / width]) : hn::LoadU(df, &c.column_scale[i]);
    const VI code = hn::PromoteTo(di, hn::LoadU(d8, codes + i));
    const VF value = DecodedProducts(ValuesOfCodes(job, code), s);
    if (i + lanes <= cols) {
      hn::StoreU(value, df, values + i);
    } else {
      StorePart(value, cols - i, values + i);
    }
  }
}

// integers[i] = 12 + 2 * the value of codes[i], for E2M1.
inline void FindIntegers(const DialectJob& job, const std::uint8_t* codes, std::size_t cols,
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

inline void StoreScales(const DialectJob& job, std::size_t band, std::size_t block,
                        std::size_t blocks, const BandNumbers& c) {
  if (!job.grid.stores_scales) return;
  if (job.out.scale_bytes != nullptr) {
    std::copy_n(c.byte.data(), blocks, job.out.scale_bytes + band * job.grid.cols + block);
  }
  if (job.out.scales.data == nullptr) return;
  for (std::size_t j = 0; j < blocks; ++j) job.out.scales(band, block + j) = c.scale[j];
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_QUANTIZE_ROW_OUTPUTS_INL_H_
