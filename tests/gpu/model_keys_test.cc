// What models beyond the plain decoder need on the GPU, against the CPU: norms of heads, the soft
// cap and the z-loss, the choice of experts, Muon, and whole training steps with each.
#include <algorithm>
#include <cmath>
#include <limits>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/kernels/router.cuh"
#include "fp4lab/gpu/optimizer/muon.cuh"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/optimizer/muon.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/nn/router.h"
#include "fp4lab/train/checkpoint.h"
#include "tests/gpu/device.h"
#include "tests/gpu/trainers.h"

namespace fp4lab::gpu {
namespace {

template <class From, class To>
void CheckNormHeads(const RopeShape& s) {
  CAPTURE(s.rows, s.heads, s.kv_heads, s.head_dim);
  const std::size_t normed = s.heads + s.kv_heads, width = s.Width(), d = s.head_dim;
  std::vector<float> qkv = Normal(1, s.rows * width, 2.0), gq = Normal(2, d), gk = Normal(3, d);
  std::vector<float> grad = RoundedTo<From>(Normal(4, qkv.size()));
  const auto device = ToDevice(qkv), queries = ToDevice(gq), keys = ToDevice(gk);
  const auto device_grad = ToDeviceAs<From>(grad);
  const std::size_t chunks = GainChunks(s.rows);
  auto out = Poisoned<float>(qkv.size()), inverse = Poisoned<float>(s.rows * normed);
  auto partials = Poisoned<float>(2 * chunks * d), gains = ToDevice(std::vector<float>(2 * d));
  auto back = Poisoned<To>(qkv.size());
  const HeadGains of{queries.data(), keys.data()};
  NormHeads(s, device.data(), of, 1e-5f, out.data(), inverse.data(), nullptr);
  NormHeadsBackward(s, device.data(), of, inverse.data(), device_grad.data(), back.data(),
                    partials.data(), partials.data() + chunks * d, nullptr);
  const auto places = ToDevice(std::vector<GainPlace>{{0, static_cast<std::uint32_t>(d)},
                                                      {d, static_cast<std::uint32_t>(d)}});
  SumGains(partials.data(), chunks * d, 2, chunks, places.data(), d, gains.data(), nullptr);

  std::vector<float> want = qkv, want_back = grad, want_gains(2 * d), r(s.rows);
  for (std::size_t h = 0; h < normed; ++h) {
    const auto head = [&](std::vector<float>& x) {
      return MatrixView<float>(x.data(), s.rows, width).Block(0, h * d, s.rows, d);
    };
    const std::span<float> gain(h < s.heads ? gq : gk);
    RmsNorm(head(qkv), gain, 1e-5f, head(want), r);
    RmsNormBackward(head(qkv), gain, r, head(grad), Write::kOverwrite, head(want_back),
                    std::span(want_gains).subspan(h < s.heads ? 0 : d, d));
  }
  CHECK(Different(ToHost(out), want) == 0);
  CHECK(Different(FloatsOf(back), RoundedTo<To>(want_back)) == 0);
  CHECK(Distance(ToHost(gains), want_gains) < 1e-6);
}

TEST_CASE("Norms of heads on the GPU give the CPU's bits, forward and backward", "[gpu]") {
  if (NoGpu()) return;
  for (const RopeShape& s : std::vector<RopeShape>{{1, 1, 1, 1, 16},
                                                   {37, 37, 4, 2, 30},
                                                   {70, 35, 16, 8, 64},
                                                   {33, 33, 3, 1, 6},
                                                   {40, 40, 2, 2, 256}}) {
    CheckNormHeads<float, float>(s);
    CheckNormHeads<float, Bf16>(s);
    CheckNormHeads<Bf16, Bf16>(s);
  }
}

TEST_CASE("Heads without rotary positions are copied on the GPU", "[gpu]") {
  if (NoGpu()) return;
  const RopeShape s{22, 11, 4, 2, 16};
  const std::vector<float> qkv = Normal(1, s.rows * s.Width());
  const auto device = ToDevice(qkv);
  auto out = Poisoned<float>(qkv.size()), back = Poisoned<float>(qkv.size());
  Rope(s, nullptr, nullptr, device.data(), out.data(), nullptr);
  RopeBackward(s, nullptr, nullptr, device.data(), back.data(), nullptr);
  CHECK(Different(ToHost(out), qkv) == 0);
  CHECK(Different(ToHost(back), qkv) == 0);
}

// A target for each row.
std::vector<std::uint16_t> SpreadTargets(std::size_t rows, std::size_t vocabulary) {
  std::vector<std::uint16_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    targets[r] = static_cast<std::uint16_t>(r * 31 % vocabulary);
  }
  return targets;
}

template <class T>
void CheckLoss(const LossOptions& options, std::size_t rows, std::size_t vocabulary) {
  CAPTURE(options.soft_cap, options.z_loss, rows, vocabulary);
  std::vector<float> logits = Normal(1, rows * vocabulary, 9.0);
  const std::vector<std::uint16_t> targets = SpreadTargets(rows, vocabulary);
  const auto device = ToDevice(logits);
  const auto device_targets = ToDevice(targets);
  auto losses = Poisoned<double>(rows);
  auto gradient = Poisoned<T>(logits.size());
  MatrixView<float> z(logits.data(), rows, vocabulary);
  if (options.soft_cap > 0.0f) {
    SoftCap(options.soft_cap, logits.size(), device.data(), nullptr);
    fp4lab::SoftCap(options.soft_cap, z);
    CHECK(Different(ToHost(device), logits) == 0);
  }
  const float scale = 1.0f / 777.0f;
  std::vector<double> want_losses(rows);
  std::vector<float> want(logits.size());
  fp4lab::CrossEntropyGradient(z, targets, scale, options, want_losses,
                               MatrixView<float>(want.data(), rows, vocabulary));
  for (const float multiplier : {1.0f, 0.3f}) {
    CrossEntropyGradient(device.data(), device_targets.data(), scale, options, rows, vocabulary,
                         losses.data(), gradient.data(), nullptr, multiplier);
    std::vector<float> multiplied = want;
    for (float& d : multiplied) d = multiplier * d;
    CHECK(ToHost(losses) == want_losses);
    CHECK(Different(FloatsOf(gradient), RoundedTo<T>(multiplied)) == 0);
  }
}

TEST_CASE("The soft cap and the z-loss on the GPU give the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const LossOptions& options :
       std::vector<LossOptions>{{}, {30.0f, 0.0f}, {0.0f, 1e-2f}, {5.0f, 1e-4f}}) {
    for (const std::size_t vocabulary : {7, 256, 5000}) {
      CheckLoss<float>(options, 33, vocabulary);
      CheckLoss<Bf16>(options, 33, vocabulary);
    }
  }
}

template <class T>
void CheckTeacherLoss(const LossOptions& options, float temperature, float share, std::size_t rows,
                      std::size_t vocabulary) {
  CAPTURE(options.soft_cap, options.z_loss, temperature, share, rows, vocabulary);
  const float cap = options.soft_cap > 0.0f ? options.soft_cap / 10.0f : 1.0f;
  std::vector<float> logits = Normal(1, rows * vocabulary, 9.0 * cap);
  if (options.soft_cap > 0.0f) {
    fp4lab::SoftCap(options.soft_cap, MatrixView<float>(logits.data(), rows, vocabulary));
  }
  const std::vector<float> teacher = Normal(2, rows * vocabulary, 4.0);
  const std::vector<std::uint16_t> targets = SpreadTargets(rows, vocabulary);
  const auto device = ToDevice(logits), device_teacher = ToDevice(teacher);
  const auto device_targets = ToDevice(targets);
  auto losses = Poisoned<double>(rows), kl = Poisoned<double>(rows);
  auto gradient = Poisoned<T>(logits.size());
  const float scale = 1.0f / 777.0f;
  CrossEntropyGradient(device.data(), device_targets.data(), scale, options, rows, vocabulary,
                       losses.data(), gradient.data(), nullptr, 1.0f,
                       {device_teacher.data(), temperature, share, kl.data()});
  std::vector<double> want_losses(rows), want_kl(rows);
  std::vector<float> want(logits.size());
  fp4lab::CrossEntropyGradient(
      MatrixView<const float>(logits.data(), rows, vocabulary), targets, scale, options,
      {MatrixView<const float>(teacher.data(), rows, vocabulary), temperature, share, want_kl},
      want_losses, MatrixView<float>(want.data(), rows, vocabulary));
  CHECK(ToHost(losses) == want_losses);
  CHECK(ToHost(kl) == want_kl);
  CHECK(Different(FloatsOf(gradient), RoundedTo<T>(want)) == 0);
}

