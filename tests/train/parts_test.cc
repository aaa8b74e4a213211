#include "fp4lab/train/parts/parts.h"

#include <map>
#include <set>
#include <string>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

std::string ErrorOfParts(const Json& parts) {
  return ErrorOf([&] { ReadTrainConfig({{"model", {{"parts", parts}}}}, "run.json"); });
}

// The numbers after seven steps, which learn, and which are the same where a checkpoint of the
// fourth is read.
std::vector<float> NumbersAfterResume(const TrainConfig& config, const Corpus& corpus,
                                      int threads) {
  const ThreadsScope scope(threads);
  Trainer whole(config, corpus), first(config, corpus), second(config, corpus);
  const double loss = whole.Step(3e-3).loss;
  for (int i = 0; i < 5; ++i) whole.Step(3e-3);
  CHECK(whole.Step(3e-3).loss < loss);
  for (int i = 0; i < 4; ++i) first.Step(3e-3);
  second.LoadState(first.SaveState(), "state");
  for (int i = 0; i < 3; ++i) second.Step(3e-3);
  CHECK(whole.Numbers() == second.Numbers());
  return whole.Numbers();
}

TEST_CASE("A configuration without parts has attention and MLP and is written as before",
          "[train]") {
  const ModelConfig model = ReadModelConfig(Json::object(), "run.json#/model");
  CHECK(model.parts == std::vector<std::string>{"attention", "mlp"});
  CHECK(ToJson(model).count("parts") == 0);
  const Json mlp = {{"parts", {"mlp"}}};
  CHECK(ToJson(ReadModelConfig(mlp, "run.json#/model"))["parts"] == mlp["parts"]);
}

TEST_CASE("Parts that are unknown, stand twice or are none are refused at their place", "[train]") {
  CHECK(ErrorOfParts({"attention", "mpl"}) ==
        "run.json#/model/parts/1: unknown part \"mpl\"; did you mean \"mlp\"?");
  CHECK(ErrorOfParts({"mlp", "mlp"}) ==
        "run.json#/model/parts/1: \"mlp\" stands twice; a part stands once in a block");
  CHECK(ErrorOfParts(Json::array()) == "run.json#/model/parts: a block has at least one part");
  CHECK(ErrorOfParts("mlp") == "run.json#/model/parts: must be a list of names");
  CHECK(ErrorOfParts({1}) == "run.json#/model/parts/0: must be a name");
}

TEST_CASE("Blocks take the lists of a pattern in turn", "[train]") {
  const Json pattern = Json::array({{"gla", "mlp"}, {"attention", "moe"}, Json::array({"mlp"})});
  const Json json = {{"layers", 6}, {"parts", pattern}, {"moe", {{"experts", 4}}}};
  const ModelConfig model = ReadModelConfig(json, "run.json#/model");
  CHECK(model.parts == std::vector<std::string>{"gla", "mlp", "attention", "moe"});
  CHECK(ToJson(model)["parts"] == pattern);
  CHECK(ReadModelConfig(ToJson(model), "again") == model);
  const ParameterLayout layout = MakeLayout(model);
  std::vector<std::string> places;
  for (const PlacedPart& placed : layout.parts) {
    places.push_back(std::to_string(placed.block) + " " + std::string(placed.part->name));
    CHECK(PartsOf(model)[placed.index] == placed.part);
  }
  CHECK(places == std::vector<std::string>{"0 gla", "0 mlp", "1 attention", "1 moe", "2 mlp",
                                           "3 gla", "3 mlp", "4 attention", "4 moe", "5 mlp"});
  std::int64_t matrices = 0;
  for (const ParameterSlice& slice : layout.block_linears) {
    matrices += static_cast<std::int64_t>(slice.size());
  }
  CHECK(BlockParameterCount(model) == matrices);
  const Json one = Json::array({"mlp"}), same = Json::array({one, one});
  CHECK(ReadModelConfig({{"parts", same}}, "same") ==
        ReadModelConfig({{"parts", one}}, "one list"));
}

