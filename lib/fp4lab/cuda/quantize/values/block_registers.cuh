// One block of one row in the registers of a thread, or of the lanes of a warp that share it:
// reading, the block's numbers and the elements' values in any dialect. What differs between
// elements of a block (rounding, random bits, multiplication or division) is a compile-time
// constant; what a block has once (scale rule, factor) is not.
#pragma once

#include <cmath>
#include <cstdint>

#include "fp4lab/base/memory/alignment.h"
#include "fp4lab/base/random.h"
#include "fp4lab/cuda/device/bf16_words.cuh"
#include "fp4lab/cuda/device/e2m1.cuh"
#include "fp4lab/cuda/device/side.cuh"
#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/cuda/quantize/values/e4m3_scales.cuh"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/diagnostics/statistic.h"

namespace fp4lab::cuda {

// A matrix (rows, cols) of BF16 whose rows are quantized in blocks of kBlock, a divisor of cols.
// Transposed: the matrix is stored column by column.
struct RegisterJob {
  const std::uint16_t* x = nullptr;
  std::uint16_t* out = nullptr;
  std::uint32_t rows = 0, cols = 0;
  const float* amax = nullptr;  // of the tensor, or of each row in row-scaled dialects
};

// Whether the kernels in registers take a matrix of this shape and place, in whole blocks, under
// the dialect's factor.
inline bool FitsRegisters(const Dialect& d, const SideJob& job, const ValuesJob& values) {
  const bool scales = Divides(d.factor) || HasScaling<ElementScaling::kMultiply>(d.factor) ||
                      HasScaling<ElementScaling::kZeroWhereZero>(d.factor);
  if (!scales || d.block_rows <= 0 || d.block_cols <= 0) return false;
  if (job.rows == 0 || job.rows % static_cast<std::size_t>(d.block_rows) != 0) return false;
  if (job.cols == 0 || job.cols % static_cast<std::size_t>(d.block_cols) != 0) return false;
  if (job.rows >= 1u << 31 || job.cols >= 1u << 31 || job.rows * job.cols / 16 >= 1u << 31) {
    return false;
  }
  return job.transposed || (IsAligned(job.x) && IsAligned(values.values));
}
// The same for the kernels of BF16 in blocks of 16 or 32; if so, describes the matrix in *to.
inline bool FitsRegisters(const Dialect& d, const SideJob& job, const ValuesJob& values,
                          RegisterJob* to) {
  const bool blocks = d.block_rows == 1 && (d.block_cols == 16 || d.block_cols == 32);
  if (!job.bf16 || !blocks || !FitsRegisters(d, job, values)) return false;
  *to = {static_cast<const std::uint16_t*>(job.x), static_cast<std::uint16_t*>(values.values),
         static_cast<std::uint32_t>(job.rows), static_cast<std::uint32_t>(job.cols), job.side.amax};
  return true;
}

// The formulas of a dialect that a kernel knows when it is compiled. Set writes them into a copy of
// the dialect; formulas that it leaves alone are chosen at run time, by branches that fill the
// instruction cache. AnyFormulas knows none.
struct AnyFormulas {
  static constexpr void Set(Dialect*) {}
};
// E4M3 scales and the elements' rules of Transformer Engine, which the formulas below share.
struct E4m3Formulas {
  static constexpr void Set(Dialect* d) {
    d->scale = FormatId::kE4M3;
    d->adaptive_fp16 = d->adaptive_decode = false;
    d->keeps_negative_zero = true;
    d->never_negative_zero = false;
    d->nan = NanRule::kElement;
    d->inf_scale = InfScale::kRule;
    d->nan_scale = d->nan_code = -1;
    d->prescale = 1.0f;
    d->statistic = BlockStatistic::kAmax;
  }
};
// Transformer Engine's four over six.
template <Adaptive kAdaptive>
struct FourOverSixFormulas {
  static constexpr void Set(Dialect* d) {
    E4m3Formulas::Set(d);
    d->tensor_scale = TensorScaleRule::kEncodeScale;
    d->block_scale = BlockScale::kDivideFirst;
    d->scale_encoding = ScaleEncoding::kNearest;
    d->factor = Factor::kReciprocal;
    d->adaptive = kAdaptive;
  }
};
// nvfp4.quartet2 and, with kAdaptive, its four over six.
template <Adaptive kAdaptive>
struct QuartetFormulas {
  static constexpr void Set(Dialect* d) {
    E4m3Formulas::Set(d);
    d->tensor_scale = TensorScaleRule::kTwoDivisions;
    d->row_scaled = false;
    d->block_scale = BlockScale::kDivideByTensorScale;
    d->scale_encoding = ScaleEncoding::kZeroToOne;
    d->factor = Factor::kDivideByProduct;
    d->adaptive = kAdaptive;
  }
};
// Whether the dialect has these formulas.
template <class Formulas>
bool Has(const Dialect& d) {
  Dialect set = d;
  Formulas::Set(&set);
  return set == d;
}

// Correctly rounded quotients of many numbers by one divisor, without a division for each: the
// product with the reciprocal, corrected twice by its exact remainder (Markstein, IBM Journal of
// Research and Development 34, 1990). The second correction is correctly rounded if the first one
// has an error below one unit in the last place.
class Divisor {
 public:
  // `largest`: the largest magnitude among the numerators, NaN apart. Numerators other than 0 whose
  // last bits matter must be at least 2^-75.
  __device__ Divisor(float divisor, float largest)
      : divisor_(divisor),
        reciprocal_(1.0f / divisor),
        in_range_(divisor >= 0x1p-50f && divisor <= 0x1p50f && largest <= 0x1p70f) {}

