// Rounds the elements of one unit, with the random bits and the kind of output as parameters.
#if defined(FP4LAB_BLOCK_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_ROWS_INL_H_
#undef FP4LAB_BLOCK_ROWS_INL_H_
#else
#define FP4LAB_BLOCK_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/lanes-inl.h"
#include "fp4lab/block/kernels/random-inl.h"
#include "fp4lab/block/kernels/scales-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The rounding of a row's elements and its source of random bits; NoBits: a rounding without them.
template <Rounding kHow>
struct NoBits {
  static constexpr Rounding kRounding = kHow;
};
// Contiguous fields of 16 or 32 random bits, one per element.
template <class Field>
struct FieldBits {
  static constexpr Rounding kRounding = Rounding::kStochastic;
  static constexpr bool kWhole = sizeof(Field) == 4;
  const std::uint8_t* fields;
  HWY_INLINE VU Load(std::size_t i) const {
    const auto* from = reinterpret_cast<const Field*>(fields) + i;
    if constexpr (kWhole) {
      return hn::LoadU(DU(), from);
    } else {
      const hn::Rebind<Field, DU> d;
      return hn::PromoteTo(DU(), hn::LoadU(d, from));
    }
  }
};
// 16 random bits per element, at bit `shift` of a 32-bit word per element.
struct WordBits {
  static constexpr Rounding kRounding = Rounding::kStochastic;
  static constexpr bool kWhole = false;
  const std::uint32_t* words;
  int shift;
  HWY_INLINE VU Load(std::size_t i) const {
    return hn::And(hn::ShiftRightSame(hn::LoadU(DU(), words + i), shift), hn::Set(DU(), 0xFFFFu));
  }
};

// Loads and stores of partial vectors, for the ends of rows.
HWY_INLINE VF LoadPart(const float* x, std::size_t count) {
  HWY_ALIGN float part[hn::MaxLanes(DF())] = {};
  std::copy_n(x, count, part);
  return hn::Load(DF(), part);
}
HWY_INLINE void StorePart(VF y, std::size_t count, float* out) {
  HWY_ALIGN float part[hn::MaxLanes(DF())];
  hn::Store(y, DF(), part);
  std::copy_n(part, count, out);
}

// Sinks write the elements of a row. Put takes v = fl(x * e), the rounded magnitude of v and the
// block's scale; PutPart takes a partial vector.
struct ValueSink {
  float* out;
  HWY_INLINE VF Value(const ElementConstants& e, VF v, VF magnitude, VF scale) const {
    const VF rounded =
        hn::IfThenElse(hn::IsNaN(v), hn::Set(DF(), e.nan), hn::CopySignToAbs(magnitude, v));
    return hn::Mul(rounded, scale);
  }
  HWY_INLINE void Put(const ElementConstants& e, std::size_t i, VF v, VF magnitude,
                      VF scale) const {
    hn::StoreU(Value(e, v, magnitude, scale), DF(), out + i);
  }
  HWY_INLINE void PutPart(const ElementConstants& e, std::size_t i, std::size_t count, VF v,
                          VF magnitude, VF scale) const {
    StorePart(Value(e, v, magnitude, scale), count, out + i);
  }
};

struct CodeSink {  // one code a byte, into a buffer with a vector to spare
  std::uint8_t* out;
  HWY_INLINE void Put(const ElementConstants& e, std::size_t i, VF v, VF magnitude,
                      VF /*scale*/) const {
    const DI di;
    const hn::Rebind<std::uint8_t, DI> d8;
    const VI negative = hn::ShiftRight<31>(Bits(v));
    const VI sign = hn::And(negative, hn::Set(di, static_cast<std::int32_t>(e.sign_code)));
    const VI code = hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)),
                                   hn::Set(di, static_cast<std::int32_t>(e.nan_code)),
                                   hn::Or(MagnitudeCode(e, magnitude), sign));
    hn::StoreU(hn::DemoteTo(d8, code), d8, out + i);
  }
  HWY_INLINE void PutPart(const ElementConstants& e, std::size_t i, std::size_t /*count*/, VF v,
                          VF magnitude, VF scale) const {
    Put(e, i, v, magnitude, scale);
  }
};

template <class Bits>
HWY_INLINE VF Rounded(const ElementConstants& e, VF v, std::size_t i, const Bits& bits) {
  const VF a = hn::Min(hn::Abs(v), hn::Set(DF(), e.max));
  if constexpr (Bits::kRounding == Rounding::kStochastic) {
    if constexpr (Bits::kWhole) return RoundStochastic32(e, a, bits.Load(i));
    return RoundStochastic(e, a, bits.Load(i));
  } else if constexpr (Bits::kRounding == Rounding::kTowardZero) {
    return RoundTowardZero(e, a);
  } else {
    return RoundNearest(e, a);
  }
}

