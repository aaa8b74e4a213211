// fp4lab study run | check | show
#include "fp4lab/study/study.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/data/corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/report.h"
#include "fp4lab/study/results.h"
#include "fp4lab/study/results_file.h"
#include "fp4lab/study/runner.h"
#include "fp4lab/train/world.h"
#include "tools/commands.h"
#include "tools/number_option.h"
#include "tools/print.h"
#include "tools/status_line.h"
#include "tools/stop_signals.h"
#include "tools/study_example.h"

namespace fp4lab::tools {
namespace {

struct StudyOptions {
  std::string file, out_dir, device;
  int jobs = 0, threads_per_job = 0;
  double checkpoint_seconds = 20.0;
};

std::string Describe(const study::Progress& progress) {
  std::string text =
      "study " + std::to_string(progress.runs_done) + "/" + std::to_string(progress.runs) + " runs";
  for (const study::RunningJob& job : progress.running) {
    char part[160];
    std::snprintf(part, sizeof(part), " | %s s%llu %lld/%lld %.3f", job.arm.c_str(),
                  static_cast<unsigned long long>(job.seed), static_cast<long long>(job.step),
                  static_cast<long long>(job.steps), job.loss);
    text += part;
  }
  text += " | " + Rate(progress.tokens_per_second) + " tokens/s";
  if (progress.seconds_left >= 0.0) text += " | " + Duration(progress.seconds_left) + " left";
  return text;
}

void Finish(const study::Study& study, const Corpus& corpus, const study::Outcome& outcome,
            const std::filesystem::path& out_dir) {
  const Json results = study::ResultsJson(study, corpus, outcome);
  WriteFileAtomically(out_dir / "results.json", study::ResultsText(results));
  const study::ReportFiles files = study::WriteReport(out_dir);
  Print("%s\nreport: %s\n", files.summary.c_str(), Printable(files.html.string()).c_str());
}

void RunCommand(const StudyOptions& options, int* exit_code) {
  if (WorldOfEnvironment().size > 1) {
    throw Error("study run",
                "is one process, which uses all cores and GPUs of its machine by itself");
  }
  if (options.jobs * std::max(options.threads_per_job, 1) > kMostThreads) {
    throw Error("--jobs " + std::to_string(options.jobs) + " --threads-per-job " +
                    std::to_string(options.threads_per_job),
                "are more than " + std::to_string(kMostThreads) + " threads");
  }
  study::Study study = study::ReadStudy(options.file);
  if (!options.device.empty()) study.base.device = ReadDevice(options.device, "--device");
  const std::string out = options.out_dir.empty() ? "out/" + study.name : options.out_dir;
  const Corpus corpus = LoadCorpus(study.base.data);
  study::CheckPlacesOfReport(out);
  NoteSlowTarget();
  const StopSignals signals;
  study::Outcome outcome;
  {
    StatusLine line;
    const study::Observer observer{[&](const study::Progress& p) { line.Show(Describe(p)); },
                                   [&](const std::string& note) { line.Print(note); }};
    outcome = study::RunStudy(study, corpus,
                              {.out_dir = out,
                               .jobs = options.jobs,
                               .threads_per_job = options.threads_per_job,
                               .checkpoint_seconds = options.checkpoint_seconds},
                              observer, StopSignals::Asked());
  }
  if (outcome.interrupted) {
    Note("interrupted; every run has its checkpoint. To go on: fp4lab study run %s%s\n",
         Printable(options.file).c_str(),
         options.out_dir.empty() ? "" : (" --out-dir " + Printable(options.out_dir)).c_str());
    *exit_code = StopSignals::ExitCode();
    return;
  }
  Note("%zu runs: %d cached, %lld steps made\n", outcome.records.size(), outcome.cached,
       static_cast<long long>(outcome.steps_made));
  Finish(study, corpus, outcome, out);
}

void CheckCommand(const StudyOptions& options) {
  const study::Study study = study::ReadStudy(options.file);
  const std::int64_t per_step = TokensPerStep(study.base);
  std::int64_t steps = 0;
  for (const study::Arm& arm : study.arms) steps += study::PlanOf(study, arm).TotalSteps();
  steps *= static_cast<std::int64_t>(study.seeds.size());
  Print("%s: %zu arms x %zu seeds, %zu budgets; %lld steps of %lld tokens in all\n",
        Printable(study.name).c_str(), study.arms.size(), study.seeds.size(), study.budgets.size(),
        static_cast<long long>(steps), static_cast<long long>(per_step));
}

void ShowCommand(const StudyOptions& options) {
  PrintJson(study::ToJson(study::ReadStudy(options.file)), 2);
}

}  // namespace

void AddStudy(CLI::App& app, int* exit_code) {
  CLI::App* study = app.add_subcommand("study", "Arms x seeds x token budgets, from one file");
  study->require_subcommand(1);
  auto options = std::make_shared<StudyOptions>();
  const auto add = [&](const char* name, const char* help) {
    CLI::App* command = study->add_subcommand(name, help);
    command->add_option("file", options->file, "Study file (studies/README.md)")->required();
    return command;
  };
  CLI::App* run = add("run", "Train what is missing, then write results.json and the report");
  run->add_option("--out-dir", options->out_dir, "Where results and caches go [out/NAME]");
  run->add_option("--device", options->device, "cpu or cuda, instead of the file's \"device\"");
  run->add_option("--jobs", options->jobs,
                  "Runs at a time [one a processor; on \"cuda\" one a GPU]")
      ->transform(ThreadCount());
  run->add_option("--threads-per-job", options->threads_per_job,
                  "Threads that share the work of one run [the processors / jobs]")
      ->transform(ThreadCount());
  run->add_option("--checkpoint-seconds", options->checkpoint_seconds,
                  "Time between two checkpoints of a run [20]")
      ->check(Decimal(0, 86400));
  const std::string resume = "Go on where an interrupted run stopped; this is always done";
  run->add_flag("--resume", resume);
  run->footer(
      StudyExample("  $ fp4lab study run tiny.json 2> progress | tail -1\n"
                   "  report: out/tiny/report.html\n"));
  run->callback([=] { RunCommand(*options, exit_code); });
  CLI::App* check = add("check", "Check a study file and say how much work it is");
  check->footer(
      StudyExample("  $ fp4lab study check tiny.json\n"
                   "  tiny: 2 arms x 2 seeds, 1 budgets; 128 steps of 256 tokens in all\n"));
  check->callback([=] { CheckCommand(*options); });
  CLI::App* show = add("show", "Print a study file with every default spelled out");
  show->footer(
      StudyExample("  $ fp4lab study show tiny.json | grep learning_rate | tail -1\n"
                   "  \"learning_rate\": 0.005,\n"));
  show->callback([=] { ShowCommand(*options); });
}

}  // namespace fp4lab::tools