  __device__ float Quotient(float x) const {
    if (!in_range_) return x / divisor_;
    return copysignf(Corrected(x, Corrected(x, x * reciprocal_)), x);  // x = -0
  }

  // Whether QuotientOfMagnitude serves: the product has an error below one unit in the last place,
  // because the reciprocal is more exact than most.
  __device__ bool CorrectsOnce() const {
    return in_range_ && fabsf(__fmaf_rn(-divisor_, reciprocal_, 1.0f)) <= 0x1p-25f;
  }
  // The quotient of x >= 0.
  __device__ float QuotientOfMagnitude(float x) const { return Corrected(x, x * reciprocal_); }

 private:
  // q, close to the quotient of x, corrected by its exact remainder.
  __device__ float Corrected(float x, float q) const {
    return __fmaf_rn(__fmaf_rn(-q, divisor_, x), reciprocal_, q);
  }

  float divisor_, reciprocal_;
  bool in_range_;  // no intermediate result underflows or overflows
};

// Where a block is: its row, its first element's number in row-major order, and its first element's
// place in memory.
struct RegisterPlace {
  std::uint32_t row;
  std::uint64_t element, memory;
};

// Block `id` of a matrix; blocks with consecutive numbers are neighbours in memory.
template <int kBlock, bool kTransposed>
__device__ RegisterPlace PlaceOf(const RegisterJob& job, std::uint32_t id) {
  if constexpr (kTransposed) {
    const std::uint32_t row = id % job.rows, first = id / job.rows * kBlock;
    return {row, std::uint64_t{row} * job.cols + first, std::uint64_t{first} * job.rows + row};
  } else {
    const std::uint64_t first = std::uint64_t{id} * kBlock;
    return {id / (job.cols / kBlock), first, first};
  }
}

// A lane's 16 elements of a block, or of a group, that kLanes lanes of a warp share. Lanes beyond
// the matrix have the place of others and store nothing, so that all lanes of a warp can exchange
// numbers.
struct LanePlace {
  unsigned part;               // of the block: the lane's number in it
  std::uint32_t row, segment;  // the lane's elements are segment * 16 and on of the row
  bool exists, stores;         // whether the warp has a place; whether the lane stores
};

// The distance of the lanes of neighbouring parts: lanes of a warp take neighbours in memory.
template <unsigned kLanes, bool kTransposed>
constexpr unsigned kPartDistance = kTransposed ? 32 / kLanes : 1;

template <unsigned kLanes, bool kTransposed>
__device__ LanePlace LanePlaceOf(std::uint32_t thread, std::uint32_t rows, std::uint32_t cols) {
  const std::uint32_t lane = thread % 32, in_row = cols / 16;
  if constexpr (kTransposed) {
    constexpr unsigned kRows = 32 / kLanes;  // of a warp
    const std::uint32_t warps = (rows + kRows - 1) / kRows;
    const std::uint32_t warp = thread / 32, block = warp / warps, part = lane / kRows;
    const std::uint32_t row = warp % warps * kRows + lane % kRows;
    return {part, min(row, rows - 1), block * kLanes + part, block < in_row / kLanes, row < rows};
  } else {
    const std::uint32_t count = rows * in_row, part = lane % kLanes;
    const bool stores = thread < count;
    const std::uint32_t id = stores ? thread : count - kLanes + part;
    return {part, id / in_row, id % in_row, true, stores};
  }
}
// The threads that LanePlaceOf needs.
template <unsigned kLanes>
std::size_t ThreadsOfLanes(bool transposed, std::size_t rows, std::size_t cols) {
  const std::size_t blocks = cols / 16 / kLanes;
  return transposed ? DivideUp(rows, std::size_t{32 / kLanes}) * blocks * 32
                    : rows * blocks * kLanes;
}

// Loads a block, two neighbours along the reduction axis a word.
template <int kBlock, bool kTransposed>
__device__ void LoadBlock(const RegisterJob& job, const RegisterPlace& place,
                          std::uint32_t (&words)[kBlock / 2]) {
  const std::uint16_t* const from = job.x + place.memory;
  if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < kBlock / 2; ++i) {
      words[i] = from[std::uint64_t{job.rows} * (2 * i)] |
                 std::uint32_t{from[std::uint64_t{job.rows} * (2 * i + 1)]} << 16;
    }
  } else {
    LoadWords<kBlock / 2>(from, words);
  }
}

