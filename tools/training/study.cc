// fp4lab study run | check | show: trains the runs of a study file, checks it, prints it resolved.
#include "fp4lab/study/run/study.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/io/file.h"
#include "fp4lab/recipe/recipe_inheritance.h"
#include "fp4lab/study/report/report.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "fp4lab/study/run/cluster/collect.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study_start.h"
#include "fp4lab/train/model/recipe_plan.h"
#include "fp4lab/train/world.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/status_line.h"
#include "tools/options/stop_signals.h"
#include "tools/options/study_options.h"
#include "tools/training/study_example.h"
#include "tools/training/study_results.h"

namespace fp4lab::tools {
namespace {

struct StudyOptions : StudyRunOptions {
  std::string out_dir;
  double checkpoint_seconds = 20.0;
};

void PrintNotes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) Note("note: %s\n", Printable(note).c_str());
}

bool AllDiverged(const study::Study& study, const study::Outcome& outcome) {
  for (std::size_t i = 0; i < outcome.records.size(); ++i) {
    const study::Arm& arm = study.arms[i / study.seeds.size()];
    if (!outcome.records[i].DivergedIn(PlanOf(study, arm))) return false;
  }
  return true;
}

void RunCommand(const StudyOptions& options, int* exit_code) {
  if (WorldOfEnvironment().size > 1) {
    throw Error("study run",
                "is one process, which uses all cores and GPUs of its machine by itself");
  }
  const study::Study study = ReadStudy(options);
  const study::Share share = ReadShare(options);
  const std::string out = options.out_dir.empty() ? "out/" + study.name : options.out_dir;
  const Corpus corpus = study::LoadCorpusOf(study);
  study::CheckPlacesOfReport(out);
  NoteSlowTarget();
  PrintNotes(study::NotesOn(study, corpus));
  const StopSignals signals;
  study::Outcome outcome;
  {
    StatusLine line;
    const study::Observer observer{[&](const study::Progress& p) { line.Show(ProgressText(p)); },
                                   [&](const std::string& note) { line.Print(note); }};
    outcome = study::RunStudy(study, corpus,
                              {.out_dir = out,
                               .jobs = options.jobs,
                               .threads_per_job = options.threads_per_job,
                               .checkpoint_seconds = options.checkpoint_seconds,
                               .share = share},
                              observer, StopSignals::Asked());
  }
  if (outcome.interrupted) {
    std::string command = "fp4lab study run " + Printable(options.file);
    if (options.quick) command += " --quick";
    if (options.seeds > 0) command += " --seeds " + std::to_string(options.seeds);
    if (!options.device.empty()) command += " --device " + Printable(options.device);
    if (!options.shard.empty()) command += " --shard " + options.shard;
    for (const std::string& only : options.only) command += " --only " + Printable(only);
    if (!options.out_dir.empty()) command += " --out-dir " + Printable(options.out_dir);
    Note("interrupted; every run has its checkpoint. To continue: %s\n", command.c_str());
    *exit_code = StopSignals::ExitCode();
    return;
  }
  Note("%zu runs: %d cached, %lld steps made\n", outcome.records.size(), outcome.cached,
       static_cast<long long>(outcome.steps_made));
  if (!outcome.missing.empty()) {  // of other shares
    Note("this share is complete; %s; when they are there: fp4lab study collect %s\n",
         Printable(study::MissingText(outcome.missing, outcome.records.size())).c_str(),
         Printable(out).c_str());
    return;
  }
  WriteResults(study, corpus, outcome, out);
  if (AllDiverged(study, outcome)) {
    throw Error(study.name,
                "every run diverged, so nothing is compared; lower the learning rate, "
                "or choose recipes that train");
  }
}

// What the arms' operands keep of their base recipes.
std::vector<std::string> InheritanceNotes(const StudyOptions& options) {
  std::vector<std::string> notes;
  const Json arms = ReadJsonFile(options.file).at("arms");
  for (const auto& [name, arm] : arms.items()) {
    const std::string place = options.file + "#/arms/" + name + "/recipe";
    for (std::string& line : InheritedParts(arm.at("recipe"), place)) {
      notes.push_back(std::move(line));
    }
  }
  return notes;
}

