// Bit-exact models of the matrix instructions of NVIDIA GPUs: how tensor cores add.
//
// A matrix instruction forms each output d = sum_k a_k * b_k + c in fused steps of L products:
//   P_i, R_i   significand product (an exact integer, not normalised) and sum of raw exponents
//   E          = max(R_i over non-zero products; raw exponent of c if c != 0; the floor)
//   T          = sum of all terms in units of 2^(E - F), each truncated toward zero, then exact
//   d          = T * 2^(E - F), rounded once as `output` says
// and chains ceil(K / L) steps, k ascending; the rounded result d of a step is the c of the next.
// Special values: a NaN, Inf * 0 or infinities of both signs give the canonical NaN (0x7FFFFFFF,
// 0x7FFF); one sign of infinity gives that infinity. All terms zero give +0.
//
// Parameters and their evidence: published hardware measurements (Fasi et al., PeerJ CS 2021;
// Khattak and Mikaitis, arXiv 2512.07004; MMA-Sim, arXiv 2511.10909) and their stored vectors,
// which tests replay, and our own probe of an H200 (tests/golden/h200_tensor_core.json: counts and
// families of inputs). For each row `evidence` names its evidence, and `refused` lists the changed
// parameters that the stored vectors rule out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>

#include "fp4lab/formats/format.h"

