#include "fp4lab/models/family.h"

#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab {
namespace {

constexpr Family kFamilies[] = {
    {.architecture = "LlamaForCausalLM", .model_type = "llama"},
    {.architecture = "Qwen3ForCausalLM",
     .model_type = "qwen3",
     .qk_norm = true,
     .window = WindowKeys::kLayers,
     .absent_head_dim = 128},
    {.architecture = "Qwen3MoeForCausalLM",
     .model_type = "qwen3_moe",
     .qk_norm = true,
     .window = WindowKeys::kUsed,
     .experts = {"mlp", "gate_proj", "up_proj", "down_proj"},
     .normalize_key = true},
    {.architecture = "MistralForCausalLM",
     .model_type = "mistral",
     .window = WindowKeys::kAlways,
     .absent_window = 4096,
     .bias_keys = false},
    {.architecture = "MixtralForCausalLM",
     .model_type = "mixtral",
     .window = WindowKeys::kAlways,
     .absent_theta = 1e6f,
     .experts = {"block_sparse_moe", "w1", "w3", "w2"},
     .bias_keys = false},
    {.architecture = "SmolLM3ForCausalLM",
     .model_type = "smollm3",
     .window = WindowKeys::kLayers,
     .no_rope = true,
     .absent_theta = 2e6f,
     .absent_tie = true},
    {.architecture = "ArceeForCausalLM", .model_type = "arcee", .gated = false},
    {.architecture = "Qwen2ForCausalLM",
     .model_type = "qwen2",
     .window = WindowKeys::kLayers,
     .zero_biases = true,
     .bias_keys = false},
};

// Architectures that are asked for, and what fp4lab's model lacks.
struct Unstated {
  std::string_view architecture, lacks;
};
constexpr Unstated kUnstated[] = {
    {"GptOssForCausalLM", "attention sinks, biases, a clamped SwiGLU"},
    {"DeepseekV2ForCausalLM", "routing by groups"},
    {"DeepseekV3ForCausalLM", "routing by groups"},
    {"GemmaForCausalLM", "scaled embeddings, gains of 1 + w, a GELU gate"},
    {"Gemma2ForCausalLM", "norms after the parts, gains of 1 + w, a GELU gate"},
    {"Gemma3ForCausalLM", "norms after the parts, gains of 1 + w, a GELU gate"},
    {"GPT2LMHeadModel", "LayerNorm, learned positions, biases"},
    {"NemotronHForCausalLM", "Mamba-2 layers"},
    {"Olmo2ForCausalLM", "norms after the parts"},
    {"OlmoeForCausalLM", "a norm over all heads of the queries together"},
    {"Phi3ForCausalLM", "weights of queries, keys and values in one tensor"},
    {"Qwen2MoeForCausalLM", "the gate of the shared expert"},
    {"Qwen3NextForCausalLM", "linear attention layers"},
};

}  // namespace

std::span<const Family> Families() { return kFamilies; }

const Family& FamilyOf(const Json& config, const std::string& where) {
  const IeeeArithmetic ieee;
  JsonObject o(config, where);
  std::vector<std::string> names;
  o.Require("architectures", &names);
  const std::string place = o.Where("architectures") + "/0";
  if (names.size() != 1) throw Error(o.Where("architectures"), "must be one architecture");
  for (const Unstated& row : kUnstated) {
    if (row.architecture != names[0]) continue;
    throw Error(place, "\"" + names[0] +
                           "\" has what fp4lab's model does not state: " + std::string(row.lacks));
  }
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (family.architecture == names[0]) return family;
    known.emplace_back(family.architecture);
  }
  throw Error(place, "unknown architecture \"" + names[0] + "\"; " + DidYouMean(names[0], known));
}

}  // namespace fp4lab
