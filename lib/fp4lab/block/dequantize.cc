// BlockScaledValues and Dequantize: the value of a code times its block's factor.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/layout.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/decoded_product.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/formats/format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/block/dequantize.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#ifndef FP4LAB_BLOCK_DEQUANTIZE_ONCE
#define FP4LAB_BLOCK_DEQUANTIZE_ONCE
namespace fp4lab {
namespace {

// The value of every element code, the factor of every scale byte, and the element format.
struct DecodeTables {
  std::array<float, 256> value, factor;
  Format element;

  // Whether vectors of products of a block with this factor have the bits of DecodedProduct.
  // Without that, one product at a time is made: for infinite factors on Arm, which are rare.
  bool TakesVectors(float f) const {
    if (kMakesInvalidNan) return true;
    return std::isfinite(f) && (f != 0.0f || element.specials != Specials::kInfAndNan);
  }
};

}  // namespace
}  // namespace fp4lab
#endif

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

// Decode, one code per lane.
HWY_INLINE VF ValuesOf(const Format& f, VI code) {
  const DF d;
  const DI di;
  const int to_top = 23 - f.mantissa_bits, magnitude_bits = f.bits - 1;
  const VI mask = hn::Set(di, (1 << magnitude_bits) - 1);
  const VI magnitude = hn::And(code, mask);
  const VI sign = hn::ShiftLeftSame(hn::AndNot(mask, code), 31 - magnitude_bits);
  const VI normal =
      hn::Add(hn::ShiftLeftSame(magnitude, to_top), hn::Set(di, (127 - f.bias) << 23));
  const VF unit = hn::Set(d, Decode(f, 1));
  const VI subnormal = hn::BitCast(di, hn::Mul(hn::ConvertTo(d, magnitude), unit));
  const auto is_normal = hn::Gt(magnitude, hn::Set(di, (1 << f.mantissa_bits) - 1));
  VI bits = hn::IfThenElse(is_normal, normal, subnormal);
  if (f.specials == Specials::kNone) return hn::BitCast(d, hn::Or(bits, sign));
  const auto largest = static_cast<std::int32_t>(MaxFiniteCode(f));
  const auto infinity = f.specials == Specials::kInfAndNan ? largest + 1 : largest;
  const VI special = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, infinity)),
                                    hn::Set(di, 0x7FC00000), hn::Set(di, 0x7F800000));
  bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, largest)), special, bits);
  return hn::BitCast(d, hn::Or(bits, sign));
}

// Decodes columns [c, end) of one block from a row of 4-bit codes, whole vectors only; c is even.
// Returns the first column that is not decoded.
#if HWY_TARGET <= HWY_AVX3_DL
HWY_INLINE std::size_t DecodePacked(const DecodeTables& tables, const std::uint8_t* row,
                                    std::size_t c, std::size_t end, float factor, float* to) {
  // Every 64-bit lane holds the same 8 bytes of codes; lane i takes the nibbles at bits 8 i and 8 i
  // + 4.
  const __m512i windows =
      _mm512_add_epi64(_mm512_set1_epi64(0x0000000400000000),
                       _mm512_mullo_epi64(_mm512_setr_epi64(0, 8, 16, 24, 32, 40, 48, 56),
                                          _mm512_set1_epi64(0x0000000100000001)));
  const __m512 values = _mm512_loadu_ps(tables.value.data()), f = _mm512_set1_ps(factor);
  for (; c + 16 <= end; c += 16) {
    std::int64_t codes = 0;
    std::memcpy(&codes, row + c / 2, 8);
    const __m512i index = _mm512_multishift_epi64_epi8(windows, _mm512_set1_epi64(codes));
    _mm512_storeu_ps(to + c, _mm512_mul_ps(_mm512_permutexvar_ps(index, values), f));
  }
  return c;
}
#else
HWY_INLINE std::size_t DecodePacked(const DecodeTables& tables, const std::uint8_t* row,
                                    std::size_t c, std::size_t end, float factor, float* to) {
  const DI di;
  const std::size_t lanes = hn::Lanes(di);
  HWY_ALIGN std::int32_t codes[hn::MaxLanes(DI())];
  if (lanes < 2) return c;
  for (; c + lanes <= end; c += lanes) {
    for (std::size_t i = 0; i < lanes; i += 2) {
      const std::uint8_t byte = row[(c + i) / 2];
      codes[i] = byte & 0xF;
      codes[i + 1] = byte >> 4;
    }
    const VF values = ValuesOf(tables.element, hn::Load(di, codes));
    hn::StoreU(hn::Mul(values, hn::Set(DF(), factor)), DF(), to + c);
  }
  return c;
}
#endif