TEST_CASE("The loss with a teacher on the GPU has the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const LossOptions& options :
       std::vector<LossOptions>{{}, {30.0f, 0.0f}, {0.0f, 1e-2f}, {5.0f, 1e-4f}}) {
    for (const std::size_t vocabulary : {7, 256, 5000}) {
      CheckTeacherLoss<float>(options, 1.0f, 1.0f, 33, vocabulary);
      CheckTeacherLoss<Bf16>(options, 2.5f, 0.3f, 33, vocabulary);
    }
  }
}

TEST_CASE("Muon on the GPU has the CPU's momentum, and its update within the rounding of products",
          "[gpu]") {
  if (NoGpu()) return;
  for (const bool bf16 : {false, true}) {
    for (const bool nesterov : {false, true}) {
      for (const auto& [rows, cols] : std::vector<std::pair<std::size_t, std::size_t>>{
               {32, 32}, {64, 256}, {192, 64}, {48, 80}}) {
        CAPTURE(bf16, nesterov, rows, cols);
        constexpr std::size_t kMatrices = 3;
        const std::size_t size = rows * cols, between = 7, all = kMatrices * (size + between);
        std::vector<float> gradient = Normal(1, all, 1e-3), weight = Normal(2, all);
        std::vector<float> m = Normal(3, all, 1e-3);
        const Muon options{.learning_rate = 0.02f,
                           .nesterov = nesterov,
                           .bf16 = bf16,
                           .scale = 0.7f,
                           .weight_decay = 0.1f,
                           .gradient_scale = 0.4f};
        const auto device_gradient = ToDevice(gradient);
        auto device_weight = ToDevice(weight), device_m = ToDevice(m);
        const std::vector<float> before = weight;
        MuonBatch batch{rows, cols, {}};
        for (std::size_t i = 0; i < kMatrices; ++i) batch.offsets.push_back(i * (size + between));
        MuonStepOnDevice step(std::span(&batch, 1), bf16, nullptr);
        step.Run(options, batch, device_gradient.data(), device_weight.data(), device_m.data());
        for (const std::size_t at : batch.offsets) {
          const auto view = [&](std::vector<float>& x) {
            return MatrixView<float>(x.data() + at, rows, cols);
          };
          MuonStep(options, view(gradient), view(weight), view(m));
        }
        CHECK(Different(ToHost(device_m), m) == 0);
        const std::vector<float> after = ToHost(device_weight);
        for (const std::size_t at : batch.offsets) {
          const auto change = [&](const std::vector<float>& to) {
            std::vector<float> d(size);
            for (std::size_t i = 0; i < size; ++i) d[i] = to[at + i] - before[at + i];
            return d;
          };
          CHECK(Distance(change(after), change(weight)) < (bf16 ? 2e-2 : 1e-4));
          for (std::size_t i = at + size; i < at + size + between; ++i) {
            CHECK(after[i] == before[i]);  // what lies between the matrices
          }
        }
      }
    }
  }
}

