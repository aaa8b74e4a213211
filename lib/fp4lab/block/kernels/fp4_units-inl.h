// Units of FP4 work with AVX-512: scales, rounding and codes of blocks along rows, of blocks along
// columns and of square blocks, for any sink.
#if defined(FP4LAB_BLOCK_FP4_UNITS_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_FP4_UNITS_INL_H_
#undef FP4LAB_BLOCK_FP4_UNITS_INL_H_
#else
#define FP4LAB_BLOCK_FP4_UNITS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/block/kernels/fp4_elements-inl.h"
#include "fp4lab/block/kernels/fp4_random-inl.h"
#include "fp4lab/block/kernels/fp4_scales-inl.h"
#include "fp4lab/block/kernels/random-inl.h"
#include "fp4lab/block/kernels/scales-inl.h"

#if HWY_TARGET <= HWY_AVX3_DL

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Rounds `cols` elements of a row from column `first` on to binary16, with zeros up to a multiple
// of 64.
template <std::size_t kBlock, class Rounder>
HWY_INLINE void HalvesOfRow(const Rounder& rounder, const float* x, std::size_t first,
                            std::size_t cols, const float* multiplier, std::uint16_t* halves) {
  const auto put = [&](std::size_t c, __m512 v) HWY_ATTR {
    const __m512 e =
        kBlock == 1 ? _mm512_load_ps(multiplier + c) : _mm512_set1_ps(multiplier[c / kBlock]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + c),
                       rounder.Halves(first + c, _mm512_mul_ps(v, e)));
  };
  std::size_t c = 0;
  for (; c + 64 <= cols; c += 64) {
    for (std::size_t i = c; i < c + 64; i += 16) put(i, _mm512_loadu_ps(x + i));
  }
  for (; c < cols; c += 16) put(c, _mm512_maskz_loadu_ps(FirstLanes(cols - c), x + c));
  for (; c % 64 != 0; c += 16) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(halves + c), _mm256_setzero_si256());
  }
}

// Puts columns [begin, end) of a row from `halves` into `sink`; returns `seen` with bit 6 of all
// upper bytes.
template <class Rounder, class Sink>
HWY_INLINE __m512i PutColumns(const Rounder& rounder, const std::uint16_t* halves,
                              std::size_t begin, std::size_t end, const Sink& sink, __m512i seen) {
  for (std::size_t c = begin; c < end; c += 64) {
    const __m512i upper = rounder.Upper(c, halves + c - begin, &seen);
    sink.Put(Rounder::kTables, c, end - c, upper);
  }
  return seen;
}

// Rounds a row under multipliers that were computed before.
template <std::size_t kBlock, class Rounder, class Sink>
HWY_INLINE __m512i RoundFp4Row(const Rounder& rounder, const float* x, std::size_t cols,
                               const float* multiplier, const Sink& sink, __m512i seen) {
  alignas(64) std::uint16_t halves[kMaxChunk + 64];
  HalvesOfRow<kBlock>(rounder, x, 0, cols, multiplier, halves);
  return PutColumns(rounder, halves, 0, cols, sink, seen);
}

// Rounds the rows of a unit under multipliers that were computed before. The codes of a row are
// made after the binary16 numbers of the next row: a read right after the write would wait for it.
// `Upper` is a rounder without state.
template <class Upper, class Sinks>
class RowsUnderWay {
 public:
  RowsUnderWay(std::size_t cols, const Sinks& sinks) : cols_(cols), sinks_(sinks) {}

  // Rounds the next row.
  template <std::size_t kBlock, class Rounder>
  HWY_INLINE void Add(const Rounder& rounder, const float* x, const float* multiplier) {
    HalvesOfRow<kBlock>(rounder, x, 0, cols_, multiplier, halves_[rows_ % 2]);
    ++rows_;
    if (rows_ > 1) Put(rows_ - 2);
  }
  // To be called after the last row; returns bit 6 of all upper bytes.
  HWY_INLINE __m512i Finish() {
    if (rows_ > 0) Put(rows_ - 1);
    return seen_;
  }

 private:
  HWY_INLINE void Put(std::size_t r) {
    seen_ = PutColumns(Upper{}, halves_[r % 2], 0, cols_, sinks_.Row(r), seen_);
  }

  alignas(64) std::uint16_t halves_[2][kMaxChunk + 64];
  std::size_t cols_, rows_ = 0;
  const Sinks& sinks_;
  __m512i seen_ = _mm512_setzero_si512();
};

