// RandomStream's Bits8, Bits16 and Bits32 of many elements at once.
#if defined(FP4LAB_BLOCK_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: once per target
#ifdef FP4LAB_BLOCK_RANDOM_INL_H_
#undef FP4LAB_BLOCK_RANDOM_INL_H_
#else
#define FP4LAB_BLOCK_RANDOM_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/random.h"
#include "fp4lab/block/plan.h"

#include <hwy/highway.h>

#include "fp4lab/base/simd/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The scalar definition of FillBlocks and FillBlockColumns: for targets with one lane, and for
// counters whose upper words differ.
HWY_INLINE void FillBlocksPlainly(const RandomStream& stream, std::uint64_t first,
                                  std::size_t count, std::uint16_t* out) {
  for (std::size_t i = 0; i < count; ++i) {
    const PhiloxBlock block = stream.Block(first + i);
    for (std::size_t k = 0; k < 8; ++k) {
      out[8 * i + k] = static_cast<std::uint16_t>(block[k / 2] >> (k % 2 * 16));
    }
  }
}
HWY_INLINE void FillBlockColumnsPlainly(const RandomStream& stream, std::uint64_t first,
                                        std::uint64_t step, std::size_t count, std::size_t blocks,
                                        std::size_t stride, std::uint32_t* words) {
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < 4 * blocks; ++k) {
      words[k * stride + i] = stream.Block(first + i * step + k / 4)[k % 4];
    }
  }
}

#if HWY_TARGET == HWY_SCALAR

// out[8 i .. 8 i + 7]: the fields of Philox block first + i.
HWY_INLINE void FillBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                           std::uint16_t* out) {
  FillBlocksPlainly(stream, first, count, out);
}

// words[k * stride + i]: word k % 4 of block first + i * step + k / 4, for k in [0, 4 blocks).
HWY_INLINE void FillBlockColumns(const RandomStream& stream, std::uint64_t first,
                                 std::uint64_t step, std::size_t count, std::size_t blocks,
                                 std::size_t stride, std::uint32_t* words) {
  FillBlockColumnsPlainly(stream, first, step, count, blocks, stride, words);
}

#else

// The keys of the rounds, in memory, so that a kernel broadcasts them with the load. Counters that
// share all but the lowest word share parts of the first three rounds, which are folded into keys:
//   round 1: {first_even, first_word, hi(p0) ^ odd[0], p0}     (first_even, first_word: scalars)
//   round 2: {hi(p1) ^ even[1], p1, p0 of round 1 ^ odd[1], second_word}
//   round 3: as any, with second_word as w3, which is folded into odd[2]
struct JoinedKeys {
  std::uint64_t even[kPhiloxRounds], odd[kPhiloxRounds];
  JoinedKeys(const RandomStream& stream, std::uint64_t first) {
    auto k0 = static_cast<std::uint32_t>(stream.seed);
    auto k1 = static_cast<std::uint32_t>(stream.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      even[round] = k0;
      odd[round] = k1;
      k0 += kPhiloxWeyl[0];
      k1 += kPhiloxWeyl[1];
    }
    const std::uint64_t p1 = std::uint64_t{kPhiloxMultipliers[1]} * stream.tensor;
    const std::uint64_t first_even = p1 >> 32 ^ first >> 32 ^ even[0];
    const std::uint64_t p0 = kPhiloxMultipliers[0] * (first_even & 0xFFFFFFFFu);
    odd[0] ^= stream.step;
    even[1] ^= p1 & 0xFFFFFFFFu;
    odd[1] ^= p0 >> 32;
    odd[2] ^= p0 & 0xFFFFFFFFu;
  }
};

// Rounds 1 and 2 of counters whose lowest words are the lanes of `block`; w3 stays 0, because
// JoinedKeys folds it into a key.
HWY_INLINE PhiloxLanes PhiloxStart(const JoinedKeys& keys, V64 block) {
  const D64 d;
  const V64 p0 = MulLow32(block, hn::Set(d, kPhiloxMultipliers[0]));
  const V64 w2 = hn::Xor(hn::ShiftRight<32>(p0), hn::Set(d, keys.odd[0]));
  const V64 p1 = MulLow32(w2, hn::Set(d, kPhiloxMultipliers[1]));
  return {hn::Xor(UpperHalves(p1), hn::Set(d, keys.even[1])), p1,
          hn::Xor(p0, hn::Set(d, keys.odd[1])), hn::Zero(d)};
}

