// The smaller choices of a dialect: a block's statistic, corrections, candidates, NaN and Inf.
#pragma once

#include <cstdint>
#include <string_view>

#include "fp4lab/dialect/formula.h"
#include "fp4lab/dialect/tensor_scale.h"

namespace fp4lab {

// ---- The statistic b of a block that its scale is made from -------------------------------------

enum class BlockStatistic : std::uint8_t { kAmax, kQuest };
constexpr BlockStatistic LastOf(BlockStatistic) { return BlockStatistic::kQuest; }

template <>
struct Formula<BlockStatistic::kAmax> {
  // The largest magnitude.
  static constexpr std::string_view kLabel = "none";
};

template <>
struct Formula<BlockStatistic::kQuest> {
  // fl(fl(2.92247856 * sigma) + 6e-8), sigma the block's standard deviation about its mean: the
  // scale of least squared error for normal data (Quartet, QuEST);
  // quantize/diagnostics/statistic.h.
  static constexpr std::string_view kLabel = "quest";
};

// ---- Corrections of block scales that make the quantization unbiased ----------------------------

enum class Unbias : std::uint8_t { kNone, kMsEden };
constexpr Unbias LastOf(Unbias) { return Unbias::kMsEden; }

template <>
struct Formula<Unbias::kNone> {
  static constexpr std::string_view kLabel = "none";
};

template <>
struct Formula<Unbias::kMsEden> {
  // The block scales of a group, times <x,x> / <x,Q(x)>, rounded at random: quantize/ms_eden.h.
  static constexpr std::string_view kLabel = "ms_eden";
};

// ---- Two candidate scales a block ---------------------------------------------------------------

// Four over six: one candidate scale maps the block's amax to 6, the other maps it to 4; the
// quantizer keeps the candidate with the lesser error.
enum class Adaptive : std::uint8_t { kNo, kMae, kMse, kAbsMax };
constexpr Adaptive LastOf(Adaptive) { return Adaptive::kAbsMax; }

// Members of the structs: kText; OfElement, the contribution of one element's error; Combined, the
// error of two parts together.
struct AddsErrors {
  static constexpr float Combined(float a, float b) { return a + b; }
};
struct CountsMagnitudes {
  static constexpr float OfElement(float error) { return Magnitude(error); }
};

template <>
struct Formula<Adaptive::kNo> : CountsMagnitudes, AddsErrors {
  static constexpr std::string_view kLabel = "none";
  static constexpr std::string_view kText = "";
};

template <>
struct Formula<Adaptive::kMae> : CountsMagnitudes, AddsErrors {
  static constexpr std::string_view kLabel = "mae";
  static constexpr std::string_view kText =
      "t or fl(1.5 t), whichever gives the lesser sum of |error|; a tie keeps t";
};

template <>
struct Formula<Adaptive::kMse> : AddsErrors {
  static constexpr std::string_view kLabel = "mse";
  static constexpr std::string_view kText =
      "t or fl(1.5 t), whichever gives the lesser sum of error^2; a tie keeps t";
  static constexpr float OfElement(float error) { return error * error; }
};

template <>
struct Formula<Adaptive::kAbsMax> : CountsMagnitudes {
  static constexpr std::string_view kLabel = "abs_max";
  static constexpr std::string_view kText =
      "t or fl(1.5 t), whichever gives the lesser largest |error|; a tie keeps t";
  static constexpr float Combined(float a, float b) { return a < b ? b : a; }
};

struct ElementErrorOf {
  float error;
  template <class F>
  constexpr float operator()(F) const {
    return F::OfElement(error);
  }
};
struct CombinedErrorOf {
  float a, b;
  template <class F>
  constexpr float operator()(F) const {
    return F::Combined(a, b);
  }
};

// ---- The maxima that a NaN element makes NaN ----------------------------------------------------

enum class NanRule : std::uint8_t { kElement, kBlock, kTensor };
constexpr NanRule LastOf(NanRule) { return NanRule::kTensor; }

template <>
struct Formula<NanRule::kElement> {
  static constexpr std::string_view kLabel = "element";
  static constexpr std::string_view kText = "a NaN element is ignored by all maxima";
};

template <>
struct Formula<NanRule::kBlock> {
  static constexpr std::string_view kLabel = "block";
  static constexpr std::string_view kText = "a NaN element makes its block's maximum NaN";
};

template <>
struct Formula<NanRule::kTensor> {
  static constexpr std::string_view kLabel = "tensor";
  static constexpr std::string_view kText =
      "a NaN element makes its block's and the tensor's maximum NaN";
};

// ---- The E8M0 byte of b = Inf, and for EVEN of a b that its rounding takes to Inf ---------------

enum class InfScale : std::uint8_t { kRule, kNan, kNumber };
constexpr InfScale LastOf(InfScale) { return InfScale::kNumber; }

template <>
struct Formula<InfScale::kRule> {
  // The rule's own byte for Inf: NaN, but 2^127 for RCEIL. A finite b that EVEN rounds up to 2^128
  // gets a number.
  static constexpr std::string_view kLabel = "rule";
  static constexpr std::string_view kText = "";
};

template <>
struct Formula<InfScale::kNan> {
  static constexpr std::string_view kLabel = "nan";
  static constexpr std::string_view kText = "an infinite maximum (EVEN: b' = Inf) gives NaN";
};

template <>
struct Formula<InfScale::kNumber> {
  static constexpr std::string_view kLabel = "number";
  static constexpr std::string_view kText = "an infinite maximum (EVEN: b' = Inf) counts as 2^128";
};

}  // namespace fp4lab
