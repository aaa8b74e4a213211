// P, the rounded weights of a softmax, with all values that a kernel's errors allow.
#pragma once

#include <span>
#include <vector>

#include "fp4lab/judge/attention/attention_scheme.h"

namespace fp4lab {

// A number and the ends of what a kernel may have in its place: lo <= x <= hi, or all NaN.
struct AllowedNumber {
  double lo = 0, x = 0, hi = 0;
};

// Rounds the weights p of one row and tile to P, in place. A result's ends are the values of all
// codes under all scales that numbers between the ends of p lead to, where a kernel's own roundings
// on the way to a scale or an element err by 2^-20 of it. p >= 0.
void RoundWeights(const PRule& rule, std::span<AllowedNumber> p);

// Half a unit around each weight, for an element without scales: what rounding under another
// maximum can change. A weight's own value is not rounded.
void SpreadWeights(const PRule& rule, std::span<AllowedNumber> p);

// x rounded to a format, RNE, saturating where the format has no infinity. x is finite or infinite.
double RoundedTo64(FormatId format, double x);

}  // namespace fp4lab