TEST_CASE("A pattern that cannot be is refused at its place", "[train]") {
  const std::string at = "run.json#/model/parts/";
  const Json mlp = Json::array({"mlp"}), attention = Json::array({"attention"});
  CHECK(ErrorOfParts(Json::array({mlp, Json::array({"mpl"})})) ==
        at + "1/0: unknown part \"mpl\"; did you mean \"mlp\"?");
  CHECK(ErrorOfParts(Json::array({mlp, {"attention", "attention"}})) ==
        at + "1/1: \"attention\" stands twice; a part stands once in a block");
  CHECK(ErrorOfParts(Json::array({mlp, Json::array()})) == at + "1: a block has at least one part");
  CHECK(ErrorOfParts(Json::array({mlp, "attention"})) == at + "1: must be a list of names");
  CHECK(ErrorOfParts(Json::array({"mlp", attention})) == at + "1: must be a name");
  CHECK(ErrorOfParts(Json::array({mlp, attention, {"attention", "mlp"}})) ==
        "run.json#/model/layers: 4 is not a multiple of the 3 lists of \"parts\"");
}

TEST_CASE("Only the parts of a model restrict its sizes", "[train]") {
  Json json = {{"model", {{"heads", 3}}}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }).find("run.json#/model/heads: ") == 0);
  json["model"]["parts"] = {"mlp"};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) == "no error");
  json = {{"recipe", "te_nvfp4"}, {"model", {{"ffn", 24}}}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }).find("run.json#/model/ffn: ") == 0);
  json["model"]["parts"] = {"attention"};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) == "no error");
}

TEST_CASE("Layout and plan list the linears and gains of the parts, in their order", "[train]") {
  ModelConfig model;
  model.layers = 2;
  model.parts = {"mlp", "attention"};
  const ParameterLayout layout = MakeLayout(model);
  std::vector<std::string> names;
  for (const ParameterSlice& slice : layout.slices) names.push_back(slice.name);
  CHECK(names ==
        std::vector<std::string>{"embedding.weight", "head.weight", "blocks.0.mlp.up.weight",
                                 "blocks.0.mlp.down.weight", "blocks.0.attention.qkv.weight",
                                 "blocks.0.attention.out.weight", "blocks.1.mlp.up.weight",
                                 "blocks.1.mlp.down.weight", "blocks.1.attention.qkv.weight",
                                 "blocks.1.attention.out.weight", "blocks.0.mlp_norm.gain",
                                 "blocks.0.attention_norm.gain", "blocks.1.mlp_norm.gain",
                                 "blocks.1.attention_norm.gain", "final_norm.gain"});
  CHECK(layout.parts.size() == 4);
  CHECK(layout.GainsOf(layout.parts[3]).front().name == "blocks.1.attention_norm.gain");
  const LinearPlan plan(model, ReadRecipe(Json("bf16"), "test"));
  CHECK(plan.Count() == 9);
  CHECK(plan.Name(layout.parts[3].first_linear) == "blocks.1.attention.qkv");
}

// A tiny run whose model has these members besides its sizes.
TrainConfig TinyWith(Json model, const Json& recipe = "te_nvfp4") {
  Json json = {{"model",
                {{"layers", 2},
                 {"d_model", 32},
                 {"heads", 2},
                 {"ffn", 64},
                 {"sequence", 32},
                 {"vocabulary", 256}}},
               {"recipe", recipe},
               {"data", {{"source", "synthetic"}}},
               {"batch", 4},
               {"tokens", 128 * 12}};
  json["model"].update(model);
  return ReadTrainConfig(json, "run.json");
}

