// One training run: a model, its optimizer and its place in the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/step_parts.h"
#include "fp4lab/data/corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/observe/diagnose.h"
#include "fp4lab/train/observe/observation.h"
#include "fp4lab/train/observe/weight_codes.h"

namespace fp4lab {

// The place where a run became non-finite: the first tensor, in the order of computation, that
// holds a NaN or an Inf, as "blocks.2.mlp.down.output".
struct NonFinite {
  std::int64_t step = 0;
  std::string tensor;
};

struct StepResult {
  double loss = 0.0;                      // mean nats per token, before the update
  double grad_norm = 0.0;                 // before clipping; without the loss's scale
  double loss_scale = 1.0;                // of the step's gradients
  std::optional<double> teacher_kl = {};  // nats per token at the teacher's temperature
  // Dynamic loss scaling: the gradients were not finite, so no weight changed (grad_norm is 0).
  bool skipped = false;
  std::optional<NonFinite> non_finite;  // if set, no update was made and the step does not count
  std::optional<StepTimes> times;       // of its parts, if TimeSteps asked for them
};

enum class EvaluationPrecision {
  kTraining,  // the recipe's quantized forward pass
  kHigh       // the same weights, no operand quantized (Recipe::rest everywhere)
};

struct Evaluation {
  double loss = 0.0;                 // mean nats per token
  std::vector<double> chunk_losses;  // means over EvaluationConfig::chunk_tokens each
  std::int64_t tokens = 0;           // predicted tokens
};

// The losses on one of EvaluationConfig::texts, which is read as the validation part is: those that
// a run would state whose validation part is the text.
struct TextLoss {
  std::string name;
  double loss = 0.0;                     // kTraining, mean nats per token
  std::optional<double> loss_high = {};  // kHigh, if EvaluationConfig::high_precision
  std::int64_t tokens = 0;               // predicted tokens
};
bool IsFinite(const TextLoss& loss);

// The members of a checkpoint that the trainer keeps for a study and does not read.
struct LoadedState {
  Json run;                  // CheckpointHeader::run
  std::vector<float> trunk;  // Trainer::Numbers() where the run left its trunk; empty: it is there
};

struct World;
class Engine;
using EngineMaker = std::function<std::unique_ptr<Engine>()>;

// On the CPU, results depend on the configuration and the corpus alone: not on threads, SIMD target
// or machine. On a GPU (config.device) sums run in other orders: the results are close to the
// CPU's, and runs on the same Processor() have the same bits.
class Trainer {
 public:
  // The corpus must outlive the trainer. Throws Error for impossible shapes, for a corpus that does
  // not fit (vocabulary, length) and for a need of more than AvailableMemory(); `where` begins the
  // errors' JSON pointers.
  Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where = "config");
  // A trainer in one of several processes.
  Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where,
          const World& world);
  // A trainer with the engine of `make` instead of config.device's; `make` is called after config
  // and corpus have been checked.
  Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where,
          const EngineMaker& make);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  const TrainConfig& Config() const;
  std::int64_t Steps() const;     // steps done
  std::string Processor() const;  // Engine::Processor

  // Whether `said` is true in any process of a data-parallel run. Every process must call this.
  bool Any(bool said);

  // Changes to the recipe of step `step` of a run of `total_steps` (RecipeAt). Call it before Step
  // if the configuration's recipe changes during the run.
  void UseRecipeOf(std::int64_t step, std::int64_t total_steps);

  // Whether the steps to come tell the times of their parts (StepResult::times).
  void TimeSteps(bool on);
  std::uint64_t PeakMemory() const;  // Engine::PeakMemory

  // One optimizer step at the given rate (LearningRate gives a schedule's).
  StepResult Step(double learning_rate);
  // The next step of a run of `total_steps`, at the schedule's rate and under the step's recipe.
  StepResult StepOf(std::int64_t total_steps);

  Evaluation Evaluate(EvaluationPrecision precision);
  // In the order of Corpus::texts.
  std::vector<TextLoss> EvaluateTexts();
  // Diagnostics of every quantized operand in the first micro-batch of the next step, without an
  // update.
  std::vector<TensorStatistics> Diagnose();
  // The observation of the present state, on the first config.diagnostics.tokens tokens of the next
  // step, under the recipe in use. `codes`: those of the observations before, and then of this one.
  // Computed on the CPU, with the CPU's kernels, whatever the device; the run stays as it is.
  Observation Observe(WeightCodes* codes);

  // A checkpoint (checkpoint.h): weights, the optimizer's states, amax histories, the state of
  // dynamic loss scaling and step, with the
  // members that identify the run (model, optimizer, recipe, seed, batch, micro-batches, corpus, a
  // start's and a teacher's hash)
  // and a SHA-256. Schedule, length and device are not part of a checkpoint: a decay branch loads
  // its trunk's, and a GPU continues a CPU's. `run` and `trunk` are stored as LoadedState has them.
  // Where processes share the optimizer's states (ShardsStates), each must call SaveState, Numbers
  // or, if it keeps nothing, SendStates.
  std::vector<std::byte> SaveState() const;
  void SaveState(const ByteSink& sink, const Json& run = {},
                 std::span<const float> trunk = {}) const;
  bool ShardsStates() const;
  void SendStates() const;
  // Throws Error at `where`, with nothing changed, if the bytes are cut short, damaged or from
  // another configuration.
  LoadedState LoadState(std::span<const std::byte> state, const std::string& where);

  // Weights, states of the optimizer, amax histories and dynamic loss scaling. Return continues
  // from the numbers of a trainer of the same configuration that had done `steps` steps.
  std::vector<float> Numbers() const;
  void Return(std::int64_t steps, std::span<const float> numbers);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab
