// fp4lab study runs | submit | collect: a study that several machines train.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/process.h"
#include "fp4lab/study/run/cluster/collect.h"
#include "fp4lab/study/run/cluster/slurm_script.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study_start.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/options/study_options.h"
#include "tools/training/study_example.h"
#include "tools/training/study_results.h"

namespace fp4lab::tools {
namespace {

namespace fs = std::filesystem;

struct RunsOptions : StudyRunOptions {
  bool json = false;
};

struct SubmitOptions : StudyRunOptions {
  std::string site, out_dir;
  bool dry_run = false;
};

struct CollectOptions {
  std::string out_dir;
  std::vector<std::string> from;
};

void RunsCommand(const RunsOptions& options) {
  const study::Study study = ReadStudy(options);
  Json list = Json::array();
  for (const study::NamedRun& run :
       study::RunsOf(study, study::LoadCorpusOf(study), ReadShare(options))) {
    if (!run.mine) continue;
    if (options.json) {
      list.push_back({{"key", run.key}, {"arm", run.arm}, {"seed", run.seed}});
      continue;
    }
    Print("%s %s:%llu\n", run.key.c_str(), Printable(run.arm).c_str(),
          static_cast<unsigned long long>(run.seed));
  }
  if (options.json) PrintJson(list);
}

fs::path ThisProgram() {
  std::error_code status;
  const fs::path program = fs::read_symlink("/proc/self/exe", status);
  if (status) throw Error("/proc/self/exe", "cannot be read: " + status.message());
  return program;
}

void SubmitCommand(const SubmitOptions& options) {
  const study::Study study = ReadStudy(options);
  const study::ClusterSite site = study::ReadClusterSite(ReadJsonFile(options.site), options.site);
  const fs::path out = fs::absolute(options.out_dir.empty() ? "out/" + study.name : options.out_dir)
                           .lexically_normal();
  study::SlurmJob job{.name = study.name,
                      .program = ThisProgram(),
                      .study = out / "submit" / "study.json",
                      .out_dir = out,
                      .folder = out / "submit",
                      .working_folder = fs::current_path(),
                      .runs = study.arms.size() * study.seeds.size()};
  const auto number = [&](const char* name, int value) {
    if (value > 0) job.arguments.insert(job.arguments.end(), {name, std::to_string(value)});
  };
  number("--jobs", options.jobs);
  number("--threads-per-job", options.threads_per_job);
  const std::string script = study::SlurmScript(job, site);
  if (options.dry_run) return PrintText(script);
  // The study as it is now: the tasks start later, and --quick, --seeds and --device are in it.
  WriteFileAtomically(job.study, study::ToJson(study).dump(2) + "\n");
  const fs::path path = job.folder / "job.sh";
  WriteFileAtomically(path, script);
  const ProcessResult sent = RunProcess({"sbatch", "--parsable", path.string()});
  if (sent.exit_code != 0) {
    const std::string reason = sent.error.substr(0, sent.error.find('\n'));
    throw Error("sbatch " + path.string(),
                "exit code " + std::to_string(sent.exit_code) + ": " + reason);
  }
  const std::string number_of_job = sent.output.substr(0, sent.output.find_first_of(";\n"));
  Print("job %s: %d tasks for %zu runs; then: fp4lab study collect %s\n",
        Printable(number_of_job).c_str(), study::TasksOf(job, site), job.runs,
        Printable(out.string()).c_str());
}

void CollectCommand(const CollectOptions& options, int* exit_code) {
  for (const std::string& from : options.from) {
    const int copied = study::JoinRuns(from, options.out_dir);
    Note("%s: %d results copied\n", Printable(from).c_str(), copied);
  }
  if (!CollectResults(options.out_dir)) *exit_code = 1;
}

}  // namespace

void AddStudyCluster(CLI::App& app, int* exit_code) {
  CLI::App* study = app.get_subcommand("study");
  auto runs = std::make_shared<RunsOptions>();
  CLI::App* list = study->add_subcommand(
      "runs", "List the runs of a study, or of a share of it: KEY ARM:SEED, a line each");
  AddStudyRunOptions(list, runs.get());
  AddShareOptions(list, runs.get());
  list->add_flag("--json", runs->json, "A list of {\"key\", \"arm\", \"seed\"}");
  list->footer(
      StudyExample("  $ fp4lab study runs tiny.json --shard 1/2 | cut -d ' ' -f 2\n"
                   "  bf16:1\n"
                   "  bf16:2\n"));
  list->callback([=] { RunsCommand(*runs); });
  auto submit = std::make_shared<SubmitOptions>();
  CLI::App* send = study->add_subcommand(
      "submit", "Train a study as a job array of Slurm: write OUT/submit/job.sh, call sbatch");
  AddStudyRunOptions(send, submit.get());
  send->add_option("--site", submit->site,
                   "What the cluster asks for, a JSON file (studies/README.md, On a cluster)")
      ->required();
  send->add_option("--out-dir", submit->out_dir, "Folder for results, shared by nodes [out/NAME]");
  send->add_flag("--dry-run", submit->dry_run, "Print the script; write and submit nothing");
  send->footer(StudyExample(
      "  $ echo '{\"partition\": \"gpu\", \"gpus\": 1, \"time\": \"04:00:00\"}' > site.json\n"
      "  $ fp4lab study submit tiny.json --site site.json --dry-run | grep -e --array -e --gpus\n"
      "  #SBATCH --array=1-4\n"
      "  #SBATCH --gpus-per-task=1\n"));
  send->callback([=] { SubmitCommand(*submit); });
  auto collect = std::make_shared<CollectOptions>();
  CLI::App* join = study->add_subcommand(
      "collect",
      "Make results.json and the report from the complete runs of a folder; exit code 1 and a list "
      "if some are missing");
  join->add_option("out", collect->out_dir, "Folder of the study")->required();
  join->add_option("--from", collect->from,
                   "Folders of shards, whose runs/KEY are copied into OUT first");
  join->footer(
      StudyExample("  $ fp4lab study run tiny.json --shard 1/2 --out-dir a 2> progress\n"
                   "  $ fp4lab study run tiny.json --shard 2/2 --out-dir b 2> progress\n"
                   "  $ fp4lab study collect all --from a b 2> progress | tail -1\n"
                   "  report: all/report.html\n"));
  join->callback([=] { CollectCommand(*collect, exit_code); });
}

}  // namespace fp4lab::tools