// Which linears of each arm's model have which recipe. The arms of a sweep differ in rates alone.
void PrintPlan(const study::Study& study) {
  study::TextRows rows = {{"arm", "steps", "blocks", "linears", "recipe", "rule"}};
  std::string last;
  for (const study::Arm& arm : study.arms) {
    const std::string& name = arm.swept.empty() ? arm.name : arm.swept;
    if (std::exchange(last, name) == name) continue;
    for (const RecipePlanRow& row : RecipePlanOf(arm.recipe, arm.model)) {
      rows.push_back(
          {Printable(name), row.steps, row.blocks, row.linears, Printable(row.recipe), row.rule});
    }
  }
  PrintText(study::LeftAlignedText(rows));
}

void CheckCommand(const StudyOptions& options) {
  const study::Study study = ReadStudy(options);
  const Corpus corpus = study::CheckStart(study, options.jobs);
  std::vector<std::string> notes = InheritanceNotes(options);
  for (std::string& note : study::NotesOn(study, corpus)) notes.push_back(std::move(note));
  PrintNotes(notes);
  Print("%s: %zu arms x %zu seeds, %zu budgets; %lld steps of %lld tokens in all\n",
        Printable(study.name).c_str(), study.arms.size(), study.seeds.size(), study.budgets.size(),
        static_cast<long long>(study::TotalSteps(study)),
        static_cast<long long>(TokensPerStep(study.base)));
  PrintPlan(study);
}

void ShowCommand(const StudyOptions& options) {
  PrintJson(study::ToJson(study::ReadStudy(options.file)), 2);
}

}  // namespace

void AddStudy(CLI::App& app, int* exit_code) {
  CLI::App* study = app.add_subcommand("study", "Arms x seeds x token budgets, from one file");
  study->require_subcommand(1);
  auto options = std::make_shared<StudyOptions>();
  CLI::App* run = study->add_subcommand(
      "run", "Train the missing runs, then write results.json and the report");
  AddStudyRunOptions(run, options.get());
  AddShareOptions(run, options.get());
  run->add_option("--out-dir", options->out_dir, "Folder for results and caches [out/NAME]");
  run->add_option("--checkpoint-seconds", options->checkpoint_seconds,
                  "Time between two checkpoints of a run [20]")
      ->check(Decimal(0, 86400));
  const std::string resume = "Continue an interrupted run (the default)";
  run->add_flag("--resume", resume);
  run->footer(
      StudyExample("  $ fp4lab study run tiny.json 2> progress | tail -1\n"
                   "  report: out/tiny/report.html\n"
                   "\nIts rehearsal, as of a study that needs a GPU:\n"
                   "  $ fp4lab study run tiny.json --quick 2> progress | tail -1\n"
                   "  report: out/tiny-quick/report.html\n"));
  run->callback([=] { RunCommand(*options, exit_code); });
  CLI::App* check = study->add_subcommand(
      "check",
      "Refuse what `run` with these options would refuse before its first step; print the number "
      "of steps, which linears have which recipe, and what operands keep of their base recipes");
  AddStudyRunOptions(check, options.get());
  check->footer(
      StudyExample("  $ fp4lab study check tiny.json\n"
                   "  tiny: 2 arms x 2 seeds, 1 budgets; 128 steps of 256 tokens in all\n"
                   "    arm     steps   blocks   linears   recipe     rule\n"
                   "    bf16    all     all      all       bf16\n"
                   "    nvfp4   all     all      all       te_nvfp4\n"));
  check->callback([=] { CheckCommand(*options); });
  CLI::App* show =
      study->add_subcommand("show", "Print a study file with every default spelled out");
  show->add_option("file", options->file, "Study file (studies/README.md)")->required();
  show->footer(
      StudyExample("  $ fp4lab study show tiny.json | grep learning_rate | tail -1\n"
                   "  \"learning_rate\": 0.005,\n"));
  show->callback([=] { ShowCommand(*options); });
}

}  // namespace fp4lab::tools
