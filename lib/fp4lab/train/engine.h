// The interface between a Trainer and the processor that computes: the CPU's engine, or a GPU's.
//
// The engines of MakeCpuEngine and MakeEngine compute in IEEE arithmetic, whatever the state of the
// calling thread (base/ieee_arithmetic.h).
//
// An engine owns weights, states of the optimizer, gradients and amax histories. The Trainer owns
// the order of tokens, schedules, checkpoints and metrics, and does not know where the numbers
// live.
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
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/optimizer/optimizer.h"
#include "fp4lab/train/world.h"

namespace fp4lab {

// A step's loss and the size of its gradient.
struct StepSums {
  double loss = 0.0;                      // mean nats per token
  double gradient_squares = 0.0;          // sum of squares of all gradients
  std::optional<double> teacher_kl = {};  // nats per token, the mean of row_kl; with pass.teacher
};

// Flat parameters (MakeLayout's order) and the amax histories of delayed scaling (AmaxHistoryFloats
// floats).
struct TrainingNumbers {
  std::span<const float> parameters;
  std::span<const float> amax_histories;
  float loss_scale = 1.0f;  // of the next step; an engine does not read it
};

// Takes numbers in pieces, one after the other. A piece is valid during the call.
using FloatSink = std::function<void(std::span<const float> piece)>;
// Fills `to` with the numbers first, first + 1, ...
using FloatSource = std::function<void(std::size_t first, std::span<float> to)>;

class Engine {
 public:
  virtual ~Engine() = default;

  // The GPU and the library of its products, as "NVIDIA H200, cuBLASLt 13.1.0": runs of equal text
  // have equal bits. Empty on a CPU, whose numbers are the same on all.
  virtual std::string Processor() const { return ""; }

  // The number of operands of one micro-batch that may take random bits.
  virtual std::uint32_t TensorsPerPass() const = 0;

  // Computes the gradients of one step, or of its first micro-batches: inputs and targets are whole
  // micro-batches of batch / micro_batches sequences. The first micro-batch takes
  // pass.random.tensor, each further one TensorsPerPass() more. Each gradient is that of the mean
  // loss over a whole step. The returned loss is the mean over the given micro-batches. On the CPU,
  // the gradients of micro-batches are added in the order of these. With an observer, a GPU
  // computes only the first sequences of the first micro-batch: 1024 tokens, rounded up to whole
  // sequences.
  virtual StepSums Gradients(const Pass& pass, std::span<const std::uint16_t> inputs,
                             std::span<const std::uint16_t> targets) = 0;

  // The next passes compute with `recipe`: the configuration's, or the recipe to which it changes.
  virtual void UseRecipe(const Recipe& recipe) = 0;

  // The optimizer's update with the gradients of the last call of Gradients. Ends the step, so the
  // amax histories move on.
  virtual void Update(const UpdateStep& step) = 0;

  // Forward only, over at most a micro-batch: row_loss in nats, one for each token.
  virtual void Losses(const Pass& pass, std::span<const std::uint16_t> inputs,
                      std::span<const std::uint16_t> targets, std::span<double> row_loss) = 0;

  // Begins to time the parts of the calls that follow, by the same thread, up to EndTiming, which
  // returns the times. On a GPU they are those of its kernels and copies.
  virtual void BeginTiming() = 0;
  virtual StepTimes EndTiming() = 0;
  // The most memory that this engine's processor has held, in bytes: the process's on a CPU, that
  // of the engine's arrays on a GPU.
  virtual std::uint64_t PeakMemory() const = 0;

  // The place of this process in the world (World::rank and size).
  virtual int Rank() const { return 0; }
  virtual int Size() const { return 1; }
  // Whether `said` is true in any process of the world. Every process must call this.
  virtual bool Any(bool said) { return said; }
  // x = its sum over all processes, element by element. Every process must call this. Where one
  // process alone has another number than 0, the sum is that number.
  virtual void Sum(std::span<double> /*x*/) {}

  // Sets the initial weights of the configuration (InitializeParameters), and states and amax
  // histories of zero.
  virtual void Initialize() = 0;

  // The numbers in the engine's memory or, if only the engine's processor reaches that memory,
  // copies in *memory. Valid until the next call.
  virtual TrainingNumbers Read(std::vector<float>* memory) = 0;
  // Gives the optimizer's states to `take`: Optimizer::states of them, of one number per parameter.
  virtual void ReadStates(const FloatSink& take) = 0;
  // Whether each process keeps the states of its share of the parameters only (World::
  // shards_optimizer). Then every process must call ReadStates, which gives all states to each.
  virtual bool ShardsStates() const { return false; }
  // Sets parameters, states and amax histories, which `from` has in this order.
  virtual void Write(const FloatSource& from) = 0;
};

class Processes;  // processes/processes.h

// An engine on the CPU: of one process, or of one of several, each with an engine of its own.
// Process r of n computes the micro-batches r, r + n, ... of each step, and all have the bits of
// one process. config.micro_batches must be a multiple of n.
std::unique_ptr<Engine> MakeCpuEngine(const TrainConfig& config);
std::unique_ptr<Engine> MakeCpuEngine(const TrainConfig& config,
                                      std::unique_ptr<Processes> processes, bool shards_optimizer);

// An engine on the machine's GPU with the fewest engines or, in a world of several processes, on
// the GPU of number world.local; then process r computes the micro-batches r, r + size, ... of each
// step, and gradients and losses are summed over all processes. Throws a one-line Error that begins
// with `where`: no CUDA in this build (cuda_engine_absent.cc), no GPU, a driver too old, not enough
// memory on the GPU, a model or recipe that its kernels do not take.
std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world);

// The number of GPUs that MakeCudaEngine can use; 0 without CUDA or a driver.
int CudaGpus();

// Why the processes of `world` cannot share the run's micro-batches; "" if they can.
std::string WhyNotShared(const TrainConfig& config, const World& world);

// The engine of config.device. Throws Error as MakeCudaEngine and, for a world of several processes
// on CPUs, as MakeMpiProcesses do, where those of one host must have enough memory together.
std::unique_ptr<Engine> MakeEngine(const TrainConfig& config, const std::string& where,
                                   const World& world = {});

}  // namespace fp4lab
