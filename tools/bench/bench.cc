// fp4lab bench: one table of speeds, with ratios to references and peers, and targets.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd/simd.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/measure/machine.h"
#include "tools/bench/bench_json.h"
#include "tools/bench/bench_rows.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/status_line.h"
#include "tools/options/stop_signals.h"

namespace fp4lab::tools {
namespace {

struct BenchOptions {
  std::string filter, json, peer_json, probe_command, probe_recipe = "fp32";
  int threads = 0, probe_memory = 0;
  bool list = false, quick = false, markdown = false;
};

std::vector<BenchEntry> Chosen(const std::string& filter) {
  std::vector<BenchEntry> chosen;
  const std::string wanted = LowerCase(filter);
  for (BenchEntry& e : BenchEntries()) {
    const std::string text = LowerCase(e.id + " " + e.topic + " " + e.what);
    if (text.find(wanted) != std::string::npos) chosen.push_back(std::move(e));
  }
  if (chosen.empty()) {
    throw Error("--filter " + filter, "matches no row; fp4lab bench --list prints all rows");
  }
  return chosen;
}

void PrintList(const std::vector<BenchEntry>& entries) {
  std::size_t width = 0;
  for (const BenchEntry& e : entries) width = std::max(width, e.id.size());
  for (const BenchEntry& e : entries) {
    Print("%-*s  %s: %s\n", static_cast<int>(width), e.id.c_str(), e.topic.c_str(), e.what.c_str());
  }
}

// The SIMD targets of the table's columns: the pinned or best one, and AVX2 if that one is better.
std::vector<std::string> Columns() {
  std::vector<std::string> columns = {ActiveSimdTarget()};
  const std::vector<std::string> all = SimdTargets();
  const auto active = std::find(all.begin(), all.end(), columns[0]);
  if (std::find(active, all.end(), "avx2") != all.end() && columns[0] != "avx2") {
    columns.push_back("avx2");
  }
  return columns;
}

measure::Row RowOf(const BenchEntry& e) {
  return {.id = e.id,
          .topic = e.topic,
          .what = e.what,
          .unit = e.unit,
          .against = e.against,
          .target = e.target,
          .cells = {}};
}

// Measures `e` in every column.
measure::Row Measure(const BenchEntry& e, const std::vector<std::string>& columns,
                     BenchContext context) {
  measure::Row row = RowOf(e);
  for (const std::string& column : columns) {
    if (!e.depends_on_simd && !row.cells.empty()) {
      row.cells.push_back(Missing("does not depend on it"));
      continue;
    }
    PinSimdTarget(column);
    context.simd = column;
    row.cells.push_back(e.measure(context));
  }
  PinSimdTarget(columns[0]);
  return row;
}

// The rows measured so far: a table, and the file of --json, which Save() writes after every row.
struct BenchResult {
  BenchHeading heading;
  measure::Table table;
  std::string json_path;  // empty: no file