HWY_INLINE std::size_t DecodeBytes(const DecodeTables& tables, const std::uint8_t* row,
                                   std::size_t c, std::size_t end, float factor, float* to) {
  const DI di;
  const hn::Rebind<std::uint8_t, DI> d8;
  for (; c + hn::Lanes(di) <= end; c += hn::Lanes(di)) {
    const VF values = ValuesOf(tables.element, hn::PromoteTo(di, hn::LoadU(d8, row + c)));
    hn::StoreU(hn::Mul(values, hn::Set(DF(), factor)), DF(), to + c);
  }
  return c;
}

// Decodes rows [begin, row_end).
void DecodeRows(const Dialect& dialect, const Quantized& q, const DecodeTables& tables,
                std::size_t begin, std::size_t row_end, const MatrixView<float>& out) {
  const CodeLayout codes(dialect, q.cols);
  const ScaleLayout scales(dialect, q.rows, q.cols);
  const bool vectors = out.col_stride == 1;
  for (std::size_t r = begin; r < row_end; ++r) {
    const std::uint8_t* row = q.codes.data() + codes.Byte(r, 0);
    const std::uint8_t* bytes = q.scales.empty() ? nullptr : &q.scales[scales.Index(r, 0)];
    float* to = &out(r, 0);
    for (std::size_t j = 0; j < scales.cols; ++j) {
      std::size_t c = j * scales.block_cols;
      const std::size_t end = std::min(c + scales.block_cols, q.cols);
      const float factor = tables.factor[bytes == nullptr ? 0 : bytes[j]];
      if (vectors && tables.TakesVectors(factor)) {
        c = codes.packed ? DecodePacked(tables, row, c, end, factor, to)
                         : DecodeBytes(tables, row, c, end, factor, to);
      }
      for (; c < end; ++c) {
        const unsigned code = codes.packed ? row[c / 2] >> (c % 2 * 4) & 0xFu : row[c];
        to[c * out.col_stride] = DecodedProduct(tables.value[code], factor);
      }
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

HWY_EXPORT(DecodeRows);

// Decodes all rows, in parallel groups of about 16384 elements.
void DecodeAll(const Dialect& dialect, const Quantized& q, const DecodeTables& tables,
               MatrixView<float> out) {
  Expects(q.order == TunedOrder(dialect), "codes in the order of the tuned kernels");
  Expects(out.rows == q.rows && out.cols == q.cols, "out has the shape of q");
  if (out.size() == 0) return;
  const std::size_t group = 1 + 16384 / q.cols;
  ParallelFor(DivideUp(q.rows, group), [&](std::size_t i) {
    HWY_DYNAMIC_DISPATCH(DecodeRows)
    (dialect, q, tables, i * group, std::min((i + 1) * group, q.rows), out);
  });
}

// `factor_of` maps a scale byte to its block's factor.
template <class FactorOf>
DecodeTables MakeTables(FormatId element, FactorOf factor_of) {
  DecodeTables tables{{}, {}, FormatOf(element)};
  for (std::uint32_t code = 0; code < (1u << FormatOf(element).bits); ++code) {
    tables.value[code] = Decode(element, code);
  }
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    tables.factor[byte] = factor_of(static_cast<std::uint8_t>(byte));
  }
  return tables;
}

}  // namespace

void BlockScaledValues(const Dialect& dialect, const Quantized& q, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  const auto factor = [&](std::uint8_t byte) { return ScaleValueOf(dialect, byte); };
  DecodeAll(dialect, q, MakeTables(dialect.element, factor), out);
}

void Dequantize(const Dialect& dialect, const Quantized& q, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  const float amax = q.amax.empty() ? 0.0f : q.amax[0];
  const auto factor = [&](std::uint8_t byte) {
    return DecodeFactor(dialect, ScaleValueOf(dialect, byte), amax);
  };
  DecodeAll(dialect, q, MakeTables(dialect.element, factor), out);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
