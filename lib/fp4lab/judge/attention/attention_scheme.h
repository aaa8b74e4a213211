// Orders of operations of attention as a table: what is quantized, along which axis, and when.
//
// A kernel computes O = softmax(scale Q K^T + mask) V tile by tile over the keys. A tile of keys j
// has logits y_j; m is the largest logit so far, and p_j = top * exp(y_j - m). P, which is p as
// stored, is multiplied by V; the row's sum takes p, or P where a scheme says so. When m grows,
// sums so far are multiplied by exp(m before - m).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/formats/format.h"

namespace fp4lab {

// The second level of scales of P.
enum class PLevel : std::uint8_t {
  kNone,  // p alone; its `top` is the only level
  kRow,   // S = 2688 / max(largest p of the row in the tile, 1e-8), scales of S p
};

// How p becomes P.
struct PRule {
  FormatId element = FormatId::kBF16;
  int group = 0;                     // consecutive keys that share a scale; 0: no scales
  FormatId scale = FormatId::kE4M3;  // E4M3: RNE, saturating; E8M0: 2^(floor(log2 b) - 2)
  PLevel level = PLevel::kNone;
  double top = 1.0;
  // The elements are p / (b / 6), b the block's largest p, whatever the scale rounds to; else they
  // are divided by the rounded scale.
  bool by_exact_scale = false;
  bool decoded_to_bf16 = false;  // P is the decoded value, rounded to BF16
  friend bool operator==(const PRule&, const PRule&) = default;
};

struct AttentionScheme {
  std::string_view name;
  std::string_view what;
  std::string_view source;
  // Names of dialects; "bf16": rounded to BF16 only.
  std::string_view q = "bf16", k = "bf16", v = "bf16";
  bool v_along_keys = false;    // blocks of V are consecutive keys of a channel, else channels
  std::size_t scale_rows = 0;   // rows that share a tensor scale; 0: the rows of a head
  std::size_t q_mean_rows = 0;  // rows whose mean is subtracted from Q; 0: none
  bool k_mean = false;          // the mean of all keys of a head is subtracted from K
  bool k_mean_of_all = false;   // the mean is of all heads together
  // The mean of Q times K (its mean subtracted, not quantized) is added to the logits, rounded to
  // BF16 here.
  bool correction_in_bf16 = false;
  bool decoded_to_bf16 = false;   // Q, K and V are decoded values, rounded to BF16
  bool q_scale_of_group = false;  // heads of Q that share a head of K share a tensor scale
  PRule p = {};
  bool sums_rounded = false;  // the row's sum takes P
  std::size_t tile = 128;     // keys; 0: all keys are one tile
  bool last_first = false;
  // P without scales may be rounded under any maximum: the ends of P are half a unit apart from p.
  bool any_tile = false;
};

// The rows: "bf16", "fp8", "sageattention3", ...
std::span<const AttentionScheme> AttentionSchemes();
// Throws Error(where, ...) with a suggestion for an unknown name.
const AttentionScheme& RequireAttentionScheme(std::string_view name, std::string_view where);

}  // namespace fp4lab
