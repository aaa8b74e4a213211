#include "fp4lab/formats/replay.h"

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {

void EncodeReplayed(FormatId id, RandomForm form, std::span<const float> v,
                    std::span<const std::uint32_t> words, std::span<std::uint32_t> codes) {
  const IeeeArithmetic ieee;
  Expects(TakesForm(id, form), "random bits in a form that the format takes");
  const std::size_t n = ElementsAWord(id, form);
  Expects(codes.size() == v.size(), "as many codes as values");
  Expects(words.size() == DivideUp(v.size(), n), "one word for n values");
  for (std::size_t i = 0; i < v.size(); ++i) {
    codes[i] = EncodeWithField(id, form, v[i], RandomField(id, form, words[i / n], i % n));
  }
}

std::uint32_t UpCount(FormatId element, RandomForm form, float v) {
  const IeeeArithmetic ieee;
  const std::uint32_t fields = 1u << BitsAField(form);
  const std::uint32_t low = EncodeWithField(element, form, v, 0);
  // The largest fields round up: bisection finds the smallest field that does.
  std::uint32_t down = 0, up = fields;
  while (up - down > 1) {
    const std::uint32_t middle = (down + up) / 2;
    (EncodeWithField(element, form, v, middle) == low ? down : up) = middle;
  }
  return fields - up;
}

std::uint32_t BothUpReversed(std::uint32_t a, std::uint32_t b) {
  const auto reversed = [](std::uint32_t byte) { return Reversed16(byte) >> 8; };
  const std::uint32_t from = 0x10000 - a, from_reversed = 0x10000 - b;
  const std::uint32_t a_high = from >> 8, a_low = from & 0xFF;
  const std::uint32_t b_high = from_reversed >> 8, b_low = from_reversed & 0xFF;
  // R = (high, low) and its reverse (reversed low, reversed high), compared byte by byte.
  std::uint32_t count = (255 - a_high) * (255 - b_high);
  for (std::uint32_t high = a_high + 1; high < 256; ++high) count += reversed(high) >= b_low;
  for (std::uint32_t low = a_low; low < 256; ++low) count += reversed(low) > b_high;
  return count + (reversed(b_high) >= a_low && reversed(a_high) >= b_low ? 1 : 0);
}

}  // namespace fp4lab
