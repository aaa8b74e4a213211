// The random bits of elements, RandomStream's Bits8, Bits16 and Bits32, for many elements at once.
#if defined(FP4LAB_BLOCK_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_RANDOM_INL_H_
#undef FP4LAB_BLOCK_RANDOM_INL_H_
#else
#define FP4LAB_BLOCK_RANDOM_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/random.h"
#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// out[8 i .. 8 i + 7]: the fields of Philox block first + i.
HWY_INLINE void FillBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                           std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const PhiloxBlock block = stream.Block(first + i);
    for (std::size_t k = 0; k < 8; ++k) {
      out[8 * i + k] = static_cast<std::uint16_t>(block[k / 2] >> (k % 2 * 16));
    }
  }
}

// words[k * stride + i]: word k % 4 of block first + i * step + k / 4, for k in [0, 4 blocks).
HWY_INLINE void FillBlockColumns(const RandomStream& stream, std::uint64_t first,
                                 std::uint64_t step, std::size_t count, std::size_t blocks,
                                 std::size_t stride, std::uint32_t* words) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < 4 * blocks; ++k) {
      words[k * stride + i] = stream.Block(first + i * step + k / 4)[k % 4];
    }
  }
}

#else

using D64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<D64>;

// Philox4x32 blocks in 64-bit lanes: of every lane only the low 32 bits count.
struct PhiloxLanes {
  V64 w0, w1, w2, w3;
};

HWY_INLINE V64 MulLow32(V64 a, V64 b) {
  const hn::Repartition<std::uint32_t, D64> d32;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
}

// The upper halves below, by a shuffle: beside the shifts, another port's work.
HWY_INLINE V64 UpperHalves(V64 x) {
#if HWY_TARGET <= HWY_AVX3
  return V64{_mm512_shuffle_epi32(x.raw, _MM_PERM_DDBB)};
#else
  return hn::ShiftRight<32>(x);
#endif
}

// The keys of the rounds, in memory: a kernel broadcasts them as it loads them.
struct PhiloxKeys {
  std::uint64_t even[kPhiloxRounds], odd[kPhiloxRounds];
  explicit PhiloxKeys(std::uint64_t seed) {
    auto k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      even[round] = k0;
      odd[round] = k1;
      k0 += kPhiloxWeyl[0];
      k1 += kPhiloxWeyl[1];
    }
  }
};

// Counters whose low 64 bits are the lanes of `block`.
HWY_INLINE PhiloxLanes PhiloxCounters(const RandomStream& stream, V64 block) {
  const D64 d;
  return {block, hn::ShiftRight<32>(block), hn::Set(d, stream.tensor), hn::Set(d, stream.step)};
}

HWY_INLINE PhiloxLanes PhiloxRound(const PhiloxLanes& c, V64 k0, V64 k1) {
  const D64 d;
  const V64 p0 = MulLow32(c.w0, hn::Set(d, kPhiloxMultipliers[0]));
  const V64 p1 = MulLow32(c.w2, hn::Set(d, kPhiloxMultipliers[1]));
  return {hn::Xor3(UpperHalves(p1), c.w1, k0), p1, hn::Xor3(hn::ShiftRight<32>(p0), c.w3, k1), p0};
}

// use(a, b, c, e): the words of four vectors of blocks. Four at a time: a round waits 7 cycles for
// its products, and schedulers do not look far enough ahead to find other work by themselves.
template <class Use>
HWY_INLINE void FourPhilox(const RandomStream& stream, const PhiloxKeys& keys, V64 block_a,
                           V64 block_b, V64 block_c, V64 block_e, const Use& use) {
  PhiloxLanes a = PhiloxCounters(stream, block_a), b = PhiloxCounters(stream, block_b);
  PhiloxLanes c = PhiloxCounters(stream, block_c), e = PhiloxCounters(stream, block_e);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const V64 k0 = hn::Set(D64(), keys.even[round]), k1 = hn::Set(D64(), keys.odd[round]);
    a = PhiloxRound(a, k0, k1);
    b = PhiloxRound(b, k0, k1);
    c = PhiloxRound(c, k0, k1);
    e = PhiloxRound(e, k0, k1);
  }
  use(a, b, c, e);
}

// low's low halves below, high's above.
HWY_INLINE V64 JoinHalves(V64 low, V64 high) {
#if HWY_TARGET <= HWY_AVX3
  return V64{_mm512_mask_shuffle_epi32(low.raw, 0xAAAA, high.raw, _MM_PERM_CCAA)};
#else
  return hn::Or(hn::And(low, hn::Set(D64(), 0xFFFFFFFFu)), hn::ShiftLeft<32>(high));
#endif
}

// out[8 i .. 8 i + 7]: the fields of Philox block first + i (x86 is little-endian, as they are
// defined). Writes whole vectors.
HWY_INLINE void FillBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                           std::uint16_t* out) {
  const D64 d;
  const std::size_t lanes = hn::Lanes(d);
  const V64 iota = hn::Iota(d, 0);
  const PhiloxKeys keys(stream.seed);
  const auto store = [&](const PhiloxLanes& p, std::size_t i) HWY_ATTR {
    hn::StoreInterleaved2(JoinHalves(p.w0, p.w1), JoinHalves(p.w2, p.w3), d,
                          reinterpret_cast<std::uint64_t*>(out + 8 * i));
  };
  const auto block = [&](std::size_t i) HWY_ATTR { return hn::Add(iota, hn::Set(d, first + i)); };
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    FourPhilox(stream, keys, block(i), block(i + lanes), block(i + 2 * lanes), block(i + 3 * lanes),
               [&](const PhiloxLanes& a, const PhiloxLanes& b, const PhiloxLanes& c,
                   const PhiloxLanes& e) HWY_ATTR {
                 store(a, i);
                 store(b, i + lanes);
                 store(c, i + 2 * lanes);
                 store(e, i + 3 * lanes);
               });
  }
}

