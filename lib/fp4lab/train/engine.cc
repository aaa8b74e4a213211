#include "fp4lab/train/engine.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/optimizer/shares.h"
#include "fp4lab/train/processes/processes.h"

namespace fp4lab {
namespace {

// A teacher that knows where the divergences of its last loss stand.
class MeasuredTeacher final : public LogitSource {
 public:
  explicit MeasuredTeacher(LogitSource* teacher) : teacher_(teacher) {}

  LogitSource* IfAny() { return teacher_ == nullptr ? nullptr : this; }
  TeacherLoss LossOf(std::span<const std::uint16_t> tokens) override {
    const TeacherLoss loss = teacher_->LossOf(tokens);
    row_kl_ = loss.row_kl;
    return loss;
  }
  // The sum of row_kl, after the backward pass; 0 without a teacher.
  double Divergence() const { return std::accumulate(row_kl_.begin(), row_kl_.end(), 0.0); }

 private:
  LogitSource* teacher_;
  std::span<const double> row_kl_;
};

// The sum of the numbers of all micro-batches, in their order. `numbers`: those of rank 0, which
// has the micro-batches 0, processes, 2 * processes, ..., then those of rank 1 and so on.
double SumInOrder(std::span<const double> numbers, std::size_t processes) {
  const std::size_t rounds = numbers.size() / processes;
  double sum = 0.0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    sum += numbers[i % processes * rounds + i / processes];
  }
  return sum;
}

class CpuEngine final : public Engine {
 public:
  CpuEngine(const TrainConfig& config, std::unique_ptr<Processes> processes, bool shards_optimizer)
      : processes_(std::move(processes)),
        config_(config),
        shares_(config.optimizer, MakeLayout(config.model).groups, shards_optimizer,
                processes_->Rank(), processes_->Size()),
        parameters_(MakeLayout(config.model).total),
        gradients_(parameters_.size()),
        own_gradients_(config.micro_batches > 1 ? parameters_.size() : 0),
        states_(OptimizerOf(config.optimizer).states, FloatBuffer(shares_.Own().size())),
        amax_histories_(AmaxHistoryFloats(config.model, config.recipe)),
        model_(config.model, config.recipe, parameters_, MicroBatch(), amax_histories_),
        row_loss_(MicroBatchTokens()) {}

  std::uint32_t TensorsPerPass() const override { return model_.TensorsPerPass(); }

  StepSums Gradients(const Pass& pass, std::span<const std::uint16_t> inputs,
                     std::span<const std::uint16_t> targets) override {
    const std::size_t tokens = MicroBatchTokens(), count = inputs.size() / tokens;
    Expects(count > 0 && inputs.size() == count * tokens && targets.size() == inputs.size(),
            "Engine::Gradients: whole micro-batches");
    std::fill(gradients_.begin(), gradients_.end(), 0.0f);
    // An observer also sees weights: they are quantized again.
    if (pass.observer != nullptr) model_.ParametersChanged();
    // With an observer or an inspector, a process computes all micro-batches by itself.
    const bool shares = pass.observer == nullptr && pass.inspector == nullptr;
    Processes& processes = shares ? *processes_ : *one_process_;
    const auto size = static_cast<std::size_t>(processes.Size());
    Expects(count % size == 0, "Engine::Gradients: equally many micro-batches for each process");
    MeasuredTeacher teacher(pass.teacher);
    std::vector<double> losses, divergences;
    for (auto i = static_cast<std::size_t>(processes.Rank()); i < count; i += size) {
      Pass own = pass;
      own.records = pass.observer == nullptr;
      own.tensors_before = static_cast<std::uint32_t>(i) * model_.TensorsPerPass();
      own.random.tensor += own.tensors_before;
      own.teacher = teacher.IfAny();
      losses.push_back(
          Train(own, inputs.subspan(i * tokens, tokens), targets.subspan(i * tokens, tokens)));
      divergences.push_back(teacher.Divergence());
      if (!own_gradients_.empty()) processes.AddInOrder(own_gradients_, gradients_);
    }
    processes.ShareSlices(SlicesOf(gradients_.size(), processes.Size()), gradients_);
    losses = processes.Gather(losses);
    divergences = processes.Gather(divergences);
    // The histories take the maxima over the micro-batches of all processes.
    processes.Max(amax_histories_);
    StepSums sums;
    sums.loss = SumInOrder(losses, size) / static_cast<double>(count);
    sums.gradient_squares = SumOfSquares(std::span(gradients_).first(model_.Layout().trained));
    if (pass.teacher != nullptr) {
      sums.teacher_kl = SumInOrder(divergences, size) / static_cast<double>(inputs.size());
    }
    return sums;
  }