// One step of QuantizeFp4Row: sixteen consecutive blocks, step number `step` of the row x: their
// scales, binary16 numbers and codes.
template <std::size_t kBlock, class Rounder>
struct Fp4Step {
  static constexpr std::size_t kElements = 16 * kBlock;
  static HWY_INLINE void FindScales(const ScaleConstants& k, const float* x, std::size_t step,
                                    Fp4Scales* s) {
    const float* from = x + step * kElements;
    for (std::size_t i = 0; i < kElements; i += 16) {
      _mm_prefetch(reinterpret_cast<const char*>(from + i + kPrefetchAhead), _MM_HINT_T1);
    }
    const __m512 amaxes = SixteenAmaxes<kBlock>(from);
    StoreScales(SixteenScalesOf(k, amaxes, Rounder::kFactor), step * 16, s);
  }
  static HWY_INLINE void Round(const Rounder& rounder, const float* x, std::size_t step,
                               const Fp4Scales& s, std::uint16_t* halves) {
    HalvesOfRow<kBlock>(rounder, x + step * kElements, step * kElements, kElements,
                        s.multiplier + step * 16, halves);
  }
  template <class Sink>
  static HWY_INLINE __m512i Put(const Rounder& rounder, const std::uint16_t* halves,
                                std::size_t step, const Sink& sink, __m512i seen) {
    for (std::size_t c = 0; c < kElements; c += 64) {
      const std::size_t column = step * kElements + c;
      sink.Put(Rounder::kTables, column, 64, rounder.Upper(column, halves + c, &seen));
    }
    return seen;
  }
};

// Quantizes the rest of a row after the whole steps.
template <std::size_t kBlock, class Rounder, class Sink>
HWY_NOINLINE __m512i QuantizeFp4Rest(const ScaleConstants& k, const Rounder& rounder,
                                     const float* x, std::size_t begin, std::size_t cols,
                                     Fp4Scales* s, const Sink& sink, __m512i seen) {
  alignas(64) std::uint16_t halves[16 * kBlock];
  FindFp4ScalesOfRow<kBlock>(k, x + begin, cols - begin, begin / kBlock, Rounder::kFactor, s);
  HalvesOfRow<kBlock>(rounder, x + begin, begin, cols - begin, s->multiplier + begin / kBlock,
                      halves);
  return PutColumns(rounder, halves, begin, cols, sink, seen);
}

// Quantizes a row of blocks, scales included. Three steps are in flight at once, because each has
// long latencies: the scales of a step, the rounding of the step before, the codes of the step
// before that.
template <std::size_t kBlock, class Rounder, class Sink>
HWY_INLINE __m512i QuantizeFp4Row(const ScaleConstants& k, const Rounder& rounder, const float* x,
                                  std::size_t cols, Fp4Scales* s, const Sink& sink, __m512i seen) {
  using Step = Fp4Step<kBlock, Rounder>;
  alignas(64) std::uint16_t halves[2][Step::kElements];
  const std::size_t steps = cols / Step::kElements;
  if (steps > 0) {
    Step::FindScales(k, x, 0, s);
    for (std::size_t i = 0; i + 1 < steps; ++i) {
      Step::FindScales(k, x, i + 1, s);
      Step::Round(rounder, x, i, *s, halves[i % 2]);
      if (i > 0) seen = Step::Put(rounder, halves[(i - 1) % 2], i - 1, sink, seen);
    }
    Step::Round(rounder, x, steps - 1, *s, halves[(steps - 1) % 2]);
    if (steps > 1) seen = Step::Put(rounder, halves[steps % 2], steps - 2, sink, seen);
    seen = Step::Put(rounder, halves[(steps - 1) % 2], steps - 1, sink, seen);
  }
  const std::size_t done = steps * Step::kElements;
  return done == cols ? seen : QuantizeFp4Rest<kBlock>(k, rounder, x, done, cols, s, sink, seen);
}

// Whether the kernels of this file serve a plan.
HWY_INLINE bool HasFp4Units(const QuantizePlan& plan) {
  const bool element = plan.element.max == 6.0f && plan.element.mantissa_bits == 1;
  const float encode = plan.scale.tensor.encode;  // its range keeps NVFP4's e moderate
  const bool scale =
      plan.scale.rule != BlockScale::kOneBlock &&
      (plan.scale.rule != BlockScale::kFolded || (encode > 0x1p-90f && encode < 0x1p90f));
  const auto fits = [](std::size_t n) { return n == 16 || n == 32; };
  const bool block = fits(plan.block_cols) || (plan.block_cols == 1 && fits(plan.block_rows));
  return element && scale && block && plan.rounding != Rounding::kTowardZero;
}

// Rounds a unit into sinks.Row(r), RNE; returns bit 6 of all upper bytes.
template <std::size_t kBlock, class Sinks>
HWY_INLINE __m512i RoundNearestFp4(const QuantizePlan& plan, const Tile& x, Fp4Scales* s,
                                   const Sinks& sinks) {
  if (kBlock != 1 && x.rows == 1) {
    return QuantizeFp4Row<kBlock>(plan.scale, NearestFp4{}, x.data, x.cols, s, sinks.Row(0),
                                  _mm512_setzero_si512());
  }
  FindFp4Scales<kBlock>(plan.scale, x, NearestFp4::kFactor, s);
  RowsUnderWay<NearestFp4, Sinks> rows(x.cols, sinks);
  for (std::size_t r = 0; r < x.rows; ++r) {
    rows.template Add<kBlock>(NearestFp4{}, x.data + r * x.stride, s->multiplier);
  }
  return rows.Finish();
}

