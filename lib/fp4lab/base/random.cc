#include "fp4lab/base/random.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/base/random.cc"
#include "fp4lab/base/divide_up.h"

#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// The scalar target: its one 32-bit lane cannot hold a 64-bit product.
void PhiloxBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                  std::uint64_t* HWY_RESTRICT out) {
  for (std::size_t i = 0; i < count; ++i) {
    const PhiloxBlock words = stream.Block(first + i);
    out[2 * i] = std::uint64_t{words[1]} << 32 | words[0];
    out[2 * i + 1] = std::uint64_t{words[3]} << 32 | words[2];
  }
}

#else

using D64 = hn::ScalableTag<std::uint64_t>;
using V64 = hn::Vec<D64>;

// The 64-bit products of the lanes' low words.
HWY_INLINE V64 MulLow(D64 d, V64 a, V64 b) {
  const hn::Repartition<std::uint32_t, D64> d32;
  return hn::BitCast(d, hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b)));
}

// Computes one block a lane, each of the four words in the low half of a 64-bit lane (the high
// halves hold leftovers, which no product reads).
void PhiloxBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                  std::uint64_t* HWY_RESTRICT out) {
  const D64 d;
  const std::size_t lanes = hn::Lanes(d);
  const V64 multiplier0 = hn::Set(d, kPhiloxMultipliers[0]);
  const V64 multiplier1 = hn::Set(d, kPhiloxMultipliers[1]);
  const V64 low = hn::Set(d, 0xFFFFFFFFu);
  HWY_ALIGN std::uint64_t pair[2 * hn::MaxLanes(d)];
  for (std::size_t i = 0; i < count; i += lanes) {
    const V64 block = hn::Add(hn::Iota(d, 0), hn::Set(d, first + i));
    V64 x0 = block, x1 = hn::ShiftRight<32>(block);
    V64 x2 = hn::Set(d, stream.tensor), x3 = hn::Set(d, stream.step);
    std::uint32_t key0 = static_cast<std::uint32_t>(stream.seed);
    std::uint32_t key1 = static_cast<std::uint32_t>(stream.seed >> 32);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V64 p0 = MulLow(d, x0, multiplier0), p1 = MulLow(d, x2, multiplier1);
      x0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), x1), hn::Set(d, key0));
      x1 = p1;
      x2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), x3), hn::Set(d, key1));
      x3 = p0;
      key0 += kPhiloxWeyl[0];
      key1 += kPhiloxWeyl[1];
    }
    const V64 words01 = hn::Or(hn::And(x0, low), hn::ShiftLeft<32>(x1));
    const V64 words23 = hn::Or(hn::And(x2, low), hn::ShiftLeft<32>(x3));
    if (count - i >= lanes) {
      hn::StoreInterleaved2(words01, words23, d, out + 2 * i);
    } else {
      hn::StoreInterleaved2(words01, words23, d, pair);
      std::copy_n(pair, 2 * (count - i), out + 2 * i);
    }
  }
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(PhiloxBlocks);

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kFieldsPerBlock = 8;
constexpr std::size_t kBlocksAtOnce = 64;

}  // namespace

void FillBits16(const RandomStream& stream, std::uint64_t first, std::span<std::uint16_t> fields) {
  HWY_ALIGN std::uint64_t words[2 * kBlocksAtOnce];
  std::size_t done = 0;
  while (done < fields.size()) {
    const std::uint64_t element = first + done;
    const std::size_t skip = element % kFieldsPerBlock;
    const std::size_t wanted =
        std::min(fields.size() - done, kBlocksAtOnce * kFieldsPerBlock - skip);
    const std::size_t blocks = DivideUp(skip + wanted, kFieldsPerBlock);
    HWY_DYNAMIC_DISPATCH(PhiloxBlocks)(stream, element / kFieldsPerBlock, blocks, words);
    // In little-endian memory the words of a block are its fields in order.
    std::memcpy(fields.data() + done, reinterpret_cast<const char*>(words) + 2 * skip, 2 * wanted);
    done += wanted;
  }
}

}  // namespace fp4lab
#endif  // HWY_ONCE
