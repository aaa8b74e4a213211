// fp4lab compare: two dumps of named tensors, such as the activations of a training engine and of a
// rollout engine.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/checkpoint/dumps/dumps.h"
#include "fp4lab/io/json.h"
#include "tools/judging/progress_of_bytes.h"
#include "tools/judging/read_npz.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct CompareCommand {
  std::string first, second, names;
  double least_sqnr = 0;
  bool json = false;
};

bool Run(const CompareCommand& o, bool only_equal) {
  DumpReport report;
  std::vector<std::pair<std::string, std::string>> names;
  if (!o.names.empty()) names = ParseDumpNames(ReadJsonFile(o.names), o.names);
  {
    ProgressOfBytes status;
    report = CompareDumps(
        o.first, o.second,
        {.least_sqnr_db = o.least_sqnr,
         .only_equal = only_equal,
         .names = names,
         .read_npz = ReadNpzTensors,
         .progress = [&](std::size_t done, std::size_t all) { status.Show(done, all); }});
  }
  if (o.json) {
    PrintJson(ReportJson(report), 1);
  } else {
    PrintText(ReportText(report));
  }
  return report.Accepted();
}

}  // namespace

void AddCompare(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<CompareCommand>();
  CLI::App* command = app.add_subcommand(
      "compare", "Compare two dumps of named tensors, of two engines or two versions of one");
  const char* const kDump = "A folder, or a .safetensors, .npz or .npy file";
  command->add_option("first", o->first, kDump)->required()->type_name("FIRST");
  command->add_option("second", o->second, kDump)->required()->type_name("SECOND");
  CLI::Option* const least =
      command
          ->add_option("--least-sqnr", o->least_sqnr,
                       "Accept tensors with at least so many decibels of signal over difference, "
                       "and no NaN in one dump only")
          ->type_name("DB")
          ->check(Decimal(-1000, 1000));
  command
      ->add_option("--names", o->names,
                   "A JSON object of names that differ, {\"first\": \"second\"}; * is a number")
      ->type_name("FILE");
  command->add_flag("--json", o->json, "Print JSON");
  command->footer(
      "Values are compared: dtypes may differ, dimensions of 1 and joined leading dimensions, "
      "too.\n"
      "Names may have model., module. or _orig_mod. before them in one dump.\n"
      "Exit code: 0 if all tensors are equal (or accepted), 1 if not, 2 for what cannot be read.\n"
      "Example: what two formats make of equal numbers\n"
      "  $ head -c 8192 /dev/zero | tr '\\0' A > x.bf16\n"
      "  $ for d in nvfp4.te mxfp4.rceil; do fp4lab quantize x.bf16 --shape 32x128 --dtype bf16 "
      "--dialect $d --out $d.npz > log; fp4lab dequantize $d.npz --out $d.npy > log; done\n"
      "  $ fp4lab compare nvfp4.te.npy mxfp4.rceil.npy | head -1\n"
      "  nvfp4.te.npy and mxfp4.rceil.npy: 1 tensor, 0 equal, 1 different");
  command->callback([o, least, exit_code] {
    Comparing(exit_code, [&] { return Run(*o, least->count() == 0); });
  });
}

}  // namespace fp4lab::tools
