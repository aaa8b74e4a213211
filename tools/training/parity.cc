// fp4lab parity: training runs of any program against a baseline's, equivalent within a margin or
// not.
#include "fp4lab/study/parity/parity.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct ParityCommand {
  std::vector<std::string> runs, baseline;
  double margin = 0.5;  // percent
  study::ParityOptions options;
  std::optional<double> from, to;
  std::string by = "steps";
  study::LogOptions log;
  bool json = false;
};

std::vector<study::MetricLog> LogsOf(const std::vector<std::string>& paths,
                                     const study::LogOptions& options) {
  std::vector<study::MetricLog> logs;
  for (const std::string& path : paths) {
    for (study::MetricLog& log : study::ReadMetricLogs(path, options)) {
      logs.push_back(std::move(log));
    }
  }
  return logs;
}

// Returns whether the runs are equivalent.
bool Run(const ParityCommand& o) {
  study::LogOptions log = o.log;
  log.axis = o.by == "tokens" ? study::LogAxis::kTokens : study::LogAxis::kSteps;
  study::ParityOptions options = o.options;
  options.margin = o.margin / 100;
  options.from = o.from;
  options.to = o.to;
  const Json document =
      study::ParityDocument({LogsOf(o.runs, log), LogsOf(o.baseline, log)}, options);
  o.json ? PrintJson(document, 1) : Print("%s", study::ParityText(document).c_str());
  return document["status"] == study::kEquivalent;
}

}  // namespace

void AddParity(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<ParityCommand>();
  CLI::App* command = app.add_subcommand(
      "parity", "Compare training runs with a baseline: equivalent within a margin?");
  command
      ->add_option("runs", o->runs,
                   "Logs, one per run: CSV, JSON Lines (MaxText, Megatron-LM, torchtitan, fp4lab "
                   "train), TensorBoard event files or their folder, or RESULTS#ARM of a study")
      ->required()
      ->type_name("LOG");
  command->add_option("--baseline", o->baseline, "Logs of the baseline, one per run")
      ->required()
      ->type_name("LOG");
  command
      ->add_option("--margin", o->margin, "Largest gap that counts as none, in percent of the loss")
      ->capture_default_str();
  command->add_option("--confidence", o->options.confidence, "Of the tests and intervals")
      ->capture_default_str();
  command->add_option("--last", o->options.last,
                      "Compare this share of the steps, the last ones (0.333)");
  command->add_option("--from", o->from, "Compare from this step on, instead of --last");
  command->add_option("--to", o->to, "Compare up to this step, instead of --last");
  command->add_option("--by", o->by, "Compare at equal steps or at equal tokens")
      ->check(OneOf({"steps", "tokens"}))
      ->capture_default_str();
  command->add_option("--loss", o->log.loss, "Name of the loss in the logs, if it is another one");
  command->add_flag("--paired", o->options.paired,
                    "Run i of both sides has one seed: what seeds do to both cancels");
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, "The comparison", {"--baseline", "--margin", "--confidence", "--paired"});
  PutInGroup(command, "The steps", {"--last", "--from", "--to", "--by"});
  command->footer(
      "Exit code: 0 equivalent, 1 different or not told apart, 2 for what cannot be read.\n"
      "Example: a curve against itself\n"
      "  $ seq 40 | awk 'BEGIN { print \"step,loss\" } { print $1 \",\" 3 + 1 / $1 }' > a.csv\n"
      "  $ fp4lab parity a.csv --baseline a.csv | head -1\n"
      "  equivalent within 0.5 %: the loss differs by 0.00 % [0.00, 0.00]");
  command->callback([o, exit_code] { Comparing(exit_code, [&] { return Run(*o); }); });
}

}  // namespace fp4lab::tools
