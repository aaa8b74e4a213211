// Tests whether a kernel rounds stochastically, from its outputs alone, without its random bits.
//
// Hypothesis. Under b-bit stochastic rounding (RandomForm: 8 or 16 bits) an element whose scaled
// value lies between two codes rounds to the one farther from zero with probability m / 2^b, where
// m is the exact number of fields that round up (UpCount). Draws of different repetitions are
// independent. Draws of different elements are independent, too, except for the two elements of a
// cvt.rs pair, which read the same 16 bits in opposite orders.
//
// Statistics (StochasticVerdict::statistics, in this order):
//   codes        every code is one of the two neighbours of its value (certain, not statistical)
//   elements     how often each element rounds up over the repetitions: exact binomial tests
//   rates        how many elements round up: of all elements, by sign, by the half and the
//                sixteenth of a step in which the value lies, by column mod 16
//   neighbours   two elements round alike as often as independent ones: within a group of four
//                columns, and 4, 8, 16 ... columns or 1, 2, 4 ... rows apart
//   repetitions  an element rounds alike as often as under independent draws in repetitions
//                1, 2, 4 ... apart
// Each sum is tested by its exact binomial tail if all its draws have one probability, else by
// Chernoff's bound (tail_bounds.h), in disjoint pairs, and over even or odd columns only, so that
// its draws are independent under cvt.rs as well. A neighbour pair of cvt.rs is judged by the
// greater of two p-values: for independent bits, and for one field read in both orders (with the
// exact joint count).
//
// Error rate. A correct kernel is refused with probability `error_rate` at most: each of the four
// statistical families gets a quarter of the rate, divided among its tests (Bonferroni).
//
// Power, for the default rate of 1e-6 and n repetitions of N free elements (elements between two
// codes) with evenly spread fractions; measured in tests/formats/stochastic_verdict_test.cc:
//   truncation, all zeros                        N n >= 256
//   round to nearest                             N n >= 512
//   a probability off by d everywhere            N n >= 2 (4.5 / d)^2, for 99 of 100 such kernels
//   the same bits for neighbours or rows         N n >= 4096
//   the same bits in every repetition            N >= 512 and n = 2; less N for more n
//   8 random bits where 16 are claimed           not below N n = 10^7 (the rates differ by 2^-9)
// A sample too small to refuse a kernel that never rounds up gives kUndecided, never kAccepted.
// StochasticVerdict::power has the figures of the sample at hand, computed from its probabilities.
//
// An element with an impossible code (no neighbour of its value) fails `codes`; the other
// statistics leave the element out and judge the rest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/formats/format.h"
#include "fp4lab/formats/replay.h"
#include "fp4lab/formats/stochastic_power.h"

namespace fp4lab {

// Outputs of n runs of a kernel on one input. The columns run in the direction of the random words
// (a columnwise output is given transposed); groups of four columns start at column 0 of each row.
struct StochasticSample {
  FormatId element = FormatId::kE2M1;  // at most 8 bits
  RandomForm form = RandomForm::kCvtRs;
  std::size_t rows = 0, cols = 0;
  std::span<const float> scaled;  // (rows, cols): the values before rounding (ScaledElements)
  std::vector<std::span<const std::uint8_t>> outputs;  // n times (rows, cols) codes, one a byte
};

struct StochasticStatistic {
  std::string_view name;  // "neighbours"
  std::size_t tests = 0;
  double p_value = 1.0;  // the least p-value of the tests times their number, at most 1
  std::string what;      // the test with the least p-value: observed and expected counts
};

enum class StochasticAnswer : std::uint8_t { kAccepted, kRefused, kUndecided };

struct StochasticVerdict {
  StochasticAnswer answer = StochasticAnswer::kUndecided;
  // Text: the first statistic that fails, then the names of the others that fail; or the reason for
  // kUndecided.
  std::string reason;
  std::vector<StochasticStatistic> statistics;
  std::size_t repetitions = 0, free_elements = 0;  // free: between two codes
  StochasticPower power = {};                      // of the elements that the statistics judge
};

// Throws std::logic_error for sizes that do not match the shape, a form that the element format
// does not take, an empty list of outputs, and an error_rate outside (0, 1).
StochasticVerdict JudgeStochastic(const StochasticSample& sample, double error_rate = 1e-6);

}  // namespace fp4lab
