#include <algorithm>
#include <mutex>
#include <vector>

#include "fp4lab/gpu/engine.h"
#include "fp4lab/gpu/group.cuh"
#include "fp4lab/gpu/model.cuh"
#include "fp4lab/gpu/tokens.h"

namespace fp4lab::gpu {
namespace {

// ---- Which GPU
// -----------------------------------------------------------------------------------

constexpr int kLeastCapability = 8;  // BF16 tensor cores

bool IsUsable(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= kLeastCapability;
}

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Indices of the usable GPUs, or why there are none.
std::vector<int> Gpus(std::string* why) {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::vector<int> devices;
  if (status == cudaErrorInsufficientDriver && driver == 0) {
    *why = "no NVIDIA driver is installed";
  } else if (status == cudaErrorInsufficientDriver) {
    *why = "the NVIDIA driver serves CUDA up to " + VersionText(driver) + ", this program needs " +
           VersionText(runtime) + "; update the driver";
  } else if (status != cudaSuccess || count == 0) {
    *why = status == cudaSuccess || status == cudaErrorNoDevice ? "no GPU is visible"
                                                                : cudaGetErrorString(status);
  } else {
    for (int i = 0; i < count; ++i) {
      if (IsUsable(i)) devices.push_back(i);
    }
    *why = "the GPU is older than compute capability 8.0, which BF16 matrix products need";
  }
  return devices;
}

std::mutex engines_mutex;
std::vector<int> engines_on;  // engines alive on each GPU

// A claim to the least used GPU, or to that of a process's local number.
class GpuClaim {
 public:
  GpuClaim(const std::string& where, const World& world) {
    std::string why;
    const std::vector<int> devices = Gpus(&why);
    if (devices.empty()) {
      throw Error(where, "\"cuda\" cannot be used: " + why + "; \"cpu\" trains on any machine");
    }
    const std::lock_guard lock(engines_mutex);
    engines_on.resize(std::max<std::size_t>(engines_on.size(), devices.back() + std::size_t{1}));
    device_ = *std::min_element(devices.begin(), devices.end(), [](int a, int b) {
      return engines_on[static_cast<std::size_t>(a)] < engines_on[static_cast<std::size_t>(b)];
    });
    if (world.size > 1) device_ = devices[static_cast<std::size_t>(world.local) % devices.size()];
    ++engines_on[static_cast<std::size_t>(device_)];
    Use();
  }
  ~GpuClaim() {
    const std::lock_guard lock(engines_mutex);
    --engines_on[static_cast<std::size_t>(device_)];
  }
  GpuClaim(const GpuClaim&) = delete;
  GpuClaim& operator=(const GpuClaim&) = delete;

  // Every thread has a current GPU of its own.
  void Use() const { Check(cudaSetDevice(device_), "using the GPU"); }

 private:
  int device_ = 0;
};

// A stream of its own: engines in one process do not wait for each other.
class Stream {
 public:
  Stream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// ---- Tokens of a step
// ----------------------------------------------------------------------------

// The micro-batches of one step on the device; memory is taken for `count` of `rows` rows. Every
// copy has a place of its own in pinned memory, which is free again when the step is done.
class StepTokens {
 public:
  StepTokens(std::size_t count, std::size_t rows, std::size_t vocabulary)
      : rows_(rows),
        vocabulary_(vocabulary),
        words_(rows + (rows / kSegmentRows + vocabulary + 1) + (vocabulary + 1)),
        host_tokens_(2 * count * rows),
        host_sorted_(count * words_),
        tokens_(2 * count * rows),
        sorted_(count * words_) {}

  // A whole micro-batch, or fewer rows.
  DeviceBatch Upload(std::size_t i, std::span<const std::uint16_t> inputs,
                     std::span<const std::uint16_t> targets, cudaStream_t stream) {
    const std::size_t at = 2 * i * rows_;
    std::copy(inputs.begin(), inputs.end(), &host_tokens_.Span()[at]);
    std::copy(targets.begin(), targets.end(), &host_tokens_.Span()[at + rows_]);
    Copy(host_tokens_, tokens_, at, 2 * rows_, stream);
    return {inputs.size(), tokens_.data() + at, tokens_.data() + at + rows_};
  }

