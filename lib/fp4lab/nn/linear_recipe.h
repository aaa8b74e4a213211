// A training recipe for one linear as data: the six operands of its three GEMMs, each in a stated
// number format, and one use of the linear in a step.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/nn/delayed_scaling.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {

// The source of a Hadamard transform's signs. Both operands of a GEMM have the same signs.
enum class HadamardSignSource : std::uint8_t {
  kTransformerEngine,  // its fixed vector of 16 signs, repeated
  kNone,
  kSeeded,  // one vector, drawn from the seed of the run
  kFresh    // one vector for each step, drawn from the seed and the step
};

struct NamedSignSource {
  HadamardSignSource source;
  std::string_view name;
};
inline constexpr std::array kHadamardSignSources = {
    NamedSignSource{HadamardSignSource::kTransformerEngine, "te"},
    NamedSignSource{HadamardSignSource::kNone, "none"},
    NamedSignSource{HadamardSignSource::kSeeded, "seeded"},
    NamedSignSource{HadamardSignSource::kFresh, "fresh"},
};

// The part of an operand that stays in high precision; nn/side/side_term.h has the equations.
enum class SideTermKind : std::uint8_t { kNone, kMean, kColumns, kPatch };

struct NamedSideTerm {
  SideTermKind kind;
  std::string_view name;
  bool has_channels;      // whether it has hot channels
  std::string_view text;  // what stays in high precision; after the hot channels, if it has them
};
inline constexpr std::array kSideTerms = {
    NamedSideTerm{SideTermKind::kNone, "none", false, ""},
    NamedSideTerm{SideTermKind::kMean, "mean", false, "mean over tokens in high precision"},
    NamedSideTerm{SideTermKind::kColumns, "columns", true, "in high precision"},
    NamedSideTerm{SideTermKind::kPatch, "patch", true, "with their residual in high precision"},
};

// The statistic of a channel by which hot ones are chosen. A NaN counts as 0.
enum class ChannelStatistic : std::uint8_t {
  kAmax,  // max |x|
  kNorm   // sum of x^2 over tokens ascending, in binary64
};

struct NamedChannelStatistic {
  ChannelStatistic statistic;
  std::string_view name;
};
inline constexpr std::array kChannelStatistics = {
    NamedChannelStatistic{ChannelStatistic::kAmax, "amax"},
    NamedChannelStatistic{ChannelStatistic::kNorm, "norm"},
};

struct SideTerm {
  SideTermKind kind = SideTermKind::kNone;
  ChannelStatistic by = ChannelStatistic::kAmax;
  int channels = 0;      // hot channels: so many,
  double percent = 0.0;  // or, if above 0, this share of the channels, rounded up

  constexpr bool Is(SideTermKind other) const { return kind == other; }
  constexpr explicit operator bool() const { return kind != SideTermKind::kNone; }
  friend constexpr bool operator==(const SideTerm&, const SideTerm&) = default;
};

constexpr const NamedSideTerm& Named(SideTermKind kind) {
  return kSideTerms[static_cast<std::size_t>(kind)];
}

// The number of hot channels of a tensor with `all` channels; 0 for terms without any.
inline std::size_t HotChannelCount(const SideTerm& side, std::size_t all) {
  if (!Named(side.kind).has_channels) return 0;
  if (side.percent == 0.0) return static_cast<std::size_t>(side.channels);
  return static_cast<std::size_t>(
      std::ceil(side.percent / 100.0 * static_cast<double>(all) - 1e-9));
}

// One operand of one GEMM. Its blocks and its Hadamard groups lie along the GEMM's reduction axis.
struct OperandRecipe {
  std::optional<Dialect> format;  // nullopt: not quantized; any dialect, its rounding included
  int hadamard = 0;               // 0: none; else RandomHadamard of that size
  HadamardSignSource signs = HadamardSignSource::kTransformerEngine;
  RandomGenerator random = RandomGenerator::kPhilox;  // of stochastic rounding
  // For dgrad's weight and wgrad's input: the operand is made of the tensor that fprop's operand
  // decodes to (rounded to BF16 if `LinearRecipe::bf16`), not of the original tensor.
  bool from_fprop = false;
  DelayedScaling delayed = {};  // for formats with one tensor scale
  // Elements along the reduction axis that share an outer scale, in each row: the format's tensor
  // scale is made of the amax of such a window. 0: one for the tensor, or for a row if the format
  // says so; else 64 or 128, a multiple of the format's block of one row. The product adds windows
  // in order (linear/operand.h).
  int scale_window = 0;
  // For inputs and gradients: what of the tensor stays in high precision. `patch` is for quantized
  // operands without a transform, in GEMMs without an accumulation of their own.
  SideTerm side = {};