// Calls use(a, b, c, e) with four vectors of blocks before the last round. Four at a time, because
// a round waits 7 cycles for its products and the out-of-order window is too short to overlap
// independent calls.
template <class Use>
HWY_INLINE void FourPhilox(const JoinedKeys& keys, V64 block_a, V64 block_b, V64 block_c,
                           V64 block_e, const Use& use) {
  PhiloxLanes a = PhiloxStart(keys, block_a), b = PhiloxStart(keys, block_b);
  PhiloxLanes c = PhiloxStart(keys, block_c), e = PhiloxStart(keys, block_e);
  for (int round = 2; round < kPhiloxRounds - 1; ++round) {
    const V64 k0 = hn::Set(D64(), keys.even[round]), k1 = hn::Set(D64(), keys.odd[round]);
    a = PhiloxRound(a, k0, k1);
    b = PhiloxRound(b, k0, k1);
    c = PhiloxRound(c, k0, k1);
    e = PhiloxRound(e, k0, k1);
  }
  use(a, b, c, e);
}

HWY_INLINE PhiloxLanes LastRound(const JoinedKeys& keys, const PhiloxLanes& c) {
  const D64 d;
  return PhiloxRound(c, hn::Set(d, keys.even[kPhiloxRounds - 1]),
                     hn::Set(d, keys.odd[kPhiloxRounds - 1]));
}

// Whether blocks [first, first + count) share the upper word of the counter.
HWY_INLINE bool ShareUpperWord(std::uint64_t first, std::uint64_t count) {
  return first >> 32 == (first + count) >> 32;
}

// Words 0 and 1, and 2 and 3, of blocks in 64-bit lanes.
struct PhiloxPairs {
  V64 w01, w23;
};
HWY_INLINE PhiloxPairs LastPairs(const JoinedKeys& keys, const PhiloxLanes& c) {
#if HWY_TARGET <= HWY_AVX3
  // A product with its halves exchanged is {lo, hi}; the round's other words are xored into hi.
  const auto joined = [](V64 product, V64 word, std::uint64_t key) HWY_ATTR {
    const __m512i turned = _mm512_shuffle_epi32(product.raw, _MM_PERM_CDAB);
    const __m512i k = _mm512_set1_epi64(static_cast<std::int64_t>(key));
    return V64{_mm512_mask_ternarylogic_epi32(turned, 0x5555, word.raw, k, 0x96)};
  };
  const D64 d;
  const V64 p0 = MulLow32(c.w0, hn::Set(d, kPhiloxMultipliers[0]));
  const V64 p1 = MulLow32(c.w2, hn::Set(d, kPhiloxMultipliers[1]));
  return {joined(p1, c.w1, keys.even[kPhiloxRounds - 1]),
          joined(p0, c.w3, keys.odd[kPhiloxRounds - 1])};
#else
  const PhiloxLanes p = LastRound(keys, c);
  return {JoinHalves(p.w0, p.w1), JoinHalves(p.w2, p.w3)};
#endif
}

// Calls store(block, pairs) for the blocks [first, first + count) in vectors, rounded up to four
// vectors; `block` is the index of the vector's first block. Lane i holds block order[i] of a
// vector.
template <class Store>
HWY_INLINE void ForEachPairs(const RandomStream& stream, std::uint64_t first, std::size_t count,
                             V64 order, const Store& store) {
  const D64 d;
  const std::size_t lanes = hn::Lanes(d);
  const JoinedKeys keys(stream, first);
  const auto block = [&](std::size_t i) HWY_ATTR { return hn::Add(order, hn::Set(d, first + i)); };
  for (std::size_t i = 0; i < count; i += 4 * lanes) {
    FourPhilox(keys, block(i), block(i + lanes), block(i + 2 * lanes), block(i + 3 * lanes),
               [&](const PhiloxLanes& a, const PhiloxLanes& b, const PhiloxLanes& c,
                   const PhiloxLanes& e) HWY_ATTR {
                 store(i, LastPairs(keys, a));
                 store(i + lanes, LastPairs(keys, b));
                 store(i + 2 * lanes, LastPairs(keys, c));
                 store(i + 3 * lanes, LastPairs(keys, e));
               });
  }
}

// Output buffers of vectors of blocks have room for a multiple of so many blocks (four vectors).
inline constexpr std::size_t kBlocksAtOnce = 4 * hn::MaxLanes(D64());

// out[8 i .. 8 i + 7]: the fields of Philox block first + i (x86 is little-endian, as they are
// defined). Writes whole vectors.
HWY_INLINE void FillBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                           std::uint16_t* out) {
  if (!ShareUpperWord(first, count + kBlocksAtOnce)) {
    return FillBlocksPlainly(stream, first, count, out);
  }
#if HWY_TARGET <= HWY_AVX3
  // With this order, interleaving within 128-bit lanes stores the blocks in order.
  const V64 order{_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)};
  const auto store = [&](std::size_t i, const PhiloxPairs& p) HWY_ATTR {
    _mm512_storeu_si512(out + 8 * i, _mm512_unpacklo_epi64(p.w01.raw, p.w23.raw));
    _mm512_storeu_si512(out + 8 * i + 32, _mm512_unpackhi_epi64(p.w01.raw, p.w23.raw));
  };
