// The inputs of the rows of `fp4lab bench`: matrices, a corpus, trainers, FP32 libraries.
#include <algorithm>
#include <span>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/measure/machine.h"
#include "tools/bench/bench_rows.h"

namespace fp4lab::tools {
namespace {

using measure::Machine;

constexpr std::size_t kMemoryCols = 4096, kCacheCols = 512;
constexpr int kVocabulary = 4096, kTokensAStep = 2048;

void Fill(std::span<float> x) {
  constexpr std::size_t kPiece = 1 << 16;
  const RandomStream stream{.seed = 7};
  ParallelFor(DivideUp(x.size(), kPiece), [&](std::size_t piece) {
    const std::size_t end = std::min(x.size(), (piece + 1) * kPiece);
    for (std::size_t i = piece * kPiece; i < end; ++i) {
      x[i] = RoundToBf16(static_cast<float>(2.0 * UniformOpen(stream.Bits32(i)) - 1.0));
    }
  });
}

std::size_t CacheRows() {
  constexpr std::size_t kKibibyte = 1 << 10;
  const std::size_t l2 = measure::ThisMachine().l2;
  const std::size_t bytes = std::clamp(l2 / 4, 128 * kKibibyte, 512 * kKibibyte);
  return bytes / (kCacheCols * sizeof(float)) / 32 * 32;
}

MatrixView<const float> Filled(FloatBuffer* buffer, std::size_t rows, std::size_t cols) {
  if (buffer->empty()) {
    buffer->resize(rows * cols);
    Fill(*buffer);
  }
  return {buffer->data(), rows, cols};
}

// A corpus of random tokens; the speed of training does not depend on its text.
std::unique_ptr<Corpus> RandomCorpus() {
  auto corpus = std::make_unique<Corpus>();
  corpus->name = "random tokens";
  corpus->vocabulary = kVocabulary;
  const RandomStream stream{.seed = 8};
  for (std::size_t i = 0; i < 200'000; ++i) {
    corpus->train.push_back(static_cast<std::uint16_t>(stream.Bits32(i) % kVocabulary));
  }
  corpus->validation.assign(corpus->train.begin(), corpus->train.begin() + 10'000);
  return corpus;
}

Json RecipeOf(const std::string& name) {
  if (!name.starts_with(kAllOperands)) return name;
  const Json operand{{"format", name.substr(std::string(kAllOperands).size())}};
  return {{"base", "bf16"},
          {"fprop", {{"input", operand}, {"weight", operand}}},
          {"dgrad", {{"grad", operand}, {"weight", operand}}},
          {"wgrad", {{"grad", operand}, {"input", operand}}}};
}

}  // namespace

TrainConfig BenchTrainConfig(const BenchModel& model) {
  TrainConfig config;
  config.model = {.layers = 4,
                  .d_model = model.d_model,
                  .heads = std::max(1, model.d_model / 32),
                  .ffn = 4 * model.d_model,
                  .sequence = 256,
                  .vocabulary = kVocabulary,
                  .activation = Activation::kGelu};
  if (model.variant == BenchVariant::kExperts) {
    config.model.parts = {"attention", "moe"};
    config.model.moe = {.experts = 8, .top_k = 2, .ffn = 2 * model.d_model};
  }
  if (model.variant == BenchVariant::kMuon) config.optimizer.name = kMuonName;
  config.batch = kTokensAStep / config.model.sequence;
  config.recipe = ReadRecipe(RecipeOf(model.recipe), "bench");
  return config;
}

measure::Work Step(Trainer* trainer) {
  return [trainer] {
    if (trainer->Step(kBenchRate).non_finite) throw Error("bench", "a loss is not finite");
  };
}

// At most a sixteenth of the machine's memory.
std::size_t BenchInputs::MemoryBytes() const {
  constexpr std::size_t kMebibyte = std::size_t{1} << 20, kRow = kMemoryCols * sizeof(float);
  const Machine m = measure::ThisMachine();
  const std::size_t wanted =
      quick_ ? 256 * kMebibyte : std::clamp(2 * m.l3, 512 * kMebibyte, 1024 * kMebibyte);
  return std::max<std::size_t>(std::min(wanted, m.memory / 16) / kRow / 32 * 32, 1024) * kRow;
}

MatrixView<const float> BenchInputs::InMemory() {
  return Filled(&memory_, MemoryBytes() / (kMemoryCols * sizeof(float)), kMemoryCols);
}

MatrixView<const float> BenchInputs::InCache() { return Filled(&cache_, CacheRows(), kCacheCols); }

std::span<std::byte> BenchInputs::MemoryOutput() {
  if (output_.empty()) output_.resize(InMemory().size());
  return std::as_writable_bytes(std::span<float>(output_));
}

Trainer& BenchInputs::TrainerOf(const BenchModel& model) {
  if (corpus_ == nullptr) corpus_ = RandomCorpus();
  std::unique_ptr<Trainer>& trainer = trainers_[model];
  if (trainer == nullptr) {
    trainer = std::make_unique<Trainer>(BenchTrainConfig(model), *corpus_);
  }
  return *trainer;
}

const std::vector<measure::SgemmPeer>& BenchInputs::Peers(measure::PeerVectors vectors) {
  if (peers_.count(vectors) == 0) peers_[vectors] = measure::LoadSgemmPeers(vectors);
  return peers_[vectors];
}

void BenchInputs::Free() {
  for (FloatBuffer* buffer : {&memory_, &cache_, &output_}) FloatBuffer().swap(*buffer);
  trainers_.clear();
}

}  // namespace fp4lab::tools
