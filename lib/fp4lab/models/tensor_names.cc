#include "fp4lab/models/tensor_names.h"

#include <string_view>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

struct Name {
  std::string_view ours;
  std::vector<std::string> theirs;
};

std::string Joined(std::string_view module, std::string_view name) {
  return std::string(module) + "." + std::string(name) + ".weight";
}

// Names within a block.
std::vector<Name> NamesInBlock(const Family& family) {
  std::vector<Name> names = {
      {"attention.qkv.weight",
       {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}},
      {"attention.out.weight", {"self_attn.o_proj.weight"}},
      {"attention_norm.gain", {"input_layernorm.weight"}},
      {"attention.q_norm.gain", {"self_attn.q_norm.weight"}},
      {"attention.k_norm.gain", {"self_attn.k_norm.weight"}},
      {"mlp.down.weight", {"mlp.down_proj.weight"}},
      {"mlp_norm.gain", {"post_attention_layernorm.weight"}},
      {"moe_norm.gain", {"post_attention_layernorm.weight"}},
      {"moe.router.weight", {Joined(family.experts.module, "gate")}}};
  if (family.gated) {
    names.push_back({"mlp.up.weight", {"mlp.gate_proj.weight", "mlp.up_proj.weight"}});
  } else {
    names.push_back({"mlp.up.weight", {"mlp.up_proj.weight"}});
  }
  return names;
}

// "7.rest" as {"7", "rest"}.
std::pair<std::string, std::string> Split(std::string_view text) {
  const std::size_t dot = text.find('.');
  return {std::string(text.substr(0, dot)), std::string(text.substr(dot + 1))};
}

std::vector<std::string> NamesOf(const Family& family, std::string_view ours) {
  if (ours == "embedding.weight") return {"model.embed_tokens.weight"};
  if (ours == "head.weight") return {"lm_head.weight"};
  if (ours == "final_norm.gain") return {"model.norm.weight"};
  constexpr std::string_view kBlocks = "blocks.", kExperts = "moe.experts.";
  Expects(ours.starts_with(kBlocks), "TensorPartsOf: a weight of a block");
  const auto [block, name] = Split(ours.substr(kBlocks.size()));
  const std::string layer = "model.layers." + block + ".";
  if (name.starts_with(kExperts)) {
    const auto [expert, weight] = Split(std::string_view(name).substr(kExperts.size()));
    const ExpertNames& e = family.experts;
    const std::string module = layer + std::string(e.module) + ".experts." + expert;
    if (weight == "up.weight") return {Joined(module, e.gate), Joined(module, e.up)};
    return {Joined(module, e.down)};
  }
  for (const Name& row : NamesInBlock(family)) {
    if (row.ours != name) continue;
    std::vector<std::string> names;
    for (const std::string& theirs : row.theirs) names.push_back(layer + theirs);
    return names;
  }
  Expects(false, "TensorPartsOf: a weight that the family states");
  return {};
}

}  // namespace

std::vector<TensorPart> TensorPartsOf(const Family& family, const ParameterSlice& slice) {
  const std::vector<std::string> names = NamesOf(family, slice.name);
  std::vector<std::size_t> rows = slice.stacked;
  if (rows.empty()) rows = {slice.rows};
  Expects(rows.size() == names.size(), "TensorPartsOf: a tensor for each stacked matrix");
  const bool gain = slice.role == ParameterRole::kGain;
  std::vector<TensorPart> parts;
  for (std::size_t i = 0; i < names.size(); ++i) {
    parts.push_back(
        {names[i], rows[i], gain ? std::vector{slice.cols} : std::vector{rows[i], slice.cols}});
  }
  return parts;
}

}  // namespace fp4lab
