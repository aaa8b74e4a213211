// Maximal update parametrization: what it changes of a model, and that the sizes of activations
// then do not depend on the width.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "fp4lab/base/threads_scope.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

constexpr int kBase = 32, kHeadDim = 16;

Json RunJson(int width, const Json& more) {
  Json json = {{"model",
                {{"layers", 2},
                 {"d_model", width},
                 {"heads", width / kHeadDim},
                 {"ffn", 2 * width},
                 {"sequence", 32}}},
               {"recipe", "fp32"},
               {"data", {{"source", "synthetic"}, {"synthetic_bytes", 60'000}}},
               {"batch", 4},
               {"tokens", 128 * 20}};
  json["model"].update(more);
  return json;
}

TrainConfig Plain(int width, const Json& more = Json::object()) {
  return ReadTrainConfig(RunJson(width, more), "run.json");
}

TrainConfig Mup(int width, Json more = Json::object()) {
  more["mup"] = {{"base_d_model", kBase}, {"base_head_dim", kHeadDim}};
  return Plain(width, more);
}

std::vector<float> WeightsAfter(const TrainConfig& config, int steps, double rate) {
  const Corpus corpus = LoadCorpus(config.data);
  Trainer trainer(config, corpus);
  for (int i = 0; i < steps; ++i) trainer.Step(rate);
  const std::vector<float> numbers = trainer.Numbers();
  return {numbers.begin(),
          numbers.begin() + static_cast<std::ptrdiff_t>(MakeLayout(config.model).total)};
}

// The tensors of a forward pass over fixed tokens.
std::map<std::string, std::vector<float>> Activations(const TrainConfig& config,
                                                      const std::vector<float>& weights) {
  std::map<std::string, std::vector<float>> tensors;
  const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
    std::vector<float>& values = tensors[name];
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) values.push_back(x(r, c));
    }
  };
  Pass pass;
  pass.inspector = &inspector;
  Model model(config.model, config.recipe, weights, 4);
  std::vector<std::uint16_t> tokens(128);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>('a' + i * i % 16);
  }
  model.Forward(pass, tokens);
  return tensors;
}

// The mean size of the change of each tensor by training.
std::map<std::string, double> Changes(const TrainConfig& config) {
  const auto before = Activations(config, WeightsAfter(config, 0, 0.0));
  const auto after = Activations(config, WeightsAfter(config, 6, 4e-3));
  std::map<std::string, double> changes;
  for (const auto& [name, values] : after) {
    double sum = 0.0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += std::abs(values[i] - before.at(name)[i]);
    }
    changes[name] = sum / static_cast<double>(values.size());
  }
  return changes;
}

double DeviationOf(const std::vector<float>& weights, const ParameterSlice& slice) {
  double sum = 0.0;
  for (std::size_t i = 0; i < slice.size(); ++i) {
    sum += double{weights[slice.offset + i]} * weights[slice.offset + i];
  }
  return std::sqrt(sum / static_cast<double>(slice.size()));
}

TEST_CASE("At the base width and head size, muP is the standard parametrization bit for bit",
          "[train]") {
  for (const char* part : {"mlp", "moe"}) {
    const Json parts = {{"parts", {"attention", part}}};
    CHECK(WeightsAfter(Mup(kBase, parts), 3, 1e-2) == WeightsAfter(Plain(kBase, parts), 3, 1e-2));
  }
  CHECK(WeightsAfter(Mup(2 * kBase), 3, 1e-2) != WeightsAfter(Plain(2 * kBase), 3, 1e-2));
}

TEST_CASE(
    "Under muP embedding and head begin alike at all widths, matrices by 1 / sqrt(r), "
    "routers by 1 / r",
    "[train]") {
  const Json parts = {{"parts", {"attention", "moe"}}};
  std::map<ParameterRole, std::vector<double>> deviations;
  for (const int width : {kBase, 4 * kBase}) {
    const TrainConfig config = Mup(width, parts);
    const std::vector<float> weights = WeightsAfter(config, 0, 0.0);
    const ParameterLayout layout = MakeLayout(config.model);
    std::map<ParameterRole, std::vector<double>> found;
    for (const ParameterSlice& slice : layout.slices) {
      found[slice.role].push_back(DeviationOf(weights, slice));
    }
    for (const auto& [role, all] : found) {
      double mean = 0.0;
      for (const double d : all) mean += d / static_cast<double>(all.size());
      deviations[role].push_back(mean);
    }
  }
  const std::pair<ParameterRole, double> factors[] = {{ParameterRole::kEmbedding, 1.0},
                                                      {ParameterRole::kGain, 1.0},
                                                      {ParameterRole::kMatrix, 0.5},
                                                      {ParameterRole::kResidualMatrix, 0.5},
                                                      {ParameterRole::kRouter, 0.25}};
  for (const auto& [role, factor] : factors) {
    CAPTURE(static_cast<int>(role));
    CHECK(deviations[role][1] / deviations[role][0] == Catch::Approx(factor).epsilon(0.07));
  }
}