  void Save() const {
    if (json_path.empty()) return;
    WriteFileAtomically(json_path, TableJson(heading, table).dump(2) + "\n");
  }
};

// Appends rows until all are measured or a signal interrupts.
void MeasureAll(const std::vector<BenchEntry>& entries, const BenchContext& context,
                BenchResult* result) {
  StatusLine status;
  const double start = measure::WallSeconds();
  std::vector<measure::Row>& rows = result->table.rows;
  try {
    for (std::size_t i = 0; i < entries.size(); ++i) {
      status.Show("[" + std::to_string(i + 1) + "/" + std::to_string(entries.size()) + "] " +
                  Duration(measure::WallSeconds() - start) + "  " + entries[i].id);
      if (i > 0 && entries[i].topic != entries[i - 1].topic) context.inputs->Free();
      rows.push_back(Measure(entries[i], result->table.columns, context));
      result->Save();
    }
  } catch (const measure::Stopped&) {
    status.Print("interrupted: " + std::to_string(rows.size()) + " of " +
                 std::to_string(entries.size()) + " rows were measured");
  }
}

// Reads and checks the output of tests/bench/torch_peer.py.
Json ReadPeers(const std::string& path) {
  if (path.empty()) return Json::object();
  Json peers = ReadJsonFile(path);
  JsonObject root(peers, path + "#");
  if (const Json* torch = root.Member("torch")) {
    JsonObject o(*torch, root.Where("torch"));
    double tokens_per_second = 0;
    std::string version;
    std::int64_t threads = 0;
    o.Require("tokens_per_second", &tokens_per_second);
    o.Require("version", &version);
    o.Require("threads", &threads);
    o.Member("step_seconds");
    o.Finish();
    if (!(tokens_per_second > 0)) throw Error(o.Where("tokens_per_second"), "must be positive");
  }
  root.Finish();
  return peers;
}

int Run(const BenchOptions& o) {
  if (o.threads > 0) SetThreads(o.threads);
  if (o.probe_memory > 0) {
    ProbeMemory({o.probe_memory, o.probe_recipe});
    return 0;
  }
  if (!o.probe_command.empty()) {
    ProbeCommand(o.probe_command);
    return 0;
  }
  const std::vector<BenchEntry> entries = Chosen(o.filter);
  if (o.list) {
    PrintList(entries);
    return 0;
  }
  NoteSlowTarget();
  const StopSignals signals;
  BenchInputs inputs(o.quick);
  BenchContext context{.threads = Threads(),
                       .quick = o.quick,
                       .simd = {},
                       .peers = ReadPeers(o.peer_json),
                       .stop = &StopSignals::Asked(),
                       .inputs = &inputs};
  const std::vector<std::string> columns = Columns();
  BenchResult result{.heading = DescribeRun(context, columns),
                     .table = {.heading = {}, .columns = columns, .rows = {}},
                     .json_path = o.json};
  result.table.heading = result.heading.lines;
  result.Save();  // throws now, not after minutes, if the file cannot be written
  MeasureAll(entries, context, &result);
  PrintText(o.markdown ? AsMarkdown(result.table) : AsText(result.table));
  return StopSignals::Asked() ? StopSignals::ExitCode() : 0;
}

}  // namespace

std::vector<BenchEntry> BenchEntries() {
  std::vector<BenchEntry> all;
  for (const auto& entries :
       {QuantizeEntries(), DialectEntries(), QuotedPeerEntries(), GemmEntries(), LinearEntries(),
        TrainEntries(), MemoryEntries(), FileEntries()}) {
    all.insert(all.end(), entries.begin(), entries.end());
  }
  return all;
}

void AddBench(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand(
      "bench", "Measure the rows with a speed target, against references and peer libraries");
  command->add_option("--filter", o->filter, "Only rows whose name or text contains this")
      ->type_name("TEXT");
  command->add_flag("--list", o->list, "Print the rows and measure nothing");
  command->add_flag("--quick", o->quick, "Fewer repetitions, no widths above 512");
  command
      ->add_option(
          "--threads", o->threads,
          "Number of threads for \"all threads\" [the processors that the process may use]")
      ->transform(ThreadCount());
  command->add_option("--json", o->json, "Write all measurements to this file")->type_name("FILE");
  command->add_flag("--markdown", o->markdown, "Print the table as Markdown");
  command
      ->add_option("--peer-json", o->peer_json,
                   "Output of tests/bench/torch_peer.py on this machine")
      ->type_name("FILE");
  command->add_option("--probe-memory", o->probe_memory)->group("");  // for the program itself
  command->add_option("--probe-command", o->probe_command)->group("");
  command->add_option("--probe-recipe", o->probe_recipe)->group("");
  command->footer(
      "Example: which rows train\n"
      "  $ fp4lab bench --list --filter train.threads\n"
      "  train.threads.fp32      Training (L 4, FFN 4d, GELU, T 256, B 8, V 4096): training, fp32,"
      " d 256, 2 threads\n"
      "  train.threads.te_nvfp4  Training (L 4, FFN 4d, GELU, T 256, B 8, V 4096): training,"
      " te_nvfp4, d 256, 2 threads");
  command->callback([o, exit_code] { *exit_code = Run(*o); });
}

}  // namespace fp4lab::tools
