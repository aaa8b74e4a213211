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

#include "fp4lab/io/file.h"
#include "fp4lab/train/config.h"

namespace fp4lab {

// Where a run left the finite numbers: the first tensor, in the order of computation, that holds a
// NaN or an Inf, as "blocks.2.mlp.down.output".
struct NonFinite {
  std::int64_t step = 0;
  std::string tensor;
};

struct StepResult {
  double loss = 0.0;                    // mean nats a token, before the update
  double grad_norm = 0.0;               // before clipping
  std::optional<NonFinite> non_finite;  // then no update was made and the step does not count
};

enum class EvaluationPrecision {
  kTraining,  // the recipe's quantized forward pass
  kHigh       // the same weights, no operand quantized (Recipe::rest everywhere)
};

struct Evaluation {
  double loss = 0.0;                 // mean nats a token
  std::vector<double> chunk_losses;  // means over EvaluationConfig::chunk_tokens each
  std::int64_t tokens = 0;           // predicted tokens
};

// One quantized operand, measured on the batch of the next step.
struct TensorStatistics {
  std::string name;    // "blocks.0.mlp.up.fprop.input"
  std::string format;  // a block format's name
  double amax = 0.0;
  double underflow_percent = 0.0;  // of the non-zero elements: those that became zero
  double clip_percent = 0.0;       // of all: those whose scaled magnitude is above the largest
  double sqnr_db = 0.0;            // 10 log10(sum x^2 / sum (x - q)^2)
};

class Engine;
using EngineMaker = std::function<std::unique_ptr<Engine>()>;

// On the CPU, results depend on the configuration and the corpus alone: not on threads, SIMD target
// or machine. On a GPU (config.device) sums run in other orders: close to the CPU's, and the same
// bits again on the same chip.
class Trainer {
 public:
  // The corpus must outlive the trainer. Error for impossible shapes, for a corpus that does not
  // fit (vocabulary, length) and for more than AvailableMemory(); `where` is the front of its JSON
  // pointers.
  Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where = "config");
  // With another engine than config.device's; `make` is called once config and corpus are sound.
  Trainer(const TrainConfig& config, const Corpus& corpus, const std::string& where,
          const EngineMaker& make);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  const TrainConfig& Config() const;
  std::int64_t Steps() const;  // steps done

  // Whether any process of a data-parallel run says so; every one must ask.
  bool Any(bool said);

  // Chooses the recipe of a step of a run of `total_steps` (RecipeAt) for all that follows: to be
  // called before Step where the configuration's recipe changes during the run.
  void UseRecipeOf(std::int64_t step, std::int64_t total_steps);

  // One optimizer step at the given rate (LearningRate gives a schedule's).
  StepResult Step(double learning_rate);

  Evaluation Evaluate(EvaluationPrecision precision);
  std::vector<TensorStatistics> Diagnose();

  // Weights, moments and step, with what identifies the run (model, optimizer, recipe, seed, batch,
  // corpus) and a SHA-256. Schedule, length and device are not part of it: a decay branch loads its
  // trunk's, a GPU goes on from a CPU's.
  std::vector<std::byte> SaveState() const;
  void SaveState(const ByteSink& sink) const;
  // Error("where", ...), with nothing changed, if the bytes are cut short, damaged or from another
  // configuration.
  void LoadState(std::span<const std::byte> state, const std::string& where);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab
