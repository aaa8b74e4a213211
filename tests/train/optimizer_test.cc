#include <cmath>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/trainer.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

TrainConfig Tiny(std::string_view optimizer) {
  const Json json = {{"model",
                      {{"layers", 2},
                       {"d_model", 32},
                       {"heads", 2},
                       {"ffn", 64},
                       {"sequence", 32},
                       {"vocabulary", 256}}},
                     {"optimizer", {{"name", optimizer}}},
                     {"recipe", "bf16"},
                     {"data", {{"source", "synthetic"}}},
                     {"batch", 2},
                     {"tokens", 64 * 12}};
  return ReadTrainConfig(json, "test");
}

// The numbers of an optimizer that updates one group after the other.
struct Numbers {
  std::vector<float> gradients, parameters;
  std::vector<std::vector<float>> memory;

  Numbers(const Optimizer& optimizer, std::size_t size)
      : gradients(size), parameters(size), memory(optimizer.states, std::vector<float>(size)) {}

  void Update(const OptimizerConfig& config, const UpdateStep& step,
              std::span<const ParameterGroup> groups) {
    const std::vector<std::span<float>> states(memory.begin(), memory.end());
    UpdateParameters(config, step, groups, {gradients, parameters, states});
  }
};

TEST_CASE("AdamW is the default, and a configuration names another one or is as before",
          "[train]") {
  CHECK(OptimizerConfig().name == Optimizers().front()->name);
  CHECK(ToJson(OptimizerConfig()).count("name") == 0);
  for (const Optimizer* optimizer : Optimizers()) {
    const OptimizerConfig config =
        ReadOptimizerConfig({{"name", optimizer->name}, {"beta1", 0.8}}, "run.json#/optimizer");
    CHECK(config.name == optimizer->name);
    CHECK(ReadOptimizerConfig(ToJson(config), "again") == config);
    CHECK(&OptimizerOf(config) == optimizer);
  }
  CHECK(ErrorOf([] {
          ReadTrainConfig({{"optimizer", {{"name", "adam"}}}}, "run.json");
        }) == "run.json#/optimizer/name: unknown optimizer \"adam\"; did you mean \"adamw\"?");
}

TEST_CASE("The groups of a model are all its parameters, each once", "[train]") {
  ModelConfig model;
  for (const bool tied : {false, true}) {
    model.tied_head = tied;
    const ParameterLayout layout = MakeLayout(model);
    std::size_t at = 0;
    for (const ParameterGroup& group : layout.groups) {
      CHECK(group.first == at);
      at += group.size;
    }
    CHECK(at == layout.total);
    for (const ParameterSlice& slice : layout.slices) {
      CAPTURE(slice.name);
      const bool gain = slice.role == ParameterRole::kGain;
      const bool embedding = slice.role == ParameterRole::kEmbedding;
      CHECK(gain == slice.name.ends_with(".gain"));
      const ParameterGroup& group = layout.groups[embedding ? 0 : gain ? 2 : 1];
      CHECK(slice.offset >= group.first);
      CHECK(slice.offset + slice.size() <= group.first + group.size);
    }
  }
}

TEST_CASE("Weights decay and gains do not, under every optimizer", "[train]") {
  const std::vector<ParameterGroup> groups = {{ParameterKind::kEmbeddings, 0, 8},
                                              {ParameterKind::kMatrices, 8, 16},
                                              {ParameterKind::kGains, 24, 8}};
  for (const Optimizer* optimizer : Optimizers()) {
    CAPTURE(optimizer->name);
    Numbers n(*optimizer, 32);
    std::fill(n.parameters.begin(), n.parameters.end(), 1.0f);
    OptimizerConfig config;
    config.name = optimizer->name;
    config.weight_decay = 0.5f;
    n.Update(config, {.learning_rate = 0.25f}, groups);
    for (std::size_t i = 0; i < 24; ++i) CHECK(n.parameters[i] == 0.875f);
    for (std::size_t i = 24; i < 32; ++i) CHECK(n.parameters[i] == 1.0f);
  }
}

TEST_CASE("Every optimizer minimizes a sum of squares", "[train]") {
  const std::vector<ParameterGroup> groups = {{ParameterKind::kMatrices, 0, 1000}};
  for (const Optimizer* optimizer : Optimizers()) {
    CAPTURE(optimizer->name);
    Numbers n(*optimizer, 1000);
    FillNormalValues(7, 1.0, n.parameters);
    OptimizerConfig config;
    config.name = optimizer->name;
    config.weight_decay = 0.0f;
    for (int i = 1; i <= 200; ++i) {
      for (std::size_t k = 0; k < 1000; ++k) n.gradients[k] = 2.0f * n.parameters[k];
      n.Update(config, {.learning_rate = 0.1f * static_cast<float>(201 - i) / 200, .step = i},
               groups);
    }
    double sum = 0.0;
    for (const float p : n.parameters) sum += double{p} * p;
    CHECK(sum < 1.0);  // of about 1000
  }
}

TEST_CASE("A run under every optimizer continues from its checkpoint bit for bit", "[train]") {
  for (const Optimizer* optimizer : Optimizers()) {
    CAPTURE(optimizer->name);
    const TrainConfig config = Tiny(optimizer->name);
    const Corpus corpus = LoadCorpus(config.data);
    Trainer whole(config, corpus), first(config, corpus), second(config, corpus);
    for (int i = 0; i < 4; ++i) whole.Step(1e-3);
    for (int i = 0; i < 2; ++i) first.Step(1e-3);
    second.LoadState(first.SaveState(), "state");
    for (int i = 0; i < 2; ++i) second.Step(1e-3);
    const std::size_t parameters = MakeLayout(config.model).total;
    CHECK(whole.Numbers().size() == (1 + optimizer->states) * parameters);
    CHECK(whole.Numbers() == second.Numbers());
    CHECK(whole.Numbers() != first.Numbers());
    CHECK(EstimateMemory(config).weights ==
          4.0 * static_cast<double>((2 + optimizer->states) * parameters));
  }
}

}  // namespace
}  // namespace fp4lab