TEST_CASE("Under muP matrices learn at 1 / r of the rate, and decay by as much as without it",
          "[train]") {
  OptimizerConfig optimizer;
  optimizer.rates.matrices = 0.5f;
  for (const int r : {1, 4}) {
    const ParameterLayout layout = MakeLayout(Mup(r * kBase).model);
    for (const ParameterGroup& group : layout.groups) {
      const float rate = LearningRateOf(optimizer, 0.25f, group),
                  decay = rate * WeightDecayOf(optimizer, group);
      const bool matrices = group.kind == ParameterKind::kMatrices;
      CHECK(rate == (matrices ? 0.125f / static_cast<float>(r) : 0.25f));
      if (matrices) CHECK(decay == 0.125f * optimizer.weight_decay);
    }
  }
}

TEST_CASE(
    "Under muP the change of activations by training does not depend on the width; "
    "without it, it grows",
    "[train]") {
  const auto narrow = Changes(Mup(kBase)), wide = Changes(Mup(8 * kBase)),
             standard = Changes(Plain(8 * kBase));
  // Behind a norm, the growth of the blocks before it is divided away.
  const std::pair<const char*, double> growths[] = {{"head.output", 3.0},
                                                    {"blocks.0.attention.qkv.output", 3.0},
                                                    {"blocks.1.attention.qkv.output", 1.9},
                                                    {"blocks.1.mlp.up.output", 1.9}};
  for (const auto& [name, growth] : growths) {
    CAPTURE(name);
    CHECK(wide.at(name) / narrow.at(name) > 0.5);
    CHECK(wide.at(name) / narrow.at(name) < 1.8);
    CHECK(standard.at(name) / narrow.at(name) > growth);
  }
}

TEST_CASE("Logits are multiplied by 1 / r, and scores by sqrt(base_head_dim) / head_dim",
          "[train]") {
  const TrainConfig plain = Plain(4 * kBase), mup = Mup(4 * kBase);
  const std::vector<float> weights = WeightsAfter(plain, 0, 0.0);
  const auto a = Activations(plain, weights), b = Activations(mup, weights);
  CHECK(a.at("final_norm.output") == b.at("final_norm.output"));
  for (std::size_t i = 0; i < a.at("head.output").size(); ++i) {
    REQUIRE(b.at("head.output")[i] == a.at("head.output")[i] / 4);
  }
  TrainConfig by_d = mup;
  by_d.model.mup.base_head_dim = 1.0f;
  CHECK(ScoreScale(by_d.model, 16) == 1.0f / 16);
  CHECK(ScoreScale(mup.model, 16) == 0.0f);  // the usual one
  CHECK(ScoreScale(mup.model, 64) == 4.0f / 64);
  CHECK(ScoreScale(plain.model, 64) == 0.0f);
  CHECK(Activations(by_d, weights).at("blocks.0.attention.output") !=
        a.at("blocks.0.attention.output"));
}

TEST_CASE("A run under muP continues bit for bit, with 1 and 3 threads, and needs no more memory",
          "[train]") {
  for (const char* recipe : {"fp32", "te_nvfp4"}) {
    TrainConfig config = Mup(2 * kBase, {{"parts", {"mla", "mlp"}}});
    config.recipe = ReadRecipe(Json(recipe), "test");
    CHECK(ReadTrainConfig(ToJson(config), "again") == config);
    const Corpus corpus = LoadCorpus(config.data);
    std::vector<std::vector<float>> numbers;
    for (const int threads : {1, 3}) {
      const ThreadsScope scope(threads);
      Trainer whole(config, corpus), first(config, corpus), second(config, corpus);
      for (int i = 0; i < 4; ++i) whole.Step(1e-2);
      for (int i = 0; i < 2; ++i) first.Step(1e-2);
      second.LoadState(first.SaveState(), "state");
      for (int i = 0; i < 2; ++i) second.Step(1e-2);
      CHECK(second.Numbers() == whole.Numbers());
      numbers.push_back(whole.Numbers());
    }
    CHECK(numbers[0] == numbers[1]);
    TrainConfig standard = config;
    standard.model.mup = {};
    CHECK(EstimateMemory(config).Total() == EstimateMemory(standard).Total());
    Trainer other(standard, corpus);
    CHECK(ErrorOf([&] {
            other.LoadState(Trainer(config, corpus).SaveState(), "state");
          }).starts_with("state: checkpoint of another configuration: model/mup: "));
  }
}

TEST_CASE("muP that cannot be is refused at its pointer", "[train]") {
  const auto error = [](const Json& mup) { return ErrorOf([&] { Plain(kBase, {{"mup", mup}}); }); };
  const std::string at = "run.json#/model/mup";
  CHECK(error(Json::object()) == at + ": needs the key \"base_d_model\"");
  CHECK(error({{"base_d_model", -1}}) == at + "/base_d_model: must be at least 0");
  CHECK(error({{"base_d_model", 32}, {"base_head_dim", 0}}) ==
        at + "/base_head_dim: must be positive");
  CHECK(error({{"base_d_model", 32}, {"base_width", 1}}).starts_with(at + "/base_width: "));
  CHECK(Plain(kBase, {{"mup", {{"base_d_model", 0}, {"base_head_dim", 4}}}}) == Plain(kBase));
  CHECK(ToJson(Plain(kBase).model).count("mup") == 0);
  Json json = RunJson(kBase, {{"mup", {{"base_d_model", 32}}}});
  json["optimizer"] = {{"name", "muon"}};
  CHECK(ErrorOf([&] { ReadTrainConfig(json, "run.json"); }) ==
        at + ": its rates are those of \"adamw\"; the optimizer \"muon\" has none");
}

}  // namespace
}  // namespace fp4lab