const Json kSettings[] = {{{"head_dim", 32}},
                          {{"qk_norm", true}},
                          {{"window", 8}},
                          {{"no_rope_every", 2}},
                          {{"head_dim", 24},
                           {"heads", 4},
                           {"kv_heads", 2},
                           {"qk_norm", true},
                           {"window", 5},
                           {"full_attention_every", 2},
                           {"no_rope_every", 2}},
                          {{"logit_soft_cap", 5.0}},
                          {{"z_loss", 1e-3}}};

TEST_CASE(
    "Every kind of attention and of loss trains, continues bit for bit, and has the same bits for "
    "1 and 3 "
    "threads",
    "[train]") {
  for (const Json& model : kSettings) {
    CAPTURE(model.dump());
    const TrainConfig config = TinyWith(model);
    CHECK(ReadModelConfig(ToJson(config.model), "again") == config.model);
    const Corpus corpus = LoadCorpus(config.data);
    const std::vector<float> one = NumbersAfterResume(config, corpus, 1);
    CHECK(NumbersAfterResume(config, corpus, 3) == one);
    CHECK(Trainer(config, corpus).Numbers() != one);
  }
}

TEST_CASE("Members of attention that are as before are not written", "[train]") {
  const Json json = ToJson(ModelConfig());
  for (const char* key : {"head_dim", "qk_norm", "window", "full_attention_every", "no_rope_every",
                          "logit_soft_cap", "z_loss"}) {
    CHECK(json.count(key) == 0);
  }
}

TEST_CASE("Impossible attention is refused at its place, and a GPU takes what is possible",
          "[train]") {
  const auto error = [](const Json& model) { return ErrorOf([&] { TinyWith(model); }); };
  const std::string at = "run.json#/model/";
  CHECK(error({{"head_dim", 9}}) ==
        at + "head_dim: 9 is odd; rotary positions need an even number");
  CHECK(error({{"heads", 3}}) == at + "heads: 3 heads do not divide d_model 32");
  CHECK(error({{"full_attention_every", 2}}) ==
        at + "full_attention_every: needs \"window\": without one every block sees all keys");
  CHECK(error({{"head_dim", 12}}) ==
        at + "head_dim: the width of queries 24 is not a multiple of the recipe's block of 16");
  CHECK(error({{"z_loss", -1}}) == at + "z_loss: must be at least 0.0");
  CHECK(error({{"window", -1}}) == at + "window: must be at least 0");
  for (const Json& settings : kSettings) {
    TrainConfig config = TinyWith(settings);
    config.device = Device::kCuda;
    CHECK(ErrorOf([&] { CheckDevice(config, "run.json", "run.json"); }) == "no error");
  }
}

Json Mixture(Json moe) { return {{"parts", {"attention", "moe"}}, {"moe", std::move(moe)}}; }

TEST_CASE(
    "A mixture of experts trains under every kind of recipe, continues bit for bit, and has "
    "the same bits for 1 and 3 threads",
    "[train]") {
  for (const char* recipe : {"bf16", "te_nvfp4", "te_mxfp8", "te_fp8_delayedscaling"}) {
    for (const char* score : {"softmax", "sigmoid"}) {
      CAPTURE(recipe, score);
      TrainConfig config = TinyWith(Mixture({{"experts", 4},
                                             {"top_k", 2},
                                             {"ffn", 32},
                                             {"shared_experts", 1},
                                             {"score", score},
                                             {"balance_loss", 0.01}}),
                                    recipe);
      CHECK(ReadModelConfig(ToJson(config.model), "again") == config.model);
      const Corpus corpus = LoadCorpus(config.data);
      const std::vector<float> one = NumbersAfterResume(config, corpus, 1);
      CHECK(NumbersAfterResume(config, corpus, 3) == one);
    }
  }
}

