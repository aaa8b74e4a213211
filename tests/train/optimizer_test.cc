#include <algorithm>
#include <cmath>

#include "fp4lab/data/load_corpus.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/optimizer/muon_matrices.h"
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
  const std::vector<ParameterGroup> groups = {
      {ParameterKind::kEmbeddings, 0, 8},
      {ParameterKind::kMatrices, 8, 16, {{"w", 8, 2, 8, ParameterRole::kMatrix}}},
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
  const std::vector<ParameterGroup> groups = {
      {ParameterKind::kMatrices, 0, 1000, {{"w", 0, 20, 50, ParameterRole::kMatrix}}}};
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

TEST_CASE("The slices of the groups are all slices of a model, in order", "[train]") {
  ModelConfig model;
  model.activation = Activation::kSwiglu;
  const ParameterLayout layout = MakeLayout(model);
  std::vector<std::string> names, all;
  for (const ParameterGroup& group : layout.groups) {
    for (const ParameterSlice& slice : group.slices) names.push_back(slice.name);
  }
  for (const ParameterSlice& slice : layout.slices) all.push_back(slice.name);
  CHECK(names == all);
  const auto& matrices = layout.groups[1].slices;
  const std::vector<std::size_t> qkv = {64, 64, 64}, up = {256, 256};
  CHECK(matrices[0].stacked == qkv);
  CHECK(matrices[1].stacked.empty());
  CHECK(matrices[2].stacked == up);
  for (const ParameterSlice& slice : matrices) {
    std::size_t rows = 0;
    for (const std::size_t n : slice.stacked) rows += n;
    CHECK((slice.stacked.empty() || rows == slice.rows));
  }
}

TEST_CASE("A group's rate is a multiple of the schedule's, under every optimizer", "[train]") {
  const ParameterLayout layout = MakeLayout(Tiny("adamw").model);
  for (const Optimizer* optimizer : Optimizers()) {
    CAPTURE(optimizer->name);
    const auto after = [&](const GroupRates& rates, float learning_rate) {
      Numbers n(*optimizer, layout.total);
      FillNormalValues(8, 1.0, n.parameters);
      FillNormalValues(9, 1.0, n.gradients);
      OptimizerConfig config;
      config.name = optimizer->name;
      config.rates = rates;
      n.Update(config, {.learning_rate = learning_rate}, layout.groups);
      return n.parameters;
    };
    const std::vector<float> all = after({0.5f, 0.25f, 2.0f}, 0.125f);
    const float own[] = {0.0625f, 0.03125f, 0.25f};
    for (std::size_t g = 0; g < 3; ++g) {
      const std::vector<float> one = after({}, own[g]);
      const ParameterGroup& group = layout.groups[g];
      for (std::size_t i = group.first; i < group.first + group.size; ++i) {
        REQUIRE(all[i] == one[i]);
      }
    }
  }
}

TEST_CASE("Muon takes each fused matrix by itself, with the scale of its shape", "[train]") {
  const ParameterLayout layout = MakeLayout(Tiny("muon").model);
  for (const bool split : {true, false}) {
    for (const MuonScale scale : {MuonScale::kMoonlight, MuonScale::kKellerJordan}) {
      Numbers n(OptimizerNamed("muon", "test"), layout.total);
      FillNormalValues(10, 1.0, n.gradients);
      OptimizerConfig config;
      config.name = "muon";
      config.weight_decay = 0.0f;
      config.muon.split_fused = split;
      config.muon.scale = scale;
      n.Update(config, {.learning_rate = 1.0f}, layout.groups);
      for (const ParameterSlice& slice : layout.groups[1].slices) {
        CAPTURE(slice.name, split, scale);
        std::vector<std::size_t> heights = slice.stacked;
        if (heights.empty() || !split) heights = {slice.rows};
        std::size_t at = slice.offset;
        for (const std::size_t rows : heights) {
          // The update, -scale * o, has singular values of about scale, rank of them.
          double squares = 0.0;
          for (std::size_t i = at; i < at + rows * slice.cols; ++i) {
            squares += double{n.parameters[i]} * n.parameters[i];
          }
          const auto r = static_cast<double>(rows), c = static_cast<double>(slice.cols);
          const double expected = scale == MuonScale::kMoonlight ? 0.2 * std::sqrt(std::max(r, c))
                                                                 : std::sqrt(std::max(1.0, r / c));
          const double got = std::sqrt(squares / std::min(r, c));
          CHECK(got > 0.6 * expected);
          CHECK(got < 1.25 * expected);
          at += rows * slice.cols;
        }
      }
    }
  }
}

TEST_CASE("Muon's batches hold every matrix once, of one shape and of a bounded size", "[train]") {
  const std::vector<MuonMatrix> matrices = {{0, 2, 3},   {6, 3, 2},   {12, 2, 3}, {18, 2, 3},
                                            {24, 20, 1}, {44, 20, 1}, {64, 3, 2}};
  std::vector<std::size_t> offsets;
  std::size_t batches = 0;
  for (const MuonBatch& batch : MuonBatches(matrices, 12)) {
    ++batches;
    CHECK((batch.offsets.size() == 1 || batch.offsets.size() * batch.rows * batch.cols <= 12));
    for (const std::size_t at : batch.offsets) {
      offsets.push_back(at);
      const auto m = std::find_if(matrices.begin(), matrices.end(),
                                  [&](const MuonMatrix& matrix) { return matrix.offset == at; });
      REQUIRE(m != matrices.end());
      CHECK((m->rows == batch.rows && m->cols == batch.cols));
    }
  }
  std::sort(offsets.begin(), offsets.end());
  CHECK(offsets == std::vector<std::size_t>{0, 6, 12, 18, 24, 44, 64});
  CHECK(batches == 5);  // 2 of (2, 3), 1 of (3, 2), 2 of (20, 1), each alone
}

TEST_CASE("The numbers of Muon are read strictly and written back", "[train]") {
  const Json json = {{"name", "muon"},
                     {"rates", {{"embeddings", 0.5}}},
                     {"muon",
                      {{"momentum", 0.9},
                       {"nesterov", false},
                       {"steps", 6},
                       {"precision", "bf16"},
                       {"scale", "keller_jordan"},
                       {"split_fused", false}}}};
  const OptimizerConfig config = ReadOptimizerConfig(json, "run.json#/optimizer");
  CHECK(config.muon == MuonConfig{0.9f, false, 6, true, MuonScale::kKellerJordan, false});
  CHECK(config.rates == GroupRates{0.5f, 1.0f, 1.0f});
  CHECK(ReadOptimizerConfig(ToJson(config), "again") == config);
  CHECK(ToJson(OptimizerConfig()).count("muon") == 0);
  CHECK(ToJson(OptimizerConfig()).count("rates") == 0);
  const auto error = [](const Json& members) {
    return ErrorOf([&] { ReadOptimizerConfig(members, "run.json#/optimizer"); });
  };
  const auto muon = [&](const Json& members) {
    return error({{"name", "muon"}, {"muon", members}});
  };
  const std::string at = "run.json#/optimizer/";
  CHECK(error({{"muon", {{"steps", 5}}}}) ==
        at + "muon: the optimizer \"adamw\" does not read it; \"name\": \"muon\" does");
  CHECK(muon({{"momentum", 1.0}}) == at + "muon/momentum: must be in [0, 1)");
  CHECK(muon({{"steps", 0}}) == at + "muon/steps: must be at least 1");
  CHECK(muon({{"steps", 65}}) == at + "muon/steps: must be at most 64");
  CHECK(muon({{"precision", "fp8"}}) == at + "muon/precision: must be fp32 or bf16, not \"fp8\"");
  CHECK(muon({{"scale", "rms"}}) ==
        at + "muon/scale: must be moonlight or keller_jordan, not \"rms\"");
  CHECK(error({{"rates", {{"gains", -1.0}}}}) ==
        at + "rates/gains: must be a multiple of the schedule's rate, at least 0");
}

}  // namespace
}  // namespace fp4lab
