// High-precision side terms of a GEMM's operand, as data: the operand is split into a part that is
// quantized and a part that stays in high precision, whose product is added.
//
// The operand is made of a tensor x (tokens, channels): the input of a linear, or a gradient. R
// rounds to BF16 (RNE) if LinearRecipe::bf16, else it changes nothing; x~ = R(x), and b~ = R(b) of
// the GEMM's other tensor. fl is one rounding to binary32. Q is all that the operand's recipe does:
// transform and quantization. The GEMM's product of quantized operands is c, its side term is S,
// and the result is fl(c + S), element by element; where the GEMM adds to y or dw, S comes after c.
//
// mean: x~ = 1 mu^T + r, Q takes r.
//   mu(j)   = R(fl(s(j) / tokens)), s(j) = sum of x~(t, j) over t ascending, in binary64
//   r(t, j) = R(fl(x~(t, j) - mu(j)))
//   fprop's input, dgrad's gradient:  S(t, n) = p(n), p = mu b~^T as Gemm sums it (tensor/gemm.h,
//       one block: fused multiply-adds over channels ascending)
//   wgrad's gradient:  S(i, n) = fl(mu(i) * z(n)), z(n) = fl(sum of b~(t, n) over t ascending, in
//       binary64); wgrad's input the same with rows and columns exchanged
// columns: hot channels H (below) stay out of Q, which takes x~ with +0 in them.
//   fprop's input, dgrad's gradient:  S = x~(:, H) b~(:, H)^T as Gemm sums it, one block, channels
//       ascending
//   wgrad's gradient:  S(H, :) = x~(:, H)^T b~ as Gemm sums it, one block, tokens ascending; other
//       rows have no side term. wgrad's input the same with columns in place of rows
// patch: Q takes x~ whole, and the residual of the hot channels is given back:
//   e(t, j) = R(fl(x~(t, j) - fl(q(t, j) * D))), q the operand's values (element * block scale), D
//       its tensor's or row's decode scale
//   S as that of `columns`, with e in place of x~
//
// If both operands of wgrad have a side term, the gradient's is added first; b~ of the input's is
// then r of `mean`, x~ with +0 in the hot channels of `columns`, or x~ of `patch`, so that the
// three products of `mean` and `columns` add up to that of the whole tensors.
//
// H: the channels with the largest statistic of x~, of equal ones those that come first. They are
// chosen anew in each use of the operand, as the mean is: of a micro-batch's tokens, an expert's
// padding rows (zeros) included.
//
// Sources: mean, Averis (arXiv 2603.10444); patch, CHON's Hot-Channel Patch (arXiv 2602.02047).
// Orders of sums, roundings, the statistics and the time of choice are fp4lab's: the sources, as
// far as they were read, state none.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fp4lab {

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

}  // namespace fp4lab
