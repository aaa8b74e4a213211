// Probes: inputs whose products show how a matrix instruction adds: the number of bits that it
// keeps when it aligns terms, the number of products that it adds at once, its rounding direction.
//
// Probe i is row i of a times row i of b: a device computes the whole product d = a b^T (alpha 1)
// and element (i, i) answers probe i. With +B and -B in one step, E stays at B's exponent and the
// sum shows how much of a third term remains:
//   probe            sum                      answer
//   align:J          +B - B + B 2^-J          nonzero while J <= F
//   align-up:J       +B - B + 1.5 B 2^-J      at J = F: one unit for truncation or rounding down,
//                                             two otherwise
//   align-down:J     +B - B - 1.5 B 2^-J      at J = F: one unit toward zero, two otherwise
//   step:P           +B - B + B 2^-huge,      nonzero if element P is in a later step
//                    the last as element P
//   round:+, round:- +-(B + 1.5 B 2^-24)      shows the output's rounding
//   floor:J          2^-149 - 2^-J            0 while the second term survives, J <= F - floor
//                                             (from c = 0)
//   cancelled-group  products that cancel under a large scale, then a small term
//   zero-group       zeros under a large scale, then a small term
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/tensor/mma/mma_operand.h"

namespace fp4lab {

enum class ProbeFamily : std::uint8_t {
  kAlign,
  kAlignUp,
  kAlignDown,
  kStep,
  kRoundPlus,
  kRoundMinus,
  kFloor,
  kCancelledGroup,
  kZeroGroup
};

struct GemmProbe {
  ProbeFamily family;
  int parameter;  // J or P; 0 where there is none
};
std::string NameOf(const GemmProbe& probe);  // "align:35"

struct ProbeSet {
  std::string_view operands;
  MmaOperand a, b;  // (probes, K) each
  std::vector<GemmProbe> probes;
};

// The operands of probes: "nvfp4" (E2M1, E4M3 scales of 16) and "mxfp4" (E2M1, E8M0 scales of 32),
// both for instructions that add at least 48 elements at once; "e4m3" and "bf16" for instructions
// that add at least 5.
inline constexpr std::array<std::string_view, 4> kProbeOperands = {"nvfp4", "mxfp4", "e4m3",
                                                                   "bf16"};
ProbeSet MakeProbes(std::string_view operands);

// The answers of an accumulation to the probes.
std::vector<float> ProbeAnswers(const ProbeSet& set, const Accumulation& accumulation);

// The parameters that the answers show; empty if answers contradict each other, or the operands do
// not reach the limit.
struct ProbeReading {
  std::optional<int> fraction_bits;    // F
  bool fraction_bits_or_more = false;  // F is the largest that the operands can show
  std::optional<int> step;             // elements added at once; 0: interleaved
  std::string_view alignment;          // "toward zero", "down", "nearest", "" unknown
  std::string_view output;             // the same for the output's rounding
  std::optional<int> floor;            // the least E
  std::optional<bool> cancelled_group_counts, zero_group_counts;
  friend bool operator==(const ProbeReading&, const ProbeReading&) = default;
};
ProbeReading ReadProbes(const ProbeSet& set, std::span<const float> answers);

}  // namespace fp4lab