template <int kBlock, bool kTransposed>
__device__ void StoreBlock(const RegisterJob& job, const RegisterPlace& place,
                           const std::uint32_t (&words)[kBlock / 2]) {
  std::uint16_t* const to = job.out + place.memory;
  if constexpr (kTransposed) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      to[std::uint64_t{job.rows} * i] = static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16));
    }
  } else {
    StoreWords<kBlock / 2>(to, words);
  }
}

// Rounds two values to BF16, a in the low half.
__device__ inline std::uint32_t Bf16Pair(float a, float b) {
  return AsWord(__floats2bfloat162_rn(a, b));
}

template <int kWords>
__device__ float Element(const std::uint32_t (&words)[kWords], int i) {
  return HalfOf(words[i / 2], i % 2);
}

// Whether one of the words' numbers is NaN.
template <int kWords>
__device__ bool HasNan(const std::uint32_t (&words)[kWords]) {
  std::uint32_t largest = 0;
#pragma unroll
  for (const std::uint32_t word : words) largest = __vmaxu2(largest, word & 0x7FFF7FFFu);
  return max(largest & 0xFFFFu, largest >> 16) > 0x7F80u;
}

template <int kBlock, bool kQuest>
__device__ float StatisticOfWords(const Dialect& d, const std::uint32_t (&words)[kBlock / 2]) {
  if constexpr (kQuest) {
    OrderedSum sum, squares;
#pragma unroll
    for (int i = 0; i < kBlock; ++i) {
      const float x = Element(words, i);
      sum.Add(x);
      squares.Add(x * x);
    }
    return QuestOfSigma(__fsqrt_rn(VarianceOf(sum.Total(), squares.Total(), kBlock)));
  }
  const bool is_nan = d.nan != NanRule::kElement && HasNan(words);
  return is_nan ? __uint_as_float(0x7FC00000u) : AmaxOfWords(words);
}

// The quantization of a block's elements under the block's numbers. kRounding: kNearestEven,
// kTiesAway (E2M1 alone), kStochastic16 or kStochastic8.
template <FormatId kElement, ElementRounding kRounding, bool kDivides>
class ElementValues {
 public:
  // d.element and d.rounding must be kElement and kRounding, Divides(d.factor) kDivides; d.factor's
  // scaling must be one of ElementScaling::kMultiply, kZeroWhereZero and kDivide.
  __device__ ElementValues(const Dialect& d, const BlockNumbers& n)
      : d_(d),
        scale_(n.scale),
        factor_(n.factor),
        divisor_(n.factor, n.amax),
        vanishes_(n.factor == 0.0f && HasScaling<ElementScaling::kZeroWhereZero>(d.factor)),
        nan_(Decode(kElement, d.nan_code >= 0 ? static_cast<std::uint32_t>(d.nan_code)
                                              : NanCode(FormatOf(kElement)))) {}

  // The value of element x before it is multiplied by the block's scale. `fields`: a word with two
  // times 16 random bits, of which this element takes half `half`; 8-bit roundings take the low
  // byte.
  __device__ float Of(float x, std::uint32_t fields, int half) const {
    float v = kDivides ? divisor_.Quotient(x) : x * factor_;
    if (vanishes_) v = 0.0f;
    if constexpr (kElement == FormatId::kE2M1 && kRounding != ElementRounding::kStochastic8) {
      return OfE2m1(v, fields, half);
    } else {
      if (v == 0.0f && !d_.keeps_negative_zero) v = 0.0f;
      if (v != v) return nan_;
      if constexpr (kElement == FormatId::kE4M3 && kRounding == ElementRounding::kNearestEven) {
        return RoundedToE4m3(v);
      }
      const std::uint32_t random =
          kRounding == ElementRounding::kStochastic16 ? fields >> (16 * half) : fields;
      const std::uint32_t code = Formula<kRounding>::Code({kElement, x, scale_, v, random});
      const bool zero = (code & MagnitudeMask(FormatOf(kElement))) == 0;
      return Decode(kElement, zero && d_.never_negative_zero ? 0u : code);
    }
  }