namespace fp4lab {

// binary32 cut to its upper 19 bits; a code is those bits, right-aligned.
inline constexpr Format kTf32 = FormatOf(FormatId::kTF32);

enum class MmaScheme : std::uint8_t {
  kChain,         // fused steps of `products` elements
  kFp8InFp16,     // mma.sync on FP8, emulated on chips without it: two FP16 steps from +0, of the
                  // elements with k % 4 in {0, 1} and of those with k % 4 in {2, 3}, then an IEEE
                  // addition of c; 32 elements an instruction
  kScaledChain,   // mxf8f6f4: E8M0 scales of 32 elements enter each product's exponent
  kScaledGroups,  // mxf4, mxf4nvf4: exact sums of 16 elements, one step of 64, aligned by scales
};

enum class MmaOutput : std::uint8_t {
  kTruncate32,       // binary32, toward zero
  kTruncate32E8M13,  // binary32 cut to 13 fraction bits, toward zero (FP8 on Ada and Hopper)
  kNearest16         // binary16, RNE
};

constexpr std::uint32_t FormatSet(std::initializer_list<FormatId> ids) {
  std::uint32_t set = 0;
  for (const FormatId id : ids) set |= 1u << static_cast<int>(id);
  return set;
}
namespace internal {
inline constexpr std::uint32_t kFp16 = FormatSet({FormatId::kFP16}),
                               kHalves = FormatSet({FormatId::kFP16, FormatId::kBF16}),
                               kTf32s = FormatSet({FormatId::kTF32}),
                               kF8 = FormatSet({FormatId::kE4M3, FormatId::kE5M2}),
                               kF8f6f4 = kF8 | FormatSet({FormatId::kE2M1, FormatId::kE2M3,
                                                          FormatId::kE3M2}),
                               kF4 = FormatSet({FormatId::kE2M1});
}  // namespace internal

// A change of one parameter of a model. A set of hardware vectors may or may not distinguish the
// changed model from the original.
enum class Neighbour : std::uint8_t {
  kHalfProducts,
  kDoubleProducts,
  kFewerBits,
  kMoreBits,
  kLowerFloor,
  kHigherFloor,
  kNoFloor
};
struct NamedNeighbour {
  Neighbour neighbour;
  std::string_view name, parameter;
};
inline constexpr std::array kNeighbours = {
    NamedNeighbour{Neighbour::kHalfProducts, "L/2", "L"},
    NamedNeighbour{Neighbour::kDoubleProducts, "2L", "L"},
    NamedNeighbour{Neighbour::kFewerBits, "F-1", "F"},
    NamedNeighbour{Neighbour::kMoreBits, "F+1", "F"},
    NamedNeighbour{Neighbour::kLowerFloor, "floor-1", "floor"},
    NamedNeighbour{Neighbour::kHigherFloor, "floor+1", "floor"},
    NamedNeighbour{Neighbour::kNoFloor, "no floor", "floor"},
};
constexpr std::uint8_t NeighbourSet(std::initializer_list<Neighbour> neighbours) {
  unsigned set = 0;
  for (const Neighbour n : neighbours) set |= 1u << static_cast<int>(n);
  return static_cast<std::uint8_t>(set);
}

struct TensorCoreModel {
  std::string_view name;  // "hopper.f16.f32"
  std::string_view what;  // chips, instructions, operand formats
  MmaScheme scheme;
  std::uint32_t formats;  // operand formats: bit i for FormatId i
  int products;           // L
  int fraction_bits;      // F
  int floor;              // least E
  MmaOutput output;
  std::string_view evidence;
  // The neighbours that the stored vectors rule out: the vectors of tests/golden and the published
  // ones, with which tests/tensor tries every neighbour. (Further outputs of an H200 were compared
  // with the model alone.)
  std::uint8_t refused;
};

namespace internal {
inline constexpr std::uint8_t kNone = 0, kHalf = NeighbourSet({Neighbour::kHalfProducts}),
                              kFewer = NeighbourSet({Neighbour::kFewerBits}),
                              kMore = NeighbourSet({Neighbour::kMoreBits}),
                              kBits = NeighbourSet({Neighbour::kFewerBits, Neighbour::kMoreBits}),
                              kDouble = NeighbourSet({Neighbour::kDoubleProducts}),
                              kAnyFloor = NeighbourSet({Neighbour::kNoFloor}),
                              kFloor = NeighbourSet({Neighbour::kLowerFloor,
                                                     Neighbour::kHigherFloor, Neighbour::kNoFloor});
}  // namespace internal
inline constexpr int kNoFloor = -1000000;
inline constexpr std::size_t kFp8InFp16Depth = 32;

inline constexpr std::array kTensorCoreModels = {
    TensorCoreModel{"volta.f16.f32", "V100 mma: fp16", MmaScheme::kChain, internal::kFp16, 4, 23,
                    kNoFloor, MmaOutput::kTruncate32, "published hardware vectors",
                    internal::kHalf | internal::kBits},
    TensorCoreModel{"volta.f16.f16", "V100 mma: fp16", MmaScheme::kChain, internal::kFp16, 4, 23,
                    -19, MmaOutput::kNearest16,
                    "published hardware vectors; floor from a public model", internal::kHalf},
    TensorCoreModel{"ampere.f16.f32", "A100, A2, Ada: fp16 and bf16", MmaScheme::kChain,
                    internal::kHalves, 8, 24, -132, MmaOutput::kTruncate32,
                    "hardware vectors for one step of 8", internal::kHalf | internal::kBits},
    TensorCoreModel{"ampere.tf32.f32", "A100, A2, Ada: tf32", MmaScheme::kChain, internal::kTf32s,
                    4, 24, -132, MmaOutput::kTruncate32, "hardware vectors",
                    internal::kHalf | internal::kBits},
    TensorCoreModel{"ampere.f16.f16", "A100, A2, Ada: fp16", MmaScheme::kChain, internal::kFp16, 8,
                    24, -20, MmaOutput::kNearest16, "hardware vectors; floor from a public model",
                    internal::kHalf | internal::kFewer},
    TensorCoreModel{"ada.f8.f32", "Ada mma: e4m3, e5m2", MmaScheme::kChain, internal::kF8, 16, 13,
                    kNoFloor, MmaOutput::kTruncate32E8M13, "hardware vectors",
                    internal::kHalf | internal::kDouble | internal::kBits},
    TensorCoreModel{"ada.f8.f16", "Ada mma: e4m3, e5m2", MmaScheme::kChain, internal::kF8, 16, 13,
                    kNoFloor, MmaOutput::kNearest16, "hardware vectors",
                    internal::kHalf | internal::kDouble | internal::kBits},
    TensorCoreModel{"hopper.f16.f32", "H100, H200, B200 mma, wgmma, tcgen05: fp16 and bf16",
                    MmaScheme::kChain, internal::kHalves, 16, 25, -133, MmaOutput::kTruncate32,
                    "60 million outputs of an H200; published vectors",
                    internal::kHalf | internal::kBits | internal::kFloor},
    TensorCoreModel{"hopper.tf32.f32", "H100, H200, B200: tf32", MmaScheme::kChain,
                    internal::kTf32s, 8, 25, -133, MmaOutput::kTruncate32,
                    "30 million outputs of an H200; published vectors",
                    internal::kHalf | internal::kBits | internal::kAnyFloor},
    TensorCoreModel{"hopper.f16.f16", "H100, H200, B200: fp16", MmaScheme::kChain, internal::kFp16,
                    16, 25, -21, MmaOutput::kNearest16,
                    "30 million outputs of an H200; published vectors",
                    internal::kHalf | internal::kBits},
    TensorCoreModel{"hopper.wgmma.f8.f32", "H100, H200 wgmma: e4m3, e5m2", MmaScheme::kChain,
                    internal::kF8, 32, 13, kNoFloor, MmaOutput::kTruncate32E8M13,
                    "30 million outputs of an H200; published vectors",
                    internal::kHalf | internal::kBits},
    TensorCoreModel{"hopper.wgmma.f8.f16", "H100, H200 wgmma: e4m3, e5m2", MmaScheme::kChain,
                    internal::kF8, 32, 13, kNoFloor, MmaOutput::kNearest16,
                    "30 million outputs of an H200", internal::kHalf | internal::kBits},
    TensorCoreModel{"hopper.mma.f8.f32", "H100, H200, B200 mma.sync: e4m3, e5m2",
                    MmaScheme::kFp8InFp16, internal::kF8, 16, 25, -133, MmaOutput::kTruncate32,
                    "30 million outputs of an H200; published vectors",
                    internal::kHalf | internal::kBits},
    TensorCoreModel{"hopper.mma.f8.f16", "H100, H200, B200 mma.sync: e4m3, e5m2",
                    MmaScheme::kFp8InFp16, internal::kF8, 16, 25, -21, MmaOutput::kNearest16,
                    "30 million outputs of an H200; published vectors", internal::kHalf},
    TensorCoreModel{"blackwell.f8f6f4.f32", "B200 tcgen05: any of e4m3, e5m2, e3m2, e2m3, e2m1",
                    MmaScheme::kChain, internal::kF8f6f4, 32, 25, -133, MmaOutput::kTruncate32,
                    "frozen hardware vectors", internal::kMore},
    TensorCoreModel{"blackwell.mxf8f6f4.f32", "B200 tcgen05, E8M0 scales of 32",
                    MmaScheme::kScaledChain, internal::kF8f6f4, 32, 25, -133,
                    MmaOutput::kTruncate32, "one frozen hardware vector; floor inferred",
                    internal::kNone},
    TensorCoreModel{"blackwell.mxf4.f32", "B200 tcgen05 mxf4, mxf4nvf4: e2m1, scales of 16 or 32",
                    MmaScheme::kScaledGroups, internal::kF4, 64, 35, -139, MmaOutput::kTruncate32,
                    "frozen hardware vectors; public models disagree in named corners",
                    internal::kNone},
};

// The model with one parameter changed; the model itself if the parameter is a floor that the model
// does not have.
constexpr TensorCoreModel ModelBeside(TensorCoreModel model, Neighbour neighbour) {
  const bool has_floor = model.floor != kNoFloor;
  switch (neighbour) {
    case Neighbour::kHalfProducts:
      model.products /= 2;
      break;
    case Neighbour::kDoubleProducts:
      model.products *= 2;
      break;
    case Neighbour::kFewerBits:
      model.fraction_bits -= 1;
      break;
    case Neighbour::kMoreBits:
      model.fraction_bits += 1;
      break;
    case Neighbour::kLowerFloor:
      model.floor -= has_floor ? 1 : 0;
      break;
    case Neighbour::kHigherFloor:
      model.floor += has_floor ? 1 : 0;
      break;
    case Neighbour::kNoFloor:
      model.floor = kNoFloor;
      break;
  }
  return model;
}
constexpr bool HasNeighbour(const TensorCoreModel& model, Neighbour neighbour) {
  return neighbour <= Neighbour::kMoreBits || model.floor != kNoFloor;
}
constexpr bool Refuses(const TensorCoreModel& model, Neighbour neighbour) {
  return (model.refused >> static_cast<int>(neighbour) & 1u) != 0;
}

// Whether the stored vectors rule out all neighbours of the model in a parameter ("L", "F",
// "floor").
constexpr bool Determines(const TensorCoreModel& model, std::string_view parameter) {
  bool any = false;
  for (const NamedNeighbour& n : kNeighbours) {
    if (n.parameter != parameter || !HasNeighbour(model, n.neighbour)) continue;
    if (!Refuses(model, n.neighbour)) return false;
    any = true;
  }
  return any;
}

constexpr const TensorCoreModel* FindTensorCoreModel(std::string_view name) {
  for (const TensorCoreModel& model : kTensorCoreModels) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

// Whether the instruction takes elements of a format, and whether it takes block scales.
constexpr bool Takes(const TensorCoreModel& model, const Format& format) {
  for (const NamedFormat& f : kFormats) {
    if (f.format == format && (model.formats >> static_cast<int>(f.id) & 1u) != 0) return true;
  }
  return false;
}
constexpr bool TakesScales(const TensorCoreModel& model) {
  return model.scheme == MmaScheme::kScaledChain || model.scheme == MmaScheme::kScaledGroups;
}

// The points on which the public models of mxf4 and mxf4nvf4 (sf-tensor's and MMA-Sim's) disagree
// and no hardware result is published. The defaults follow the available evidence.
struct OpenChoices {
  bool cancelled_group_counts = true;  // a group whose products cancel still sets E
  bool zero_group_counts = false;      // a group of zero products with a large scale sets E
  friend constexpr bool operator==(const OpenChoices&, const OpenChoices&) = default;
};

// Scales of one dot product: `group` elements share a scale byte.
struct MmaScales {
  std::span<const std::uint8_t> a, b;
  int group = 32;
  Format format;  // E8M0, or E4M3 read as UE4M3 (sign bit ignored)
};

// The result d of one output element after a chain of instructions, k ascending. a and b hold K
// codes of their formats; a short last instruction acts as if zeros followed. c and the result are
// binary32 bits (binary16 bits for kNearest16). `scales` is used by the kScaled schemes only.
std::uint32_t TensorCoreDot(const TensorCoreModel& model, const Format& a_format,
                            std::span<const std::uint32_t> a, const Format& b_format,
                            std::span<const std::uint32_t> b, std::uint32_t c,
                            const MmaScales& scales = {}, const OpenChoices& open = {});

}  // namespace fp4lab
