// Our conversions against NVIDIA's own host code in cuda_fp4.h, cuda_fp6.h, cuda_fp8.h, cuda_fp16.h
// and cuda_bf16.h. Built where CMake finds those headers; no GPU and no CUDA library is needed.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

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

template <__nv_fp6_interpretation_t kFormat>
std::uint32_t ToFp6(float x) {
  return __nv_cvt_float_to_fp6(x, kFormat, cudaRoundNearest);
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
      {"e2m1", FormatId::kE2M1, kNear, kSaturate,
       [](float x) -> std::uint32_t {
         return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
       }},
      {"e2m3", FormatId::kE2M3, kNear, kSaturate, ToFp6<__NV_E2M3>},
      {"e3m2", FormatId::kE3M2, kNear, kSaturate, ToFp6<__NV_E3M2>},
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

TEST_CASE("NVIDIA's host conversions give our codes", "[formats][cuda]") {
  for (const Conversion& conversion : Conversions()) {
    std::vector<float> inputs = AllBf16();
    const std::vector<float> boundaries = BoundaryInputs(FormatOf(conversion.format));
    inputs.insert(inputs.end(), boundaries.begin(), boundaries.end());
    std::size_t differences = 0;
    for (const float x : inputs) {
      const std::uint32_t theirs = conversion.convert(x);
      const std::uint32_t ours =
          Encode(conversion.format, x, conversion.rounding, 0, conversion.overflow);
      if (ours == theirs || ++differences > 5) continue;
      UNSCOPED_INFO("bits " << std::hex << std::bit_cast<std::uint32_t>(x) << ": ours " << ours
                            << ", theirs " << theirs);
    }
    INFO(conversion.name);
    CHECK(differences == 0);
  }
}

TEST_CASE("NVIDIA's host code decodes every code to our value", "[formats][cuda]") {
  const auto from_half = [](__half_raw raw) { return __half2float(__half(raw)); };
  for (std::uint32_t code = 0; code < 256; ++code) {
    INFO("code " << code);
    const auto same = [](float ours, float theirs) {
      return std::isnan(ours)
                 ? std::isnan(theirs)
                 : std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(theirs);
    };
    const auto byte = static_cast<std::uint8_t>(code);
    CHECK(same(Decode(FormatId::kE4M3, code), from_half(__nv_cvt_fp8_to_halfraw(byte, __NV_E4M3))));
    CHECK(same(Decode(FormatId::kE5M2, code), from_half(__nv_cvt_fp8_to_halfraw(byte, __NV_E5M2))));
    const __nv_bfloat16_raw scale = __nv_cvt_e8m0_to_bf16raw(byte);
    CHECK(same(Decode(FormatId::kE8M0, code), __bfloat162float(__nv_bfloat16(scale))));
    if (code >= 64) continue;
    CHECK(same(Decode(FormatId::kE2M3, code), from_half(__nv_cvt_fp6_to_halfraw(byte, __NV_E2M3))));
    CHECK(same(Decode(FormatId::kE3M2, code), from_half(__nv_cvt_fp6_to_halfraw(byte, __NV_E3M2))));
    if (code >= 16) continue;
    CHECK(same(Decode(FormatId::kE2M1, code), from_half(__nv_cvt_fp4_to_halfraw(byte, __NV_E2M1))));
  }
}

}  // namespace
}  // namespace fp4lab
