// The architectures of transformers that fp4lab's model states, as a table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fp4lab/io/json.h"
#include "fp4lab/train/config.h"

namespace fp4lab {

// What says which blocks see a window of keys only.
enum class WindowKeys {
  kNone,
  kAlways,  // "sliding_window": all blocks, if it is a number
  kUsed,    // the same if "use_sliding_window" is true
  kLayers   // "use_sliding_window", and "layer_types" or "max_window_layers" says which blocks
};

// Names of the tensors of experts, within a block.
struct ExpertNames {
  std::string_view module;  // "mlp"; empty: the family has no experts
  std::string_view gate, up, down;
};

struct Family {
  std::string_view architecture;  // "LlamaForCausalLM"
  std::string_view model_type;    // "llama"
  bool gated = true;              // the MLP has gate_proj: SwiGLU
  bool qk_norm = false;           // RMSNorm of each head's queries and keys
  WindowKeys window = WindowKeys::kNone;
  int absent_window = 0;          // where config.json has no "sliding_window"; 0: none
  bool no_rope = false;           // "no_rope_layers"
  int absent_head_dim = 0;        // where config.json has no "head_dim"; 0: hidden_size / heads
  float absent_theta = 10000.0f;  // where config.json has no rope_theta
  bool absent_tie = false;        // where config.json has no "tie_word_embeddings"
  bool zero_biases = false;       // queries, keys and values have biases, which must be 0
  ExpertNames experts = {};
  bool normalize_key = false;  // "norm_topk_prob" and "moe_intermediate_size"; else true and ffn
  bool bias_keys = true;       // "attention_bias" and "mlp_bias" are keys
};

std::span<const Family> Families();

// The family of config.json's "architectures", whose file `where` is. Throws Error for an
// architecture that has none, with the reason if it is a known one.
const Family& FamilyOf(const Json& config, const std::string& where);

// The model that config.json states, with sequences of `sequence` tokens (0:
// max_position_embeddings, at most kImportedSequence). Throws Error at the key whose value fp4lab's
// model does not state.
ModelConfig ReadPublishedConfig(const Family& family, const Json& config, const std::string& where,
                                int sequence);

// config.json of a model in the family; ReadPublishedConfig need not give the model back.
Json PublishedConfig(const Family& family, const ModelConfig& model);

// The model without what no config.json states: lengths of sequences, losses that only training
// adds, padding; and with kv_heads, head_dim and the experts' width spelled out.
ModelConfig Comparable(ModelConfig model);

}  // namespace fp4lab
