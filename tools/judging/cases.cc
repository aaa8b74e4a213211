// fp4lab cases: directed test matrices for kernels, as a stream or as files, and the report of the
// wrong kernels that they catch.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/cases/case_coverage.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "tools/help/help_group.h"
#include "tools/help/working.h"
#include "tools/judging/product_cases.h"
#include "tools/options/case_options.h"
#include "tools/options/commands.h"
#include "tools/options/kernel_options.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct CasesOptions {
  std::string dialect = "nvfp4.te";
  CaseSetOptions set;
  std::string out_dir;
  bool safetensors = false, list = false, mutation_report = false, json = false;
};

void PrintList(const Dialect& dialect, const std::vector<Case>& cases, bool json) {
  Json rows = Json::array();
  std::size_t elements = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    elements += c.x.values.size();
    if (json) {
      rows.push_back({{"index", i},
                      {"name", c.name},
                      {"family", c.family},
                      {"rows", c.x.rows},
                      {"cols", c.x.cols},
                      {"bf16", c.is_bf16}});
      continue;
    }
    const std::string shape = std::to_string(c.x.rows) + "x" + std::to_string(c.x.cols);
    Print("%4zu  %-36s %9s  %s\n", i, c.name.c_str(), shape.c_str(), c.is_bf16 ? "bf16" : "fp32");
  }
  if (json) {
    PrintJson(Json({{"dialect", dialect.name}, {"cases", std::move(rows)}}), 1);
  } else {
    Print("%zu cases for %s, %zu elements\n", cases.size(), std::string(dialect.name).c_str(),
          elements);
  }
}

void Run(const CasesOptions& options) {
  const Dialect& dialect = RequireDialect(options.dialect);
  const CaseOptions case_options = CasesOf(options.set);
  const std::vector<Case> cases = MakeCases(dialect, case_options);
  if (cases.empty()) {
    throw Error("--family", "these families have no case for " + std::string(dialect.name));
  }
  if (options.mutation_report) {
    const CoverageReport report = MeasureCoverage(
        dialect, cases, false,
        [](std::size_t done, std::size_t all) { SayDone(done, all, "wrong kernels"); });
    options.json ? PrintJson(CoverageJson(report), 1) : PrintText(CoverageText(report));
  } else if (options.list) {
    PrintList(dialect, cases, options.json);
  } else if (!options.out_dir.empty()) {
    WriteCaseFolder(dialect, case_options, cases, options.out_dir, options.safetensors);
    Print("%zu cases in %s\n", cases.size(), Printable(options.out_dir).c_str());
  } else if (isatty(STDOUT_FILENO) != 0) {
    throw Error("cases", "the stream is binary; pipe it into a kernel, or use --list or --out-dir");
  } else {
    WriteCases(dialect, case_options, cases, std::cout);
  }
}

struct AnswerOptions {
  KernelOptions kernel;
  std::vector<std::string> deviations;
};

// Answers the cases on standard input with a kernel of this library, right or wrong, in the place
// of a user's kernel.
void AnswerCases(const AnswerOptions& options) {
  std::vector<const Deviation*> deviations;
  for (const std::string& name : options.deviations) {
    const Deviation* deviation = FindDeviation(name);
    if (deviation == nullptr) {
      throw Error("--deviation " + name,
                  "is not known; " + DidYouMean(name, NamesOf(Deviations()),
                                                "`fp4lab cases --mutation-report` lists them"));
    }
    deviations.push_back(deviation);
  }
  AnswerCases(KernelOf(options.kernel), deviations, std::cin, "standard input", std::cout);
}

void AddAnswer(CLI::App* cases) {
  const auto options = std::make_shared<AnswerOptions>();
  CLI::App* command =
      cases->add_subcommand("answer", "Answer a stream of cases with a kernel of fp4lab");
  AddDialectOptions(command, &options->kernel);
  AddLayoutOptions(command, "", &options->kernel.layout);
  command
      ->add_option("--deviation", options->deviations,
                   "Answer as this wrong kernel (a name from the mutation report)")
      ->type_name("NAME");
  command->footer(
      "Example: does ModelOpt's formula give Transformer Engine's bytes?\n"
      "  $ fp4lab cases --family scale-hazards | fp4lab cases answer --dialect nvfp4.modelopt |\n"
      "      fp4lab verify --family scale-hazards | head -1\n"
      "  nvfp4.te: 0 of 6 cases as the dialect has them");
  command->callback([options] { AnswerCases(*options); });
}

}  // namespace

void AddCases(CLI::App& app, int* /*exit_code*/) {
  const auto options = std::make_shared<CasesOptions>();
  CLI::App* command = app.add_subcommand(
      "cases", "Write directed test matrices: to a kernel through a pipe, or as files");
  command
      ->add_option(
          "--dialect", options->dialect,
          "For kernels that should compute this: a name of `fp4lab dialects`, or FILE.json "
          "with a formula of your own")
      ->type_name("DIALECT")
      ->capture_default_str();
  AddCaseSetOptions(command, &options->set);
  command->add_option("--out-dir", options->out_dir, "Write .npy files into this folder instead")
      ->type_name("FOLDER");
  command->add_flag("--safetensors", options->safetensors, "Write .safetensors files there");
  command->add_flag("--list", options->list, "List the cases");
  command->add_flag("--mutation-report", options->mutation_report,
                    "Run wrong kernels on the cases and print which family catches each");
  command->add_flag("--json", options->json, "Print the list or the report as JSON");
  PutInGroup(command, kCasesGroup, {"--dialect"});
  PutInGroup(command, kReportGroup,
             {"--out-dir", "--safetensors", "--list", "--mutation-report", "--json"});
  command->require_subcommand(0, 1);
  AddAnswer(command);
  AddCasesGemm(command);
  AddCasesGrouped(command);
  AddCasesAttention(command);
  command->footer(
      "The stream is a line of text and then little-endian records; "
      "lib/fp4lab/judge/cases/case_stream.h\n"
      "is its definition. A kernel answers with codes, scales and the tensor's number.\n"
      "Example: a kernel that truncates instead of rounding to nearest\n"
      "  $ fp4lab cases --dialect mxfp4.floor |\n"
      "      fp4lab cases answer --dialect mxfp4.floor --deviation truncation |\n"
      "      fp4lab verify --dialect mxfp4.floor | grep element-ties:\n"
      "  element-ties: 2 of 2 differ; it tests rounding of elements at a tie and one unit beside "
      "it");
  command->callback([options, command] {
    if (command->get_subcommands().empty()) Run(*options);
  });
}

}  // namespace fp4lab::tools