// Rounds a unit stochastically with random bits along the memory's columns, which are made before
// the unit.
template <std::size_t kBlock, class Sinks>
HWY_INLINE __m512i RoundStochasticFp4Columns(const QuantizePlan& plan, const Unit& unit,
                                             const Tile& x, Fp4Scales* s, const Sinks& sinks) {
  RandomBuffer random;
  RowsUnderWay<StochasticFp4, Sinks> rows(x.cols, sinks);
  FillWords(plan, unit, &random);
  const int rows_a_word = 32 / plan.random_bits;
  for (std::size_t r = 0; r < x.rows; ++r) {
    const auto round = [&](const auto& rounder) HWY_ATTR {
      rows.template Add<kBlock>(rounder, x.data + r * x.stride, s->multiplier);
    };
    const int place = static_cast<int>(r) % rows_a_word * plan.random_bits;
    const std::uint32_t* words =
        random.words + static_cast<int>(r) / rows_a_word * WordStride(unit);
    const int rotation = (22 - plan.random_bits - place) & 31;
    if (plan.random_bits == 16) round(StochasticFp4Column{{}, words, rotation});
    if (plan.random_bits == 32) round(StochasticFp4Whole{{}, words});
  }
  return rows.Finish();
}

// Rounds a unit stochastically with random bits along rows, which are made before each row.
template <std::size_t kBlock, int kBits, class Sinks>
HWY_INLINE __m512i RoundStochasticFp4Rows(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                                          Fp4Scales* s, const Sinks& sinks) {
  using Rounder = StochasticFp4Row<kBits>;
  RowBits random;
  __m512i seen = _mm512_setzero_si512();
  const auto rounder = [&](std::size_t r) HWY_ATTR {
    random.Fill<kBits>(plan.random, std::uint64_t{unit.row + r} * plan.cols + unit.col, x.cols);
    return Rounder{&random, x.data + r * x.stride, s->multiplier, x.cols, kBlock};
  };
  if (x.rows == 1) {
    return QuantizeFp4Row<kBlock>(plan.scale, rounder(0), x.data, x.cols, s, sinks.Row(0), seen);
  }
  FindFp4Scales<kBlock>(plan.scale, x, Rounder::kFactor, s);
  for (std::size_t r = 0; r < x.rows; ++r) {
    seen = RoundFp4Row<kBlock>(rounder(r), x.data + r * x.stride, x.cols, s->multiplier,
                               sinks.Row(r), seen);
  }
  return seen;
}

template <std::size_t kBlock, class Sinks>
HWY_INLINE __m512i RoundStochasticFp4(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                                      Fp4Scales* s, const Sinks& sinks) {
  if (plan.transposed) {
    FindFp4Scales<kBlock>(plan.scale, x, StochasticFp4::kFactor, s);
    return RoundStochasticFp4Columns<kBlock>(plan, unit, x, s, sinks);
  }
  if constexpr (kBlock != 1) {
    if (plan.random_bits == 16) {
      return RoundStochasticFp4Rows<kBlock, 16>(plan, unit, x, s, sinks);
    }
    return RoundStochasticFp4Rows<kBlock, 32>(plan, unit, x, s, sinks);
  }
  return _mm512_set1_epi8(0x40);  // unreachable: no plan has blocks along columns here
}

// Quantizes one unit: fills `s` and calls sinks.Row(r).Put(...). Returns false, with undefined
// output, if the unit has elements that this file does not serve: 2^11 or more after scaling, NaN
// or Inf.
template <std::size_t kBlock, class Sinks>
HWY_INLINE bool QuantizeFp4Blocks(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                                  Fp4Scales* s, const Sinks& sinks) {
  const __m512i seen = plan.rounding == Rounding::kStochastic
                           ? RoundStochasticFp4<kBlock>(plan, unit, x, s, sinks)
                           : RoundNearestFp4<kBlock>(plan, x, s, sinks);
  return _mm512_test_epi8_mask(seen, _mm512_set1_epi8(0x40)) == 0;
}

template <class Sinks>
HWY_INLINE bool QuantizeFp4Unit(const QuantizePlan& plan, const Unit& unit, const Tile& x,
                                Fp4Scales* s, const Sinks& sinks) {
  if (plan.block_cols == 1) return QuantizeFp4Blocks<1>(plan, unit, x, s, sinks);
  return plan.block_cols == 16 ? QuantizeFp4Blocks<16>(plan, unit, x, s, sinks)
                               : QuantizeFp4Blocks<32>(plan, unit, x, s, sinks);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET

#endif  // FP4LAB_BLOCK_FP4_UNITS_INL_H_
