// The rows of `fp4lab bench`: what each measures and what is wanted of it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"
#include "fp4lab/measure/alternate.h"
#include "fp4lab/measure/sgemm_peer.h"
#include "fp4lab/measure/table.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::tools {

// "dialect:nvfp4.modelopt": that dialect in every operand.
inline constexpr const char* kAllOperands = "dialect:";

// A decoder whose training is timed: L 4, FFN 4d, GELU, T 256, 2048 tokens a step.
struct BenchModel {
  int d_model = 256;
  std::string recipe;  // "fp32", "te_nvfp4", or kAllOperands and a dialect
  auto operator<=>(const BenchModel&) const = default;
};
TrainConfig BenchTrainConfig(const BenchModel& model);
inline constexpr double kBenchRate = 1e-3;  // learning rate
// One step, whose loss must be finite.
measure::Work Step(Trainer* trainer);

// What several rows use and what is expensive to make: made on first use, and freed when the next
// topic begins.
class BenchInputs {
 public:
  explicit BenchInputs(bool quick) : quick_(quick) {}

  // Uniform in (-1, 1), rounded to BF16. Twice the last-level cache, from 512 MiB (quick: 256 MiB,
  // whatever the cache) to 1 GiB; a quarter of L2, at most 512 KiB.
  MatrixView<const float> InMemory();
  MatrixView<const float> InCache();
  std::size_t MemoryBytes() const;  // of InMemory
  // As many bytes as InMemory holds.
  std::span<std::byte> MemoryOutput();
  Trainer& TrainerOf(const BenchModel& model);
  // Loaded once and kept: libraries with threads cannot be unloaded.
  const std::vector<measure::SgemmPeer>& Peers(measure::PeerVectors vectors);
  void Free();

 private:
  bool quick_;
  FloatBuffer memory_, cache_, output_;
  std::unique_ptr<Corpus> corpus_;
  std::map<BenchModel, std::unique_ptr<Trainer>> trainers_;
  std::map<measure::PeerVectors, std::vector<measure::SgemmPeer>> peers_;
};

struct BenchContext {
  int threads = 1;  // of the rows that say "all threads"
  bool quick = false;
  std::string simd;             // the target that is pinned
  Json peers = Json::object();  // of --peer-json: {"torch": {"tokens_per_second": ...}}
  const std::atomic<bool>* stop = nullptr;
  BenchInputs* inputs = nullptr;

  // For work on one thread: processor time.
  measure::AlternateOptions OneThread() const;
  // For work on all threads: wall time.
  measure::AlternateOptions AllThreads() const;
  measure::AlternateOptions On(int n) const { return n == 1 ? OneThread() : AllThreads(); }
};

struct BenchEntry {
  std::string id, topic, what, unit, against;
  measure::Target target;
  std::function<measure::Cell(const BenchContext&)> measure = {};
  bool depends_on_simd = true;  // false: measured once
};

// In the order of the table.
std::vector<BenchEntry> BenchEntries();
std::vector<BenchEntry> QuantizeEntries();
std::vector<BenchEntry> DialectEntries();
std::vector<BenchEntry> QuotedPeerEntries();
std::vector<BenchEntry> GemmEntries();
std::vector<BenchEntry> LinearEntries();
std::vector<BenchEntry> TrainEntries();
std::vector<BenchEntry> MemoryEntries();
std::vector<BenchEntry> FileEntries();

// `ours` against the fastest of `rivals`.
struct Rival {
  std::string name;
  measure::Work work;
};

// value: amount / time, in units of `unit`; ratio: our rate / the rival's.
measure::Cell CompareRates(const measure::AlternateOptions& options, double amount,
                           const measure::Work& ours, const std::vector<Rival>& rivals);
// value: time * scale; ratio: our time / the rival's.
measure::Cell CompareTimes(const measure::AlternateOptions& options, double scale,
                           const measure::Work& ours, const std::vector<Rival>& rivals);

measure::Cell Missing(std::string why);

inline measure::Target AtLeast(double bound) { return {measure::Comparison::kAtLeast, bound}; }
inline measure::Target AtMost(double bound) { return {measure::Comparison::kAtMost, bound}; }

// Sets the threads for a scope.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads);
  ~ThreadsScope();
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

// `fp4lab bench --probe-memory D --probe-recipe NAME`, which MemoryEntries runs as a process of its
// own: trains two steps and prints {"bytes": N}, the most memory that they took.
void ProbeMemory(const BenchModel& model);

// `fp4lab bench --probe-command WORDS`, which FileEntries runs: does what `fp4lab WORDS` does and
// prints {"bytes": N}, the most memory that the process held.
void ProbeCommand(const std::string& words);

}  // namespace fp4lab::tools
