// Stochastic rounding with given random bits: 32-bit words as devices draw them, the bits of a word
// that each element takes, and the codes that result. No random generator is involved.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/formats/format.h"
#include "fp4lab/formats/ptx_stochastic.h"
#include "fp4lab/formats/te_stochastic.h"

namespace fp4lab {

// The two published forms of hardware-facing stochastic rounding.
//   kTe8    Transformer Engine's software rounder (common/util/ptx.cuh; chips without cvt.rs): E2M1
//           only. One word serves 4 consecutive elements; element i takes byte i, lowest first, and
//           is rounded by EncodeTransformerEngineStochastic.
//   kCvtRs  The instruction cvt.rs (sm_100a, sm_103a). One word serves 4 consecutive elements of
//           4, 6 or 8 bits, or 2 of FP16 and BF16; element 0 is the operand that lands in the
//           lowest bits of the result (the last one in PTX). Element i takes field i of
//           ptx_stochastic.h and is rounded by Encode(kStochastic); overflow saturates in formats
//           of up to 8 bits (.satfinite) and gives Inf in FP16 and BF16 (no .satfinite).
enum class RandomForm : std::uint8_t { kTe8, kCvtRs };

struct NamedRandomForm {
  RandomForm form;
  std::string_view name;
};
inline constexpr std::array kRandomForms = {
    NamedRandomForm{RandomForm::kTe8, "te8"},
    NamedRandomForm{RandomForm::kCvtRs, "cvt.rs"},
};

// The bits of a field: 8 for kTe8, 16 for kCvtRs (of which FP16 uses the upper 13).
constexpr int BitsAField(RandomForm form) { return form == RandomForm::kTe8 ? 8 : 16; }

// Whether the form rounds to this format.
constexpr bool TakesForm(FormatId id, RandomForm form) {
  if (form == RandomForm::kTe8) return id == FormatId::kE2M1;
  return FormatOf(id).is_signed && FormatOf(id).bits <= 16;
}

// The functions below need TakesForm(id, form).
constexpr std::size_t ElementsAWord(FormatId id, RandomForm form) {
  return form == RandomForm::kCvtRs && FormatOf(id).bits == 16 ? 2 : 4;
}

// The field that element i, i < ElementsAWord(id, form), takes from its word.
constexpr std::uint32_t RandomField(FormatId id, RandomForm form, std::uint32_t word,
                                    std::size_t i) {
  if (form == RandomForm::kTe8) return word >> (8 * i) & 0xFFu;
  if (id == FormatId::kFP16) return CvtRsFp16Fields(word)[i];
  if (id == FormatId::kBF16) return CvtRsBf16Fields(word)[i];
  return id == FormatId::kE2M1 ? CvtRsNibbleFields(word)[i] : CvtRsByteFields(word)[i];
}

// The code of one (scaled) value under a field of RandomField.
constexpr std::uint32_t EncodeWithField(FormatId id, RandomForm form, float v,
                                        std::uint32_t field) {
  if (form == RandomForm::kTe8) return EncodeTransformerEngineStochastic(v, field);
  const Overflow overflow = FormatOf(id).bits <= 8 ? Overflow::kSaturate : Overflow::kSpecial;
  return Encode(id, v, Rounding::kStochastic, field, overflow);
}

// codes[i] = code of v[i] with field i % n of words[i / n], n = ElementsAWord(id, form). `words`
// has ceil(v.size() / n) words.
void EncodeReplayed(FormatId id, RandomForm form, std::span<const float> v,
                    std::span<const std::uint32_t> words, std::span<std::uint32_t> codes);

// How many of the 2^BitsAField(form) fields round v up in magnitude; 0 for values that never move.
std::uint32_t UpCount(FormatId element, RandomForm form, float v);

// The number of 16-bit fields R that round both elements of a cvt.rs pair up: R >= 2^16 - a, and
// the bit-reversed R >= 2^16 - b. 0 < a, b < 2^16 are the UpCounts of the elements.
std::uint32_t BothUpReversed(std::uint32_t a, std::uint32_t b);

}  // namespace fp4lab
