#include "fp4lab/train/engine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/limits.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/optimizer/optimizer.h"
#include "fp4lab/train/optimizer/optimizers.h"

namespace fp4lab {
namespace {

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(const TrainConfig& config)
      : config_(config),
        parameters_(MakeLayout(config.model).total),
        gradients_(parameters_.size()),
        states_(OptimizerOf(config.optimizer).states, FloatBuffer(parameters_.size())),
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
    const float scale = pass.loss_scale / static_cast<float>(TokensPerStep(config_));
    Pass own = pass;
    own.records = pass.observer == nullptr;
    StepSums sums;
    for (std::size_t i = 0; i < count; ++i, own.random.tensor += model_.TensorsPerPass()) {
      const auto in = inputs.subspan(i * tokens, tokens);
      model_.Forward(own, in);
      sums.loss += model_.Backward(own, in, targets.subspan(i * tokens, tokens), scale, row_loss_,
                                   gradients_);
    }
    sums.loss /= static_cast<double>(count);
    sums.gradient_squares = SumOfSquares(std::span(gradients_).first(model_.Layout().trained));
    return sums;
  }

  void UseRecipe(const Recipe& recipe) override { model_.UseRecipe(recipe); }

  void Update(const UpdateStep& step) override {
    const StepScope part(StepPart::kOptimizer);
    const std::vector<std::span<float>> states(states_.begin(), states_.end());
    UpdateParameters(config_.optimizer, step, model_.Layout().groups,
                     {gradients_, parameters_, states});
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

  void Initialize() override {
    InitializeParameters(config_, parameters_);
    for (FloatBuffer& state : states_) std::fill(state.begin(), state.end(), 0.0f);
    std::fill(amax_histories_.begin(), amax_histories_.end(), 0.0f);
    model_.ParametersChanged();
  }

  TrainingNumbers Read(std::vector<float>* /*memory*/) override {
    return {parameters_, {states_.begin(), states_.end()}, amax_histories_};
  }

  void Write(const TrainingNumbers& from) override {
    Expects(from.parameters.size() == parameters_.size() && from.states.size() == states_.size() &&
                from.amax_histories.size() == amax_histories_.size(),
            "Engine::Write: all parameters, states and amax histories");
    std::copy(from.parameters.begin(), from.parameters.end(), parameters_.begin());
    for (std::size_t i = 0; i < states_.size(); ++i) {
      Expects(from.states[i].size() == states_[i].size(), "Engine::Write: whole states");
      std::copy(from.states[i].begin(), from.states[i].end(), states_[i].begin());
    }
    std::copy(from.amax_histories.begin(), from.amax_histories.end(), amax_histories_.begin());
    model_.ParametersChanged();
  }

 private:
  std::size_t MicroBatch() const {
    return static_cast<std::size_t>(config_.batch / config_.micro_batches);
  }
  std::size_t MicroBatchTokens() const {
    return MicroBatch() * static_cast<std::size_t>(config_.model.sequence);
  }

  TrainConfig config_;
  FloatBuffer parameters_, gradients_;
  std::vector<FloatBuffer> states_;  // of the optimizer
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
  bool Any(bool said) override { return engine_->Any(said); }
  void Initialize() override {
    const IeeeArithmetic ieee;
    engine_->Initialize();
  }
  TrainingNumbers Read(std::vector<float>* memory) override { return engine_->Read(memory); }
  void Write(const TrainingNumbers& from) override { engine_->Write(from); }

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace

std::unique_ptr<Engine> MakeCpuEngine(const TrainConfig& config) {
  const IeeeArithmetic ieee;
  return std::make_unique<GuardedEngine>(std::make_unique<CpuEngine>(config));
}

std::unique_ptr<Engine> MakeEngine(const TrainConfig& config, const std::string& where,
                                   const World& world) {
  const IeeeArithmetic ieee;
  if (config.device == Device::kCpu && world.size > 1) {
    throw Error(where, "\"cpu\" trains in one process, and a launcher started " +
                           std::to_string(world.size) + "; use threads, or \"cuda\"");
  }
  switch (config.device) {
    case Device::kCpu:
      return MakeCpuEngine(config);
    case Device::kCuda:
      return std::make_unique<GuardedEngine>(MakeCudaEngine(config, where, world));
  }
  return nullptr;
}

}  // namespace fp4lab
