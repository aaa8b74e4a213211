// FillBits16 (base/random.h).
#include <algorithm>
#include <bit>
#include <cstring>

#include "fp4lab/base/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/base/fill_bits.cc"
#include "fp4lab/base/divide_up.h"

#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "fp4lab/base/simd/philox-inl.h"

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

void PhiloxBlocks(const RandomStream& stream, std::uint64_t first, std::size_t count,
                  std::uint64_t* HWY_RESTRICT out) {
  const D64 d;
  const std::size_t lanes = hn::Lanes(d);
  const PhiloxKeys keys = RoundKeys(
      {static_cast<std::uint32_t>(stream.seed), static_cast<std::uint32_t>(stream.seed >> 32)});
  HWY_ALIGN std::uint64_t pair[2 * hn::MaxLanes(d)];
  for (std::size_t i = 0; i < count; i += lanes) {
    const V64 block = hn::Add(hn::Iota(d, 0), hn::Set(d, first + i));
    const PhiloxLanes words =
        Philox(keys, {block, hn::ShiftRight<32>(block), hn::Set(d, std::uint64_t{stream.tensor}),
                      hn::Set(d, std::uint64_t{stream.step})});
    const V64 words01 = JoinHalves(words.w0, words.w1), words23 = JoinHalves(words.w2, words.w3);
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
