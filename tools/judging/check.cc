// fp4lab check: looks through a whole checkpoint: what is quantized, how it is stored, what is
// wrong.
#include "fp4lab/checkpoint/check.h"

#include <memory>
#include <string>
#include <vector>

#include "tools/judging/progress_of_bytes.h"
#include "tools/judging/read_npz.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct CheckCommand {
  std::vector<std::string> paths;
  std::string original, values;
  bool json = false;
};

CheckReport Check(const CheckCommand& o, const std::string& path) {
  ProgressOfBytes status;
  return CheckCheckpoint(
      path, {.original = o.original,
             .values = o.values,
             .read_npz = ReadNpzTensors,
             .progress = [&](std::size_t done, std::size_t all) { status.Show(done, all); }});
}

// Checks each path and prints its report. Returns whether there are no findings.
bool Run(const CheckCommand& o) {
  bool clean = true;
  Json reports = Json::array();
  for (const std::string& path : o.paths) {
    const CheckReport report = Check(o, path);
    clean = clean && report.findings.empty();
    if (o.json) {
      reports.push_back(ReportJson(report));
    } else {
      PrintText((&path == &o.paths.front() ? "" : "\n") + ReportText(report));
    }
  }
  if (o.json) PrintJson(o.paths.size() == 1 ? reports[0] : reports, 1);
  return clean;
}

}  // namespace

void AddCheck(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<CheckCommand>();
  CLI::App* command = app.add_subcommand(
      "check", "Look through a whole checkpoint: formulas, layouts and what is wrong");
  command
      ->add_option("path", o->paths,
                   "Folders, *.index.json, or .safetensors, .gguf or .npz files; each is a "
                   "checkpoint")
      ->required()
      ->type_name("PATH");
  command
      ->add_option(
          "--original", o->original,
          "What was quantized: a checkpoint of numbers or of quantized matrices, or one .npy; "
          "compares every matrix and tries other readings")
      ->type_name("PATH");
  command
      ->add_option("--values", o->values,
                   "Values that another program decoded: a checkpoint of numbers or of quantized "
                   "matrices, or one .npy; compares them with what the matrices decode to")
      ->type_name("PATH");
  command->add_flag("--json", o->json, "Print JSON");
  command->footer(
      "Exit code: 0 without findings, 1 with findings, 2 for what cannot be read. Of several "
      "paths,\n"
      "--json prints a list of reports.\n"
      "Example: a matrix of equal numbers\n"
      "  $ head -c 8192 /dev/zero | tr '\\0' A > x.bf16\n"
      "  $ fp4lab quantize x.bf16 --shape 32x128 --dtype bf16 --dialect modelopt --convention "
      "modelopt --out q.safetensors > log\n"
      "  $ fp4lab check q.safetensors | tail -2\n"
      "  constant-codes (1): write the matrix again: every byte of its codes is the same\n"
      "    weight: every byte of the codes is 0x77");
  command->callback([o, command, exit_code] {
    if (o->paths.size() > 1) {
      RefuseGiven(*command, {"--original", "--values"}, "is of one checkpoint; give one path");
    }
    Comparing(exit_code, [&] { return Run(*o); });
  });
}

}  // namespace fp4lab::tools
