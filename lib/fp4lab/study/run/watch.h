// A look at the folder of a study that may be running: how far each of its runs is. Reads files
// that their writers replace atomically, takes no lock and writes nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/run/record/run_record.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab::study {

struct WatchedRun {
  enum class State {
    kWaiting,     // neither result nor checkpoint: not begun, or before its first checkpoint
    kCheckpoint,  // at work, or interrupted: `age` tells which
    kDone,
    kDiverged,
  };
  std::string arm = {};  // empty: a folder whose arm is not known
  std::uint64_t seed = 0;
  std::string key = {};  // the folder's name; empty: not known
  State state = State::kWaiting;
  std::size_t points = 0, budgets = 0;    // annealed losses that are there, and that there will be
  std::optional<double> trunk_loss = {};  // training loss of the trunk's last step in the file
  std::int64_t steps = 0, total_steps = 0;  // optimizer steps in the file; total 0: not known
  std::chrono::seconds age{0};              // of the checkpoint
};

// Knows the runs of a study by their keys. A key holds the corpus and the fingerprint of the arm's
// numerics: both are taken from results in the folder; where an arm has none, the fingerprint is
// measured (50 ms) if the study trains on the CPU. On a GPU it is not, as the GPU is the study's:
// the checkpoints of that arm are listed without its name until its first run is complete.
class StudyWatch {
 public:
  // Reads FOLDER/study.json. Throws Error if it is missing or malformed.
  explicit StudyWatch(const std::filesystem::path& folder);

  // The runs of the study, arm by arm and seed by seed, then folders with a checkpoint that are
  // none of them. Files that are damaged count as not there.
  std::vector<WatchedRun> Look();

 private:
  struct Seen {  // what a result.json says
    std::filesystem::file_time_type time;
    Json inputs;
    RunRecord record;
  };
  void ReadResults();
  void FindNumerics();
  WatchedRun LookAt(std::size_t arm, std::uint64_t seed) const;

  std::filesystem::path folder_;
  Study study_;
  std::map<std::string, Seen> seen_;             // by the folder's name
  std::optional<Corpus> corpus_;                 // without its tokens
  std::map<std::string, std::string> numerics_;  // by arm
};

// A table with one row a run, and a line that sums them up.
std::string WatchText(const std::vector<WatchedRun>& runs);
// Whether every run of the study is complete.
bool AllComplete(const std::vector<WatchedRun>& runs);

}  // namespace fp4lab::study