  // What the backward pass needs besides: sorted on the host while the GPU goes forward.
  void UploadSorted(std::size_t i, std::span<const std::uint16_t> inputs, cudaStream_t stream,
                    DeviceBatch* batch) {
    const SortedTokens sorted = SortTokens(inputs, vocabulary_, kSegmentRows);
    const std::size_t at = i * words_, first = at + rows_;
    const std::size_t of_token = first + rows_ / kSegmentRows + vocabulary_ + 1;
    const std::span<std::uint32_t> host = host_sorted_.Span();
    std::copy(sorted.rows.begin(), sorted.rows.end(), &host[at]);
    std::copy(sorted.first.begin(), sorted.first.end(), &host[first]);
    std::copy(sorted.of_token.begin(), sorted.of_token.end(), &host[of_token]);
    Copy(host_sorted_, sorted_, at, words_, stream);
    const std::uint32_t* const device = sorted_.data();
    batch->segments = {device + at, device + first, device + of_token, sorted.first.size() - 1,
                       vocabulary_};
  }

 private:
  template <class X>
  static void Copy(const PinnedArray<X>& from, const DeviceArray<X>& to, std::size_t at,
                   std::size_t count, cudaStream_t stream) {
    Check(cudaMemcpyAsync(to.data() + at, from.Span().data() + at, count * sizeof(X),
                          cudaMemcpyHostToDevice, stream),
          "copy to the GPU");
  }

  std::size_t rows_, vocabulary_, words_;
  PinnedArray<std::uint16_t> host_tokens_;
  PinnedArray<std::uint32_t> host_sorted_;
  DeviceArray<std::uint16_t> tokens_;
  DeviceArray<std::uint32_t> sorted_;
};

constexpr std::size_t kSampleTokens = 1024;  // that diagnostics look at

double Sum(std::span<const double> x) {
  double sum = 0.0;
  for (const double value : x) sum += value;
  return sum;
}

// ---- The engine
// ----------------------------------------------------------------------------------

template <class T, class A>
class CudaEngine final : public Engine {
 public:
  CudaEngine(const TrainConfig& config, const std::string& where, const World& world)
      : gpu_(where, world),
        group_(world, stream_.get()),
        config_(config),
        layout_(MakeLayout(config.model)),
        rows_(static_cast<std::size_t>(config.batch / config.micro_batches) *
              static_cast<std::size_t>(config.model.sequence)),
        parameters_(layout_.total),
        gradients_(layout_.total),
        m_(layout_.total),
        v_(layout_.total),
        model_(config, parameters_.data(), gradients_.data(),
               rows_ / static_cast<std::size_t>(config.model.sequence), stream_.get()),
        tokens_(static_cast<std::size_t>(config.micro_batches), rows_,
                static_cast<std::size_t>(config.model.vocabulary)),
        row_loss_(rows_),
        loss_sums_(Blocks(rows_, kLossChunk) * static_cast<std::size_t>(config.micro_batches)),
        squares_(Blocks(layout_.total, kSquaresChunk)),
        flag_(1) {}

  ~CudaEngine() override { cudaStreamSynchronize(stream_.get()); }

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
    Check(cudaMemsetAsync(loss_sums_.data(), 0, loss_sums_.size() * sizeof(double), stream_.get()),
          "memset");
    // A pass that is looked at is made whole by every process.
    const bool shares = pass.inspector == nullptr;
    const std::size_t first = shares ? static_cast<std::size_t>(group_.Rank()) : 0;
    const std::size_t step = shares ? static_cast<std::size_t>(group_.Size()) : 1;
    for (std::size_t i = first; i < count; i += step) {
      Pass own = pass;
      own.random.tensor += static_cast<std::uint32_t>(i) * TensorsPerPass();
      Train(own, i, inputs.subspan(i * rows_, rows_), targets.subspan(i * rows_, rows_));
      SumLosses(row_loss_.data(), rows_, loss_sums_.data() + i * sums, stream_.get());
    }
    if (shares) {
      group_.Sum(gradients_.data(), gradients_.size());
      group_.Sum(loss_sums_.data(), count * sums);
    }
    SumSquares(gradients_.data(), gradients_.size(), squares_.data(), stream_.get());
    std::vector<double> losses(count * sums), squares(squares_.size());
    loss_sums_.CopyTo(losses, stream_.get());
    squares_.CopyTo(squares, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
    return {Sum(losses) / static_cast<double>(inputs.size()), Sum(squares)};
  }

