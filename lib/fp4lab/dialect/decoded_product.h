// The multiplications and divisions by which codes become numbers, with one NaN on every machine.
#pragma once

#include <bit>
#include <cstdint>

namespace fp4lab {

// The NaN that 0 times infinity makes, and 0 / 0, and infinity / infinity: x86's. Arm's own NaN of
// these has a clear sign bit.
inline constexpr std::uint32_t kInvalidNanBits = 0xFFC00000u;

// Whether the processor makes this NaN itself. CUDA's arithmetic has one pattern for all its NaNs,
// 0x7FFFFFFF, and keeps it: a comparison with a GPU takes every NaN for the same.
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64) || defined(__CUDA_ARCH__)
inline constexpr bool kMakesInvalidNan = true;
#else
inline constexpr bool kMakesInvalidNan = false;
#endif

// `result` of an operation on a and b. The NaN of two numbers gets kInvalidNanBits; the NaN of a
// NaN has the bits of its operand on every machine.
constexpr float WithInvalidNan(float result, float a, float b) {
  if (kMakesInvalidNan || result == result || a != a || b != b) return result;
  return std::bit_cast<float>(kInvalidNanBits);
}
// fl(a * b) and fl(a / b).
constexpr float DecodedProduct(float a, float b) { return WithInvalidNan(a * b, a, b); }
constexpr float DecodedQuotient(float a, float b) { return WithInvalidNan(a / b, a, b); }

}  // namespace fp4lab
