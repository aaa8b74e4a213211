// CUDA's intrinsics on the host, for tests of device formulas where there is no GPU: as much of
// cuda_bf16.h and of the built-in functions as lib/fp4lab/cuda/quantize/values/*.cuh call. Rounding
// is that of the PTX ISA. It takes the place of CUDA's header of this name.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#define __device__
#define __forceinline__ inline
#define __noinline__

using std::max, std::min;

struct uint4 {
  std::uint32_t x, y, z, w;
};

inline float __uint_as_float(std::uint32_t bits) { return std::bit_cast<float>(bits); }
inline std::uint32_t __float_as_uint(float x) { return std::bit_cast<std::uint32_t>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __fmaf_rz(float a, float b, float c) {
  const float nearest = std::fmaf(a, b, c);
  // Exact in binary64 where a is 2, as CurveOfE2m1 has it.
  const double exact = static_cast<double>(a) * b + c;
  return std::fabs(static_cast<double>(nearest)) > std::fabs(exact) ? std::nextafter(nearest, 0.0f)
                                                                    : nearest;
}
inline float __fsqrt_rn(float x) { return std::sqrt(x); }

inline std::uint32_t __byte_perm(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (unsigned i = 0; i < 4; ++i) {
    result |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7u)) & 0xFFu)
              << (8 * i);
  }
  return result;
}
inline int __viaddmax_s32(int a, int b, int c) {
  return std::max(static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)), c);
}
inline std::uint32_t __dp2a_lo(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return c + (a & 0xFFFFu) * (b & 0xFFu) + (a >> 16) * (b >> 8 & 0xFFu);
}

// ---- Two numbers of 16 bits in a word

namespace host {
template <class Of>
std::uint32_t Halves(std::uint32_t a, std::uint32_t b, const Of& of) {
  return (of(a & 0xFFFFu, b & 0xFFFFu) & 0xFFFFu) | of(a >> 16, b >> 16) << 16;
}
inline float Value(std::uint32_t bf16) { return __uint_as_float(bf16 << 16); }
inline std::uint32_t Rounded(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  return x != x ? 0x7FFFu : (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
}
}  // namespace host

inline std::uint32_t __vmaxu2(std::uint32_t a, std::uint32_t b) {
  return host::Halves(a, b, [](std::uint32_t x, std::uint32_t y) { return std::max(x, y); });
}
inline std::uint32_t __vminu2(std::uint32_t a, std::uint32_t b) {
  return host::Halves(a, b, [](std::uint32_t x, std::uint32_t y) { return std::min(x, y); });
}

struct __nv_bfloat162 {
  std::uint32_t word;
};

namespace host {
template <class Of>
__nv_bfloat162 Pair(__nv_bfloat162 a, __nv_bfloat162 b, const Of& of) {
  return {Halves(a.word, b.word, [&](std::uint32_t x, std::uint32_t y) {
    return Rounded(of(Value(x), Value(y)));
  })};
}
}  // namespace host

inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
  return {host::Rounded(a) | host::Rounded(b) << 16};
}
inline __nv_bfloat162 __hge2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return host::Pair(a, b, [](float x, float y) { return x >= y ? 1.0f : 0.0f; });
}
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return host::Pair(a, b, [](float x, float y) { return x + y; });
}
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return host::Pair(a, b, [](float x, float y) { return x * y; });
}
inline __nv_bfloat162 __hmul2_rn(__nv_bfloat162 a, __nv_bfloat162 b) { return __hmul2(a, b); }
// Exact where the sum fits into binary32, as sums of a few E2M1 numbers do.
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  const auto product = host::Pair(a, b, [](float x, float y) { return x * y; });
  return __hadd2(product, c);
}
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) { return {a.word & 0x7FFF7FFFu}; }
// The larger number; NaN is ignored.
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) {
  return host::Pair(a, b, [](float x, float y) { return x != x || x < y ? y : x; });
}