#else
  const D64 d;
  const V64 order = hn::Iota(d, 0);
  const auto store = [&](std::size_t i, const PhiloxPairs& p) HWY_ATTR {
    hn::StoreInterleaved2(p.w01, p.w23, d, reinterpret_cast<std::uint64_t*>(out + 8 * i));
  };
#endif
  ForEachPairs(stream, first, count, order, store);
}

// words[k * stride + i]: word k % 4 of block first + i * step + k / 4, for k in [0, 4 blocks).
// Writes whole vectors of i.
HWY_INLINE void FillBlockColumns(const RandomStream& stream, std::uint64_t first,
                                 std::uint64_t step, std::size_t count, std::size_t blocks,
                                 std::size_t stride, std::uint32_t* words) {
  const D64 d;
  const hn::Repartition<std::uint32_t, D64> d32;
  const std::size_t lanes = hn::Lanes(d);
  if (!ShareUpperWord(first, (count + 2 * lanes) * step + blocks + 1)) {
    return FillBlockColumnsPlainly(stream, first, step, count, blocks, stride, words);
  }
  HWY_ALIGN std::uint64_t offsets[hn::MaxLanes(D64())];
  for (std::size_t i = 0; i < lanes; ++i) offsets[i] = 2 * i * step;
  const V64 offset = hn::Load(d, offsets);
  const JoinedKeys keys(stream, first);
  const auto store = [&](const PhiloxLanes& before_p, const PhiloxLanes& before_q,
                         std::uint32_t* to) HWY_ATTR {
    const PhiloxLanes p = LastRound(keys, before_p), q = LastRound(keys, before_q);
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
      FourPhilox(keys, even, odd, hn::Add(even, one), hn::Add(odd, one),
                 [&](const PhiloxLanes& p, const PhiloxLanes& q, const PhiloxLanes& r,
                     const PhiloxLanes& s) HWY_ATTR {
                   store(p, q, to);
                   if (b + 1 < blocks) store(r, s, to + 4 * stride);
                 });
    }
  }
}

#endif

// The random bits of one unit, with room for one more vector.
struct RandomBuffer {
  alignas(64) std::uint16_t fields[2 * kMaxChunk + 512];  // of one row, 16 or 32 bits each
  alignas(64) std::uint32_t words[kMaxBlock * 128 + 64];  // of all rows, 2 or 1 rows per word
};
// Columns of `words`: a unit's columns, rounded up to whole vectors.
HWY_INLINE std::size_t WordStride(const Unit& unit) { return RoundUp(unit.cols, 16); }

// The fields of `count` elements from `first` on, of plan.random_bits each, one after the other.
HWY_INLINE const std::uint8_t* FillFields(const QuantizePlan& plan, std::uint64_t first,
                                          std::size_t count, RandomBuffer* buffer) {
  const auto bytes = static_cast<std::size_t>(plan.random_bits) / 8, fields = 16 / bytes;
  const std::size_t skipped = static_cast<std::size_t>(first % fields);
  FillBlocks(plan.random, first / fields, DivideUp(skipped + count, fields), buffer->fields);
  return reinterpret_cast<const std::uint8_t*>(buffer->fields) + skipped * bytes;
}

// Makes the fields of a unit of a transposed plan. A word holds the fields of 1 or 2 memory rows
// (columns of x, whose rows are plan.rows long): words[k * WordStride + i] is word k of column i's
// run of bits.
HWY_INLINE void FillWords(const QuantizePlan& plan, const Unit& unit, RandomBuffer* buffer) {
  const std::size_t stride = WordStride(unit);
  const auto bytes = static_cast<std::size_t>(plan.random_bits) / 8, fields = 16 / bytes;
  const std::uint64_t first = std::uint64_t{unit.col} * plan.rows + unit.row;
  // Fast path: Philox blocks do not straddle the unit's columns.
  if (plan.rows % fields == 0 && unit.row % fields == 0 && unit.rows % fields == 0) {
    FillBlockColumns(plan.random, first / fields, plan.rows / fields, unit.cols, unit.rows / fields,
                     stride, buffer->words);
    return;
  }
  for (std::size_t i = 0; i < unit.cols; ++i) {
    const std::uint8_t* run =
        FillFields(plan, first + std::uint64_t{i} * plan.rows, unit.rows, buffer);
    for (std::size_t k = 0; 4 * k < unit.rows * bytes; ++k) {  // may read the buffer's spare room
      std::memcpy(&buffer->words[k * stride + i], run + 4 * k, 4);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_BLOCK_RANDOM_INL_H_
