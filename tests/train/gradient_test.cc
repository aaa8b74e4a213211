#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/parts/parts.h"
#include "fp4lab/train/start/teacher.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"
#include "tests/train/double_model.h"

namespace fp4lab {
namespace {

struct Case {
  Activation activation;
  bool tied_head;
  int kv_heads;
  std::vector<std::string> parts = ModelConfig().parts;
  int head_dim = 0;
  bool qk_norm = false;
  int window = 0, full_attention_every = 0, no_rope_every = 0;
  MoeConfig moe = {.experts = 3};
  float logit_soft_cap = 0.0f, z_loss = 0.0f;
  MlaConfig mla = {};
  MupConfig mup = {};
  GlaConfig gla = {};
  std::vector<std::vector<std::string>> pattern = {};
};

ModelConfig ConfigOf(const Case& c) {
  ModelConfig m;
  m.layers = 2;
  m.d_model = 24;
  m.heads = 4;
  m.kv_heads = c.kv_heads;
  m.ffn = 40;
  m.sequence = 9;
  m.vocabulary = 19;
  m.activation = c.activation;
  m.tied_head = c.tied_head;
  m.parts = c.parts;
  m.pattern = c.pattern;
  m.head_dim = c.head_dim;
  m.qk_norm = c.qk_norm;
  m.window = c.window;
  m.full_attention_every = c.full_attention_every;
  m.no_rope_every = c.no_rope_every;
  m.moe = c.moe;
  m.logit_soft_cap = c.logit_soft_cap;
  m.z_loss = c.z_loss;
  m.mla = c.mla;
  m.mup = c.mup;
  m.gla = c.gla;
  // The first token's heads are (q k) v: near q k = 0 their norm turns within sqrt(epsilon), more
  // sharply than binary32 and the differences resolve.
  if (c.parts.front() == "gla") m.norm_epsilon = 1e-2f;
  return m;
}

// Weights large enough that no part of the gradient is negligible beside another.
std::vector<float> Parameters(const ModelConfig& config) {
  const ParameterLayout layout = MakeLayout(config);
  std::vector<float> p(layout.total);
  FillNormalValues(11, 0.25, p);
  for (std::size_t i = layout.matrices; i < p.size(); ++i) p[i] += 1.0f;
  return p;
}

struct Batch {
  std::vector<std::uint16_t> tokens, targets;
};

Batch MakeBatch(const ModelConfig& config, int sequences) {
  const auto rows = static_cast<std::size_t>(sequences * config.sequence);
  const RandomStream stream{3, 0, 0};
  Batch batch{std::vector<std::uint16_t>(rows), std::vector<std::uint16_t>(rows)};
  const auto vocabulary = static_cast<std::uint32_t>(config.vocabulary);
  for (std::size_t i = 0; i < rows; ++i) {
    batch.tokens[i] = static_cast<std::uint16_t>(stream.Bits32(2 * i) % vocabulary);
    batch.targets[i] = static_cast<std::uint16_t>(stream.Bits32(2 * i + 1) % vocabulary);
  }
  return batch;
}

// (loss(p + h v) - loss(p - h v)) / 2h
double Difference(const DoubleModel& model, std::span<const float> parameters,
                  std::span<const double> direction, const Batch& batch) {
  constexpr double kStep = 1e-5;
  std::vector<double> plus(parameters.begin(), parameters.end()), minus = plus;
  for (std::size_t i = 0; i < plus.size(); ++i) {
    plus[i] += kStep * direction[i];
    minus[i] -= kStep * direction[i];
  }
  return (model.Objective(plus, batch.tokens, batch.targets) -
          model.Objective(minus, batch.tokens, batch.targets)) /
         (2 * kStep);
}

double Dot(std::span<const float> gradient, std::span<const double> direction) {
  double sum = 0.0;
  for (std::size_t i = 0; i < gradient.size(); ++i) sum += gradient[i] * direction[i];
  return sum;
}

// Compares the gradient of each tensor with the model's, along one random direction per tensor.
void CheckDirections(const ModelConfig& config, const DoubleModel& truth,
                     std::span<const float> parameters, const Batch& batch,
                     std::span<const float> gradients) {
  const ParameterLayout layout = MakeLayout(config);
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    const ParameterSlice& slice = layout.slices[s];
    CAPTURE(slice.name);
    std::vector<float> random(slice.size());
    FillNormalValues(100 + s, 1.0, random);
    std::vector<double> direction(parameters.size(), 0.0);
    std::copy(random.begin(), random.end(),
              direction.begin() + static_cast<std::ptrdiff_t>(slice.offset));
    const double expected = Difference(truth, parameters, direction, batch);
    CHECK(Dot(gradients, direction) == Catch::Approx(expected).epsilon(2e-4).margin(2e-5));
  }
}

struct Result {
  double loss;
  std::vector<float> gradients;
};

Result Run(const ModelConfig& config, std::span<const float> parameters, const Batch& batch,
           const Json& json = "fp32") {
  const Recipe recipe = ReadRecipe(json, "test");
  Model model(config, recipe, parameters, 3);
  std::vector<double> row_loss(batch.tokens.size());
  Result result{0.0, std::vector<float>(parameters.size())};
  model.Forward(Pass{}, batch.tokens);
  const double loss = model.Loss(batch.targets, row_loss);
  const float scale = 1.0f / static_cast<float>(batch.tokens.size());
  result.loss =
      model.Backward(Pass{}, batch.tokens, batch.targets, scale, row_loss, result.gradients);
  CHECK(result.loss == loss);
  return result;
}

TEST_CASE("The model's loss and gradient are those of a float64 model's differences", "[train]") {
  std::vector<Case> cases = {{Activation::kSquaredRelu, false, 0},
                             {Activation::kSwiglu, false, 2},
                             {Activation::kGelu, true, 0},
                             {Activation::kSquaredRelu, true, 1},
                             {Activation::kSwiglu, true, 4},
                             {Activation::kGelu, false, 2},
                             {Activation::kGelu, false, 2, {"mlp", "attention"}}};
  const std::vector<std::string> all = ModelConfig().parts;
  cases.push_back({Activation::kSwiglu, false, 2, all, 8});
  cases.push_back({Activation::kSwiglu, false, 2, all, 0, true});
  cases.push_back({Activation::kSwiglu, false, 1, all, 10, true});
  cases.push_back({Activation::kGelu, false, 2, all, 0, false, 4});
  cases.push_back({Activation::kGelu, false, 2, all, 0, true, 3, 2});
  cases.push_back({Activation::kGelu, false, 2, all, 4, true, 3, 2, 2});
  cases.push_back({Activation::kGelu, false, 2, all, 0, false, 0, 0, 1});
  for (const auto& [cap, z] : {std::pair{1.5f, 0.0f}, {0.0f, 0.05f}, {2.0f, 0.05f}}) {
    Case c{Activation::kGelu, false, 2};
    c.logit_soft_cap = cap;
    c.z_loss = z;
    cases.push_back(c);
  }
  // experts, top_k, ffn, shared, score, normalize, scale, balance_loss, bias_rate, pad_tokens
  const RouterScore softmax = RouterScore::kSoftmax, sigmoid = RouterScore::kSigmoid;
  const MoeConfig mixtures[] = {{4, 2, 24, 0, softmax, true, 1.0f, 0.0f, 0.0f, 1},
                                {5, 3, 0, 1, softmax, false, 2.5f, 0.5f, 0.0f, 16},
                                {4, 2, 20, 2, sigmoid, true, 1.5f, 0.5f, 0.0f, 32},
                                {4, 1, 20, 0, sigmoid, false, 1.0f, 0.0f, 0.0f, 8},
                                {2, 2, 20, 0, softmax, true, 1.0f, 1.0f, 0.0f, 128}};
  for (const MoeConfig& moe : mixtures) {
    for (const Activation activation : {Activation::kSwiglu, Activation::kGelu}) {
      Case c{activation, false, 2, {"attention", "moe"}};
      c.moe = moe;
      cases.push_back(c);
    }
  }
  // q_lora_rank, kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim
  const MlaConfig latents[] = {{0, 10, 6, 4, 5}, {7, 9, 3, 2, 8}, {16, 8, 4, 12, 16}};
  for (const MlaConfig& mla : latents) {
    for (const int window : {0, 4}) {
      Case c{Activation::kGelu, false, 0, {"mla", "mlp"}};
      c.mla = mla;
      c.window = window;
      c.no_rope_every = window > 0 ? 2 : 0;
      cases.push_back(c);
    }
  }
  // key_head_dim, value_head_dim, gate_rank
  for (const GlaConfig& gla : {GlaConfig{0, 0, 16}, {5, 7, 3}, {8, 16, 20}}) {
    Case c{Activation::kSwiglu, false, 0, {"gla", "mlp"}};
    c.gla = gla;
    cases.push_back(c);
  }
  for (const std::vector<std::string>& parts :
       {all, std::vector<std::string>{"mla", "mlp"}, {"attention", "moe"}}) {
    Case c{Activation::kSwiglu, true, 2, parts};
    c.mup = {8, 16.0f};
    c.logit_soft_cap = 2.0f;
    c.z_loss = 0.05f;
    cases.push_back(c);
  }
  for (const Part* part : Parts()) {
    cases.push_back({Activation::kSwiglu, false, 2, {std::string(part->name)}});
  }
  cases.push_back({Activation::kSwiglu, false, 2, {"attention", "mlp", "moe"}});
  cases.back().pattern = {{"attention", "mlp"}, {"moe"}};
  cases.push_back({Activation::kSwiglu, false, 2, {"attention", "moe"}});
  cases.back().moe = {.experts = 3, .ffn = 20, .first_k_dense_replace = 1};
  for (const Case& c : cases) {
    const ModelConfig config = ConfigOf(c);
    CAPTURE(static_cast<int>(c.activation), c.tied_head, c.kv_heads, c.parts, c.head_dim, c.qk_norm,
            c.window, c.full_attention_every, c.no_rope_every, c.moe.experts, c.moe.top_k,
            c.moe.shared_experts, c.moe.normalize, c.mla.q_lora_rank, c.mla.kv_lora_rank,
            c.mup.base_d_model);
    const std::vector<float> parameters = Parameters(config);
    const Batch batch = MakeBatch(config, 3);
    const DoubleModel truth(config);
    const Result result = Run(config, parameters, batch);
    const std::vector<double> exact(parameters.begin(), parameters.end());
    CHECK(result.loss ==
          Catch::Approx(truth.Loss(exact, batch.tokens, batch.targets)).epsilon(1e-5));

    CheckDirections(config, truth, parameters, batch, result.gradients);
    const RandomStream pick{5, 0, 0};
    for (std::uint64_t i = 0; i < 20; ++i) {  // single parameters
      const std::size_t at = pick.Bits32(i) % parameters.size();
      std::vector<double> direction(parameters.size(), 0.0);
      direction[at] = 1.0;
      CAPTURE(at);
      CHECK(result.gradients[at] == Catch::Approx(Difference(truth, parameters, direction, batch))
                                        .epsilon(1e-3)
                                        .margin(2e-6));
    }
  }
}

TEST_CASE("Tensors split into parts that are not quantized have the float64 model's gradient",
          "[train]") {
  const ModelConfig config = ConfigOf({Activation::kSwiglu, false, 2, {"attention", "mlp", "moe"}});
  const std::vector<float> parameters = Parameters(config);
  const Batch batch = MakeBatch(config, 3);
  const DoubleModel truth(config);
  const Json columns = {{"term", "columns"}, {"channels", 3}, {"by", "norm"}};
  const Result plain = Run(config, parameters, batch);
  for (const auto& [inputs, gradients] :
       {std::pair<Json, Json>{"mean", "mean"}, {columns, columns}, {"mean", columns}}) {
    CAPTURE(inputs.dump(), gradients.dump());
    Json recipe = {{"base", "fp32"}};
    recipe["fprop"]["input"]["side"] = recipe["wgrad"]["input"]["side"] = inputs;
    recipe["dgrad"]["grad"]["side"] = recipe["wgrad"]["grad"]["side"] = gradients;
    const Result result = Run(config, parameters, batch, recipe);
    CHECK(result.gradients != plain.gradients);  // other roundings
    CheckDirections(config, truth, parameters, batch, result.gradients);
  }
}

TEST_CASE("With a teacher, the gradient is that of a float64 model with the teacher's loss",
          "[train]") {
  TemporaryFolder folder;
  for (const auto& [cap, z] : {std::pair{0.0f, 0.0f}, {2.0f, 0.05f}}) {
    Case c{Activation::kSwiglu, false, 2, {"attention", "moe"}};
    c.logit_soft_cap = cap;
    c.z_loss = z;
    c.moe.balance_loss = 0.5f;
    TrainConfig config;
    config.model = ConfigOf(c);
    config.recipe = ReadRecipe("fp32", "test");
    config.batch = 3;
    // The teacher has another shape, and its own soft cap.
    ModelConfig shape = ConfigOf({Activation::kGelu, true, 0});
    shape.logit_soft_cap = 1.5f;
    const std::vector<float> weights = Parameters(shape);
    config.teacher = {.from = (folder / "teacher.fp4lab").string()};
    WriteFileAtomically(config.teacher.from, [&](const ByteSink& sink) {
      const std::vector<std::span<const float>> payload = {weights};
      WriteCheckpoint({{{"model", ToJson(shape)}}, 0, {}}, payload, sink);
    });
    const std::vector<float> parameters = Parameters(config.model);
    const Batch batch = MakeBatch(config.model, 3);
    for (const auto& [temperature, share] : {std::pair{1.0f, 1.0f}, {2.0f, 0.5f}}) {
      CAPTURE(cap, z, temperature, share);
      config.teacher.temperature = temperature;
      config.teacher.share = share;
      Teacher teacher(config, "test");
      const TeacherLoss loss = teacher.LossOf(batch.tokens);
      Matrix<double> logits(loss.logits.rows, loss.logits.cols);
      for (std::size_t r = 0; r < logits.rows; ++r) {
        for (std::size_t k = 0; k < logits.cols; ++k) logits(r, k) = loss.logits(r, k);
      }
      DoubleModel truth(config.model);
      truth.SetTeacher(logits, temperature, share);
      Model model(config.model, config.recipe, parameters, 3);
      std::vector<double> row_loss(batch.tokens.size());
      std::vector<float> gradients(parameters.size());
      Pass pass;
      pass.teacher = &teacher;
      model.Forward(pass, batch.tokens);
      model.Backward(pass, batch.tokens, batch.targets,
                     1.0f / static_cast<float>(batch.tokens.size()), row_loss, gradients);
      CheckDirections(config.model, truth, parameters, batch, gradients);
    }
  }
}

}  // namespace
}  // namespace fp4lab
