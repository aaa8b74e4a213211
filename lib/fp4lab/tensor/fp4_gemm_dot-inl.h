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

HWY_INLINE Fp4IntVec LoadDotBytes(const std::uint8_t* from) {
  return hn::Load(Fp4IntTag(), reinterpret_cast<const std::int32_t*>(from));
}
HWY_INLINE Fp4IntVec BroadcastQuad(const std::uint8_t* from) {
  std::int32_t quad;
  std::memcpy(&quad, from, sizeof(quad));
  return hn::Set(Fp4IntTag(), quad);
}

// How the target multiplies bytes. Lane n of Whole(sum) is start(n) + the sum over quads of
// a[0] * b(n)[0] + ... + a[3] * b(n)[3], with a unsigned and b signed; `sum` begins as
// Start(start). In the FP4 GEMM |a|, |b|, the number of quads and |start| are at most 24, 12, 8 and
// 12 * 12 * 32. So sums of pairs fit 16 bits, and a fits a signed byte:
//   12 * 12 * 32 + 16 * 24 * 12 < 2^15

// Sums that are whole at every step, in 32 bits.
struct WholeSums {
  static HWY_INLINE Fp4IntVec Start(Fp4IntVec start) { return start; }
  static HWY_INLINE Fp4IntVec Whole(Fp4IntVec sum) { return sum; }
};

#if HWY_TARGET <= HWY_AVX3_DL && HWY_ARCH_X86
struct Dots : WholeSums {
  // AVX3_DL implies AVX512_VNNI, but Highway 1.0.3 does not tell the compiler: the intrinsic does
  // not compile.
  static HWY_INLINE Fp4IntVec Add(Fp4IntVec sum, Fp4IntVec a, Fp4IntVec b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#elif HWY_TARGET != HWY_SCALAR && (HWY_ARCH_ARM_A64 || HWY_TARGET <= HWY_SSSE3)
// Sums of pairs in 16 bits, which Whole adds to 32 bits at the end.
#if HWY_ARCH_ARM_A64
HWY_INLINE auto PairProducts(Fp4IntVec a, Fp4IntVec b) {
  const int8x16_t x = vreinterpretq_s8_s32(a.raw), y = vreinterpretq_s8_s32(b.raw);
  return vreinterpretq_s32_s16(
      vpaddq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)), vmull_high_s8(x, y)));
}
HWY_INLINE auto AddPairs(Fp4IntVec x) { return vpaddlq_s16(vreinterpretq_s16_s32(x.raw)); }
#elif HWY_TARGET <= HWY_AVX3
HWY_INLINE auto PairProducts(Fp4IntVec a, Fp4IntVec b) {
  return _mm512_maddubs_epi16(a.raw, b.raw);
}
HWY_INLINE auto AddPairs(Fp4IntVec x) { return _mm512_madd_epi16(x.raw, _mm512_set1_epi16(1)); }
#elif HWY_TARGET <= HWY_AVX2
HWY_INLINE auto PairProducts(Fp4IntVec a, Fp4IntVec b) {
  return _mm256_maddubs_epi16(a.raw, b.raw);
}
HWY_INLINE auto AddPairs(Fp4IntVec x) { return _mm256_madd_epi16(x.raw, _mm256_set1_epi16(1)); }
#else
HWY_INLINE auto PairProducts(Fp4IntVec a, Fp4IntVec b) { return _mm_maddubs_epi16(a.raw, b.raw); }
HWY_INLINE auto AddPairs(Fp4IntVec x) { return _mm_madd_epi16(x.raw, _mm_set1_epi16(1)); }
#endif
struct Dots {
  static HWY_INLINE Fp4IntVec Start(Fp4IntVec start) {
    return hn::And(start, hn::Set(Fp4IntTag(), 0xFFFF));
  }
  static HWY_INLINE Fp4IntVec Add(Fp4IntVec sum, Fp4IntVec a, Fp4IntVec b) {
    const hn::Repartition<std::int16_t, Fp4IntTag> pairs;
    const Fp4IntVec products{PairProducts(a, b)};
    return hn::BitCast(Fp4IntTag(), hn::Add(hn::BitCast(pairs, sum), hn::BitCast(pairs, products)));
  }
  static HWY_INLINE Fp4IntVec Whole(Fp4IntVec sum) { return Fp4IntVec{AddPairs(sum)}; }
};
#else  // 32-bit products of one byte a lane
struct Dots : WholeSums {
  static HWY_INLINE Fp4IntVec Add(Fp4IntVec sum, Fp4IntVec a, Fp4IntVec b) {
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
};
#endif

#if HWY_TARGET != HWY_SCALAR && HWY_ARCH_ARM_A64
// By SDOT, on CPUs with HasDotProduct() of base/simd/simd.h.
struct SdotDots : WholeSums {
  static HWY_INLINE Fp4IntVec Add(Fp4IntVec sum, Fp4IntVec a, Fp4IntVec b) {
#if defined(__ARM_FEATURE_DOTPROD)
    return Fp4IntVec(vdotq_s32(sum.raw, vreinterpretq_s8_s32(a.raw), vreinterpretq_s8_s32(b.raw)));
#else
    // No target of Highway 1.0.3 tells the compiler of FEAT_DotProd: the intrinsic does not
    // compile. The assembler may take more from here on, which the compiler does not use.
    asm(".arch armv8.6-a+crypto+sve2\n\tsdot %0.4s, %1.16b, %2.16b"
        : "+w"(sum.raw)
        : "w"(a.raw), "w"(b.raw));
    return sum;
#endif
  }
};

// By SMMLA, on CPUs with HasMatrixMultiply(). A vector holds eight steps of k of two rows of a, or
// of two columns of b, and a sum is a square: (row 0, column 0), (0, 1), (1, 0), (1, 1). Packing
// adds columns up by SDOT.
struct SmmlaDots : SdotDots {
  static HWY_INLINE Fp4IntVec AddSquare(Fp4IntVec sum, Fp4IntVec a, Fp4IntVec b) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    return Fp4IntVec(vmmlaq_s32(sum.raw, vreinterpretq_s8_s32(a.raw), vreinterpretq_s8_s32(b.raw)));
#else
    asm(".arch armv8.6-a+crypto+sve2\n\tsmmla %0.4s, %1.16b, %2.16b"
        : "+w"(sum.raw)
        : "w"(a.raw), "w"(b.raw));
    return sum;
#endif
  }