// Rounds elements [i, end) of a row under one scale.
template <class Bits, class Sink>
HWY_INLINE void RoundBlock(const ElementConstants& e, const float* x, std::size_t i,
                           std::size_t end, VF multiplier, VF scale, const Bits& bits,
                           const Sink& sink) {
  const DF d;
  const std::size_t lanes = hn::Lanes(d);
  for (; i + lanes <= end; i += lanes) {
    const VF v = hn::Mul(hn::LoadU(d, x + i), multiplier);
    sink.Put(e, i, v, Rounded(e, v, i, bits), scale);
  }
  if (i < end) {
    const VF v = hn::Mul(LoadPart(x + i, end - i), multiplier);
    sink.PutPart(e, i, end - i, v, Rounded(e, v, i, bits), scale);
  }
}

// Rounds one row of a unit, with a scale for each block of columns.
template <class Bits, class Sink>
HWY_INLINE void RoundRow(const ElementConstants& e, const UnitScales& s, std::size_t block_cols,
                         const float* x, std::size_t cols, const Bits& bits, const Sink& sink) {
  const DF d;
  std::size_t i = 0;
  if (block_cols == 1) {
    for (; i + hn::Lanes(d) <= cols; i += hn::Lanes(d)) {
      const VF v = hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, s.multiplier + i));
      sink.Put(e, i, v, Rounded(e, v, i, bits), hn::LoadU(d, s.value + i));
    }
    if (i < cols) {
      const VF v = hn::Mul(LoadPart(x + i, cols - i), hn::LoadU(d, s.multiplier + i));
      sink.PutPart(e, i, cols - i, v, Rounded(e, v, i, bits), hn::LoadU(d, s.value + i));
    }
    return;
  }
  for (std::size_t b = 0; i < cols; ++b, i += block_cols) {
    RoundBlock(e, x, i, std::min(i + block_cols, cols), hn::Set(d, s.multiplier[b]),
               hn::Set(d, s.value[b]), bits, sink);
  }
}

// Rounds row r of a unit stochastically.
template <class Sink>
HWY_INLINE void RoundRowAtRandom(const QuantizePlan& plan, const Unit& unit, std::size_t r,
                                 const float* row, const UnitScales& s, RandomBuffer* buffer,
                                 const Sink& sink) {
  const auto round = [&](const auto& bits) HWY_ATTR {
    RoundRow(plan.element, s, plan.block_cols, row, unit.cols, bits, sink);
  };
  if (!plan.transposed) {
    const std::uint64_t first = std::uint64_t{unit.row + r} * plan.cols + unit.col;
    const std::uint8_t* fields = FillFields(plan, first, unit.cols, buffer);
    if (plan.random_bits == 16) return round(FieldBits<std::uint16_t>{fields});
    return round(FieldBits<std::uint32_t>{fields});
  }
  const std::size_t rows = 32 / static_cast<std::size_t>(plan.random_bits);  // rows per word
  const std::uint32_t* words = buffer->words + r / rows * WordStride(unit);
  const int shift = static_cast<int>(r % rows) * plan.random_bits;
  if (plan.random_bits == 16) return round(WordBits{words, shift});
  round(FieldBits<std::uint32_t>{reinterpret_cast<const std::uint8_t*>(words)});
}

// Rounds all rows of a unit. sinks.Row(r) is the sink of row r.
template <class Sinks>
HWY_INLINE void RoundUnit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                          const UnitScales& s, RandomBuffer* buffer, const Sinks& sinks) {
  constexpr NoBits<Rounding::kNearestEven> kNearest;
  constexpr NoBits<Rounding::kTowardZero> kCut;
  const bool stochastic = plan.rounding == Rounding::kStochastic;
  if (stochastic && plan.transposed) FillWords(plan, unit, buffer);
  for (std::size_t r = 0; r < unit.rows; ++r) {
    const float* row = x.data + r * x.stride;
    const auto sink = sinks.Row(r);
    if (stochastic) {
      RoundRowAtRandom(plan, unit, r, row, s, buffer, sink);
    } else if (plan.rounding == Rounding::kTowardZero) {
      RoundRow(plan.element, s, plan.block_cols, row, unit.cols, kCut, sink);
    } else {
      RoundRow(plan.element, s, plan.block_cols, row, unit.cols, kNearest, sink);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_ROWS_INL_H_
