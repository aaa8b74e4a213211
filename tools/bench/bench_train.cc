// Rows of `fp4lab bench`: whole training steps, the growth of their time with the model, and their
// memory.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/io/process.h"
#include "fp4lab/measure/machine.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/optimizer/muon_matrices.h"
#include "tools/bench/bench_layer.h"
#include "tools/bench/bench_rows.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

using measure::Cell;
using measure::Work;

constexpr const char* kTrainTopic = "Training (L 4, FFN 4d, GELU, T 256, B 8, V 4096)";
constexpr const char* kNvfp4 = "te_nvfp4";

double Tokens(const BenchModel& model) {
  return static_cast<double>(TokensPerStep(BenchTrainConfig(model)));
}

// FLOP of training one token; a multiply-add counts as 2. The linears and the head take 6 for each
// parameter, causal attention 6 T d for each layer.
double FlopPerToken(const ModelConfig& m) {
  const double linear =
      static_cast<double>(BlockParameterCount(m)) + static_cast<double>(m.d_model) * m.vocabulary;
  return 6.0 * (linear + static_cast<double>(m.layers) * m.sequence * m.d_model);
}

std::string ModelText(const BenchModel& model) {
  return model.recipe + ", d " + std::to_string(model.d_model);
}

// The limit of a plain step on `threads` threads: its FLOP at the FMA peak. Under te_nvfp4 the
// vector instructions of the linears stand in place of their FLOP.
Limit LeastPlainStep(const BenchModel& model, int threads) {
  const ModelConfig m = BenchTrainConfig(model).model;
  const double flop = FlopPerToken(m) * Tokens(model);
  if (model.recipe != kNvfp4) {
    return {[flop] { measure::SpendFlop(flop); }, "its FLOP at the FMA peak"};
  }
  const BenchLayer layer(static_cast<std::size_t>(m.d_model));  // of as many tokens as a step has
  const Limit linears = LinearInstructions(layer, threads);
  if (!linears.work) return {};
  const double rest = flop - m.layers * layer.Flop();
  return {[linears, rest, layers = m.layers] {
            for (int i = 0; i < layers; ++i) linears.work();
            measure::SpendFlop(rest);
          },
          linears.name + ", other FLOP at the FMA peak"};
}

BenchEntry StepRatio(int d, bool all_threads, double bound) {
  BenchEntry e{.id = "train.step.d" + std::to_string(d) + (all_threads ? ".all" : ""),
               .topic = kTrainTopic,
               .what = "step of te_nvfp4 (full recipe), d " + std::to_string(d) +
                       (all_threads ? ", all threads" : ", 1 thread"),
               .unit = "ms",
               .against = "our own fp32 step",
               .target = AtMost(bound)};
  e.measure = [d, all_threads](const BenchContext& c) {
    const int threads = all_threads ? c.threads : 1;
    const ThreadsScope scope(threads);
    Trainer& nvfp4 = c.inputs->TrainerOf({d, kNvfp4});
    Trainer& fp32 = c.inputs->TrainerOf({d, "fp32"});
    return CompareTimes(c.On(threads), 1e3, Step(&nvfp4), {{"", Step(&fp32)}},
                        LeastPlainStep({d, kNvfp4}, threads));
  };
  return e;
}

// FLOP of Muon's Newton-Schulz in a step: of X X^T and A A^T, which are symmetric, half of each,
// and of B X the whole (nn/optimizer/muon.h).
double NewtonSchulzFlop(const TrainConfig& config) {
  double flop = 0;
  for (const ParameterGroup& group : MakeLayout(config.model).groups) {
    if (group.kind != ParameterKind::kMatrices) continue;
    for (const MuonMatrix& m : MuonMatrices(config.optimizer, group)) {
      const auto n = static_cast<double>(std::min(m.rows, m.cols)),
                 k = static_cast<double>(std::max(m.rows, m.cols));
      flop += config.optimizer.muon.steps * (n * n * k + n * n * n + 2 * n * n * k);
    }
  }
  return flop;
}

// A step of the plain model and, under Muon, the FLOP of Newton-Schulz at the FMA peak.
Limit LeastStep(const BenchModel& model, const Work& plain) {
  if (model.variant != BenchVariant::kMuon) return {};
  const double flop = NewtonSchulzFlop(BenchTrainConfig(model));
  return {[plain, flop] {
            plain();
            measure::SpendFlop(flop);
          },
          "AdamW's step, then Newton-Schulz's " + measure::NumberText(1e-9 * flop) +
              " GFLOP at the FMA peak"};
}