TEST_CASE("First blocks with an MLP in place of experts have its linears and its width",
          "[train]") {
  const Json moe = {{"experts", 4}, {"ffn", 32}, {"first_k_dense_replace", 1}};
  TrainConfig config = TinyWith(Mixture(moe), "te_nvfp4");
  config.model.layers = 3;
  const ModelConfig& m = config.model;
  CHECK(ReadModelConfig(ToJson(m), "again") == m);
  CHECK(BlocksWith(m, PartNamed("mlp", "test")) == 1);
  CHECK(BlocksWith(m, PartNamed("moe", "test")) == 2);
  const ParameterLayout layout = MakeLayout(m);
  std::vector<std::string> names;
  for (const ParameterSlice& slice : layout.block_linears) names.push_back(slice.name);
  CHECK(names[2] == "blocks.0.mlp.up.weight");
  CHECK(names[6] == "blocks.1.moe.router.weight");
  CHECK(layout.block_linears[2].rows == static_cast<std::size_t>(m.ffn));
  CHECK(layout.block_linears[7].rows == 32);
  const Corpus corpus = LoadCorpus(config.data);
  const std::vector<float> one = NumbersAfterResume(config, corpus, 1);
  CHECK(NumbersAfterResume(config, corpus, 3) == one);
  // The same blocks as lists of parts give the same bits.
  TrainConfig lists = config;
  lists.model.moe.first_k_dense_replace = 0;
  lists.model.parts = {"attention", "mlp", "moe"};
  lists.model.pattern = {{"attention", "mlp"}, {"attention", "moe"}, {"attention", "moe"}};
  CHECK(NumbersAfterResume(lists, corpus, 1) == one);

  const auto error = [](const Json& json) { return ErrorOf([&] { TinyWith(Mixture(json)); }); };
  const std::string at = "run.json#/model/moe/first_k_dense_replace";
  CHECK(error({{"first_k_dense_replace", 2}}) ==
        at + ": 2 of 2 blocks leaves no block with \"moe\"");
  CHECK(error({{"first_k_dense_replace", -1}}) == at + ": must be at least 0");
  const Json both = {{"parts", {"attention", "mlp", "moe"}}, {"moe", moe}};
  CHECK(ErrorOf([&] { TinyWith(both); }) ==
        at + "/2: \"mlp\" stands twice; a part stands once in a block");
}

TEST_CASE("The loss-free bias moves against surplus, steers the choice alone, and is no gradient",
          "[train]") {
  const auto config_of = [](double rate) {
    return TinyWith(Mixture({{"experts", 4}, {"ffn", 32}, {"top_k", 1}, {"bias_rate", rate}}),
                    "bf16");
  };
  const TrainConfig with = config_of(0.125), without = config_of(0.0);
  const ParameterLayout layout = MakeLayout(with.model);
  REQUIRE(layout.balances.size() == 2);
  CHECK(layout.balances[0].name == "blocks.0.moe.router.bias");
  CHECK(layout.total == layout.trained + 8);
  CHECK(MakeLayout(without.model).total == layout.trained);
  const Corpus corpus = LoadCorpus(with.data);
  Trainer steered(with, corpus), plain(without, corpus);
  const StepResult a = steered.Step(1e-3), b = plain.Step(1e-3);
  CHECK(a.loss == b.loss);
  CHECK(a.grad_norm == b.grad_norm);
  const std::vector<float> numbers = steered.Numbers(), others = plain.Numbers();
  CHECK(std::equal(&numbers[0], &numbers[layout.trained], &others[0]));
  for (std::size_t i = layout.trained; i < layout.total; ++i) {
    CHECK((std::abs(numbers[i]) == 0.125f || numbers[i] == 0.0f));
  }
  Trainer again(with, corpus);
  again.LoadState(steered.SaveState(), "state");
  const double next = steered.Step(1e-3).loss;
  CHECK(again.Step(1e-3).loss == next);
  CHECK(again.Numbers() == steered.Numbers());
  CHECK(plain.Step(1e-3).loss != next);  // other experts were chosen
}