void CheckRouter(const RouterOptions& options, std::size_t rows, std::size_t experts, bool biased) {
  CAPTURE(static_cast<int>(options.score), options.top_k, options.normalize, rows, experts, biased);
  std::vector<float> logits = Normal(1, rows * experts, 2.0), bias = Normal(2, experts, 0.3);
  if (rows > 2) logits[2 * experts] = std::numeric_limits<float>::quiet_NaN();
  if (rows > 3) std::fill_n(&logits[3 * experts], experts, 1.0f);  // ties
  std::vector<float> d_weights = Normal(3, rows * options.top_k);
  const auto device_logits = ToDevice(logits), device_bias = ToDevice(bias),
             device_d = ToDevice(d_weights);
  const std::size_t choices = rows * options.top_k;
  auto scores = Poisoned<float>(rows * experts), weights = Poisoned<float>(choices),
       d_logits = Poisoned<float>(rows * experts);
  auto chosen = Poisoned<std::uint32_t>(choices), counts = Poisoned<std::uint32_t>(experts),
       rank = Poisoned<std::uint32_t>(choices),
       before = Poisoned<std::uint32_t>(DivideUp(choices, kRankChunk) * experts);
  const DeviceRouting routing{rows,          experts,       scores.data(), weights.data(),
                              chosen.data(), counts.data(), rank.data(),   before.data()};
  Route(options, device_logits.data(), biased ? device_bias.data() : nullptr, routing, nullptr);
  RouteBackward(options, routing, device_d.data(), 1e-3f, d_logits.data(), nullptr);

  Routing want;
  std::vector<float> want_d(rows * experts);
  fp4lab::Route(options, MatrixView<const float>(logits.data(), rows, experts),
                biased ? std::span<const float>(bias) : std::span<const float>(), &want);
  fp4lab::RouteBackward(options, want,
                        MatrixView<const float>(d_weights.data(), rows, options.top_k), 1e-3f,
                        MatrixView<float>(want_d.data(), rows, experts));
  CHECK(Different(ToHost(scores), want.scores.values) == 0);
  CHECK(Different(ToHost(weights), want.weights.values) == 0);
  CHECK(ToHost(chosen) == want.chosen);
  CHECK(Different(ToHost(d_logits), want_d) == 0);
  const std::vector<std::uint32_t> got = ToHost(counts), ranks = ToHost(rank);
  CHECK(std::equal(got.begin(), got.end(), want.counts.begin(), want.counts.end()));
  std::vector<std::uint32_t> next(experts);
  for (std::size_t i = 0; i < choices; ++i) CHECK(ranks[i] == next[want.chosen[i]]++);
}

TEST_CASE("The choice of experts on the GPU gives the CPU's bits, forward and backward", "[gpu]") {
  if (NoGpu()) return;
  for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    for (const bool normalize : {false, true}) {
      const RouterOptions options{
          .score = score, .top_k = 2, .normalize = normalize, .scale = 2.5f, .balance_loss = 0.01f};
      CheckRouter(options, 1, 2, false);
      CheckRouter(options, 37, 8, true);
      CheckRouter(options, 1030, 8, false);
      CheckRouter(options, 300, 33, true);
    }
  }
}

struct Key {
  const char* name;
  Json model = Json::object(), optimizer = Json::object();
};

const std::vector<Key> kKeys = {
    {"head_dim", {{"head_dim", 32}}},
    {"head_dim that no tensor-core kernel has", {{"head_dim", 24}}},
    {"qk_norm", {{"qk_norm", true}}},
    {"qk_norm and head_dim", {{"qk_norm", true}, {"head_dim", 32}, {"kv_heads", 4}}},
    {"window", {{"window", 20}}},
    {"window, and every second block without", {{"window", 70}, {"full_attention_every", 2}}},
    {"no_rope_every", {{"no_rope_every", 2}}},
    {"soft cap and z-loss", {{"logit_soft_cap", 10.0}, {"z_loss", 1e-3}}},
    {"mup", {{"mup", {{"base_d_model", 32}, {"base_head_dim", 16}}}}},
    {"mup at a ratio that is no power of two",
     {{"mup", {{"base_d_model", 24}, {"base_head_dim", 8}}}, {"qk_norm", true}}},
    {"moe",
     {{"parts", {"attention", "moe"}},
      {"ffn", 64},
      {"activation", "swiglu"},
      {"moe", {{"experts", 4}, {"top_k", 2}, {"balance_loss", 0.01}}}}},
    {"moe with shared experts and the loss-free bias",
     {{"parts", {"attention", "moe"}},
      {"ffn", 64},
      {"moe",
       {{"experts", 8},
        {"top_k", 3},
        {"shared_experts", 1},
        {"score", "sigmoid"},
        {"bias_rate", 0.01}}}}},
    {"moe after a block with an MLP",
     {{"parts", {"attention", "moe"}}, {"moe", {{"experts", 4}, {"first_k_dense_replace", 1}}}}},
    {"mla", {{"parts", {"mla", "mlp"}}}},
    {"mla with a latent of queries, narrow values, a window and a block without positions",
     {{"parts", {"mla", "mlp"}},
      {"window", 20},
      {"no_rope_every", 2},
      {"mla", {{"q_lora_rank", 32}, {"qk_nope_head_dim", 16}, {"v_head_dim", 24}}}}},
    {"mla with heads that no tensor-core kernel holds",
     {{"parts", {"mla", "mlp"}}, {"mla", {{"qk_nope_head_dim", 8}, {"v_head_dim", 136}}}}},
    {"mla under mup",
     {{"parts", {"mla", "mlp"}}, {"mup", {{"base_d_model", 32}, {"base_head_dim", 16}}}}},
    {"gla", {{"parts", {"gla", "mlp"}}, {"gla", {{"gate_rank", 32}}}}},
    {"gla with more keys than values",
     {{"parts", {"gla", "mlp"}},
      {"gla", {{"gate_rank", 32}, {"key_head_dim", 72}, {"value_head_dim", 24}}}}},
    {"blocks of gla and of attention with experts",
     {{"parts", Json::array({{"gla", "mlp"}, {"attention", "moe"}})},
      {"gla", {{"gate_rank", 32}}},
      {"moe", {{"experts", 4}}}}},
    {"muon", Json::object(), {{"name", "muon"}}},
    {"muon in bf16",
     Json::object(),
     {{"name", "muon"}, {"muon", {{"precision", "bf16"}, {"scale", "keller_jordan"}}}}},
    {"rates of groups", Json::object(), {{"rates", {{"matrices", 0.5}, {"gains", 2.0}}}}},
    {"outliers",
     {{"outliers", {{"gain", 16}, {"channels", 2}, {"places", {"norm", "value", "hidden"}}}}}},
    {"outliers after ten steps", {{"outliers", {{"gain", 4}, {"step", 10}}}}},
    {"static loss scaling",
     Json::object(),
     {{"loss_scaling", {{"kind", "static"}, {"scale", 1024}}}}},
    {"dynamic loss scaling",
     Json::object(),
     {{"loss_scaling", {{"kind", "dynamic"}, {"scale", 65536}, {"growth_interval", 5}}}}}};

TrainConfig With(const Key& key, const Json& recipe, int micro_batches = 1) {
  Json shape = {{"layers", 2}, {"d_model", 64},   {"heads", 4},
                {"ffn", 256},  {"sequence", 128}, {"kv_heads", 2}};
  shape.update(key.model);
  return ReadTrainConfig({{"model", shape},
                          {"optimizer", key.optimizer},
                          {"schedule", {{"learning_rate", 3e-3}, {"warmup_steps", 10}}},
                          {"data", {{"source", "synthetic"}}},
                          {"evaluation", {{"tokens", 4096}}},
                          {"recipe", recipe},
                          {"batch", 8},
                          {"micro_batches", micro_batches},
                          {"tokens", 1024 * 30}},
                         "test");
}

// The first third of a checkpoint of AdamW or Muon is the parameters, the second the first moments.
std::vector<float> Moments(const Trainer& trainer) {
  const std::vector<float> all = ReadCheckpoint(trainer.SaveState(), "state").payload;
  const auto third = static_cast<std::ptrdiff_t>(all.size() / 3);
  return {all.begin() + third, all.begin() + 2 * third};
}

TEST_CASE("One step in binary32 with each key of the model is the CPU's but for the order of sums",
          "[gpu]") {
  if (NoGpu()) return;
  for (const Key& key : kKeys) {
    CAPTURE(key.name);
    const TrainConfig config = With(key, "fp32", 2);
    Trainer cpu(config, Text()), device = OnGpu(config);
    const StepResult a = cpu.Step(1e-3), b = device.Step(1e-3);
    CHECK(b.loss == Approx(a.loss).epsilon(1e-6));
    CHECK(b.grad_norm == Approx(a.grad_norm).epsilon(1e-5));
    CHECK(Distance(Moments(device), Moments(cpu)) < 1e-5);
    CHECK(device.Evaluate(EvaluationPrecision::kTraining).loss ==
          Approx(cpu.Evaluate(EvaluationPrecision::kTraining).loss).epsilon(1e-4));
  }
}

TEST_CASE("Thirty losses with each key of the model are the CPU's within a stated distance",
          "[gpu]") {
  if (NoGpu()) return;
  for (const Key& key : kKeys) {
    for (const auto& [recipe, tolerance] : std::vector<std::pair<const char*, double>>{
             {"bf16", 5e-3}, {"te_nvfp4", 5e-2}, {"te_mxfp8", 2e-2}}) {
      const TrainConfig config = With(key, recipe);
      Trainer cpu(config, Text()), device = OnGpu(config), again = OnGpu(config);
      const std::vector<double> a = Train(&cpu, 30), b = Train(&device, 30);
      std::printf("%-45s %-10s largest |GPU - CPU| of 30 losses: %.2e\n", key.name, recipe,
                  LargestDifference(a, b));
      CHECK(LargestDifference(a, b) < tolerance);
      CHECK(Train(&again, 30) == b);
      CHECK(again.SaveState() == device.SaveState());
    }
  }
}

TEST_CASE("A run on the GPU is pulled to its teacher as on the CPU", "[gpu]") {
  if (NoGpu()) return;
  const TemporaryFolder folder;
  const std::string from = (folder / "checkpoint.fp4lab").string();
  Trainer teacher(With({"teacher"}, "bf16"), Text());
  Train(&teacher, 10);
  WriteFileAtomically(from, teacher.SaveState());
  const auto taught = [&](const Json& recipe, float temperature, float share, bool starts) {
    TrainConfig config = With({"student", {{"logit_soft_cap", starts ? 0.0 : 20.0}}}, recipe, 2);
    config.teacher = {.from = from, .temperature = temperature, .share = share};
    if (starts) config.start = from;
    return config;
  };
  {
    Trainer same = OnGpu(taught("bf16", 1.0f, 1.0f, true));
    const StepResult step = same.Step(1e-3);
    CHECK(step.teacher_kl == 0.0);
    CHECK(step.grad_norm == 0.0);
  }
  for (const auto& [recipe, tolerance] :
       std::vector<std::pair<const char*, double>>{{"bf16", 5e-3}, {"te_nvfp4", 5e-2}}) {
    const TrainConfig config = taught(recipe, 2.0f, 0.5f, false);
    Trainer cpu(config, Text()), device = OnGpu(config);
    for (int i = 0; i < 30; ++i) {
      const StepResult a = cpu.Step(1e-3), b = device.Step(1e-3);
      CAPTURE(recipe, i);
      REQUIRE(b.loss == Approx(a.loss).margin(tolerance));
      REQUIRE(b.teacher_kl.value() == Approx(a.teacher_kl.value()).margin(tolerance));
    }
  }
}

TEST_CASE("Lists of recipes train on the GPU with the CPU's losses within a distance", "[gpu]") {
  if (NoGpu()) return;
  const Json rules = {
      {"rules",
       {{{"blocks", {{"last", 1}}}, {"linears", "*.attention.*"}, {"recipe", "bf16"}},
        {{"linears", {"*.mlp.*", "*.moe.*"}}, {"recipe", "te_nvfp4"}},
        {{"linears", "*.attention.*"}, {"steps", {{"to", 0.5}}}, {"recipe", "te_mxfp8"}}}},
      {"rest", "bf16"}};
  for (const char* name : {"head_dim", "moe"}) {
    const auto key = std::find_if(kKeys.begin(), kKeys.end(),
                                  [&](const Key& k) { return std::string(k.name) == name; });
    const TrainConfig config = With(*key, rules);
    Trainer cpu(config, Text()), device = OnGpu(config), again = OnGpu(config);
    const std::vector<double> a = Train(&cpu, 30), b = Train(&device, 30);
    std::printf("%-45s %-10s largest |GPU - CPU| of 30 losses: %.2e\n", name, "rules",
                LargestDifference(a, b));
    CHECK(LargestDifference(a, b) < 5e-2);
    CHECK(Train(&again, 30) == b);
    // The rules are in force: neither of their recipes alone gives these losses.
    for (const char* alone : {"te_nvfp4", "te_mxfp8", "bf16"}) {
      Trainer other = OnGpu(With(*key, alone));
      CHECK(Train(&other, 30) != b);
    }
  }
}

TEST_CASE("Uninitialized GPU memory does not change training with each key of the model", "[gpu]") {
  if (NoGpu()) return;
  const auto state = [](const TrainConfig& config, int byte) {
    new_memory_byte = byte;
    Trainer trainer = OnGpu(config);
    Train(&trainer, 3);
    new_memory_byte.reset();
    return trainer.SaveState();
  };
  for (const Key& key : kKeys) {
    CAPTURE(key.name);
    const TrainConfig config = With(key, "te_nvfp4", 2);
    CHECK(state(config, 0x00) == state(config, 0xFF));
  }
}

}  // namespace
}  // namespace fp4lab::gpu