// A row that compares a step of a variant with that of the plain model.
BenchEntry VariantEntry(const BenchModel& model, const std::string& id, const std::string& what,
                        const std::string& against, double bound) {
  BenchEntry e{.id = "train." + id + "." + model.recipe + ".d" + std::to_string(model.d_model),
               .topic = kTrainTopic,
               .what = "step of " + what + ", " + ModelText(model) + ", all threads",
               .unit = "ms",
               .against = against,
               .target = AtMost(bound)};
  e.measure = [model](const BenchContext& c) {
    const ThreadsScope scope(c.threads);
    BenchModel plain = model;
    plain.variant = BenchVariant::kPlain;
    const Work step = Step(&c.inputs->TrainerOf(plain));
    return CompareTimes(c.AllThreads(), 1e3, Step(&c.inputs->TrainerOf(model)), {{"", step}},
                        LeastStep(model, step));
  };
  return e;
}

Cell TokensPerSecond(const BenchContext& c, const BenchModel& model) {
  const ThreadsScope scope(c.threads);
  return CompareRates(c.AllThreads(), Tokens(model), Step(&c.inputs->TrainerOf(model)), {},
                      LeastPlainStep(model, c.threads));
}

// A row that compares with a peer's rate on this machine, read from --peer-json.
BenchEntry AgainstPeer(const BenchModel& model, const std::string& key, const std::string& peer,
                       double bound) {
  BenchEntry e{.id = "train." + model.recipe + "." + key,
               .topic = kTrainTopic,
               .what = "training, " + ModelText(model) + ", all threads",
               .unit = "tokens/s",
               .against = peer,
               .target = AtLeast(bound)};
  e.measure = [model, key, peer](const BenchContext& c) {
    if (!c.peers.contains(key)) {
      return Missing(
          "not measured here: python3 tests/bench/torch_peer.py > peers.json, then "
          "--peer-json peers.json");
    }
    const Json& p = c.peers.at(key);
    const double rate = p.at("tokens_per_second").get<double>();
    Cell cell = AgainstRate(TokensPerSecond(c, model), rate);
    cell.against = peer + " " + p.at("version").get<std::string>() + ", " +
                   std::to_string(p.at("threads").get<int>()) +
                   " threads, measured here: " + measure::NumberText(rate);
    return cell;
  };
  return e;
}

// A rate that others measured on another machine.
struct QuotedTraining {
  const char* recipe;
  const char* id;
  const char* what;
  double tokens_per_second, bound;
};
constexpr QuotedTraining kQuotedTraining[] = {
    {"fp32", "llm.c", "llm.c f1e2ace train_gpt2.c, clang-19 -Ofast (quoted, 2-core Zen 5)", 880,
     12},
    {"te_nvfp4", "naive-torch", "naive NVFP4 in PyTorch 1.13.1 (quoted, 2-core Zen 5)", 1473, 7},
    {"te_nvfp4", "microxcaling",
     "microxcaling 7bc4195 MXFP4, PyTorch 1.13.1 (quoted, 2-core Zen 5)", 1550, 7}};

BenchEntry AgainstQuoted(const QuotedTraining& q) {
  const BenchModel model{256, q.recipe};
  BenchEntry e{.id = std::string("train.") + q.recipe + "." + q.id,
               .topic = kTrainTopic,
               .what = "training, " + ModelText(model) + ", all threads",
               .unit = "tokens/s",
               .against = std::string(q.what) + ": " + measure::NumberText(q.tokens_per_second),
               .target = AtLeast(q.bound)};
  e.measure = [q, model](const BenchContext& c) {
    return AgainstRate(TokensPerSecond(c, model), q.tokens_per_second);
  };
  return e;
}

// A row that compares two threads with one, in wall time.
BenchEntry ThreadsEntry(const BenchModel& model) {
  BenchEntry e{.id = "train.threads." + model.recipe,
               .topic = kTrainTopic,
               .what = "training, " + ModelText(model) + ", 2 threads",
               .unit = "tokens/s",
               .against = "1 thread",
               .target = AtLeast(1.85)};
  e.measure = [model](const BenchContext& c) {
    if (c.threads < 2) return Missing("needs two threads: --threads is 1");
    const ThreadsScope scope(2);
    const auto step_of = [&](int copy) {
      BenchModel own = model;
      own.copy = copy;
      return Step(&c.inputs->TrainerOf(own));
    };
    const std::array<Work, 2> steps = {step_of(0), step_of(1)};
    const Work on_one = [step = steps[0]] {
      const ThreadsScope one(1);
      step();
    };
    const Limit apart = {[steps] { ParallelFor(2, [&](std::size_t i) { steps[i](); }); },
                         "two steps that share nothing, at once", 2};
    return CompareRates(c.AllThreads(), Tokens(model), steps[0], {{"", on_one}}, apart);
  };
  return e;
}