  void UseRecipe(const Recipe& recipe) override { model_.UseRecipe(recipe); }

  void Update(const UpdateStep& step) override {
    {
      const StepScope part(StepPart::kOptimizer);
      const std::vector<std::span<float>> states(states_.begin(), states_.end());
      UpdateParameters(config_.optimizer, step, shares_.Groups(),
                       {shares_.OwnOf(std::span<const float>(gradients_)),
                        shares_.OwnOf(std::span<float>(parameters_)), states});
    }
    if (shares_.AreSeveral()) processes_->ShareSlices(shares_.All(), parameters_);
    model_.AdvanceAmaxHistories();
    model_.ParametersChanged();
  }

  void Losses(const Pass& pass, std::span<const std::uint16_t> inputs,
              std::span<const std::uint16_t> targets, std::span<double> row_loss) override {
    model_.Forward(pass, inputs);
    model_.Loss(targets, row_loss);
  }

  void BeginTiming() override { clock_.emplace(); }
  StepTimes EndTiming() override {
    const StepTimes times = clock_->Times();
    clock_.reset();
    return times;
  }
  std::uint64_t PeakMemory() const override { return fp4lab::PeakMemory(); }
  int Rank() const override { return processes_->Rank(); }
  int Size() const override { return processes_->Size(); }
  bool Any(bool said) override { return processes_->Any(said); }
  void Sum(std::span<double> x) override {
    const std::vector<double> all = processes_->Gather(x);
    std::fill(x.begin(), x.end(), 0.0);
    for (std::size_t i = 0; i < all.size(); ++i) x[i % x.size()] += all[i];
  }

  void Initialize() override {
    InitializeParameters(config_, parameters_);
    for (FloatBuffer& state : states_) std::fill(state.begin(), state.end(), 0.0f);
    std::fill(amax_histories_.begin(), amax_histories_.end(), 0.0f);
    model_.ParametersChanged();
  }

  TrainingNumbers Read(std::vector<float>* /*memory*/) override {
    return {parameters_, amax_histories_};
  }

  bool ShardsStates() const override { return shares_.AreSeveral(); }

  void ReadStates(const FloatSink& take) override {
    for (const FloatBuffer& state : states_) {
      if (!ShardsStates()) {
        take(state);
        continue;
      }
      // Processes have micro-batches, whose gradients no one needs between two steps.
      std::copy(state.begin(), state.end(), shares_.OwnOf(std::span(own_gradients_)).begin());
      processes_->ShareSlices(shares_.All(), own_gradients_);
      take(own_gradients_);
    }
  }

  void Write(const FloatSource& from) override {
    const std::size_t total = parameters_.size();
    from(0, parameters_);
    for (std::size_t i = 0; i < states_.size(); ++i) {
      from((1 + i) * total + shares_.Own().first, states_[i]);
    }
    from((1 + states_.size()) * total, amax_histories_);
    model_.ParametersChanged();
  }

 private:
  // Computes the gradients of a micro-batch. Returns its mean loss.
  double Train(const Pass& pass, std::span<const std::uint16_t> inputs,
               std::span<const std::uint16_t> targets) {
    const float scale = pass.loss_scale / static_cast<float>(TokensPerStep(config_));
    std::fill(own_gradients_.begin(), own_gradients_.end(), 0.0f);
    model_.Forward(pass, inputs);
    return model_.Backward(pass, inputs, targets, scale, row_loss_,
                           own_gradients_.empty() ? gradients_ : own_gradients_);
  }
  std::size_t MicroBatch() const {
    return static_cast<std::size_t>(config_.batch / config_.micro_batches);
  }
  std::size_t MicroBatchTokens() const {
    return MicroBatch() * static_cast<std::size_t>(config_.model.sequence);
  }

