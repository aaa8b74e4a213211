// What fp4lab's model does not state is refused with one line that names the key or the tensor.
#include <string>
#include <vector>

#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/models/published.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/start/checkpoint_model.h"
#include "tests/models/samples.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

// The error of importing the sample, without the folder; nothing is written.
std::string ErrorOfImport(const ChangedSample& sample) {
  const TemporaryFolder folder;
  sample.Write(folder / "model");
  const std::string error = ErrorOf([&] { ImportModel({folder / "model", folder / "a.fp4lab"}); });
  if (error != "no error") CHECK_FALSE(Exists(folder / "a.fp4lab"));
  CHECK(error.find('\n') == error.npos);
  const std::string begin = (folder / "model").string();
  return error.starts_with(begin) ? error.substr(begin.size()) : error;
}

struct Case {
  std::string sample, key;
  const char* value;  // JSON
  std::string error;
};

TEST_CASE("Values of config.json that the model does not state are refused at their key",
          "[models]") {
  const std::vector<Case> cases = {
      {"llama", "attention_bias", "true",
       "/config.json#/attention_bias: true is not what fp4lab's model states: linears have no "
       "biases"},
      {"llama", "mlp_bias", "true",
       "/config.json#/mlp_bias: true is not what fp4lab's model states: linears have no biases"},
      {"llama", "hidden_act", R"("gelu")",
       "/config.json#/hidden_act: \"gelu\" is not what fp4lab's model states: a gated MLP has "
       "silu"},
      {"llama", "rope_scaling", R"({"rope_type": "llama3", "factor": 8.0})",
       "/config.json#/rope_scaling: {\"factor\":8.0,\"rope_type\":\"llama3\"} is not what fp4lab's "
       "model states: rotary positions are not scaled"},
      {"llama", "rope_parameters", R"({"rope_type": "yarn"})",
       "/config.json#/rope_parameters/rope_type: {\"rope_type\":\"yarn\"} is not what fp4lab's "
       "model states: rotary positions are not scaled"},
      {"llama", "partial_rotary_factor", "0.5",
       "/config.json#/partial_rotary_factor: 0.5 is not what fp4lab's model states: all dimensions "
       "of a head rotate"},
      {"llama", "attention_dropout", "0.1",
       "/config.json#/attention_dropout: 0.1 is not what fp4lab's model states: nothing is dropped "
       "out"},
      {"llama", "vocab_size", "151936",
       "/config.json#/vocab_size: 151936 is not what fp4lab's model states: tokens have 16 bits, "
       "65536 at most"},
      {"llama", "architectures", R"(["DeepseekV3ForCausalLM"])",
       "/config.json#/architectures/0: \"DeepseekV3ForCausalLM\" has what fp4lab's model does not "
       "state: routing by groups"},
      {"llama", "architectures", R"(["LamaForCausalLM"])",
       "/config.json#/architectures/0: unknown architecture \"LamaForCausalLM\"; did you mean "
       "\"LlamaForCausalLM\"?"},
      {"qwen3-windows", "layer_types", R"(["full_attention", "sliding_attention"])",
       "/config.json#/layer_types: [\"full_attention\",\"sliding_attention\"] is not what fp4lab's "
       "model states: every N-th block sees all keys, and the others a window"},
      {"qwen3-moe", "mlp_only_layers", "[1]",
       "/config.json#/mlp_only_layers: [1] is not what fp4lab's model states: blocks without "
       "experts are the first ones"},
      {"smollm3", "no_rope_layers", "[0, 1, 1, 1]",
       "/config.json#/no_rope_layers: [0,1,1,1] is not what fp4lab's model states: every N-th "
       "block has no rotary positions, and the others have them"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.sample, c.key);
    ChangedSample sample(c.sample);
    sample.config[c.key] = Json::parse(c.value);
    CHECK(ErrorOfImport(sample) == c.error);
  }
}

TEST_CASE("Keys that older versions of transformers write are read", "[models]") {
  ChangedSample sample("llama");
  CHECK(ErrorOfImport(sample) == "no error");
  sample.config.erase("rope_parameters");
  sample.config["rope_theta"] = 500000.0;
  sample.config["rope_scaling"] = nullptr;
  const TemporaryFolder folder;
  sample.Write(folder / "old");
  ImportModel({folder / "old", folder / "old.fp4lab"});
  ImportModel({SampleFolder("llama"), folder / "new.fp4lab"});
  CHECK(ModelOfCheckpoint(folder / "old.fp4lab", "") ==
        ModelOfCheckpoint(folder / "new.fp4lab", ""));
  sample.config.erase("hidden_size");
  CHECK(ErrorOfImport(sample) == "/config.json: needs the key \"hidden_size\"");
}

TEST_CASE("Tensors that are missing, too many, or of other shapes are refused by name",
          "[models]") {
  const std::string q = "model.layers.1.self_attn.q_proj.weight";
  ChangedSample missing("llama");
  missing.file.tensors.erase(q);
  CHECK(ErrorOfImport(missing) == ": " + q + ": is missing; config.json states it");
  ChangedSample shape("llama");
  shape.config["num_key_value_heads"] = 1;
  CHECK(ErrorOfImport(shape) ==
        ": model.layers.0.self_attn.k_proj.weight: has the shape (8, 16); config.json states (4, "
        "16)");
  ChangedSample dtype("llama");
  dtype.file.tensors[q] = {"F8_E4M3", {16, 16}, ByteArray(std::vector<std::byte>(256))};
  CHECK(ErrorOfImport(dtype) ==
        ": " + q + ": has the dtype F8_E4M3; weights are read in BF16, F16 and F32");
  ChangedSample extra("llama");
  extra.file.tensors["model.layers.0.self_attn.q_proj.bias"] = {
      "BF16", {16}, ByteArray(std::vector<std::byte>(32))};
  CHECK(ErrorOfImport(extra) ==
        ": model.layers.0.self_attn.q_proj.bias: has no place in fp4lab's model");
  ChangedSample bias("qwen2");
  CHECK(ErrorOfImport(bias) == "no error");
  const std::string name = "model.layers.0.self_attn.q_proj.bias";
  bias.file.tensors.at(name).bytes = ByteArray(std::vector<std::byte>(32, std::byte{0x3F}));
  CHECK(ErrorOfImport(bias) == ": " + name + ": is not 0; fp4lab's linears have no biases");
  ChangedSample tied("llama");
  tied.config["tie_word_embeddings"] = true;
  CHECK(ErrorOfImport(tied) ==
        ": lm_head.weight: is not the embedding to which config.json ties it");
}

TEST_CASE("Shards that an index names are one model", "[models]") {
  const ChangedSample sample("llama");
  const TemporaryFolder folder;
  SafetensorsFile first, second;
  Json map = Json::object();
  for (const auto& [name, tensor] : sample.file.tensors) {
    const bool early = map.size() % 2 == 0;
    (early ? first : second).tensors[name] = tensor;
    map[name] = early ? "model-00001-of-00002.safetensors" : "model-00002-of-00002.safetensors";
  }
  WriteFileAtomically(folder / "config.json", sample.config.dump());
  WriteFileAtomically(folder / "model.safetensors.index.json",
                      Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
  WriteSafetensors(folder / "model-00001-of-00002.safetensors", first);
  WriteSafetensors(folder / "model-00002-of-00002.safetensors", second);
  ImportModel({folder / "", folder / "shards.fp4lab"});
  ImportModel({SampleFolder("llama"), folder / "one.fp4lab"});
  CHECK(ReadFile(folder / "shards.fp4lab") == ReadFile(folder / "one.fp4lab"));
}

}  // namespace
}  // namespace fp4lab