// A row that compares the time of a token at width d with that at width 256, divided by the ratio
// of their FLOP.
BenchEntry GrowthEntry(const std::string& recipe, int d) {
  constexpr int kBase = 256;
  BenchEntry e{.id = "train.growth." + recipe + ".d" + std::to_string(d),
               .topic = kTrainTopic,
               .what = "growth, " + ModelText({d, recipe}) + ", all threads",
               .unit = "us/token",
               .against = "time at d 256, times FLOP a token / FLOP at d 256",
               .target = d > kBase ? AtMost(1.1) : measure::Target{}};
  e.measure = [recipe, d](const BenchContext& c) {
    if (c.quick && d > 512) return Missing("left out by --quick");
    const ThreadsScope scope(c.threads);
    const BenchModel model{d, recipe}, base{kBase, recipe};
    measure::AlternateOptions options = c.AllThreads();
    options.least_rounds = c.quick ? 2 : 5;
    Cell cell = CompareTimes(options, 1e6 / Tokens(model), Step(&c.inputs->TrainerOf(model)),
                             {{"", Step(&c.inputs->TrainerOf(base))}});
    const double flop =
        FlopPerToken(BenchTrainConfig(model).model) / FlopPerToken(BenchTrainConfig(base).model);
    for (double* x : {&cell.ratio->median, &cell.ratio->low, &cell.ratio->high}) *x /= flop;
    return cell;
  };
  return e;
}

// The activations, in floats, that the backward pass needs if nothing is computed twice. In a
// block: x, both norms, queries, keys and values, attention, the residual between, up and its
// activation. At the end: x, norm and logits.
double ActivationFloats(const TrainConfig& config) {
  const ModelConfig& m = config.model;
  const double rows = static_cast<double>(TokensPerStep(config)), d = m.d_model, f = m.ffn;
  return rows * (m.layers * (8 * d + 2 * f) + 2 * d + m.vocabulary);
}

double LeastBytes(const TrainConfig& config) {
  constexpr double kWeightAndMoments = 3;
  return sizeof(float) * (kWeightAndMoments * static_cast<double>(ParameterCount(config.model)) +
                          ActivationFloats(config));
}

BenchEntry MemoryEntry(const BenchModel& model) {
  BenchEntry e{.id = "memory." + model.recipe + ".d" + std::to_string(model.d_model),
               .topic = "Memory of training",
               .what = "peak of two steps and a checkpoint, " + ModelText(model),
               .unit = "MiB",
               .against = "weights + moments + activations",
               .target = AtMost(1.3),
               .measure = {},
               .depends_on_simd = false};
  e.measure = [model](const BenchContext& c) {
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
    const ProcessResult run =
        RunProcess({program, "bench", "--probe-memory", std::to_string(model.d_model),
                    "--probe-recipe", model.recipe, "--threads", std::to_string(c.threads)},
                   {.timeout_seconds = 120, .stop = c.stop});
    if (run.stopped) throw measure::Stopped{};
    if (run.exit_code != 0) return Missing("the run failed: " + run.error);
    const double mebibytes = ParseJson(run.output, "probe").at("bytes").get<double>() / 0x1p20;
    const double least = LeastBytes(BenchTrainConfig(model)) / 0x1p20;
    const auto one = [](double x) { return measure::Summary{x, x, x, 1}; };
    return Cell{.value = one(mebibytes), .reference = one(least), .ratio = one(mebibytes / least)};
  };
  return e;
}

}  // namespace

void ProbeMemory(const BenchModel& model) {
  BenchInputs inputs(true);
  const std::size_t before = measure::CurrentMemory();
  Trainer& trainer = inputs.TrainerOf(model);
  for (int i = 0; i < 2; ++i) trainer.Step(kBenchRate);
  trainer.SaveState([](std::span<const std::byte>) {});
  PrintJson(Json{{"bytes", measure::PeakMemory() - before}});
}

std::vector<BenchEntry> TrainEntries() {
  std::vector<BenchEntry> entries = {StepRatio(256, false, 1.0),
                                     StepRatio(256, true, 1.0),
                                     StepRatio(512, false, 0.9),
                                     StepRatio(512, true, 0.9),
                                     AgainstPeer({256, "fp32"}, "torch", "PyTorch FP32", 2),
                                     AgainstPeer({256, kNvfp4}, "torch", "PyTorch plain FP32", 2)};
  for (const char* recipe : {"bf16", kNvfp4}) {
    entries.push_back(VariantEntry({512, recipe, BenchVariant::kExperts}, "moe",
                                   "8 experts of FFN 2d, 2 per token",
                                   "the dense step of equal active FLOPs", 1.25));
    entries.push_back(VariantEntry({512, recipe, BenchVariant::kMuon}, "muon", "Muon",
                                   "AdamW's step of the same model", 1.15));
  }
  for (const QuotedTraining& q : kQuotedTraining) entries.push_back(AgainstQuoted(q));
  for (const char* recipe : {"fp32", kNvfp4}) entries.push_back(ThreadsEntry({256, recipe}));
  for (const char* recipe : {"fp32", kNvfp4}) {
    for (const int d : {64, 128, 512, 1024}) entries.push_back(GrowthEntry(recipe, d));
  }
  return entries;
}

std::vector<BenchEntry> MemoryEntries() {
  std::vector<BenchEntry> entries;
  for (const char* recipe : {"fp32", kNvfp4}) {
    for (const int d : {64, 256, 1024}) entries.push_back(MemoryEntry({d, recipe}));
  }
  return entries;
}

}  // namespace fp4lab::tools
