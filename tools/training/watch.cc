// fp4lab study watch: follows a study that is running.
#include "fp4lab/study/run/watch.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "fp4lab/base/error.h"
#include "fp4lab/study/report/report.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/stop_signals.h"
#include "tools/training/study_example.h"

namespace fp4lab::tools {
namespace {

struct WatchOptions {
  std::string folder, report;
  double every = 5;  // seconds
  bool once = false;
};

// Makes the report again where results.json is another than the last time.
class Renewal {
 public:
  Renewal(std::filesystem::path folder, std::filesystem::path out)
      : results_(std::move(folder) / "results.json"), out_(std::move(out)) {}

  void Renew() {
    std::error_code status;
    const auto time = std::filesystem::last_write_time(results_, status);
    if (status || time == made_) return;
    const study::ReportFiles files = study::WriteReport(results_, out_);
    made_ = time;
    Print("report: %s\n", Printable(files.html.string()).c_str());
  }

 private:
  std::filesystem::path results_, out_;
  std::optional<std::filesystem::file_time_type> made_;
};

void Wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (Clock::now() < end && !StopSignals::Asked()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void RunWatch(const WatchOptions& options) {
  std::error_code status;
  if (!options.report.empty() &&
      std::filesystem::equivalent(options.folder, options.report, status)) {
    throw Error(options.report,
                "is the folder of the study, which only `fp4lab study run` writes into; give "
                "--report another one");
  }
  study::StudyWatch watch(options.folder);
  Renewal renewal(options.folder, options.report);
  const StopSignals signals;
  std::string last;
  while (true) {
    const auto runs = watch.Look();
    const std::string text = study::WatchText(runs);
    if (text != last) Print("%s%s", last.empty() ? "" : "\n", text.c_str());
    last = text;
    if (!options.report.empty()) renewal.Renew();
    FlushStandardOutput();
    const bool complete = study::AllComplete(runs);
    if (options.once || (complete && options.report.empty())) return;
    Wait(options.every);
    if (StopSignals::Asked()) return;
    if (complete) return renewal.Renew();  // the study writes its results after its last run
  }
}

}  // namespace

void AddStudyWatch(CLI::App& app) {
  CLI::App* study = app.get_subcommand("study");
  auto options = std::make_shared<WatchOptions>();
  CLI::App* watch = study->add_subcommand(
      "watch", "Follow a running study: points, trunk loss and steps of each run, from its files");
  watch->add_option("folder", options->folder, "The folder of the study, as out/NAME")->required();
  watch->add_option("--every", options->every, "Seconds between two looks [5]")
      ->check(Decimal(0.1, 86400));
  watch->add_flag("--once", options->once, "Look once and end");
  watch->add_option("--report", options->report,
                    "Write the report into this folder once results.json exists, and again when "
                    "it changes");
  watch->footer(
      StudyExample("  $ fp4lab study run tiny.json > summary 2> progress\n"
                   "  $ fp4lab study watch out/tiny | tail -1\n"
                   "  4 of 4 runs complete, about 100 % of the steps\n"));
  watch->callback([=] { RunWatch(*options); });
}

}  // namespace fp4lab::tools