  // Of two quads of four rows or columns: both quads of 0 and 1, and of 2 and 3.
  static HWY_INLINE Fp4IntVec FirstOctets(Fp4IntVec quad, Fp4IntVec next) {
    return Fp4IntVec(vzip1q_s32(quad.raw, next.raw));
  }
  static HWY_INLINE Fp4IntVec LastOctets(Fp4IntVec quad, Fp4IntVec next) {
    return Fp4IntVec(vzip2q_s32(quad.raw, next.raw));
  }

  // Of the squares of columns 0 and 1 and of columns 2 and 3: row 0, and row 1.
  static HWY_INLINE Fp4IntVec FirstRow(Fp4IntVec left, Fp4IntVec right) {
    return Fp4IntVec(vreinterpretq_s32_s64(
        vzip1q_s64(vreinterpretq_s64_s32(left.raw), vreinterpretq_s64_s32(right.raw))));
  }
  static HWY_INLINE Fp4IntVec LastRow(Fp4IntVec left, Fp4IntVec right) {
    return Fp4IntVec(vreinterpretq_s32_s64(
        vzip2q_s64(vreinterpretq_s64_s32(left.raw), vreinterpretq_s64_s32(right.raw))));
  }
};
#endif

// Whether sums are squares, of octets (eight steps of k) in place of quads.
template <class DotsUsed>
inline constexpr bool kSquares = requires {
  DotsUsed::AddSquare;
};

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
