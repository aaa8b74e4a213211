// Other ways to read the bytes of block scales, by which a wrong product is explained.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/judge/products/gemm.h"

namespace fp4lab {

// Makes all block scales 1. Returns false if that changes nothing: they are, or there are none.
bool IgnoreScales(MmaOperand& x);

struct ScaleReading {
  std::string_view name;       // "0x7f-as-448"
  std::string_view text;       // "reads the scale byte 0x7F as 448, not as NaN"
  bool (*apply)(MmaOperand&);  // returns whether a scale changed
};
std::span<const ScaleReading> ScaleReadings();

// Applies a reading to both operands, whose scales stay of one format if they were. Returns whether
// a scale changed.
bool ApplyReading(const ScaleReading& reading, MmaOperand& a, MmaOperand& b);

// The readings under which a product that is outside of the bound is inside of it, or equal to the
// accumulation bit for bit. A reading that changes no scale of the operands is left out. Where no
// reading explains the whole product, and it has at most 4096 elements: the readings that together
// explain every element outside of the bound (a product whose elements come from two programs), if
// all of these elements are finite.
struct ReadingMatch {
  const ScaleReading* reading;
  GemmVerdict verdict;
  std::size_t different = 0;  // elements that differ from the accumulation's answer under it
  std::size_t elements = 0;   // that it explains, in place of all; 0: all
};
std::vector<ReadingMatch> FindScaleReadings(const GemmClaim& claim, const Accumulation& under);

}  // namespace fp4lab