// Zeros change no amax and no sum. Random bits are numbered by their place in the padded matrix, so
// the recipe has none.
TEST_CASE("More padding of an expert's rows changes no bit", "[train]") {
  for (const char* recipe : {"bf16", "te_nvfp4_no_sr", "te_mxfp8", "te_fp8_currentscaling"}) {
    CAPTURE(recipe);
    const auto numbers = [&](int pad) {
      const TrainConfig config =
          TinyWith(Mixture({{"experts", 4}, {"ffn", 32}, {"pad_tokens", pad}}), recipe);
      const Corpus corpus = LoadCorpus(config.data);
      Trainer trainer(config, corpus);
      for (int i = 0; i < 3; ++i) trainer.Step(3e-3);
      return trainer.Numbers();
    };
    CHECK(numbers(32) == numbers(128));
  }
}

TEST_CASE("Each expert's input is quantized under the amax of its own tokens, and a router is not",
          "[train]") {
  const TrainConfig config =
      TinyWith(Mixture({{"experts", 4}, {"ffn", 32}, {"top_k", 1}}), "te_nvfp4");
  std::vector<float> parameters(MakeLayout(config.model).total);
  InitializeParameters(config, parameters);
  Model model(config.model, config.recipe, parameters, 4);
  std::map<std::string, float> amaxes;  // of fprop's inputs
  Matrix<float> norm;
  const LinearObserver observer = [&](const std::string& linear, const ObservedOperand& seen) {
    CHECK(linear.find("router") == linear.npos);
    if (!linear.starts_with("blocks.0.moe.experts.") || !linear.ends_with("up")) return;
    if (seen.operand != kFpropInput) return;
    CHECK(seen.before.rows % 32 == 0);
    amaxes[linear] = TensorAmax(seen.before);
    REQUIRE(seen.options.amax.size() == 1);
    CHECK(seen.options.amax[0] == amaxes[linear]);
  };
  const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
    if (name != "blocks.0.moe_norm.output") return;
    norm = Matrix<float>(x.rows, x.cols);
    RoundBf16(x, norm.View());
  };
  Pass pass;
  pass.observer = &observer;
  pass.inspector = &inspector;
  std::vector<std::uint16_t> tokens(128);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i * 2);
  model.Forward(pass, tokens);
  REQUIRE(amaxes.size() > 1);
  std::set<float> different;
  float largest = 0.0f;
  for (const auto& [linear, amax] : amaxes) {
    different.insert(amax);
    largest = std::max(largest, amax);
  }
  CHECK(different.size() > 1);
  CHECK(largest == TensorAmax(norm.View()));
}

TEST_CASE("Impossible mixtures are refused at their place", "[train]") {
  const auto error = [](const Json& moe) { return ErrorOf([&] { TinyWith(Mixture(moe)); }); };
  const std::string at = "run.json#/model/moe";
  CHECK(error({{"experts", 2}, {"top_k", 3}}) == at + "/top_k: 3 are more than the 2 experts");
  CHECK(error({{"experts", 0}}) == at + "/experts: must be at least 1");
  CHECK(error({{"score", "tanh"}}) == at + "/score: must be softmax or sigmoid, not \"tanh\"");
  CHECK(error({{"ffn", 24}}) ==
        at + "/ffn: the width of an expert 24 is not a multiple of the recipe's block of 16");
  CHECK(error({{"pad_tokens", 8}}) ==
        at + "/pad_tokens: pad_tokens 8 is not a multiple of the recipe's block of 16");
  CHECK(error({{"scale", 0}}) == at + "/scale: must be positive");
  CHECK(ErrorOf([] {
          TinyWith({{"moe", {{"experts", 2}}}});
        }) == at + ": no part reads it; \"parts\": [\"attention\", \"moe\"] does");
  TrainConfig config = TinyWith(Mixture({{"experts", 2}}));
  config.device = Device::kCuda;
  CHECK(ErrorOf([&] { CheckDevice(config, "run.json", "run.json"); }) == "no error");
}