  std::unique_ptr<Processes> processes_;
  const std::unique_ptr<Processes> one_process_ = MakeOneProcess();
  TrainConfig config_;
  OptimizerShares shares_;
  FloatBuffer parameters_, gradients_;
  // Of a micro-batch, so that its gradients are complete before they are added. Empty where the
  // micro-batch is the step: then they are gradients_.
  FloatBuffer own_gradients_;
  std::vector<FloatBuffer> states_;  // of the optimizer, for the own share
  FloatBuffer amax_histories_;
  Model model_;
  std::vector<double> row_loss_;
  std::optional<StepClock> clock_;
};

// An engine whose calls compute in IEEE arithmetic, whatever the state of the calling thread.
class GuardedEngine final : public Engine {
 public:
  explicit GuardedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  std::string Processor() const override { return engine_->Processor(); }
  std::uint32_t TensorsPerPass() const override { return engine_->TensorsPerPass(); }
  StepSums Gradients(const Pass& pass, std::span<const std::uint16_t> inputs,
                     std::span<const std::uint16_t> targets) override {
    const IeeeArithmetic ieee;
    return engine_->Gradients(pass, inputs, targets);
  }
  void UseRecipe(const Recipe& recipe) override {
    const IeeeArithmetic ieee;
    engine_->UseRecipe(recipe);
  }
  void Update(const UpdateStep& step) override {
    const IeeeArithmetic ieee;
    engine_->Update(step);
  }
  void Losses(const Pass& pass, std::span<const std::uint16_t> inputs,
              std::span<const std::uint16_t> targets, std::span<double> row_loss) override {
    const IeeeArithmetic ieee;
    engine_->Losses(pass, inputs, targets, row_loss);
  }
  void BeginTiming() override { engine_->BeginTiming(); }
  StepTimes EndTiming() override { return engine_->EndTiming(); }
  std::uint64_t PeakMemory() const override { return engine_->PeakMemory(); }
  int Rank() const override { return engine_->Rank(); }
  int Size() const override { return engine_->Size(); }
  bool Any(bool said) override { return engine_->Any(said); }
  void Sum(std::span<double> x) override { engine_->Sum(x); }
  void Initialize() override {
    const IeeeArithmetic ieee;
    engine_->Initialize();
  }
  TrainingNumbers Read(std::vector<float>* memory) override { return engine_->Read(memory); }
  void ReadStates(const FloatSink& take) override { engine_->ReadStates(take); }
  bool ShardsStates() const override { return engine_->ShardsStates(); }
  void Write(const FloatSource& from) override { engine_->Write(from); }

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace

std::unique_ptr<Engine> MakeCpuEngine(const TrainConfig& config) {
  return MakeCpuEngine(config, MakeOneProcess(), false);
}

std::unique_ptr<Engine> MakeCpuEngine(const TrainConfig& config,
                                      std::unique_ptr<Processes> processes, bool shards_optimizer) {
  const IeeeArithmetic ieee;
  return std::make_unique<GuardedEngine>(
      std::make_unique<CpuEngine>(config, std::move(processes), shards_optimizer));
}

std::string WhyNotShared(const TrainConfig& config, const World& world) {
  if (config.micro_batches % world.size == 0) return "";
  return "\"micro_batches\" " + std::to_string(config.micro_batches) +
         " is not a multiple of the " + std::to_string(world.size) + " processes";
}

std::unique_ptr<Engine> MakeEngine(const TrainConfig& config, const std::string& where,
                                   const World& world) {
  const IeeeArithmetic ieee;
  switch (config.device) {
    case Device::kCpu:
      if (world.size == 1) return MakeCpuEngine(config);
      return MakeCpuEngine(
          config,
          MakeMpiProcesses(world, where,
                           [&](int on_host) {
                             const std::string why = WhyNotShared(config, world);
                             return why.empty() ? WhyNoMemory(config, world, on_host) : why;
                           }),
          world.shards_optimizer);
    case Device::kCuda:
      return std::make_unique<GuardedEngine>(MakeCudaEngine(config, where, world));
  }
  return nullptr;
}

}  // namespace fp4lab