 private:
  // v rounded to E4M3; at most 448.
  __device__ float RoundedToE4m3(float v) const {
    const float value = fminf(NearestE4m3(fabsf(v)), 448.0f);
    const bool clears = value == 0.0f && d_.never_negative_zero;
    const std::uint32_t sign = clears ? 0u : __float_as_uint(v) & 0x80000000u;
    return __uint_as_float(__float_as_uint(value) | sign);
  }

  // The three bits of the code, moved to the lowest exponent bits and the highest fraction bit of
  // binary32, are the value times 2^-126.
  __device__ float OfE2m1(float v, std::uint32_t fields, int half) const {
    const float a = fabsf(v);
    const std::uint32_t code = CodeOfE2m1(a, fields, half) & 0x01C00000u;
    const bool clears =
        (v == 0.0f && !d_.keeps_negative_zero) || (code == 0 && d_.never_negative_zero);
    const std::uint32_t sign = clears ? 0u : __float_as_uint(v) & 0x80000000u;
    const float value = __uint_as_float(code) * 0x1p126f;
    return v != v ? nan_ : __uint_as_float(__float_as_uint(value) | sign);
  }

  // The code of a >= 0 in bits 22 to 24; the other bits are arbitrary.
  __device__ static std::uint32_t CodeOfE2m1(float a, std::uint32_t fields, int half) {
    if constexpr (kRounding == ElementRounding::kNearestEven) return NearestE2m1(a) << 22;
    const std::uint32_t code =
        kRounding == ElementRounding::kTiesAway ? TiesAwayE2m1(a) : StochasticE2m1(a, fields, half);
    return min(code, 0x41FFFFFFu);
  }

  const Dialect& d_;
  float scale_, factor_;
  Divisor divisor_;
  bool vanishes_;
  float nan_;
};

// The error of the block under the numbers n, as four over six counts it (dialect/adaptive.h).
template <class Values, int kWords>
__device__ __forceinline__ float ErrorOfWords(const Dialect& d, const BlockNumbers& n,
                                              const TensorScale& l,
                                              const std::uint32_t (&words)[kWords]) {
  const Values values(d, n);
  // Products other than 0 are at least 2^-10; under a small amax they leave Divisor's range.
  const Divisor constant(TensorScaleConstant(d), l.amax >= 0x1p-50f ? l.amax * 0x1p12f : INFINITY);
  float error = 0.0f;
#pragma unroll
  for (int i = 0; i < 2 * kWords; ++i) {
    const float x = Element(words, i), product = values.Of(x, 0, 0) * n.scale;
    const float difference = d.adaptive_fp16 || d.adaptive_decode
                                 ? AdaptiveDifference(d, l, product, x)
                                 : constant.Quotient(product * l.amax) - x;
    error = CombinedError(d, error, WithFormula<float>(d.adaptive, ElementErrorOf{difference}));
  }
  return error;
}

// Chosen (dialect_block.cuh) for a block in registers. kAdaptive: whether d.adaptive may be another
// than kNo.
template <class Values, int kBlock, bool kAdaptive, bool kQuest>
__device__ BlockNumbers ChosenOfWords(const Dialect& d, const TensorScale& l,
                                      const std::uint32_t (&words)[kBlock / 2]) {
  const float b = StatisticOfWords<kBlock, kQuest>(d, words);
  const float t = ScaleBefore(d, b, l);
  if constexpr (!kAdaptive) return NumbersWithoutByte(d, b, t, l);
  // One loop for both candidates: a function with two call sites is called, not inlined, and the
  // call spills registers to memory.
  BlockNumbers chosen;
  float least = 0.0f;
#pragma unroll 1
  for (const bool is_four : {false, true}) {
    const BlockNumbers n = NumbersWithoutByte(d, b, is_four ? t * 1.5f : t, l);
    const float error = ErrorOfWords<Values>(d, n, l, words);
    if (is_four && !(error < least)) break;
    chosen = n;
    least = error;
  }
  return chosen;
}

}  // namespace fp4lab::cuda
