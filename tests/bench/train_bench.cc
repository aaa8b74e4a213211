// Whole training steps under each recipe: tokens/s, the share of the FMA peak, and what emulated
// FP4 costs beside the plain step. The recipes take turns, step by step, so that a machine whose
// speed drifts does not favour one.
#include <benchmark/benchmark.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/data/corpus.h"
#include "fp4lab/measure/clock.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/measure/summary.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::bench {
namespace {

constexpr std::array kRecipeNames = {"fp32", "bf16", "te_fp8_currentscaling", "te_nvfp4", "mxfp4"};

// 2,048 tokens a step, L 4, FFN 4d, squared ReLU, bytes: the study's model at d 64.
TrainConfig ConfigOf(int d, const std::string& recipe) {
  TrainConfig config;
  config.model = {.layers = 4, .d_model = d, .heads = d / (d == 64 ? 16 : 64), .ffn = 4 * d};
  config.model.sequence = d == 64 ? 128 : 256;
  config.batch = 2048 / config.model.sequence;
  config.recipe = ReadRecipe(Json(recipe), "bench");
  config.data.source = "synthetic";
  return config;
}

double Median(const std::vector<double>& values) { return measure::Summarize(values).median; }

// Multiply-adds count as 2. The linears and the head: 6 a parameter; attention, causal: 6 T d a
// layer (forward 2 T d, backward twice that).
double FlopPerToken(const ModelConfig& model) {
  const double linear = static_cast<double>(BlockParameterCount(model)) +
                        static_cast<double>(model.d_model) * model.vocabulary;
  const double attention = static_cast<double>(model.layers) * model.sequence * model.d_model;
  return 6.0 * (linear + attention);
}

// One thread; the argument is d_model.
void TrainingStep(benchmark::State& state) {
  const int d = static_cast<int>(state.range(0));
  const int threads = Threads();
  SetThreads(1);
  const Corpus corpus = LoadCorpus(ConfigOf(d, "bf16").data);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const char* recipe : kRecipeNames) {
    trainers.push_back(std::make_unique<Trainer>(ConfigOf(d, recipe), corpus));
    if (trainers.back()->Step(1e-3).non_finite) return state.SkipWithError("a loss is not finite");
  }
  std::vector<std::vector<double>> seconds(trainers.size());
  std::vector<double> peaks;
  for (auto _ : state) {
    for (std::size_t i = 0; i < trainers.size(); ++i) {
      const double start = measure::ThreadSeconds();
      trainers[i]->Step(1e-3);
      seconds[i].push_back(measure::ThreadSeconds() - start);
    }
    peaks.push_back(measure::FmaPeak(20));
  }
  SetThreads(threads);
  const TrainConfig config = ConfigOf(d, "bf16");
  const double tokens = static_cast<double>(TokensPerStep(config));
  const double flop = tokens * FlopPerToken(config.model);
  const double fp32 = Median(seconds[0]), bf16 = Median(seconds[1]), peak = 1e9 * Median(peaks);
  for (std::size_t i = 0; i < trainers.size(); ++i) {
    const std::string name = kRecipeNames[i];
    const double step = Median(seconds[i]);
    state.counters[name + "_tokens/s"] = tokens / step;
    state.counters[name + "_of_peak"] = flop / step / peak;
    state.counters[name + "/bf16"] = step / bf16;
    state.counters[name + "/fp32"] = step / fp32;
  }
  state.counters["peak_GFLOP/s"] = 1e-9 * peak;
}
BENCHMARK(TrainingStep)->Arg(64)->Arg(256)->Arg(512)->Iterations(5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace fp4lab::bench
