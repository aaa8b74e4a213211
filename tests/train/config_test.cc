#include "fp4lab/train/config.h"

#include "fp4lab/train/model/shapes.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::string ReadError(const Json& json) {
  return ErrorOf([&] { ReadTrainConfig(json, "run.json"); });
}

TEST_CASE("The defaults are the study's P200k model", "[train]") {
  const TrainConfig config = ReadTrainConfig(Json::object(), "run.json");
  CHECK(BlockParameterCount(config.model) == 196'608);
  CHECK(ParameterCount(config.model) == 196'608 + 2 * 256 * 64 + 9 * 64);
  CHECK(TokensPerStep(config) == 2048);
  CHECK(TotalSteps(config) == 488);
}

TEST_CASE("Parameter counts follow heads, gates and the tied head", "[train]") {
  ModelConfig c{.layers = 2, .d_model = 64, .heads = 4, .kv_heads = 1, .ffn = 96};
  c.activation = Activation::kSwiglu;
  c.tied_head = true;
  CHECK(BlockParameterCount(c) == 2 * (64 * (64 + 32) + 64 * 64 + 3 * 64 * 96));
  CHECK(ParameterCount(c) == BlockParameterCount(c) + 256 * 64 + 5 * 64);
  const ParameterLayout layout = MakeLayout(c);
  CHECK(layout.head.offset == layout.embedding.offset);
  CHECK(layout.block_linears[0].name == "blocks.0.attention.qkv.weight");
  CHECK(layout.block_linears[4 + 3].name == "blocks.1.mlp.down.weight");
  CHECK(layout.matrices + 5 * 64 == layout.total);
}

TEST_CASE("A configuration reads back from its JSON, floats as they were written", "[train]") {
  const Json json = {{"model", {{"kv_heads", 2}, {"activation", "swiglu"}, {"tied_head", true}}},
                     {"optimizer", {{"beta2", 0.95}, {"weight_decay", 0.05}}},
                     {"recipe", {{"base", "mxfp4"}, {"scale_rule", "floor"}}},
                     {"data", {{"source", "synthetic"}}},
                     {"tokens", 4e6},
                     {"micro_batches", 4}};
  const TrainConfig config = ReadTrainConfig(json, "run.json");
  const Json resolved = ToJson(config);
  CHECK(ReadTrainConfig(resolved, "again.json") == config);
  CHECK(ToJson(ReadTrainConfig(resolved, "again.json")) == resolved);
  CHECK(resolved["optimizer"]["beta2"].dump() == "0.95");
  CHECK(resolved["model"]["norm_epsilon"].dump() == "1e-05");
  CHECK(resolved["tokens"] == 4'000'000);
}

TEST_CASE("The device is the CPU unless the configuration says otherwise", "[train]") {
  CHECK(ReadTrainConfig(Json::object(), "run.json").device == Device::kCpu);
  const TrainConfig config = ReadTrainConfig({{"device", "cuda"}}, "run.json");
  CHECK(config.device == Device::kCuda);
  CHECK(ToJson(config)["device"] == "cuda");
  CHECK(ReadError({{"device", "tpu"}}) ==
        "run.json#/device: must be \"cpu\" or \"cuda\", not \"tpu\"");
}

TEST_CASE("A pattern that matches no linear is refused, and the refusal names those that exist",
          "[train]") {
  const auto error = [](const char* key, const Json& patterns) {
    return ReadError({{"recipe", {{"base", "te_nvfp4"}, {key, patterns}}}});
  };
  const std::string names =
      " matches no linear; there are blocks.N.attention.qkv, blocks.N.attention.out, "
      "blocks.N.mlp.up, blocks.N.mlp.down, N from 0 to 3";
  CHECK(error("include", {"*.mlp.*", "layers.*"}) ==
        "run.json#/recipe/include/1: \"layers.*\"" + names);
  CHECK(error("exclude", {"blocks.4.*"}) == "run.json#/recipe/exclude/0: \"blocks.4.*\"" + names);
  CHECK(error("include", {""}) == "run.json#/recipe/include/0: \"\"" + names);
  CHECK(error("include", {"blocks.3.*", "*qkv"}) == "no error");
  CHECK(error("exclude", {"*"}) == "no error");
}

TEST_CASE("Impossible shapes and values are refused at their JSON pointer", "[train]") {
  const auto starts = [](const Json& json, const std::string& message) {
    const std::string error = ReadError(json);
    CAPTURE(json.dump(), error);
    CHECK(error.find(message) == 0);
  };
  starts({{"model", {{"d_model", 72}}}, {"recipe", "te_nvfp4"}},
         "run.json#/model/d_model: d_model 72 is not a multiple of the recipe's block of 16");
  starts({{"model", {{"d_model", 48}}}, {"recipe", "mxfp4"}},
         "run.json#/model/d_model: d_model 48 is not a multiple of the recipe's block of 32");
  starts({{"model", {{"ffn", 100}}}, {"recipe", "te_mxfp8"}},
         "run.json#/model/ffn: ffn 100 is not a multiple of the recipe's block of 32");
  starts({{"model", {{"sequence", 20}}}, {"recipe", "mxfp4"}, {"batch", 3}},
         "run.json#/batch: tokens in a micro-batch: 60 is not a multiple");
  starts({{"model", {{"heads", 5}}}}, "run.json#/model/heads: 5 heads do not divide d_model 64");
  starts({{"model", {{"heads", 64}}}}, "run.json#/model/heads: d_model / heads is 1;");
  starts({{"model", {{"kv_heads", 3}}}}, "run.json#/model/kv_heads: 3 do not divide");
  starts({{"model", {{"layers", 0}}}}, "run.json#/model/layers: must be at least 1");
  starts({{"model", {{"activation", "relu"}}}}, "run.json#/model/activation: must be");
  starts({{"micro_batches", 3}}, "run.json#/micro_batches: 3 do not divide the batch of 16");
  starts({{"tokens", 2047}}, "run.json#/tokens: 2047 are fewer than the 2048 of one step");
  starts({{"optimizer", {{"beta1", 1.0}}}}, "run.json#/optimizer/beta1: must be in [0, 1)");
  starts({{"recipe", {{"base", "te_nvfp4"}, {"last_blocks_bf16", 5}}}},
         "run.json#/recipe/last_blocks_bf16: more blocks in BF16 than the model's 4");
  starts({{"micro_batches", 0}}, "run.json#/micro_batches: must be at least 1");
  starts({{"micro_batches", -1}}, "run.json#/micro_batches: must be at least 1");
  starts({{"recipe", {{"base", "te_nvfp4"}, {"first_blocks_bf16", 5}}}},
         "run.json#/recipe/first_blocks_bf16: more blocks in BF16 than the model's 4");
  starts({{"recipe", {{"base", "te_nvfp4"}, {"first_blocks_bf16", 2}, {"last_blocks_bf16", 3}}}},
         "run.json#/recipe/last_blocks_bf16: more blocks in BF16 than the model's 4, the first 2 "
         "included");
  starts({{"recipe",
           {{"base", "te_nvfp4"},
            {"first_blocks_bf16", 2147483647},
            {"last_blocks_bf16", 2147483647}}}},
         "run.json#/recipe/first_blocks_bf16: more blocks in BF16 than the model's 4");
  starts({{"recipe",
           {{"base", "te_nvfp4"}, {"first_blocks_bf16", 1}, {"last_blocks_bf16", 2147483647}}}},
         "run.json#/recipe/last_blocks_bf16: more blocks in BF16 than the model's 4");
  starts({{"modle", Json::object()}}, "run.json#/modle: unknown key; did you mean \"model\"?");
  starts({{"recipe", "te_nvfp5"}},
         "run.json#/recipe: unknown recipe \"te_nvfp5\"; did you mean \"te_nvfp4\"?");
}

TEST_CASE("Numbers that binary32 does not hold, or that no run reaches, are refused in place",
          "[train]") {
  const auto refuses = [](const char* pointer, const Json& value) {
    Json json = Json::object();
    json[Json::json_pointer(pointer)] = value;
    const std::string error = ReadError(json);
    CAPTURE(pointer, value.dump(), error);
    CHECK(error.find("run.json#" + std::string(pointer) + ": must be") == 0);
  };
  for (const double value : {1e300, -1.0, 1e39}) {
    for (const char* pointer :
         {"/optimizer/beta1", "/optimizer/beta2", "/optimizer/epsilon", "/optimizer/weight_decay",
          "/optimizer/clip", "/schedule/learning_rate", "/model/norm_epsilon",
          "/model/rope_theta"}) {
      refuses(pointer, value);
    }
  }
  refuses("/optimizer/beta1", 0.9999999999);  // 1 in binary32
  refuses("/optimizer/epsilon", 1e-60);       // 0
  refuses("/schedule/learning_rate", 1e-60);
  refuses("/schedule/learning_rate", 0);
  for (const char* pointer : {"/model/layers", "/model/d_model", "/model/heads", "/model/kv_heads",
                              "/model/ffn", "/model/sequence", "/model/vocabulary"}) {
    refuses(pointer, 2147483647);
  }
}

TEST_CASE("Steps that are too many or too large are refused before they are multiplied",
          "[train]") {
  CHECK(ReadError({{"batch", 2147483647}, {"tokens", std::int64_t{1} << 62}}) ==
        "run.json#/batch: a step of 274877906816 tokens is too large; at most 2147483647");
  CHECK(ReadError({{"tokens", std::int64_t{1} << 62}}) ==
        "run.json#/tokens: 4611686018427387904 are 2251799813685248 steps; at most 4294967295");
}

}  // namespace
}  // namespace fp4lab
