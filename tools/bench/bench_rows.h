// The rows of `fp4lab bench`: what each row measures, and its target.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"
#include "fp4lab/measure/alternate.h"
#include "fp4lab/measure/sgemm_peer.h"
#include "fp4lab/measure/table.h"
#include "fp4lab/measure/vector_instructions.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::tools {

// The prefix of a BenchModel's recipe that has one dialect in all six operands, as in
// "dialect:nvfp4.modelopt".
inline constexpr const char* kAllOperands = "dialect:";

// What a BenchModel has in place of an MLP and AdamW.
enum class BenchVariant {
  kPlain,
  kExperts,  // 8 experts of FFN 2d, two for each token: the MLP's FLOPs, but for the router
  kMuon
};

// A decoder whose training is timed: L 4, FFN 4d, GELU, T 256, 2048 tokens a step.
struct BenchModel {
  int d_model = 256;
  std::string recipe;  // "fp32", "te_nvfp4", or kAllOperands and a dialect
  BenchVariant variant = BenchVariant::kPlain;
  int copy = 0;  // trainers of different numbers share nothing
  auto operator<=>(const BenchModel&) const = default;
};
TrainConfig BenchTrainConfig(const BenchModel& model);
inline constexpr double kBenchRate = 1e-3;  // learning rate
// One training step. Throws Error if the loss is not finite.
measure::Work Step(Trainer* trainer);

// Inputs that several rows share and that are expensive to make. They are made on first use;
// matrices and trainers are freed when the next topic begins.
class BenchInputs {
 public:
  explicit BenchInputs(bool quick) : quick_(quick) {}

  // A matrix for DRAM, uniform in (-1, 1), rounded to BF16: twice the last-level cache, from 512
  // MiB to 1 GiB (quick: 256 MiB, whatever the cache), and at most a sixteenth of the memory.
  MatrixView<const float> InMemory();
  // Such a matrix for L2: a quarter of L2, from 128 KiB to 512 KiB.
  MatrixView<const float> InCache();
  std::size_t MemoryBytes() const;  // size of InMemory
  // A buffer for outputs, as large as InMemory.
  std::span<std::byte> MemoryOutput();
  Trainer& TrainerOf(const BenchModel& model);
  // The FP32 libraries found at run time. They are loaded once and kept, since libraries with
  // threads cannot be unloaded.
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
  int threads = 1;  // threads of the rows that say "all threads"
  bool quick = false;
  std::string simd;             // the target that is pinned
  Json peers = Json::object();  // content of --peer-json: {"torch": {"tokens_per_second": ...}}
  const std::atomic<bool>* stop = nullptr;
  BenchInputs* inputs = nullptr;

  // Options for work on one thread, in processor time.
  measure::AlternateOptions OneThread() const;
  // Options for work on all threads, in wall time.
  measure::AlternateOptions AllThreads() const;
  measure::AlternateOptions On(int n) const { return n == 1 ? OneThread() : AllThreads(); }
};

struct BenchEntry {
  std::string id, topic, what, unit, against;
  measure::Target target;
  std::function<measure::Cell(const BenchContext&)> measure = {};
  bool depends_on_simd = true;  // false: measured in the first column only
};

// All rows, in the order of the table.
std::vector<BenchEntry> BenchEntries();
std::vector<BenchEntry> QuantizeEntries();
std::vector<BenchEntry> DialectEntries();
std::vector<BenchEntry> QuotedPeerEntries();
std::vector<BenchEntry> GemmEntries();
std::vector<BenchEntry> LinearEntries();
std::vector<BenchEntry> TrainEntries();
std::vector<BenchEntry> MemoryEntries();
std::vector<BenchEntry> FileEntries();

// Work that a row's own work takes turns with and is compared with. Of several rivals the one with
// the smallest median time counts.
struct Rival {
  std::string name;
  measure::Work work;
};

// Work that no kernel of a row does without, and its name.
struct Limit {
  measure::Work work = {};  // empty: none is known
  std::string name = {};    // "moving the same bytes"
  double times = 1;         // how many times the row's amount the work does
};

// value: amount / seconds, in the row's unit; ratio: our rate / the rival's. The limit's work takes
// turns with both. Without rivals, cell.limit is a rate.
measure::Cell CompareRates(const measure::AlternateOptions& options, double amount,
                           const measure::Work& ours, const std::vector<Rival>& rivals,
                           const Limit& limit = {});
// The cell of CompareRates without rivals, against a rate that was measured elsewhere.
measure::Cell AgainstRate(measure::Cell cell, double rate);
// value: seconds * scale, in the row's unit; ratio: our time / the rival's.
measure::Cell CompareTimes(const measure::AlternateOptions& options, double scale,
                           const measure::Work& ours, const std::vector<Rival>& rivals,
                           const Limit& limit = {});

// The limit of what `make(x)`, a kernel on one thread, is made of: as many additions as it executes
// vector instructions. These are counted on the first `rows` rows of x and on twice as many, at
// some microseconds an instruction. Reading x, where they cannot be counted.
Limit OwnInstructions(const std::function<measure::Work(MatrixView<const float>)>& make,
                      MatrixView<const float> x, std::size_t rows = 16);
// The vector instructions of `rows` rows, on one thread: those of make(2 rows) beyond those of
// make(rows), which leaves out what a call costs whatever its rows. nullopt where instructions
// cannot be counted.
std::optional<measure::VectorInstructions> InstructionsOf(
    const std::function<measure::Work(std::size_t rows)>& make, std::size_t rows);
// The limit of work on `all` things, of which `counted` execute `count` instructions: as many
// additions. Its name gives the instructions for each `per` things.
Limit InstructionLimit(const measure::VectorInstructions& count, double counted, double all,
                       int per, const std::string& things);

measure::Cell Missing(std::string why);

inline measure::Target AtLeast(double bound) { return {measure::Comparison::kAtLeast, bound}; }
inline measure::Target AtMost(double bound) { return {measure::Comparison::kAtMost, bound}; }

// `fp4lab bench --probe-memory D --probe-recipe NAME`, which MemoryEntries runs in a process of its
// own: trains two steps, saves the state and prints {"bytes": N}, the peak memory of all that.
void ProbeMemory(const BenchModel& model);

// `fp4lab bench --probe-command WORDS`, which FileEntries runs in a process of its own: runs
// `fp4lab WORDS` (quantize or verify) and prints {"bytes": N}, the peak memory of the process.
void ProbeCommand(const std::string& words);

}  // namespace fp4lab::tools
