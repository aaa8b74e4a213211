#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/claim.cuh"
#include "fp4lab/gpu/engine/engine.h"
#include "fp4lab/gpu/engine/model.cuh"
#include "fp4lab/gpu/engine/step_parts.cuh"
#include "fp4lab/gpu/engine/step_tokens.cuh"
#include "fp4lab/gpu/engine/stream.cuh"
#include "fp4lab/gpu/engine/teacher.cuh"
#include "fp4lab/gpu/gemm/blas.cuh"
#include "fp4lab/gpu/kernels/router.cuh"
#include "fp4lab/gpu/optimizer/optimizers.cuh"
#include "fp4lab/gpu/parts/device_parts.cuh"
#include "fp4lab/gpu/quantize/operand_plan.h"
#include "fp4lab/gpu/world/group.cuh"
#include "fp4lab/recipe/recipe_json.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/optimizer/shares.h"
#include "fp4lab/train/parts/parts.h"

namespace fp4lab::gpu {
namespace {

constexpr std::size_t kSampleTokens = 1024;  // tokens that diagnostics measure, at least
// The most tokens that a block or a Hadamard transform joins.
constexpr std::size_t kJoinedTokens = 128;
// The floats that are copied between GPU and host at a time: 16 MiB.
constexpr std::size_t kPieceFloats = std::size_t{1} << 22;

double Total(std::span<const double> x) {
  double sum = 0.0;
  for (const double value : x) sum += value;
  return sum;
}

template <class T>
class CudaEngine final : public Engine {
 public:
  CudaEngine(const TrainConfig& config, const std::string& where, const World& world,
             bool tensor_cores)
      : gpu_(where, world),
        processor_(gpu_.Name() + ", cuBLASLt " + BlasLtVersion()),
        group_(world, stream_.get()),
        config_(config),
        layout_(MakeLayout(config.model)),
        shares_(config.optimizer, layout_.groups, world.shards_optimizer, world.rank, world.size),
        rows_(static_cast<std::size_t>(config.batch / config.micro_batches) *
              static_cast<std::size_t>(config.model.sequence)),
        parameters_(layout_.total),
        gradients_(layout_.total),
        optimizer_(DeviceOptimizerOf(config.optimizer, where)
                       .make(config.optimizer, shares_.Groups(), stream_.get())),
        states_(OptimizerOf(config.optimizer).states),
        received_(shares_.AreSeveral() ? std::min(kPieceFloats, layout_.total) : 0),
        amax_histories_(AmaxHistoryFloats(config.model, config.recipe)),
        model_(config, tensor_cores, parameters_.data(), gradients_.data(), amax_histories_.data(),
               rows_ / static_cast<std::size_t>(config.model.sequence), stream_.get()),
        tokens_(static_cast<std::size_t>(config.micro_batches), rows_,
                static_cast<std::size_t>(config.model.vocabulary)),
        row_loss_(rows_),
        loss_sums_(Blocks(rows_, kLossChunk) * static_cast<std::size_t>(config.micro_batches)),
        squares_(Blocks(layout_.trained, kSquaresChunk)) {
    if (config.teacher.Asked()) MakeTeacher(tensor_cores);
    for (DeviceArray<float>& state : states_) state = DeviceArray<float>(shares_.Own().size());
  }

  ~CudaEngine() override { cudaStreamSynchronize(stream_.get()); }

  std::string Processor() const override { return processor_; }

  std::uint32_t TensorsPerPass() const override { return model_.TensorsPerPass(); }

