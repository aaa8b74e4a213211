// fp4lab's conversions against NVIDIA's host code in cuda_fp4.h, cuda_fp6.h, cuda_fp8.h,
// cuda_fp16.h and cuda_bf16.h. Built where CMake finds those headers; no GPU and no CUDA library is
// needed.
//
// All conversions that both sides have give the same codes, NaN and overflow included: all 2^32
// inputs under [exhaustive] (`ctest -C Exhaustive -L exhaustive`; about 5 minutes on two cores,
// measured on slices), BF16 values and boundaries by default. Only NVIDIA's headers round down
// (__float2half_rd, __float2bfloat16_rd). Only fp4lab has kStochastic, FP4, FP6 and FP8 rounded up,
// E8M0 rounded to nearest, UE4M3, UE5M3 and TF32. Decoding differs in NaNs only, as NanDifferences
// lists.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "tests/support/catch.h"
#include "tests/support/format_cases.h"

namespace fp4lab {
namespace {

struct Conversion {
  std::string_view name;
  FormatId format;
  Rounding rounding;
  Overflow overflow;
  std::uint32_t (*convert)(float);
};

template <cudaRoundMode kMode>
std::uint32_t ToFp4(float x) {
  return __nv_cvt_float_to_fp4(x, __NV_E2M1, kMode);
}
template <__nv_fp6_interpretation_t kFormat, cudaRoundMode kMode>
std::uint32_t ToFp6(float x) {
  return __nv_cvt_float_to_fp6(x, kFormat, kMode);
}
template <__nv_fp8_interpretation_t kFormat, __nv_saturation_t kSaturation>
std::uint32_t ToFp8(float x) {
  return __nv_cvt_float_to_fp8(x, kSaturation, kFormat);
}
template <__nv_saturation_t kSaturation, cudaRoundMode kMode>
std::uint32_t ToE8m0(float x) {
  return __nv_cvt_float_to_e8m0(x, kSaturation, kMode);
}
std::uint32_t Bits(__half x) { return static_cast<__half_raw>(x).x; }
std::uint32_t Bits(__nv_bfloat16 x) { return static_cast<__nv_bfloat16_raw>(x).x; }

constexpr Rounding kNear = Rounding::kNearestEven, kZero = Rounding::kTowardZero,
                   kUp = Rounding::kTowardPositive;
constexpr Overflow kSaturate = Overflow::kSaturate, kSpecial = Overflow::kSpecial;

const std::vector<Conversion>& Conversions() {
  static const std::vector<Conversion> conversions = {
      {"e2m1", FormatId::kE2M1, kNear, kSaturate, ToFp4<cudaRoundNearest>},
      {"e2m1 rz", FormatId::kE2M1, kZero, kSaturate, ToFp4<cudaRoundZero>},
      {"e2m3", FormatId::kE2M3, kNear, kSaturate, ToFp6<__NV_E2M3, cudaRoundNearest>},
      {"e2m3 rz", FormatId::kE2M3, kZero, kSaturate, ToFp6<__NV_E2M3, cudaRoundZero>},
      {"e3m2", FormatId::kE3M2, kNear, kSaturate, ToFp6<__NV_E3M2, cudaRoundNearest>},
      {"e3m2 rz", FormatId::kE3M2, kZero, kSaturate, ToFp6<__NV_E3M2, cudaRoundZero>},
      {"e4m3 satfinite", FormatId::kE4M3, kNear, kSaturate, ToFp8<__NV_E4M3, __NV_SATFINITE>},
      {"e4m3 nosat", FormatId::kE4M3, kNear, kSpecial, ToFp8<__NV_E4M3, __NV_NOSAT>},
      {"e5m2 satfinite", FormatId::kE5M2, kNear, kSaturate, ToFp8<__NV_E5M2, __NV_SATFINITE>},
      {"e5m2 nosat", FormatId::kE5M2, kNear, kSpecial, ToFp8<__NV_E5M2, __NV_NOSAT>},
      {"e8m0 rz satfinite", FormatId::kE8M0, kZero, kSaturate,
       ToE8m0<__NV_SATFINITE, cudaRoundZero>},
      {"e8m0 rz", FormatId::kE8M0, kZero, kSpecial, ToE8m0<__NV_NOSAT, cudaRoundZero>},
      {"e8m0 rp satfinite", FormatId::kE8M0, kUp, kSaturate,
       ToE8m0<__NV_SATFINITE, cudaRoundPosInf>},
      {"e8m0 rp", FormatId::kE8M0, kUp, kSpecial, ToE8m0<__NV_NOSAT, cudaRoundPosInf>},
      {"fp16 rn", FormatId::kFP16, kNear, kSpecial,
       [](float x) { return Bits(__float2half_rn(x)); }},
      {"fp16 rz", FormatId::kFP16, kZero, kSpecial,
       [](float x) { return Bits(__float2half_rz(x)); }},
      {"fp16 ru", FormatId::kFP16, kUp, kSpecial, [](float x) { return Bits(__float2half_ru(x)); }},
      {"bf16 rn", FormatId::kBF16, kNear, kSpecial,
       [](float x) { return Bits(__float2bfloat16_rn(x)); }},
      {"bf16 rz", FormatId::kBF16, kZero, kSpecial,
       [](float x) { return Bits(__float2bfloat16_rz(x)); }},
      {"bf16 ru", FormatId::kBF16, kUp, kSpecial,
       [](float x) { return Bits(__float2bfloat16_ru(x)); }},
  };
  return conversions;
}

bool SameCode(const Conversion& conversion, float x) {
  return conversion.convert(x) ==
         Encode(conversion.format, x, conversion.rounding, 0, conversion.overflow);
}

TEST_CASE("NVIDIA's host conversions give our codes", "[formats][cuda]") {
  for (const Conversion& conversion : Conversions()) {
    std::vector<float> inputs = AllBf16();
    const std::vector<float> boundaries = BoundaryInputs(FormatOf(conversion.format));
    inputs.insert(inputs.end(), boundaries.begin(), boundaries.end());
    std::size_t differences = 0;
    for (const float x : inputs) {
      if (SameCode(conversion, x) || ++differences > 5) continue;
      UNSCOPED_INFO("bits " << std::hex << std::bit_cast<std::uint32_t>(x));
    }
    INFO(conversion.name);
    CHECK(differences == 0);
  }
}

TEST_CASE("NVIDIA's host conversions give our codes for all 2^32 floats",
          "[.][formats][cuda][exhaustive]") {
  for (const Conversion& conversion : Conversions()) {
    DYNAMIC_SECTION(std::string(conversion.name)) {
      std::vector<std::size_t> differences(0x10000);
      ParallelFor(differences.size(), [&](std::size_t part) {
        for (std::uint32_t i = 0; i < 0x10000; ++i) {
          const std::uint32_t u = static_cast<std::uint32_t>(part) << 16 | i;
          differences[part] += !SameCode(conversion, std::bit_cast<float>(u));
        }
      });
      CHECK(std::accumulate(differences.begin(), differences.end(), std::size_t{0}) == 0);
    }
  }
}

TEST_CASE("NVIDIA's conversions from FP16 and BF16 are ours of the widened value",
          "[formats][cuda]") {
  std::size_t wrong_half = 0, wrong_bf16 = 0;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    __half_raw half;
    half.x = static_cast<unsigned short>(code);
    __nv_bfloat16_raw bf16;
    bf16.x = static_cast<unsigned short>(code);
    const float h = Decode(FormatId::kFP16, code), b = Decode(FormatId::kBF16, code);
    const cudaRoundMode near = cudaRoundNearest;
    for (const auto& [ours, theirs] :
         {std::pair{FormatId::kE4M3, __NV_E4M3}, std::pair{FormatId::kE5M2, __NV_E5M2}}) {
      wrong_half += Encode(ours, h) != __nv_cvt_halfraw_to_fp8(half, __NV_SATFINITE, theirs);
      wrong_bf16 += Encode(ours, b) != __nv_cvt_bfloat16raw_to_fp8(bf16, __NV_SATFINITE, theirs);
    }
    for (const auto& [ours, theirs] :
         {std::pair{FormatId::kE2M3, __NV_E2M3}, std::pair{FormatId::kE3M2, __NV_E3M2}}) {
      wrong_half += Encode(ours, h) != __nv_cvt_halfraw_to_fp6(half, theirs, near);
      wrong_bf16 += Encode(ours, b) != __nv_cvt_bfloat16raw_to_fp6(bf16, theirs, near);
    }
    wrong_half += Encode(FormatId::kE2M1, h) != __nv_cvt_halfraw_to_fp4(half, __NV_E2M1, near);
    wrong_bf16 += Encode(FormatId::kE2M1, b) != __nv_cvt_bfloat16raw_to_fp4(bf16, __NV_E2M1, near);
    wrong_bf16 += Encode(FormatId::kE8M0, b, kUp) !=
                  __nv_cvt_bfloat16raw_to_e8m0(bf16, __NV_SATFINITE, cudaRoundPosInf);
  }
  CHECK(wrong_half == 0);
  CHECK(wrong_bf16 == 0);
}

float FromHalf(__half_raw raw) { return __half2float(__half(raw)); }

// NVIDIA's decoding of a format, and the binary32 bits that it gives a NaN code.
struct NanDifference {
  std::string_view name;
  FormatId format;
  float (*decode)(std::uint32_t code);
  std::uint32_t (*nan)(std::uint32_t code);
};
constexpr std::uint32_t OneNan(std::uint32_t) { return 0x7FFFFFFFu; }

const std::vector<NanDifference>& NanDifferences() {
  static const std::vector<NanDifference> differences = {
      {"E4M3 through FP16: one NaN, no sign", FormatId::kE4M3,
       [](std::uint32_t code) {
         return FromHalf(__nv_cvt_fp8_to_halfraw(static_cast<std::uint8_t>(code), __NV_E4M3));
       },
       OneNan},
      {"E5M2 through FP16: one NaN, no sign", FormatId::kE5M2,
       [](std::uint32_t code) {
         return FromHalf(__nv_cvt_fp8_to_halfraw(static_cast<std::uint8_t>(code), __NV_E5M2));
       },
       OneNan},
      {"FP16: one NaN, no sign", FormatId::kFP16,
       [](std::uint32_t code) {
         __half_raw raw;
         raw.x = static_cast<unsigned short>(code);
         return FromHalf(raw);
       },
       OneNan},
      {"E8M0 through BF16: another NaN", FormatId::kE8M0,
       [](std::uint32_t code) {
         const auto byte = static_cast<std::uint8_t>(code);
         return __bfloat162float(__nv_bfloat16(__nv_cvt_e8m0_to_bf16raw(byte)));
       },
       [](std::uint32_t) { return 0x7FFF0000u; }},
      {"BF16: a NaN keeps its payload", FormatId::kBF16,
       [](std::uint32_t code) {
         __nv_bfloat16_raw raw;
         raw.x = static_cast<unsigned short>(code);
         return __bfloat162float(__nv_bfloat16(raw));
       },
       [](std::uint32_t code) { return code << 16; }},
      {"E2M3: none", FormatId::kE2M3,
       [](std::uint32_t code) {
         return FromHalf(__nv_cvt_fp6_to_halfraw(static_cast<std::uint8_t>(code), __NV_E2M3));
       },
       OneNan},
      {"E3M2: none", FormatId::kE3M2,
       [](std::uint32_t code) {
         return FromHalf(__nv_cvt_fp6_to_halfraw(static_cast<std::uint8_t>(code), __NV_E3M2));
       },
       OneNan},
      {"E2M1: none", FormatId::kE2M1,
       [](std::uint32_t code) {
         return FromHalf(__nv_cvt_fp4_to_halfraw(static_cast<std::uint8_t>(code), __NV_E2M1));
       },
       OneNan}};
  return differences;
}

TEST_CASE("NVIDIA's host code decodes every code to our value, NaN to the bits that are listed",
          "[formats][cuda]") {
  for (const NanDifference& difference : NanDifferences()) {
    INFO(difference.name);
    std::size_t wrong = 0;
    for (std::uint32_t code = 0; code < 1u << FormatOf(difference.format).bits; ++code) {
      const auto theirs = std::bit_cast<std::uint32_t>(difference.decode(code));
      const float ours = Decode(difference.format, code);
      wrong +=
          theirs != (std::isnan(ours) ? difference.nan(code) : std::bit_cast<std::uint32_t>(ours));
    }
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace fp4lab
