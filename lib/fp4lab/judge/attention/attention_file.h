// Attention from and to files.
//
// Q is (heads, queries, D), K and V are (kv_heads, keys, D), or their rows joined in two
// dimensions; further leading dimensions (batches) are more heads. An operand is plain numbers,
// which the scheme quantizes, or a quantized matrix of all heads' rows in any layout that
// exchange/stored_file.h reads; V along the keys is then (kv_heads * D, keys).
//
// A directed case, NAME.safetensors, has q, k and v as BF16 numbers; or, if its description says
// "operands_given", codes and scales: q.0, q.1, ... , k.0, ..., v.0, ..., a matrix a head, and
// decode.q, decode.k, decode.v, F32 (heads, rows): the factor of each row. The metadata "attention"
// is its description, a JSON object.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fp4lab/exchange/order/byte_order.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/attention/attention_case.h"

namespace fp4lab {

struct AttentionFiles {
  std::string q = {}, k = {}, v = {};                    // places (exchange/matrix_file.h)
  std::optional<std::size_t> heads = {}, kv_heads = {};  // if the shapes do not say
  double scale = 0.0;                                    // 0: 1 / sqrt(D)
  bool causal = false;
  GemmOutput output = GemmOutput::kBf16;
  std::optional<ByteOrder> v_scales = {};  // in which a quantized V has its scales, if not its own
};

// The right kernel of these files under a scheme. Throws Error with the remedy for shapes that do
// not fit, and for quantized operands whose mean the scheme subtracts.
AttentionPlan ReadAttention(const AttentionFiles& files, const AttentionScheme& scheme);

// {"scheme", "heads", "kv_heads", "queries", "keys", "channels", "scale", "causal", "output",
// "operands_given"}.
Json DescriptionOf(const AttentionPlan& plan);

void WriteDirectedCases(std::span<const AttentionCase> cases, const std::filesystem::path& folder);

}  // namespace fp4lab