  StepSums Gradients(const Pass& pass, std::span<const std::uint16_t> inputs,
                     std::span<const std::uint16_t> targets) override {
    gpu_.Use();
    const std::size_t count = inputs.size() / rows_, sums = Blocks(rows_, kLossChunk);
    Expects(count > 0 && inputs.size() == count * rows_ && targets.size() == inputs.size(),
            "Engine::Gradients: whole micro-batches");
    Check(cudaMemsetAsync(gradients_.data(), 0, gradients_.size() * sizeof(float), stream_.get()),
          "memset");
    if (pass.observer != nullptr) return Observed(pass, inputs, targets);
    for (const DeviceArray<double>* memory : {&loss_sums_, &kl_sums_}) {
      if (memory->size() == 0) continue;
      Check(cudaMemsetAsync(memory->data(), 0, memory->size() * sizeof(double), stream_.get()),
            "memset");
    }
    // With an inspector, every process computes all micro-batches.
    const bool shares = pass.inspector == nullptr;
    const std::size_t first = shares ? static_cast<std::size_t>(group_.Rank()) : 0;
    const std::size_t step = shares ? static_cast<std::size_t>(group_.Size()) : 1;
    for (std::size_t i = first; i < count; i += step) {
      Pass own = pass;
      own.records = true;
      own.tensors_before = static_cast<std::uint32_t>(i) * TensorsPerPass();
      own.random.tensor += own.tensors_before;
      Train(own, i, inputs.subspan(i * rows_, rows_), targets.subspan(i * rows_, rows_));
      SumLosses(row_loss_.data(), rows_, loss_sums_.data() + i * sums, stream_.get());
      if (pass.teacher != nullptr) {
        SumLosses(teacher_->RowKl(), rows_, kl_sums_.data() + i * sums, stream_.get());
      }
    }
    if (shares) {
      const DeviceStepScope part(StepPart::kCommunication);
      group_.Sum(gradients_.data(), gradients_.size());
      group_.Sum(loss_sums_.data(), count * sums);
      group_.Sum(kl_sums_.data(), kl_sums_.size());
    }
    SumSquares(gradients_.data(), layout_.trained, squares_.data(), stream_.get());
    std::vector<double> losses(count * sums), squares(squares_.size());
    loss_sums_.CopyTo(losses, stream_.get());
    squares_.CopyTo(squares, stream_.get());
    std::vector<double> divergences(kl_sums_.size());
    kl_sums_.CopyTo(divergences, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
    const auto tokens = static_cast<double>(inputs.size());
    StepSums step_sums{Total(losses) / tokens, Total(squares)};
    if (pass.teacher != nullptr) step_sums.teacher_kl = Total(divergences) / tokens;
    return step_sums;
  }

  void UseRecipe(const Recipe& recipe) override { model_.UseRecipe(recipe); }

  int Rank() const override { return group_.Rank(); }
  int Size() const override { return group_.Size(); }

  bool Any(bool said) override {
    double processes = said ? 1.0 : 0.0;
    Sum(std::span(&processes, 1));
    return processes > 0.0;
  }

  void Sum(std::span<double> x) override {
    if (group_.Size() == 1) return;
    gpu_.Use();
    if (summed_.size() < x.size()) summed_ = DeviceArray<double>(x.size());
    summed_.CopyFrom(x, stream_.get());
    group_.Sum(summed_.data(), x.size());
    summed_.CopyTo(x, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
  }

  // A pass with an observer. The CPU measures the operands, so the pass covers a few sequences
  // only: a sample of the first micro-batch.
  StepSums Observed(const Pass& pass, std::span<const std::uint16_t> inputs,
                    std::span<const std::uint16_t> targets) {
    const auto sequence = static_cast<std::size_t>(config_.model.sequence);
    const std::size_t rows =
        std::min(rows_, RoundUp(kSampleTokens, std::lcm(sequence, kJoinedTokens)));
    model_.ParametersChanged();  // so that the observer sees weights, too
    Train(pass, 0, inputs.first(rows), targets.first(rows));
    std::vector<double> losses(rows);
    Check(cudaMemcpyAsync(losses.data(), row_loss_.data(), rows * sizeof(double),
                          cudaMemcpyDeviceToHost, stream_.get()),
          "copy from the GPU");
    Check(cudaStreamSynchronize(stream_.get()), "training");
    return {Total(losses) / static_cast<double>(rows), 0.0};
  }

  void BeginTiming() override {
    gpu_.Use();
    clock_.Begin();
    device_step_clock = &clock_;
  }
  StepTimes EndTiming() override {
    gpu_.Use();
    device_step_clock = nullptr;
    return clock_.End();
  }
  std::uint64_t PeakMemory() const override { return cuda::PeakDeviceMemory(); }

  void Update(const UpdateStep& step) override {
    gpu_.Use();
    const DeviceStepScope part(StepPart::kOptimizer);
    const float* const gradients = gradients_.data() + shares_.Own().first;
    float* const parameters = parameters_.data() + shares_.Own().first;
    for (const ParameterGroup& group : shares_.Groups()) {
      if (group.kind == ParameterKind::kBalance) {
        BalanceStep(group.balance_rate, group.size, gradients + group.first,
                    parameters + group.first, stream_.get());
      } else {
        optimizer_->Update(step, group, {gradients, parameters, states_});
      }
    }
    {
      const DeviceStepScope sums(StepPart::kCommunication);
      if (shares_.AreSeveral()) ShareParameters();
      // The histories take the maxima over the micro-batches of all processes.
      group_.Max(amax_histories_.data(), amax_histories_.size());
    }
    model_.AdvanceAmaxHistories();
    model_.ParametersChanged();
  }

  void Losses(const Pass& pass, std::span<const std::uint16_t> inputs,
              std::span<const std::uint16_t> targets, std::span<double> row_loss) override {
    gpu_.Use();
    const DeviceBatch batch = tokens_.Upload(0, inputs, targets, stream_.get());
    model_.Forward(pass, batch);
    model_.Losses(batch, row_loss_.data());
    row_loss_.CopyTo(row_loss, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "evaluation");
  }

  void Initialize() override {
    std::vector<float> parameters(layout_.total);
    InitializeParameters(config_, parameters);
    Write([&](std::size_t first, std::span<float> to) {
      if (first >= parameters.size()) return std::fill(to.begin(), to.end(), 0.0f);
      std::copy_n(parameters.data() + first, to.size(), to.data());
    });
  }

  TrainingNumbers Read(std::vector<float>* memory) override {
    gpu_.Use();
    memory->resize(layout_.total + amax_histories_.size());
    const std::span<float> all(*memory), parameters = all.first(layout_.total),
                                         histories = all.subspan(layout_.total);
    parameters_.CopyTo(parameters, stream_.get());
    amax_histories_.CopyTo(histories, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
    return {parameters, histories};
  }

  bool ShardsStates() const override { return shares_.AreSeveral(); }

  void ReadStates(const FloatSink& take) override {
    gpu_.Use();
    std::vector<float> host(std::min(kPieceFloats, layout_.total));
    for (const DeviceArray<float>& state : states_) {
      int rank = 0;
      for (const Slice& share : shares_.All()) {
        const bool is_own = &share == &shares_.Own();
        for (std::size_t first = 0; first < share.size(); first += host.size()) {
          const std::size_t size = std::min(host.size(), share.size() - first);
          float* const piece = is_own ? state.data() + first : received_.data();
          if (ShardsStates()) group_.Broadcast(piece, size, rank);
          const std::span<float> copy = std::span(host).first(size);
          Check(cudaMemcpyAsync(copy.data(), piece, copy.size_bytes(), cudaMemcpyDeviceToHost,
                                stream_.get()),
                "copy from the GPU");
          Check(cudaStreamSynchronize(stream_.get()), "training");
          take(copy);
        }
        ++rank;
      }
    }
  }

  void Write(const FloatSource& from) override {
    gpu_.Use();
    std::vector<float> host(std::min(kPieceFloats, layout_.total));
    const auto fill = [&](const DeviceArray<float>& to, std::size_t first) {
      for (std::size_t i = 0; i < to.size(); i += host.size()) {
        const std::span<float> piece = std::span(host).first(std::min(host.size(), to.size() - i));
        from(first + i, piece);
        Check(cudaMemcpyAsync(to.data() + i, piece.data(), piece.size_bytes(),
                              cudaMemcpyHostToDevice, stream_.get()),
              "copy to the GPU");
        Check(cudaStreamSynchronize(stream_.get()), "training");
      }
    };
    fill(parameters_, 0);
    std::size_t first = layout_.total;
    for (const DeviceArray<float>& state : states_) {
      fill(state, first + shares_.Own().first);
      first += layout_.total;
    }
    fill(amax_histories_, first);
    model_.ParametersChanged();
  }

 private:
  // Each process has the parameters that the others have updated.
  void ShareParameters() const {
    int rank = 0;
    for (const Slice& share : shares_.All()) {
      group_.Broadcast(parameters_.data() + share.first, share.size(), rank++);
    }
  }

  // Adds the gradients of micro-batch i, and writes its losses to row_loss_.
  void Train(const Pass& pass, std::size_t i, std::span<const std::uint16_t> inputs,
             std::span<const std::uint16_t> targets) {
    DeviceBatch batch = tokens_.Upload(i, inputs, targets, stream_.get());
    batch.trains = true;
    model_.Forward(pass, batch);
    tokens_.UploadSorted(i, inputs, stream_.get(), &batch);
    const float scale = pass.loss_scale / static_cast<float>(TokensPerStep(config_));
    const DeviceTeacherLoss teacher =
        pass.teacher == nullptr ? DeviceTeacherLoss{} : teacher_->LossOf(batch);
    model_.Backward(pass, batch, scale, row_loss_.data(), teacher);
  }

  void MakeTeacher(bool tensor_cores) {
    teacher_.emplace(config_, rows_, tensor_cores, stream_.get());
    kl_sums_ = DeviceArray<double>(loss_sums_.size());
  }

  GpuClaim gpu_;
  std::string processor_;
  Stream stream_;
  Group group_;
  TrainConfig config_;
  ParameterLayout layout_;
  OptimizerShares shares_;
  std::size_t rows_;  // of a micro-batch
  DeviceArray<float> parameters_, gradients_;
  std::unique_ptr<DeviceOptimizer> optimizer_;
  std::vector<DeviceArray<float>> states_;  // of the optimizer, for the own share
  DeviceArray<float> received_;             // a piece of another process's states
  DeviceArray<float> amax_histories_;
  DeviceModel<T> model_;
  std::optional<DeviceTeacher<T>> teacher_;
  StepTokens tokens_;
  DeviceArray<double> row_loss_, loss_sums_, kl_sums_, squares_, summed_;
  DeviceStepClock clock_{stream_.get()};
};

// The reason why the GPU cannot train with these operands of a GEMM, as a message; empty if it can.
std::string WhyNot(const GemmRecipe& gemm) {
  if (gemm.accumulation != nullptr) {
    return "the GPU adds products in its own order and cannot compute the accumulation \"" +
           std::string(gemm.accumulation->name) + "\"";
  }
  for (const OperandRecipe* operand : {&gemm.a, &gemm.b}) {
    if (operand->format && !PlanOf(*operand).kernel) {
      return "the GPU has no kernel for the format " + ToJson(*operand).dump() + " in training";
    }
  }
  return "";
}

// Checks the recipe, those of its rules and those that follow it in the run. Throws Error at
// `where`.
void CheckFormats(const Recipe& recipe, const std::string& where) {
  std::vector<const LinearRecipe*> linears = LinearRecipesOf(recipe);
  linears.push_back(&recipe.rest);
  for (const LinearRecipe* linear : linears) {
    for (const GemmRecipe* gemm : {&linear->fprop, &linear->dgrad, &linear->wgrad}) {
      const std::string why = WhyNot(*gemm);
      if (!why.empty()) throw Error(where, why + "; \"device\": \"cpu\" takes it");
    }
  }
}

}  // namespace

std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world, AttentionPrecision attention) {
  if (const auto why = WhyNotShared(config, world); !why.empty()) throw Error(where, why);
  CheckFormats(config.recipe, where);
  for (const Part* part : PartsOf(config.model)) DevicePartNamed(std::string(part->name), where);
  if (!config.recipe.rest.bf16) {
    return std::make_unique<CudaEngine<float>>(config, where, world, false);
  }
  const bool tensor_cores =
      attention == AttentionPrecision::kTensorCore && HasTensorCoreAttention(config.model);
  return std::make_unique<CudaEngine<Bf16>>(config, where, world, tensor_cores);
}

}  // namespace fp4lab::gpu

namespace fp4lab {

int CudaGpus() {
  std::string why;
  return static_cast<int>(gpu::Gpus(&why).size());
}

std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world) {
  return gpu::MakeCudaEngine(config, where, world, gpu::AttentionPrecision::kTensorCore);
}

}  // namespace fp4lab