// words[k * stride + i]: word k % 4 of block first + i * step + k / 4, for k in [0, 4 blocks).
// Writes whole vectors of i.
HWY_INLINE void FillBlockColumns(const RandomStream& stream, std::uint64_t first,
                                 std::uint64_t step, std::size_t count, std::size_t blocks,
                                 std::size_t stride, std::uint32_t* words) {
  const D64 d;
  const hn::Repartition<std::uint32_t, D64> d32;
  const std::size_t lanes = hn::Lanes(d);
  HWY_ALIGN std::uint64_t offsets[hn::MaxLanes(D64())];
  for (std::size_t i = 0; i < lanes; ++i) offsets[i] = 2 * i * step;
  const V64 offset = hn::Load(d, offsets);
  const PhiloxKeys keys(stream.seed);
  const auto store = [&](const PhiloxLanes& p, const PhiloxLanes& q, std::uint32_t* to) HWY_ATTR {
    hn::StoreU(hn::BitCast(d32, JoinHalves(p.w0, q.w0)), d32, to);
    hn::StoreU(hn::BitCast(d32, JoinHalves(p.w1, q.w1)), d32, to + stride);
    hn::StoreU(hn::BitCast(d32, JoinHalves(p.w2, q.w2)), d32, to + 2 * stride);
    hn::StoreU(hn::BitCast(d32, JoinHalves(p.w3, q.w3)), d32, to + 3 * stride);
  };
  const V64 one_step = hn::Set(d, step), one = hn::Set(d, 1);
  for (std::size_t b = 0; b < blocks; b += 2) {
    for (std::size_t i = 0; i < count; i += 2 * lanes) {
      const V64 even = hn::Add(offset, hn::Set(d, first + i * step + b));
      const V64 odd = hn::Add(even, one_step);
      std::uint32_t* to = words + 4 * b * stride + i;
      FourPhilox(stream, keys, even, odd, hn::Add(even, one), hn::Add(odd, one),
                 [&](const PhiloxLanes& p, const PhiloxLanes& q, const PhiloxLanes& r,
                     const PhiloxLanes& s) HWY_ATTR {
                   store(p, q, to);
                   if (b + 1 < blocks) store(r, s, to + 4 * stride);
                 });
    }
  }
}

#endif

// The random bits of one unit, with a vector to spare.
struct RandomBuffer {
  alignas(64) std::uint16_t fields[2 * kMaxChunk + 512];  // one row's, of 8, 16 or 32 bits
  alignas(64) std::uint32_t words[kMaxBlock * 128 + 64];  // all rows': 4, 2 or 1 rows' in a word
};
// Columns of `words`: a unit's columns, rounded up to whole vectors.
HWY_INLINE std::size_t WordStride(const Unit& unit) { return (unit.cols + 15) / 16 * 16; }

// The fields of `count` elements from `first` on, of plan.random_bits each, one after the other.
HWY_INLINE const std::uint8_t* FillFields(const QuantizePlan& plan, std::uint64_t first,
                                          std::size_t count, RandomBuffer* buffer) {
  const auto bytes = static_cast<std::size_t>(plan.random_bits) / 8, fields = 16 / bytes;
  const std::size_t skipped = static_cast<std::size_t>(first % fields);
  FillBlocks(plan.random, first / fields, (skipped + count + fields - 1) / fields, buffer->fields);
  return reinterpret_cast<const std::uint8_t*>(buffer->fields) + skipped * bytes;
}

// The fields of a unit of a transposed plan. A word holds those of 1, 2 or 4 memory rows (columns
// of x, whose rows are plan.rows long): words[k * WordStride + i] is word k of column i's run of
// bits.
HWY_INLINE void FillWords(const QuantizePlan& plan, const Unit& unit, RandomBuffer* buffer) {
  const std::size_t stride = WordStride(unit);
  const auto bytes = static_cast<std::size_t>(plan.random_bits) / 8, fields = 16 / bytes;
  const std::uint64_t first = std::uint64_t{unit.col} * plan.rows + unit.row;
  // If blocks of bits do not straddle the unit's columns:
  if (plan.rows % fields == 0 && unit.row % fields == 0 && unit.rows % fields == 0) {
    FillBlockColumns(plan.random, first / fields, plan.rows / fields, unit.cols, unit.rows / fields,
                     stride, buffer->words);
    return;
  }
  for (std::size_t i = 0; i < unit.cols; ++i) {
    const std::uint8_t* run =
        FillFields(plan, first + std::uint64_t{i} * plan.rows, unit.rows, buffer);
    for (std::size_t k = 0; 4 * k < unit.rows * bytes; ++k) {  // past the end: spare room
      std::memcpy(&buffer->words[k * stride + i], run + 4 * k, 4);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_RANDOM_INL_H_