Json Latents(Json mla) { return {{"parts", {"mla", "mlp"}}, {"mla", std::move(mla)}}; }

TEST_CASE(
    "Multi-head latent attention trains under every kind of recipe, continues bit for bit, and has "
    "the same bits for 1 and 3 threads",
    "[train]") {
  const Json wide = {{"q_lora_rank", 32}, {"kv_lora_rank", 32}, {"qk_rope_head_dim", 32}};
  for (const char* recipe : {"bf16", "te_nvfp4", "te_mxfp8", "te_fp8_delayedscaling"}) {
    for (const Json& mla : {Json::object(), wide}) {
      CAPTURE(recipe, mla.dump());
      const TrainConfig config = TinyWith(Latents(mla), recipe);
      CHECK(ReadModelConfig(ToJson(config.model), "again") == config.model);
      const Corpus corpus = LoadCorpus(config.data);
      const std::vector<float> one = NumbersAfterResume(config, corpus, 1);
      CHECK(NumbersAfterResume(config, corpus, 3) == one);
    }
  }
}

TEST_CASE("Latent attention's linears have attention's names, so that its recipes select them",
          "[train]") {
  const TrainConfig config = TinyWith(Latents({{"q_lora_rank", 16}}), "nemotron3_super");
  const LinearPlan plan(config.model, config.recipe);
  std::vector<std::string> names;
  for (std::size_t linear = 0; linear < plan.Head(); ++linear) {
    const std::string& name = plan.Name(linear);
    if (!name.starts_with("blocks.0.attention.")) continue;
    names.push_back(name.substr(19));
    CHECK(plan.RecipeOf({}, linear) == plan.Rest());
  }
  CHECK(names == std::vector<std::string>{"q_a", "q_b", "kv_a", "kv_b", "out"});
}

TEST_CASE("All heads of latent attention read the same keys with positions", "[train]") {
  const TrainConfig config = TinyWith(
      Latents({{"kv_lora_rank", 16}, {"qk_nope_head_dim", 8}, {"qk_rope_head_dim", 16}}), "fp32");
  std::vector<float> parameters(MakeLayout(config.model).total);
  InitializeParameters(config, parameters);
  const auto results = [&] {
    Matrix<float> heads;
    const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
      if (name != "blocks.0.attention.output") return;
      heads = Matrix<float>(x.rows, x.cols);
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) heads(r, c) = x(r, c);
      }
    };
    Pass pass;
    pass.inspector = &inspector;
    Model model(config.model, config.recipe, parameters, 1);
    std::vector<std::uint16_t> tokens(32);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::uint16_t>(i * 7);
    model.Forward(pass, tokens);
    return heads;
  };
  const Matrix<float> before = results();
  // A row of kv_a behind the latent's: a column of the shared keys.
  const ParameterLayout layout = MakeLayout(config.model);
  const ParameterSlice& kv_a = layout.block_linears[1];
  REQUIRE(kv_a.name == "blocks.0.attention.kv_a.weight");
  std::fill_n(parameters.begin() + static_cast<std::ptrdiff_t>(kv_a.offset + 17 * kv_a.cols),
              kv_a.cols, 0.5f);
  const Matrix<float> after = results();
  for (std::size_t head = 0; head < 2; ++head) {
    CHECK(before(31, head * 32) != after(31, head * 32));
    CHECK(before(0, head * 32) == after(0, head * 32));  // one key has probability 1
  }
}

