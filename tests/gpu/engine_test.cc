// Whole training steps on the GPU: losses against the CPU's, reproducible bits, checkpoints that
// move between CPU and GPU, the first tensor that is not finite.
#include "fp4lab/gpu/engine/engine.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/engine/tokens.h"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/train/checkpoint.h"
#include "tests/gpu/trainers.h"

namespace fp4lab {
namespace {

// For initcheck: FP4LAB_CLEAR_PRODUCTS=1 compute-sanitizer --tool initcheck gpu_test
const bool kClearProducts = gpu::clear_products = std::getenv("FP4LAB_CLEAR_PRODUCTS") != nullptr;

TrainConfig Small(const Json& recipe, const Json& model = Json::object(), int micro_batches = 1) {
  Json shape = {{"layers", 2}, {"d_model", 64},   {"heads", 4},
                {"ffn", 256},  {"sequence", 128}, {"kv_heads", 2}};
  shape.update(model);
  const Json json = {{"model", shape},
                     {"schedule", {{"learning_rate", 5e-3}, {"warmup_steps", 10}}},
                     {"data", {{"source", "synthetic"}}},
                     {"evaluation", {{"tokens", 4096}}},
                     {"recipe", recipe},
                     {"batch", 8},
                     {"micro_batches", micro_batches},
                     {"tokens", 1024 * 50}};
  return ReadTrainConfig(json, "test");
}

std::vector<float> Payload(const Trainer& trainer) {
  return ReadCheckpoint(trainer.SaveState(), "state").payload;
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = double{a[i]} - double{b[i]};
    difference += d * d;
    size += double{b[i]} * double{b[i]};
  }
  return std::sqrt(difference / size);
}

TEST_CASE("SortTokens orders all rows by token and splits them into segments", "[gpu]") {
  const std::vector<std::uint16_t> tokens = {3, 1, 3, 3, 0, 3, 3, 1};
  const gpu::SortedTokens sorted = gpu::SortTokens(tokens, 5, 2);
  CHECK(sorted.rows == std::vector<std::uint32_t>{4, 1, 7, 0, 2, 3, 5, 6});
  CHECK(sorted.first == std::vector<std::uint32_t>{0, 1, 3, 5, 7, 8});
  CHECK(sorted.of_token == std::vector<std::uint32_t>{0, 1, 2, 2, 5, 5});
}

TEST_CASE("Without a GPU, cuda is refused in one line", "[gpu]") {
  if (CudaGpus() > 0) return;
  CHECK_THROWS_WITH(OnGpu(Small("bf16")),
                    Catch::Matchers::ContainsSubstring("test#/device: \"cuda\" "));
}

TEST_CASE("One step in binary32 on the GPU is the CPU's but for the order of sums", "[gpu]") {
  if (NoGpu()) return;
  const std::vector<Json> models = {Json::object(),
                                    {{"activation", "swiglu"}, {"tied_head", true}},
                                    {{"activation", "gelu"}, {"d_model", 60}, {"heads", 2}}};
  for (const Json& model : models) {
    CAPTURE(model.dump());
    const TrainConfig config = Small("fp32", model, 2);
    Trainer cpu(config, Text()), device = OnGpu(config);
    const std::vector<float> start = Payload(cpu);
    CHECK(Payload(device) == start);
    const StepResult a = cpu.Step(1e-3), b = device.Step(1e-3);
    CHECK(b.loss == Approx(a.loss).epsilon(1e-6));
    CHECK(b.grad_norm == Approx(a.grad_norm).epsilon(1e-5));
    // The second third of the payload holds the first moments, after one step a tenth of the
    // gradient.
    const std::vector<float> of_cpu = Payload(cpu), of_gpu = Payload(device);
    const auto moments = [](const std::vector<float>& p) {
      const auto n = static_cast<std::ptrdiff_t>(p.size() / 3);
      return std::vector<float>(p.begin() + n, p.begin() + 2 * n);
    };
    CHECK(Distance(moments(of_gpu), moments(of_cpu)) < 1e-5);
    CHECK(device.Evaluate(EvaluationPrecision::kTraining).loss ==
          Approx(cpu.Evaluate(EvaluationPrecision::kTraining).loss).epsilon(1e-5));
  }
}

// FP4 losses differ most from the CPU's, since FP4 rounds neighbouring sums to codes far apart. On
// an H200: fp32 4e-8, bf16 2e-4, FP8 2e-3, NVFP4 7e-3, MXFP4 1e-2.
struct Arm {
  Json recipe;
  double tolerance;  // nats, for each of 50 losses
};

const std::vector<Arm> kArms = {
    {"fp32", 1e-5},
    {"bf16", 2e-3},
    {{{"base", "te_fp8_currentscaling"}, {"fp8_format", "E4M3"}}, 1e-2},
    {"te_fp8_delayedscaling", 2e-2},
    {"te_mxfp8", 1e-2},
    {"te_nvfp4", 3e-2},
    {{{"base", "mxfp4"}, {"scale_rule", "rceil"}}, 3e-2},
    {{{"base", "mxfp4"}, {"scale_rule", "floor"}, {"weight_block", "1d"}}, 3e-2}};

TEST_CASE("Fifty losses on the GPU are the CPU's within a stated distance", "[gpu]") {
  if (NoGpu()) return;
  for (const Arm& arm : kArms) {
    CAPTURE(arm.recipe.dump());
    const TrainConfig config = Small(arm.recipe);
    Trainer cpu(config, Text()), fast = OnGpu(config);
    Trainer exact = OnGpu(config, gpu::AttentionPrecision::kFloat);
    const std::vector<double> a = Train(&cpu, 50), b = Train(&fast, 50), c = Train(&exact, 50);
    std::printf(
        "%-70s largest |GPU - CPU| of 50 losses: %.2e, binary32 attention %.2e; last %.4f\n",
        arm.recipe.dump().c_str(), LargestDifference(a, b), LargestDifference(a, c), a.back());
    CHECK(LargestDifference(a, b) < arm.tolerance);
    CHECK(LargestDifference(a, c) < arm.tolerance);
    const auto precision = EvaluationPrecision::kTraining;
    CHECK(std::fabs(cpu.Evaluate(precision).loss - fast.Evaluate(precision).loss) < arm.tolerance);
  }
}

TEST_CASE("Training on the GPU is reproducible", "[gpu]") {
  if (NoGpu()) return;
  for (const Arm& arm : kArms) {
    CAPTURE(arm.recipe.dump());
    const TrainConfig config = Small(arm.recipe, Json::object(), 2);
    Trainer first = OnGpu(config), second = OnGpu(config);
    CHECK(first.Processor() == second.Processor());
    CHECK(first.Processor().find(", cuBLASLt ") != std::string::npos);
    Train(&first, 20);
    Train(&second, 20);
    CHECK(first.SaveState() == second.SaveState());
  }
}

TEST_CASE("Previous contents of GEMM outputs do not change training on the GPU", "[gpu]") {
  if (NoGpu()) return;
  const auto state = [](const TrainConfig& config, bool clear) {
    gpu::clear_products = clear;
    Trainer trainer = OnGpu(config);
    Train(&trainer, 3);
    gpu::clear_products = kClearProducts;
    return trainer.SaveState();
  };
  for (const Arm& arm : kArms) {
    DYNAMIC_SECTION(arm.recipe.dump()) {
      const TrainConfig config = Small(arm.recipe, Json::object(), 2);
      CHECK(state(config, kClearProducts) == state(config, true));
    }
  }
}

TEST_CASE("Uninitialized GPU memory does not change training", "[gpu]") {
  if (NoGpu()) return;
  const auto state = [](const TrainConfig& config, int byte) {
    gpu::new_memory_byte = byte;
    Trainer trainer = OnGpu(config);
    Train(&trainer, 3);
    const double loss = trainer.Evaluate(EvaluationPrecision::kTraining).loss;
    gpu::new_memory_byte.reset();
    return std::pair(trainer.SaveState(), loss);
  };
  for (const Arm& arm : kArms) {
    CAPTURE(arm.recipe.dump());
    const TrainConfig config = Small(arm.recipe, Json::object(), 2);
    CHECK(state(config, 0x00) == state(config, 0xFF));  // NaN in binary32 and BF16
  }
}

TEST_CASE("A CPU checkpoint resumes on the GPU, and a GPU checkpoint on the CPU", "[gpu]") {
  if (NoGpu()) return;
  const TrainConfig config = Small(GENERATE("te_nvfp4", "te_fp8_delayedscaling"));
  Trainer whole(config, Text()), cpu(config, Text()), device = OnGpu(config), back(config, Text());
  const std::vector<double> want = Train(&whole, 30);
  Train(&cpu, 10);
  const std::vector<std::byte> at_10 = cpu.SaveState();
  device.LoadState(at_10, "state");
  CHECK(device.SaveState() == at_10);
  Train(&device, 20);
  back.LoadState(device.SaveState(), "state");
  const std::vector<double> got = Train(&back, 30);
  REQUIRE(got.size() == 10);
  CHECK(LargestDifference(got, {want.end() - 10, want.end()}) < 3e-2);
  CHECK(back.Steps() == 30);
}

TEST_CASE("Diagnostics on the GPU see the CPU's operands", "[gpu]") {
  if (NoGpu()) return;
  const TrainConfig config = Small("te_nvfp4");
  Trainer cpu(config, Text()), device = OnGpu(config);
  const std::vector<TensorStatistics> a = cpu.Diagnose(), b = device.Diagnose();
  REQUIRE(a.size() == b.size());
  REQUIRE_FALSE(a.empty());
  std::map<std::string, TensorStatistics> named;
  for (const TensorStatistics& s : a) named[s.name] = s;
  for (const TensorStatistics& s : b) {
    CAPTURE(s.name);
    REQUIRE(named.count(s.name) == 1);
    CHECK(s.format == named[s.name].format);
    CHECK(s.values["amax"] == Approx(named[s.name].values["amax"]).epsilon(0.2));
    CHECK(s.values["sqnr_db"] == Approx(named[s.name].values["sqnr_db"]).margin(0.5));
  }
}

TEST_CASE("The GPU names the first tensor that is not finite", "[gpu]") {
  if (NoGpu()) return;
  const TrainConfig config = Small("bf16");
  Trainer device = OnGpu(config);
  const std::vector<std::byte> state = device.SaveState();
  Checkpoint checkpoint = ReadCheckpoint(state, "state");
  // A huge weight of block 0's mlp.down overflows its output, the first tensor that is not finite.
  const ParameterSlice down = MakeLayout(config.model).block_linears[3];
  checkpoint.payload[down.offset] = 3e38f;
  device.LoadState(
      WriteCheckpoint(checkpoint.header, std::array{std::span<const float>(checkpoint.payload)}),
      "state");
  const StepResult result = device.Step(1e-3);
  REQUIRE(result.non_finite.has_value());
  CHECK(result.non_finite->tensor == "blocks.0.mlp.down.output");
  CHECK(device.Steps() == 0);
}

}  // namespace
}  // namespace fp4lab
