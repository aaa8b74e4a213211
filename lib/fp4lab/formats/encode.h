// Encode and Decode of formats/format.h for whole spans, by vector kernels: the same bits as the
// scalar functions, on every SIMD target and for any number of threads. Input and output of equal
// element size may be the same memory.
#pragma once

#include <cstdint>
#include <span>

#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

struct EncodeOptions {
  Rounding rounding = Rounding::kNearestEven;
  Overflow overflow = Overflow::kSaturate;
  // For kStochastic: element i takes random.Bits16(first_element + i).
  RandomStream random = {};
  std::uint64_t first_element = 0;
};

// codes[i] = Encode(format, x[i], ...), one code an integer (4-bit codes are not packed). The
// integers must hold the format's bits: FP16 and BF16 need 16, TF32 needs 32 (Format::bits).
void Encode(FormatId format, std::span<const float> x, std::span<std::uint8_t> codes,
            const EncodeOptions& options = {});
void Encode(FormatId format, std::span<const float> x, std::span<std::uint16_t> codes,
            const EncodeOptions& options = {});
void Encode(FormatId format, std::span<const float> x, std::span<std::uint32_t> codes,
            const EncodeOptions& options = {});

// values[i] = Decode(format, codes[i]); bits above the format's are ignored.
void Decode(FormatId format, std::span<const std::uint8_t> codes, std::span<float> values);
void Decode(FormatId format, std::span<const std::uint16_t> codes, std::span<float> values);
void Decode(FormatId format, std::span<const std::uint32_t> codes, std::span<float> values);

// out[i] = RoundToBf16(in[i]): RNE, overflow gives Inf, NaN gives 0x7FC00000.
void RoundToBf16(std::span<const float> in, std::span<float> out);

}  // namespace fp4lab
