#include "fp4lab/train/model/memory.h"

#include <algorithm>
#include <cstdio>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/nn/linear/memory.h"
#include "fp4lab/train/model/linear_plan.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/parts/parts.h"
#include "fp4lab/train/start/teacher.h"

namespace fp4lab {
namespace {

constexpr double kFloat = sizeof(float);

double Parameters(const ModelConfig& c) {
  const auto d = static_cast<double>(c.d_model), head = static_cast<double>(c.vocabulary) * d;
  double blocks = 0.0;
  for (const Part* part : PartsOf(c)) {
    double one = 0.0;
    for (const LinearShape& linear : part->linears(c)) {
      one += static_cast<double>(linear.in) * static_cast<double>(linear.out);
    }
    for (const GainShape& gain : part->gains(c)) one += static_cast<double>(gain.size);
    if (part->balance != nullptr) one += static_cast<double>(part->balance(c));
    blocks += one * BlocksWith(c, *part);
  }
  return blocks + (c.tied_head ? 1 : 2) * head + d;
}

// The floats that Model::SetRows lays out for each token of a micro-batch.
double FloatsPerToken(const ModelConfig& c) {
  const double d = c.d_model;
  const auto sum = [](const std::vector<std::size_t>& columns) {
    double all = 0.0;
    for (const std::size_t n : columns) all += static_cast<double>(n);
    return all;
  };
  double blocks = 0.0, wide = c.vocabulary;  // wide: the logits, or the largest gradients of a part
  for (const Part* part : PartsOf(c)) {
    blocks += BlocksWith(c, *part) * (d + sum(part->activations(c)));
    wide = std::max(wide, sum(part->gradients(c)));
  }
  return blocks + 4 * d + 1 + wide;
}

// The linears in all states of the recipe.
LinearMemory LinearMemoryOf(const TrainConfig& config, double tokens) {
  LinearMemory all;
  const bool observed = config.evaluation.diagnostics_every > 0;
  const auto add_state = [&](const Recipe& state) {
    const LinearPlan plan(config.model, state);
    LinearMemory one;
    for (std::size_t l = 0; l < plan.Count(); ++l) {
      const ParameterSlice& weight = plan.Weight(l);
      one.Add(plan.RecipeOf({}, l), tokens, static_cast<double>(weight.rows),
              static_cast<double>(weight.cols), observed && l != plan.Head());
    }
    all.Include(one);
  };
  add_state(config.recipe);
  for (const RecipeChange& change : config.recipe.then) add_state(change.recipe);
  return all;
}

double StatesOf(const TrainConfig& c) {
  return static_cast<double>(OptimizerOf(c.optimizer).states);
}

std::string Gibibytes(double bytes) {
  char text[64];
  std::snprintf(text, sizeof text, bytes < 0x1p37 ? "%.2f GiB" : "%.0f GiB", bytes / 0x1p30);
  return text;
}

// Bytes that a run's teacher needs on the CPU: weights, activations of kTeacherTokens, and the
// logits of a micro-batch.
double TeacherBytes(const TrainConfig& c) {
  if (!c.teacher.Asked()) return 0.0;
  const TrainConfig teacher = TeacherRun(c);
  const MemoryNeed need = EstimateMemory(teacher);
  const double tokens = static_cast<double>(TokensPerStep(c)) / c.micro_batches;
  return 4.0 * static_cast<double>(ParameterCount(teacher.model)) + need.operands +
         need.activations + tokens * (4.0 * c.model.vocabulary + 8.0);
}

// Bytes of the model of some tokens that an observation makes beside the run's, and of its
// gradients with and without quantization.
double ObservationBytes(const TrainConfig& c, double tokens) {
  if (!c.diagnostics.Asked()) return 0.0;
  const double seen = std::min(tokens, static_cast<double>(c.diagnostics.tokens));
  const LinearMemory linears = LinearMemoryOf(c, seen);
  return linears.Kept() + linears.Shared() +
         kFloat * (seen * FloatsPerToken(c.model) + 2 * Parameters(c.model));
}

bool IsLargestByBatch(const MemoryNeed& need, double state) {
  return need.activations > need.weights + need.operands + state;
}

// Why `count` times what `need` says does not fit; "" if it fits. `what`: "4 runs at a time need".
std::string WhyTooLarge(const MemoryNeed& need, double state, int count, const std::string& what,
                        const MemoryRoom& room, const std::string& remedy) {
  const double all = count * (need.Total() + state);
  if (all <= static_cast<double>(room.bytes)) return "";
  return what + " about " + Gibibytes(all) + " of memory (weights and moments " +
         Gibibytes(count * need.weights) + ", activations " + Gibibytes(count * need.activations) +
         ", the rest " + Gibibytes(all - count * (need.weights + need.activations)) + "), and " +
         room.of + " has " + Gibibytes(static_cast<double>(room.bytes)) + " left; " + remedy +
         (IsLargestByBatch(need, state)
              ? "more micro_batches, a smaller batch or a shorter sequence"
              : "fewer layers, a smaller d_model, ffn or vocabulary") +
         " would need less";
}

}  // namespace

MemoryNeed EstimateMemory(const TrainConfig& c) {
  const IeeeArithmetic ieee;
  const auto step = static_cast<double>(TokensPerStep(c));
  const double tokens = step / c.micro_batches, parameters = kFloat * Parameters(c.model);
  const LinearMemory linears = LinearMemoryOf(c, tokens);
  const double gradients = c.micro_batches > 1 ? 2 : 1;  // of a micro-batch and of the step
  return {.weights = (1 + gradients + StatesOf(c)) * parameters,
          .operands = linears.Kept(),
          .activations = kFloat * tokens * FloatsPerToken(c.model) + 4 * step + linears.Shared(),
          .teacher = TeacherBytes(c),
          .observation = ObservationBytes(c, tokens),
          .state = (1 + StatesOf(c)) * parameters};
}

void CheckMemory(const TrainConfig& config, const std::string& where, int runs, double states) {
  const IeeeArithmetic ieee;
  if (config.device != Device::kCpu) return;
  const MemoryNeed need = EstimateMemory(config);
  const double state = need.state * states;
  const std::string what = runs > 1 ? std::to_string(runs) + " runs at a time need" : "a run needs";
  const std::string why =
      WhyTooLarge(need, state, runs, what, AvailableMemory(), runs > 1 ? "fewer --jobs, " : "");
  if (why.empty()) return;
  const Json empty = Json::object();
  const char* const member = IsLargestByBatch(need, state) ? "batch" : "model";
  throw Error(JsonObject(empty, where).Where(member), why);
}

std::string WhyNoMemory(const TrainConfig& config, const World& world, int on_host) {
  const IeeeArithmetic ieee;
  MemoryNeed need = EstimateMemory(config);
  std::string remedy = "fewer processes per host, --shard-optimizer, ";
  if (world.shards_optimizer) {
    const double states = StatesOf(config) * kFloat * Parameters(config.model);
    need.weights -= states * (1.0 - 1.0 / world.size);
    remedy = "fewer processes per host, ";
  }
  return WhyTooLarge(need, 0.0, on_host, std::to_string(on_host) + " processes on this host need",
                     SharedMemory(), remedy);
}

}  // namespace fp4lab