TEST_CASE("Impossible latent attention is refused at its place", "[train]") {
  const auto error = [](const Json& mla) { return ErrorOf([&] { TinyWith(Latents(mla)); }); };
  const std::string model = "run.json#/model/", at = model + "mla/";
  CHECK(error({{"qk_rope_head_dim", 3}}) ==
        at + "qk_rope_head_dim: 3 is odd; rotary positions need an even number");
  CHECK(error({{"kv_lora_rank", 0}}) == at + "kv_lora_rank: must be at least 1");
  CHECK(error({{"q_lora_rank", -1}}) == at + "q_lora_rank: must be at least 0");
  CHECK(error({{"q_rank", 8}}).starts_with(model + "mla/q_rank: "));
  CHECK(error({{"q_lora_rank", 24}}) ==
        at + "q_lora_rank: q_lora_rank 24 is not a multiple of the recipe's block of 16");
  CHECK(error({{"kv_lora_rank", 48}, {"qk_rope_head_dim", 8}}) ==
        at + "qk_rope_head_dim: kv_lora_rank + qk_rope_head_dim 56 is not a multiple of the "
             "recipe's block of 16");
  CHECK(ErrorOf([] {
          TinyWith({{"mla", {{"kv_lora_rank", 32}}}});
        }) == model + "mla: no part reads it; \"parts\": [\"mla\", \"mlp\"] does");
  CHECK(ErrorOf([] {
          TinyWith({{"parts", {"mla", "attention"}}});
        }) == model + "parts: \"mla\" stands in place of \"attention\"; a block has one");
  CHECK(ErrorOf([] {
          TinyWith({{"parts", {"mla", "mlp"}}, {"qk_norm", true}});
        }) == model + "qk_norm: the part \"mla\" norms its latents, not its heads");
  TrainConfig config = TinyWith(Latents(Json::object()));
  config.device = Device::kCuda;
  CHECK(ErrorOf([&] { CheckDevice(config, "run.json", "run.json"); }) == "no error");
}

Json Gated(Json gla) { return {{"parts", {"gla", "mlp"}}, {"gla", std::move(gla)}}; }

TEST_CASE(
    "Gated linear attention trains, continues bit for bit, and has the same bits for 1 and 3 "
    "threads",
    "[train]") {
  const Json wide = {{"key_head_dim", 16}, {"value_head_dim", 32}, {"gate_rank", 32}};
  for (const char* recipe : {"te_nvfp4", "te_mxfp8", "bf16", "quartet2_forward_only"}) {
    for (const Json& gla : {Json::object(), wide}) {
      const bool fits = std::string(recipe) != "te_mxfp8" || gla == wide;  // blocks of 32
      if (!fits) continue;
      CAPTURE(recipe, gla.dump());
      const TrainConfig config = TinyWith(Gated(gla), recipe);
      CHECK(ReadModelConfig(ToJson(config.model), "again") == config.model);
      const Corpus corpus = LoadCorpus(config.data);
      const std::vector<float> one = NumbersAfterResume(config, corpus, 1);
      CHECK(NumbersAfterResume(config, corpus, 3) == one);
    }
  }
}

TEST_CASE("A model whose blocks differ trains, continues bit for bit, whatever the threads",
          "[train]") {
  const Json model = {{"layers", 4},
                      {"parts", Json::array({{"gla", "mlp"}, {"attention", "moe"}})},
                      {"moe", {{"experts", 4}, {"top_k", 2}, {"bias_rate", 0.01}}}};
  const TrainConfig config = TinyWith(model);
  const Corpus corpus = LoadCorpus(config.data);
  const std::vector<float> one = NumbersAfterResume(config, corpus, 1);
  CHECK(NumbersAfterResume(config, corpus, 3) == one);
  Json rules = {{"rest", "bf16"}};
  rules["rules"] = Json::array({{{"linears", "blocks.1.gla.*"}, {"recipe", "te_nvfp4"}}});
  CHECK(ErrorOf([&] { TinyWith(model, rules); }).find("matches no linear of this model") !=
        std::string::npos);
}

