// Block scales by scale_rules.h against the oracle's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/oracle/block.h"

namespace fp4lab {

inline constexpr std::uint32_t kBf16Amaxes = 0x7F81;  // 0 to Inf, in steps of the BF16 pattern
inline float Bf16Amax(std::uint32_t pattern) { return std::bit_cast<float>(pattern << 16); }

// Every `step`-th BF16 block amax, from pattern `first` on, whose scale byte or multiplier is not
// the oracle's under a tensor amax.
inline std::size_t WrongScales(const BlockFormat& format, float tensor_amax,
                               std::uint32_t first = 0, std::uint32_t step = 1) {
  const oracle::BlockQuantizer quantizer(format, tensor_amax);
  const TensorScale tensor = TensorScaleOf(format, tensor_amax);
  std::size_t wrong = 0;
  for (std::uint32_t pattern = first; pattern < kBf16Amaxes; pattern += step) {
    const oracle::BlockQuantizer::Scale want = quantizer.ScaleOf(Bf16Amax(pattern));
    const std::uint8_t byte = ScaleByte(format, Bf16Amax(pattern), tensor);
    const auto bits = std::bit_cast<std::uint32_t>(Multiplier(format, byte, tensor));
    const bool both_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u && want.multiplier != want.multiplier;
    wrong +=
        byte != want.byte || (bits != std::bit_cast<std::uint32_t>(want.multiplier) && !both_nan);
  }
  return wrong;
}

}  // namespace fp4lab
