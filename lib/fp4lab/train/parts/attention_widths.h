// The widths of the parts "mla" and "gla", which their twins on a GPU share.
#pragma once

#include <cstddef>

#include "fp4lab/train/config.h"

namespace fp4lab {

struct MlaWidths {
  std::size_t model, heads, nope, rope, value, latent, query_latent;

  explicit MlaWidths(const ModelConfig& c)
      : model(static_cast<std::size_t>(c.d_model)),
        heads(static_cast<std::size_t>(c.heads)),
        nope(static_cast<std::size_t>(c.mla.qk_nope_head_dim)),
        rope(static_cast<std::size_t>(c.mla.qk_rope_head_dim)),
        value(static_cast<std::size_t>(c.mla.v_head_dim)),
        latent(static_cast<std::size_t>(c.mla.kv_lora_rank)),
        query_latent(static_cast<std::size_t>(c.mla.q_lora_rank)) {}

  std::size_t Head() const { return nope + rope; }
  std::size_t Queries() const { return heads * Head(); }
  std::size_t Keys() const { return heads * nope; }  // without positions
  std::size_t Values() const { return heads * value; }
  std::size_t Compressed() const { return latent + rope; }
  std::size_t Expanded() const { return Keys() + Values(); }

  // Indices of linears: q, or q_a and q_b, stand before them.
  std::size_t KvA() const { return query_latent > 0 ? 2 : 1; }
  std::size_t KvB() const { return KvA() + 1; }
  std::size_t Out() const { return KvA() + 2; }
};

struct GlaWidths {
  std::size_t model, heads, key, value, rank;

  explicit GlaWidths(const ModelConfig& c)
      : model(static_cast<std::size_t>(c.d_model)),
        heads(static_cast<std::size_t>(c.heads)),
        key(c.gla.key_head_dim > 0 ? static_cast<std::size_t>(c.gla.key_head_dim)
                                   : model / (2 * heads)),
        value(c.gla.value_head_dim > 0 ? static_cast<std::size_t>(c.gla.value_head_dim)
                                       : model / heads),
        rank(static_cast<std::size_t>(c.gla.gate_rank)) {}

  std::size_t Keys() const { return heads * key; }
  std::size_t Values() const { return heads * value; }
  std::size_t Mixed() const { return 2 * Keys() + 2 * Values(); }
};

}  // namespace fp4lab
