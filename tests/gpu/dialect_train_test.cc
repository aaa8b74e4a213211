// Training on the GPU with operands in any dialect: losses against the CPU's.
#include <array>
#include <chrono>
#include <string>

#include "fp4lab/dialect/dialect.h"
#include "fp4lab/gpu/engine/memory.cuh"
#include "tests/gpu/trainers.h"

namespace fp4lab {
namespace {

// A recipe with all operands in one format and gradients rounded stochastically.
Json InFormat(const Json& format, int random_bits) {
  const Json plain{{"format", format}};
  Json random = plain;
  random["rounding"] = "stochastic";
  random["random_bits"] = random_bits;
  return {{"base", "bf16"},
          {"fprop", {{"input", plain}, {"weight", plain}}},
          {"dgrad", {{"grad", random}, {"weight", plain}}},
          {"wgrad", {{"grad", random}, {"input", plain}}}};
}

TrainConfig Config(const Json& recipe, const Json& model, int batch, int steps) {
  const Json json = {{"model", model},
                     {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 10}}},
                     {"data", {{"source", "synthetic"}}},
                     {"recipe", recipe},
                     {"batch", batch},
                     {"tokens", model["sequence"].get<int>() * batch * steps}};
  return ReadTrainConfig(json, "test");
}

const Json kTiny = {{"layers", 2}, {"d_model", 32}, {"heads", 2}, {"ffn", 64}, {"sequence", 64}};

// The losses of at most `steps` steps, up to the first step with a number that is not finite.
std::vector<double> FiniteLosses(Trainer trainer, std::int64_t steps) {
  const TrainConfig& config = trainer.Config();
  std::vector<double> losses;
  while (trainer.Steps() < steps) {
    const StepResult result =
        trainer.Step(LearningRate(config.schedule, trainer.Steps(), TotalSteps(config)));
    if (result.non_finite) break;
    losses.push_back(result.loss);
  }
  return losses;
}

// Without a tensor scale, gradients underflow E4M3 block scales, and the remaining values round far
// apart on CPU and GPU.
double Tolerance(const Dialect& d) {
  return !HasTensorScale(d) && d.scale != FormatId::kE8M0 ? 0.1 : 3e-2;
}

TEST_CASE("Every exact dialect trains on the GPU, with the CPU's losses within a distance",
          "[gpu]") {
  if (NoGpu()) return;
  double largest = 0.0;
  int number = 0;
  for (const Dialect& d : Dialects()) {
    if (IsApproximate(d) || d.block_cols > 32) continue;  // wider than this model
    CAPTURE(d.name);
    const int bits = std::array{16, 8, 32, 4}[static_cast<std::size_t>(number++ % 4)];
    const TrainConfig config = Config(InFormat(d.name, bits), kTiny, 8, 30);
    const std::vector<double> a = FiniteLosses(Trainer(config, Text()), 30);
    const std::vector<double> b = FiniteLosses(OnGpu(config), 30);
    REQUIRE(a.size() == 30);
    REQUIRE(b.size() == 30);
    CHECK(b.back() < b.front() - 1.0);
    const double distance = LargestDifference(a, b);
    CHECK(distance < Tolerance(d));
    largest = std::max(largest, distance);
    if (distance > 1e-2) {
      std::printf("  %-45s %d bits: %.2e nats; last %.4f\n", std::string(d.name).c_str(), bits,
                  distance, a.back());
    }
  }
  std::printf("%d dialects: largest |GPU - CPU| of 30 losses %.2e nats\n", number, largest);
}

TEST_CASE("Training in user-defined dialects is reproducible on the GPU", "[gpu]") {
  if (NoGpu()) return;
  const Json rows{{"like", "fp8_e4m3"}, {"block", {1, 0}}};
  const Json wide{{"like", "nvfp4.te"}, {"scale", "ue5m3"}, {"block", {1, 32}}};
  const Json tiles{{"like", "nvfp4.te"}, {"element", "e2m3"}, {"block", {32, 32}}};
  for (const Json& format : {rows, wide, tiles}) {
    CAPTURE(format.dump());
    Json recipe = InFormat(format, 32);
    recipe["wgrad"]["grad"]["random"] = "linear_counter";
    recipe["dgrad"]["grad"]["random"] = "word_per_row";
    recipe["wgrad"]["grad"]["hadamard"] = recipe["wgrad"]["input"]["hadamard"] = 16;
    TrainConfig config = Config(recipe, kTiny, 8, 10);
    config.micro_batches = 2;
    const auto state = [&](int byte) {
      gpu::new_memory_byte = byte;
      Trainer trainer = OnGpu(config);
      Train(&trainer, 5);
      gpu::new_memory_byte.reset();
      return trainer.SaveState();
    };
    CHECK(state(0x00) == state(0xFF));
    Trainer cpu(config, Text()), device = OnGpu(config);
    CHECK(LargestDifference(Train(&cpu, 10), Train(&device, 10)) < 3e-2);
    CHECK_FALSE(device.Diagnose().empty());
  }
}

// Run with: gpu_test "[speed]"
TEST_CASE("How long training steps take in several dialects", "[.speed]") {
  if (NoGpu()) return;
  const Json model = {
      {"layers", 2}, {"d_model", 1024}, {"heads", 16}, {"ffn", 4096}, {"sequence", 1024}};
  std::vector<std::pair<std::string, Json>> recipes = {{"bf16", "bf16"}, {"te_nvfp4", "te_nvfp4"}};
  Json te = InFormat("nvfp4.te", 16);
  recipes.push_back({"nvfp4.te, 16 bits (tuned)", te});
  for (const std::string name : {"nvfp4.te.row-scaled", "nvfp4.modelopt", "nvfp4.te.4over6.mse.256",
                                 "mxfp4.torchao.rceil"}) {
    recipes.push_back({name + ", 8 bits", InFormat(name, 8)});
  }
  te["fprop"]["input"]["format"] = "nvfp4.te.row-scaled";
  recipes.push_back({"nvfp4.te with fprop.input row-scaled", te});
  for (const auto& [name, recipe] : recipes) {
    Trainer trainer = OnGpu(Config(recipe, model, 16, 20));
    Train(&trainer, 3);
    const auto start = std::chrono::steady_clock::now();
    Train(&trainer, 13);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-40s %.2f ms a step (16 x 1024 tokens, 2 layers of 1024)\n", name.c_str(),
                seconds * 100.0);
  }
}

}  // namespace
}  // namespace fp4lab