  bool Any(bool said) override {
    if (group_.Size() == 1) return said;
    gpu_.Use();
    std::vector<double> flag = {said ? 1.0 : 0.0};
    flag_.CopyFrom(flag, stream_.get());
    group_.Sum(flag_.data(), 1);
    flag_.CopyTo(flag, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
    return flag[0] > 0.0;
  }

  // Operands are measured on the CPU, so of a few sequences: a sample of the micro-batch.
  StepSums Observed(const Pass& pass, std::span<const std::uint16_t> inputs,
                    std::span<const std::uint16_t> targets) {
    const auto sequence = static_cast<std::size_t>(config_.model.sequence);
    const std::size_t sample = (kSampleTokens + sequence - 1) / sequence * sequence;
    const std::size_t rows = sample % 32 == 0 ? std::min(rows_, sample) : rows_;
    model_.ParametersChanged();  // weights are quantized again, seen
    Train(pass, 0, inputs.first(rows), targets.first(rows));
    std::vector<double> losses(rows);
    Check(cudaMemcpyAsync(losses.data(), row_loss_.data(), rows * sizeof(double),
                          cudaMemcpyDeviceToHost, stream_.get()),
          "copy from the GPU");
    Check(cudaStreamSynchronize(stream_.get()), "training");
    return {Sum(losses) / static_cast<double>(rows), 0.0};
  }

  void Update(const AdamW& options) override {
    gpu_.Use();
    AdamW adam = options;
    const auto update = [&](std::size_t first, std::size_t size) {
      AdamWStep(adam, size, gradients_.data() + first, parameters_.data() + first,
                m_.data() + first, v_.data() + first, stream_.get());
    };
    update(0, layout_.matrices);
    adam.weight_decay = 0.0f;
    update(layout_.matrices, layout_.total - layout_.matrices);
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

  void Read(const TrainingNumbers& to) override {
    gpu_.Use();
    parameters_.CopyTo(to.parameters, stream_.get());
    m_.CopyTo(to.m, stream_.get());
    v_.CopyTo(to.v, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
  }

  void Write(const ConstTrainingNumbers& from) override {
    Expects(from.parameters.size() == layout_.total && from.m.size() == layout_.total &&
                from.v.size() == layout_.total,
            "Engine::Write: all parameters and moments");
    gpu_.Use();
    parameters_.CopyFrom(from.parameters, stream_.get());
    m_.CopyFrom(from.m, stream_.get());
    v_.CopyFrom(from.v, stream_.get());
    Check(cudaStreamSynchronize(stream_.get()), "training");
    model_.ParametersChanged();
  }

 private:
  // Adds micro-batch i's gradients; its losses are in row_loss_.
  void Train(const Pass& pass, std::size_t i, std::span<const std::uint16_t> inputs,
             std::span<const std::uint16_t> targets) {
    DeviceBatch batch = tokens_.Upload(i, inputs, targets, stream_.get());
    batch.trains = true;
    model_.Forward(pass, batch);
    tokens_.UploadSorted(i, inputs, stream_.get(), &batch);
    const float scale = 1.0f / static_cast<float>(TokensPerStep(config_));
    model_.Backward(pass, batch, scale, row_loss_.data());
  }

  GpuClaim gpu_;
  Stream stream_;
  Group group_;
  TrainConfig config_;
  ParameterLayout layout_;
  std::size_t rows_;  // of a micro-batch
  DeviceArray<float> parameters_, gradients_, m_, v_;
  DeviceModel<T, A> model_;
  StepTokens tokens_;
  DeviceArray<double> row_loss_, loss_sums_, squares_, flag_;
};

}  // namespace

std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& config, const std::string& where,
                                       const World& world, AttentionPrecision attention) {
  if (config.micro_batches % world.size != 0) {
    throw Error(where, "\"micro_batches\" " + std::to_string(config.micro_batches) +
                           " is no multiple of the " + std::to_string(world.size) + " processes");
  }
  if (!config.recipe.rest.bf16) {
    return std::make_unique<CudaEngine<float, float>>(config, where, world);
  }
  const bool takes_head = HasTensorCoreAttention(HeadDim(config.model));
  if (attention == AttentionPrecision::kTensorCore && takes_head) {
    return std::make_unique<CudaEngine<Bf16, Bf16>>(config, where, world);
  }
  return std::make_unique<CudaEngine<Bf16, float>>(config, where, world);
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
