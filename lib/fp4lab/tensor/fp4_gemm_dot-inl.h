// Dot products of unsigned with signed bytes, four per 32-bit lane, with the best instruction of
// each target.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_FP4_GEMM_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT: per target
#ifdef FP4LAB_TENSOR_FP4_GEMM_DOT_INL_H_
#undef FP4LAB_TENSOR_FP4_GEMM_DOT_INL_H_
#else
#define FP4LAB_TENSOR_FP4_GEMM_DOT_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "fp4lab/base/simd/fma-inl.h"
#include "fp4lab/tensor/sum_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Fp4IntTag = hn::RebindToSigned<GemmTag>;
using Fp4IntVec = hn::Vec<Fp4IntTag>;

// The register tile: 6 x 2 vectors of sums and as many block sums fit 32 registers; 2 x 2 fit 16.
inline constexpr std::size_t kFp4TileRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 6 : 2;
inline constexpr std::size_t kFp4TileVectors = 2;
inline constexpr std::size_t kFp4PanelCols = kFp4TileVectors * kLanes;

// Lane n of a DotSum is start(n) + the sum over quads of a[0] * b(n)[0] + ... + a[3] * b(n)[3],
// with a unsigned and b signed. In the FP4 GEMM |a|, |b|, the number of quads and |start| are at
// most 24, 12, 8 and 12 * 12 * 32, so that sums of pairs fit 16 bits:
//   12 * 12 * 32 + 16 * 24 * 12 < 2^15
using DotCodes = Fp4IntVec;
using DotBytes = Fp4IntVec;

HWY_INLINE DotBytes LoadDotBytes(const std::uint8_t* from) {
  return hn::Load(Fp4IntTag(), reinterpret_cast<const std::int32_t*>(from));
}
HWY_INLINE DotCodes BroadcastQuad(const std::uint8_t* from) {
  std::int32_t quad;
  std::memcpy(&quad, from, sizeof(quad));
  return hn::Set(Fp4IntTag(), quad);
}

#if HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86
// AVX3_DL implies AVX512_VNNI, but Highway 1.0.3 does not tell the compiler: the intrinsic does not
// compile.
using DotSum = Fp4IntVec;
HWY_INLINE DotSum StartDot(const std::uint8_t* from) { return LoadDotBytes(from); }
HWY_INLINE DotSum AddDot(DotSum sum, DotCodes a, DotBytes b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
HWY_INLINE Fp4IntVec WholeDot(DotSum sum) { return sum; }
// `start` in the form that StartDot loads.
HWY_INLINE Fp4IntVec DotStart(Fp4IntVec start) { return start; }
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET <= HWY_SSSE3
// pmaddubsw: sums of pairs in 16 bits, which WholeDot adds to 32 bits at the end.
using DotSum = Fp4IntVec;
HWY_INLINE DotSum StartDot(const std::uint8_t* from) { return LoadDotBytes(from); }
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE auto PairProducts(DotCodes a, DotBytes b) { return _mm512_maddubs_epi16(a.raw, b.raw); }
HWY_INLINE auto AddPairs(DotSum x) { return _mm512_madd_epi16(x.raw, _mm512_set1_epi16(1)); }
#elif HWY_TARGET <= HWY_AVX2
HWY_INLINE auto PairProducts(DotCodes a, DotBytes b) { return _mm256_maddubs_epi16(a.raw, b.raw); }
HWY_INLINE auto AddPairs(DotSum x) { return _mm256_madd_epi16(x.raw, _mm256_set1_epi16(1)); }
#else
HWY_INLINE auto PairProducts(DotCodes a, DotBytes b) { return _mm_maddubs_epi16(a.raw, b.raw); }
HWY_INLINE auto AddPairs(DotSum x) { return _mm_madd_epi16(x.raw, _mm_set1_epi16(1)); }
#endif
HWY_INLINE DotSum AddDot(DotSum sum, DotCodes a, DotBytes b) {
  const hn::Repartition<std::int16_t, Fp4IntTag> pairs;
  const Fp4IntVec products = {PairProducts(a, b)};
  return hn::BitCast(Fp4IntTag(), hn::Add(hn::BitCast(pairs, sum), hn::BitCast(pairs, products)));
}
HWY_INLINE Fp4IntVec WholeDot(DotSum sum) { return {AddPairs(sum)}; }
HWY_INLINE Fp4IntVec DotStart(Fp4IntVec start) {
  return hn::And(start, hn::Set(Fp4IntTag(), 0xFFFF));
}
#else  // 32-bit products of one byte a lane
using DotSum = Fp4IntVec;
HWY_INLINE DotSum StartDot(const std::uint8_t* from) { return LoadDotBytes(from); }
HWY_INLINE DotSum AddDot(DotSum sum, DotCodes a, DotBytes b) {
  const Fp4IntTag d;
  const Fp4IntVec low = hn::Set(d, 0xFF);
  sum = hn::Add(sum, hn::Mul(hn::And(a, low), hn::ShiftRight<24>(hn::ShiftLeft<24>(b))));
  a = hn::ShiftRight<8>(a);
  sum = hn::Add(sum, hn::Mul(hn::And(a, low), hn::ShiftRight<24>(hn::ShiftLeft<16>(b))));
  a = hn::ShiftRight<8>(a);
  sum = hn::Add(sum, hn::Mul(hn::And(a, low), hn::ShiftRight<24>(hn::ShiftLeft<8>(b))));
  a = hn::ShiftRight<8>(a);
  return hn::Add(sum, hn::Mul(hn::And(a, low), hn::ShiftRight<24>(b)));
}
HWY_INLINE Fp4IntVec WholeDot(DotSum sum) { return sum; }
HWY_INLINE Fp4IntVec DotStart(Fp4IntVec start) { return start; }
#endif

HWY_INLINE GemmVec FinishDot(DotSum sum) { return hn::ConvertTo(GemmTag(), WholeDot(sum)); }

// fl(a * b + c) for an exact product a * b: fused and separate operations give the same result.
HWY_INLINE GemmVec AddExact(GemmVec a, GemmVec b, GemmVec c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  return hn::Add(hn::Mul(a, b), c);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_FP4_GEMM_DOT_INL_H_
