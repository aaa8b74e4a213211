// What a Trainer asks of the processor that computes: the CPU's engine, or a GPU's.
//
// An engine owns weights, moments and gradients. Which tokens come when, schedules, checkpoints and
// metrics are the Trainer's and do not know where the numbers live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/nn/optimizer.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model.h"
#include "fp4lab/train/world.h"

namespace fp4lab {

// A step's loss and the size of its gradient.
struct StepSums {
  double loss = 0.0;              // mean nats a token
  double gradient_squares = 0.0;  // sum of squares of all gradients
};

// Flat parameters (MakeLayout's order) and AdamW's moments, all of one size, and the amax histories
// of delayed scaling (AmaxHistoryFloats of them).
struct TrainingNumbers {
  std::span<const float> parameters, m, v, amax_histories;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // Operands of one micro-batch that may take random bits.
  virtual std::uint32_t TensorsPerPass() const = 0;

  // Makes the gradients of one step, or of its first micro-batches: inputs and targets are whole
  // micro-batches of batch / micro_batches sequences. The first takes pass.random.tensor, each next
  // one TensorsPerPass() more. Each gradient is that of the mean loss over a whole step. The loss
  // is the mean over the micro-batches given. With an observer a GPU looks at the first 8
  // sequences.
  virtual StepSums Gradients(const Pass& pass, std::span<const std::uint16_t> inputs,
                             std::span<const std::uint16_t> targets) = 0;

  // The next passes compute with `recipe`: the configuration's, or the one that it changes to.
  virtual void UseRecipe(const Recipe& recipe) = 0;

  // AdamW with the gradients of the last call; weight decay on matrices only. The step ends: amax
  // histories move on.
  virtual void Update(const AdamW& options) = 0;

  // Forward only, at most a micro-batch: row_loss in nats, one a token.
  virtual void Losses(const Pass& pass, std::span<const std::uint16_t> inputs,
                      std::span<const std::uint16_t> targets, std::span<double> row_loss) = 0;

  // Whether any process of the world says so; every one must ask.
  virtual bool Any(bool said) { return said; }

  // InitializeParameters' weights of the configuration, moments and amax histories of zero.
  virtual void Initialize() = 0;

  // The numbers where they lie, or copies in *memory of those that only the engine's processor
  // reaches. Good until the next call.
  virtual TrainingNumbers Read(std::vector<float>* memory) = 0;
  virtual void Write(const TrainingNumbers& from) = 0;
};

std::unique_ptr<Engine> MakeCpuEngine(const TrainConfig& config);

// On the GPU of this machine with the fewest engines; in a world of several processes on the GPU of
// number world.local: then process r computes the micro-batches r, r + size, ... of each step, and
// gradients and losses are summed over all. Error, one line starting with `where`: no
// CUDA in this build, no GPU, a driver too old, not enough memory on it, a model that its kernels
// do not take. Where built without CUDA, cuda_engine_absent.cc says so.
std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world);

// GPUs that MakeCudaEngine can use; 0 also without CUDA or a driver.
int CudaGpus();

// As config.device says. Error for a world of several processes without GPUs.
std::unique_ptr<Engine> MakeEngine(const TrainConfig& config, const std::string& where,
                                   const World& world = {});

}  // namespace fp4lab
