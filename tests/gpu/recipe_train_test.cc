// Training on the GPU in published recipes and in recipes that change during the run: losses
// against the CPU's; what is refused, and how.
#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "fp4lab/train/published_recipes.h"
#include "fp4lab/train/recipe.h"
#include "tests/gpu/trainers.h"

namespace fp4lab {
namespace {

TrainConfig Config(const Recipe& recipe) {
  TrainConfig c;
  c.model.layers = recipe.first_blocks_bf16 + recipe.last_blocks_bf16 + 1;
  c.model.d_model = c.model.ffn = 128;
  c.model.heads = 2;
  c.model.sequence = 32;
  c.batch = 4;
  c.schedule.warmup_steps = 2;
  c.tokens = 1'000'000;
  c.evaluation.tokens = 64;
  c.recipe = recipe;
  return c;
}

Recipe Read(const Json& json) { return ReadRecipe(json, "test"); }

std::vector<double> Losses(Trainer trainer, int steps) {
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    trainer.UseRecipeOf(i, steps);
    const StepResult result = trainer.Step(2e-3);
    REQUIRE_FALSE(result.non_finite.has_value());
    losses.push_back(result.loss);
  }
  return losses;
}

// The line that refuses the recipe; empty: it trains.
std::string Refusal(const Recipe& recipe) {
  try {
    OnGpu(Config(recipe));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool HasFloatScales(const LinearRecipe& recipe) {
  for (const GemmRecipe* gemm : {&recipe.fprop, &recipe.dgrad, &recipe.wgrad}) {
    for (const OperandRecipe* operand : {&gemm->a, &gemm->b}) {
      if (operand->format && operand->format->scale_encoding == ScaleEncoding::kBinary32) {
        return true;
      }
    }
  }
  return false;
}

// Of losses over 128 tokens in the first steps, where AdamW makes steps of one size of gradients of
// any: sums in another order part that far. Where nothing keeps the scales of FP4 in range,
// gradients underflow.
constexpr double kTolerance = 6e-2, kToleranceWithoutLevelTwo = 0.15;

double ToleranceOf(const LinearRecipe& recipe) {
  const std::optional<Dialect>& grad = recipe.dgrad.a.format;
  const bool bare = grad && !HasLevelTwo(*grad) && grad->scale != FormatId::kE8M0;
  return bare ? kToleranceWithoutLevelTwo : kTolerance;
}

TEST_CASE(
    "Every published recipe trains on the GPU with the CPU's losses within a distance, or is "
    "refused by name",
    "[gpu][recipes]") {
  if (NoGpu()) return;
  constexpr int kSteps = 4;
  double largest = 0.0;
  int trained = 0;
  for (const PublishedRecipe& row : PublishedRecipes()) {
    CAPTURE(row.name);
    const Recipe recipe = Read(row.name);
    if (HasFloatScales(recipe.linear)) {
      CHECK(Refusal(recipe).find("elements times binary32 scales") != std::string::npos);
      std::printf("  %-40s is refused: binary32 scales\n", row.name.c_str());
      continue;
    }
    const std::vector<double> a = Losses(Trainer(Config(recipe), Text()), kSteps);
    const std::vector<double> b = Losses(OnGpu(Config(recipe)), kSteps);
    const double distance = LargestDifference(a, b);
    CHECK(distance < ToleranceOf(recipe.linear));
    if (distance > 5e-3) std::printf("  %-40s %.1e nats\n", row.name.c_str(), distance);
    largest = std::max(largest, distance);
    ++trained;
  }
  std::printf("%d published recipes: largest |GPU - CPU| of %d losses %.1e nats\n", trained, kSteps,
              largest);
}

TEST_CASE("A recipe that changes during the run does so on the GPU", "[gpu][recipes]") {
  if (NoGpu()) return;
  constexpr int kSteps = 8;
  for (const Json& second :
       std::vector<Json>{"bf16", "quartet2", {{"base", "te_nvfp4"}, {"disable_rht", true}}}) {
    CAPTURE(second.dump());
    const Json first = "te_nvfp4";
    const Recipe recipe = Read({{"base", first}, {"then", {{"at", 0.5}, {"recipe", second}}}});
    const std::vector<double> changed = Losses(OnGpu(Config(recipe)), kSteps);
    const std::vector<double> unchanged = Losses(OnGpu(Config(Read(first))), kSteps);
    for (int i = 0; i < kSteps; ++i) {
      CAPTURE(i);
      const auto at = static_cast<std::size_t>(i);
      if (i < kSteps / 2) CHECK(changed[at] == unchanged[at]);
    }
    CHECK(changed.back() != unchanged.back());
    CHECK(LargestDifference(Losses(Trainer(Config(recipe), Text()), kSteps), changed) < kTolerance);
  }
}

TEST_CASE("Diagnostics on the GPU see operands made of fprop's values", "[gpu][recipes]") {
  if (NoGpu()) return;
  for (const char* name : {"quartet2", "quartet", "te_nvfp4_row_scaled_fwd_mxfp8_bwd"}) {
    const TrainConfig config = Config(Read(name));
    Trainer cpu(config, Text()), device = OnGpu(config);
    const std::vector<TensorStatistics> a = cpu.Diagnose(), b = device.Diagnose();
    REQUIRE(a.size() == b.size());
    std::map<std::string, TensorStatistics> named;
    for (const TensorStatistics& s : a) named[s.name] = s;
    for (const TensorStatistics& s : b) {
      CAPTURE(name, s.name);
      REQUIRE(named.count(s.name) == 1);
      CHECK(s.sqnr_db == Approx(named[s.name].sqnr_db).margin(0.5));
    }
  }
}

TEST_CASE("Binary32 scales train on the GPU where the operands are binary32", "[gpu][recipes]") {
  if (NoGpu()) return;
  const auto operand = [](std::vector<int> block) {
    return Json{{"format", {{"like", "fp8_e4m3"}, {"scale", "fp32"}, {"block", block}}}};
  };
  const Json rows = operand({1, 128}), tile = operand({128, 128});
  Json source = rows;
  source["from"] = "fprop";
  const Recipe recipe = Read({{"base", "fp32"},
                              {"fprop", {{"input", rows}, {"weight", tile}}},
                              {"dgrad", {{"grad", rows}, {"weight", tile}}},
                              {"wgrad", {{"grad", rows}, {"input", source}}}});
  CHECK(HasFloatScales(recipe.linear));
  const double distance = LargestDifference(Losses(Trainer(Config(recipe), Text()), 8),
                                            Losses(OnGpu(Config(recipe)), 8));
  std::printf("FP8 under binary32 scales: largest |GPU - CPU| of 8 losses %.1e nats\n", distance);
  CHECK(distance < 1e-2);
}

TEST_CASE("What the GPU does not train in is refused in one line", "[gpu][recipes]") {
  const Json exact{{"base", "te_nvfp4"}, {"accumulation", {{"wgrad", "exact"}}}};
  for (const Json& json : std::vector<Json>{
           exact, {{"base", "te_nvfp4"}, {"then", {{"at", 0.5}, {"recipe", exact}}}}}) {
    CHECK(Refusal(Read(json)) ==
          "test#/device: products on the GPU add in an order of their own, not as the accumulation "
          "\"exact\" says; \"device\": \"cpu\" takes it");
  }
  const std::string scales = Refusal(Read("deepseek_v3_fp8"));
  CHECK(scales.find("test#/device: the GPU multiplies BF16 numbers, which elements times binary32 "
                    "scales, as of {") == 0);
  CHECK(scales.find('\n') == std::string::npos);
}

// gpu_test "[speed]"
TEST_CASE("How long training steps take in published recipes", "[.speed]") {
  if (NoGpu()) return;
  for (const char* name : {"te_nvfp4", "nvidia_nvfp4_12b_fresh_signs", "tetrajet", "quartet",
                           "quartet2", "torchao_nvfp4"}) {
    TrainConfig config = Config(Read(name));
    config.model.layers = 2;
    config.model.d_model = 1024;
    config.model.heads = 16;
    config.model.ffn = 4096;
    config.model.sequence = 1024;
    config.batch = 16;
    config.recipe.first_blocks_bf16 = config.recipe.last_blocks_bf16 = 0;
    config.recipe.first_percent_bf16 = config.recipe.last_percent_bf16 = 0.0;
    Trainer trainer = OnGpu(config);
    const auto run = [&](int steps) {
      for (int i = 0; i < steps; ++i) trainer.Step(1e-4);
    };
    run(3);
    const auto start = std::chrono::steady_clock::now();
    run(10);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-40s %.2f ms a step (16 x 1024 tokens, 2 layers of 1024)\n", name,
                seconds * 100.0);
  }
}

}  // namespace
}  // namespace fp4lab