  friend constexpr bool operator==(const OperandRecipe&, const OperandRecipe&) = default;
};

// The lengths of windows that an operand may have.
inline constexpr std::array kScaleWindows = {64, 128};
// The dialect that quantizes a matrix whose rows are the windows of an operand in `format`.
Dialect DialectOfWindows(const Dialect& format);

// Whether the operand of a tensor, transposed, is the operand of the transposed tensor.
constexpr bool SharesTranspose(const OperandRecipe& a, const OperandRecipe& b) {
  if (a != b || a.hadamard != 0 || a.side || a.scale_window != 0) return false;
  return !a.format || (!TakesRandomBits(*a.format) && !a.format->row_scaled &&
                       a.format->block_rows == a.format->block_cols);
}

// The order of the roundings of alpha where both operands have one encode scale, C / amax.
enum class AlphaOrder : std::uint8_t {
  kReference,      // GemmAlpha: fl(fl(amax_a * amax_b) / (C_a * C_b))
  kDecodeProduct,  // fl(fl(amax_a / C_a) * fl(amax_b / C_b)), as Transformer Engine's JAX code says
  kReciprocalProduct  // fl(fl(amax_a * r_a) * fl(amax_b * r_b)), r = fl(1/C): what XLA compiles of
                      // it
};

struct GemmRecipe {
  OperandRecipe a, b;
  // How the product adds; null: Gemm's order, by the blocks of the operands.
  const Accumulation* accumulation = nullptr;
  // Other orders are for comparisons with other programs on the CPU, bit for bit.
  AlphaOrder alpha = AlphaOrder::kReference;
  friend constexpr bool operator==(const GemmRecipe&, const GemmRecipe&) = default;
};

// x (tokens, in), w (out, in), y and dy (tokens, out).
struct LinearRecipe {
  // Operands are rounded to BF16 (RNE) first, the dtype in which Transformer Engine's modules see
  // them; false: operands stay binary32.
  bool bf16 = true;
  GemmRecipe fprop;  // y  = x w^T     a = input, b = weight, along in
  GemmRecipe dgrad;  // dx = dy w      a = grad,  b = weight, along out
  GemmRecipe wgrad;  // dw = dy^T x    a = grad,  b = input,  along tokens

  friend constexpr bool operator==(const LinearRecipe&, const LinearRecipe&) = default;
};

// The six operands, in the order in which RandomStream::tensor counts them.
enum LinearOperand { kFpropInput, kFpropWeight, kDgradGrad, kDgradWeight, kWgradGrad, kWgradInput };
inline constexpr std::uint32_t kLinearOperands = 6;
// Whether the operand is made of the weight.
constexpr bool IsWeight(LinearOperand operand) {
  return operand == kFpropWeight || operand == kDgradWeight;
}
// Whether the GEMM sees the transpose of the tensor.
constexpr bool IsColumnwise(LinearOperand operand) {
  return operand == kDgradWeight || operand == kWgradGrad || operand == kWgradInput;
}
// "fprop.input", ..., "wgrad.input".
std::string_view OperandName(LinearOperand operand);

// A quantized operand as its GEMM takes it, for diagnostics: the reduction axis along columns.
struct ObservedOperand {
  LinearOperand operand;
  // The quantizer's input: rounded, without its side, transformed. With windows of scales, a row
  // here is a window, those of the operand's first row first; the last window of a row is filled up
  // with zeros, and the dialect has a scale of each row.
  MatrixView<const float> before;
  MatrixView<const float> values;  // element * block scale, without the tensor's or rows' scale
  const Dialect& dialect;
  const DialectOptions& options;  // amaxes and random bits that it was quantized with
  const Quantized& quantized;     // codes and scales of `values`
};
using OperandObserver = std::function<void(const ObservedOperand&)>;

// One use of a linear.
struct LinearCall {
  RandomStream random;
  const OperandObserver* observer = nullptr;
  AmaxHistories histories = {};      // read and written where an operand has delayed scaling
  std::uint32_t tensors_before = 0;  // of the step's uses before this one
};

// The random bits of an operand: those of call.random with tensor + operand. A weight, whose
// operands all micro-batches of a step share, has those of the first micro-batch.
constexpr RandomSource RandomSourceOf(const OperandRecipe& recipe, LinearOperand operand,
                                      const LinearCall& call) {
  RandomStream random = call.random;
  random.tensor += static_cast<std::uint32_t>(operand);
  if (IsWeight(operand)) random.tensor -= call.tensors_before;
  return {random, recipe.random, IsColumnwise(operand)};
}

// The transform of an operand for one call. recipe.hadamard must not be 0.
HadamardTransform TransformOf(const OperandRecipe& recipe, const LinearCall& call);

}  // namespace fp4lab
