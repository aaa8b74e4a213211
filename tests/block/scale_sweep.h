// Block scales as dialect/stages.h computes them, against the oracle's.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/oracle/block.h"

namespace fp4lab {

inline constexpr std::uint32_t kBf16Amaxes = 0x7F81;  // 0 to Inf, in steps of the BF16 pattern
inline float Bf16Amax(std::uint32_t pattern) { return std::bit_cast<float>(pattern << 16); }

// Counts the BF16 block amaxes, every `step`-th from pattern `first` on, whose scale byte or factor
// differs from the oracle's under `tensor_amax`.
inline std::size_t WrongScales(const Dialect& dialect, float tensor_amax, std::uint32_t first = 0,
                               std::uint32_t step = 1) {
  const oracle::BlockQuantizer quantizer(dialect, tensor_amax);
  const TensorScale tensor =
      HasTensorScale(dialect) ? TensorScaleOf(dialect, tensor_amax) : TensorScale{};
  std::size_t wrong = 0;
  for (std::uint32_t pattern = first; pattern < kBf16Amaxes; pattern += step) {
    const oracle::BlockQuantizer::Scale want = quantizer.ScaleOf(Bf16Amax(pattern));
    const float b = Bf16Amax(pattern);
    const BlockNumbers numbers = NumbersFrom(dialect, b, ScaleBefore(dialect, b, tensor), tensor);
    const std::uint8_t byte = dialect.block_rows == 0 ? std::uint8_t{0} : numbers.byte;
    const auto bits = std::bit_cast<std::uint32_t>(numbers.factor);
    const bool both_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u && want.multiplier != want.multiplier;
    wrong +=
        byte != want.byte || (bits != std::bit_cast<std::uint32_t>(want.multiplier) && !both_nan);
  }
  return wrong;
}

}  // namespace fp4lab
