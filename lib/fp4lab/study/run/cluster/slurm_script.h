// A job script for Slurm: an array job whose task I trains shard I of a study.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab::study {

// What a cluster asks of a job: a small JSON file. An empty text or 0 leaves the option out.
struct ClusterSite {
  std::string partition, account, qos, constraint;
  std::string time;    // of a task, as Slurm reads it: minutes, "HH:MM:SS" or "D-HH:MM:SS"
  std::string memory;  // of a task: "16G"
  int gpus = 0;        // of a task, which trains one run on each at a time
  int cpus = 0;        // of a task
  int tasks = 0;       // shards; 0: one a run
  int most_tasks_at_once = 0;
  int most_requeues = 100;           // of a task whose time was over
  int warning_seconds = 120;         // from the signal to checkpoint until the end of the time
  std::vector<std::string> modules;  // for `module load`
  std::vector<std::string> setup;    // lines of shell before the program starts
  std::vector<std::string> options;  // further options of sbatch: "--mail-type=END"
  std::string program;               // path of fp4lab on the nodes; empty: the one that submits
};

// Reads the keys above, all optional. Throws Error at the pointer of an unknown key, and of a value
// that would not stay one word of its line.
ClusterSite ReadClusterSite(const Json& json, const std::string& where);

struct SlurmJob {
  std::string name;               // of the study
  std::filesystem::path program;  // absolute paths, as the nodes see them
  std::filesystem::path study, out_dir, folder, working_folder;  // `folder`: of the tasks' logs
  std::size_t runs = 0;
  std::vector<std::string> arguments = {};  // further options of `study run`
};

// The number of tasks of the array.
int TasksOf(const SlurmJob& job, const ClusterSite& site);

// The script. Slurm sends its shell SIGUSR1 before the time is over; the shell hands it on, the
// program writes its checkpoints, and the task is queued again. Throws Error for an out_dir whose
// path Slurm would not read as it stands.
std::string SlurmScript(const SlurmJob& job, const ClusterSite& site);

}  // namespace fp4lab::study