TEST_CASE("The linears of gated linear attention stand under recipes, and show their operands",
          "[train]") {
  Json rules = {{"rest", "bf16"}};
  rules["rules"] = Json::array({{{"linears", "*.gla.qkvg"}, {"recipe", "te_nvfp4"}}});
  const TrainConfig config = TinyWith(Gated(Json::object()), rules);
  const Corpus corpus = LoadCorpus(config.data);
  Trainer trainer(config, corpus);
  std::set<std::string> names;
  for (const TensorStatistics& t : trainer.Diagnose()) {
    names.insert(t.name);
    CHECK(std::isfinite(t.values["kurtosis"]));
  }
  CHECK(names.size() == 10);  // in two blocks; dgrad's weight is fprop's, turned
  CHECK(names.contains("blocks.1.gla.qkvg.wgrad.input"));
  Trainer all(TinyWith(Gated(Json::object())), corpus);
  names.clear();
  for (const TensorStatistics& t : all.Diagnose()) names.insert(t.name);
  for (const char* linear : {"gla.qkvg", "gla.decay_down", "gla.decay_up", "gla.out", "mlp.up"}) {
    CHECK(names.contains("blocks.0." + std::string(linear) + ".fprop.input"));
  }
}

TEST_CASE("Impossible gated linear attention is refused at its place", "[train]") {
  const auto error = [](const Json& gla) { return ErrorOf([&] { TinyWith(Gated(gla)); }); };
  const std::string model = "run.json#/model/", at = model + "gla/";
  CHECK(error({{"gate_rank", 0}}) == at + "gate_rank: must be at least 1");
  CHECK(error({{"rank", 8}}).starts_with(at + "rank: "));
  CHECK(error({{"gate_rank", 24}}) ==
        at + "gate_rank: gate_rank 24 is not a multiple of the recipe's block of 16");
  CHECK(error({{"value_head_dim", 12}}) ==
        at +
            "value_head_dim: the width of values 24 is not a multiple of the recipe's block of 16");
  CHECK(ErrorOf([] {
          TinyWith({{"parts", {"gla", "mlp"}}, {"heads", 3}});
        }) == at + "key_head_dim: must be given: d_model 32 is not a multiple of 6");
  CHECK(ErrorOf([] {
          TinyWith({{"gla", {{"gate_rank", 32}}}});
        }) == model + "gla: no part reads it; \"parts\": [\"gla\", \"mlp\"] does");
  CHECK(ErrorOf([] {
          TinyWith({{"parts", {"gla", "mlp"}}, {"mup", {{"base_d_model", 16}}}});
        }).starts_with(model + "mup: has no rate for the part \"gla\""));
  TrainConfig config = TinyWith(Gated(Json::object()));
  config.device = Device::kCuda;
  CHECK(ErrorOf([&] { CheckDevice(config, "run.json", "run.json"); }) == "no error");
}

TEST_CASE("A model of each part alone trains, and its memory is less than that of all", "[train]") {
  for (const Part* part : Parts()) {
    CAPTURE(part->name);
    const Json json = {{"model",
                        {{"layers", 2},
                         {"d_model", 64},
                         {"heads", 2},
                         {"ffn", 64},
                         {"sequence", 32},
                         {"parts", {part->name}}}},
                       {"recipe", "te_nvfp4"},
                       {"data", {{"source", "synthetic"}}},
                       {"batch", 4},
                       {"tokens", 128 * 20}};
    const TrainConfig config = ReadTrainConfig(json, "test");
    TrainConfig both = config;
    const bool attention = part->name == "attention" || part->name == "mla";
    both.model.parts = {attention ? std::string(part->name) : "attention",
                        attention ? "mlp" : std::string(part->name)};
    CHECK(EstimateMemory(config).activations < EstimateMemory(both).activations);
    const Corpus corpus = LoadCorpus(config.data);
    Trainer trainer(config, corpus);
    const double first = trainer.Step(1e-2).loss;
    double last = first;
    for (int i = 0; i < 12; ++i) last = trainer.Step(1e-2).loss;
    CHECK(last < first - 0.2);
  }
}

}  // namespace
}  // namespace fp4lab
