// fp4lab crosscheck: the GPU's kernels against the oracle, byte for byte, on the GPU that is there.
#include "fp4lab/crosscheck/crosscheck.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/file_options.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct CrosscheckCommand {
  crosscheck::CrosscheckOptions check;
  std::string level = "quick", out_dir, write_cases, answer, to, answers, device = "gpu";
  bool no_speed = false, no_random = false, only_products = false, json = false;
};

crosscheck::CrosscheckOptions OptionsOf(const CrosscheckCommand& o) {
  crosscheck::CrosscheckOptions options = o.check;
  options.level = o.level == "thorough" ? CaseLevel::kThorough : CaseLevel::kQuick;
  options.speed = !o.no_speed;
  options.random = !o.no_random;
  for (const std::string& name : options.dialects) {
    if (SpellsDialectOut(name)) {
      throw Error("--dialect " + name, "is not checked here; name a row of `fp4lab dialects`");
    }
    RequireDialect(name);
  }
  return options;
}

bool RunHere(const CrosscheckCommand& o) {
  const crosscheck::CrosscheckOptions options = OptionsOf(o);
  crosscheck::Crosscheck result;
  result.device = cuda::UseDevice();
  const auto start = std::chrono::steady_clock::now();
  if (!o.only_products) {
    if (options.speed) crosscheck::MeasureSpeed(options, &result);
    crosscheck::CheckDirected(options, &result);
    if (options.random) crosscheck::CheckRandom(options, &result);
  }
  if (options.dialects.empty()) {
    crosscheck::CheckProducts(options, &result);
    crosscheck::CheckBlasProducts(&result);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  result.seconds = took.count();
  if (!o.out_dir.empty()) {
    std::filesystem::create_directories(o.out_dir);
    WriteFileAtomically(std::filesystem::path(o.out_dir) / "crosscheck.json",
                        crosscheck::CrosscheckJson(result).dump(1) + "\n");
    WriteFileAtomically(std::filesystem::path(o.out_dir) / "crosscheck.html",
                        crosscheck::CrosscheckHtml(result));
  }
  o.json ? PrintJson(crosscheck::CrosscheckJson(result), 1)
         : PrintText(crosscheck::CrosscheckText(result));
  return result.Different() == 0;
}

bool VerifyAnswers(const CrosscheckCommand& o) {
  const crosscheck::AnswersVerdict v = crosscheck::VerifyCrosscheckAnswers(OptionsOf(o), o.answers);
  Print(
      "%s%zu cases of %zu dialects: %s\n", v.first.c_str(), v.cases, v.dialects,
      v.different == 0 ? "all equal" : (std::to_string(v.different) + " dialects differ").c_str());
  return v.different == 0;
}

bool Run(const CrosscheckCommand& o) {
  if (!o.write_cases.empty()) {
    crosscheck::WriteCrosscheckCases(OptionsOf(o), o.write_cases);
    return true;
  }
  if (!o.answers.empty()) return VerifyAnswers(o);
  if (o.answer.empty()) return RunHere(o);
  if (o.to.empty()) throw Error("--to", "is missing: the file for the answers");
  crosscheck::AnswerCrosscheckCases(o.answer, o.to, o.device == "cpu");
  return true;
}

}  // namespace

void AddCrosscheck(CLI::App& app, int* exit_code) {
  const auto o = std::make_shared<CrosscheckCommand>();
  CLI::App* command = app.add_subcommand(
      "crosscheck",
      "Compare the GPU's kernels with the CPU, byte for byte: exit code 0 equal, 1 different, 2 no "
      "GPU or another error");
  command->add_option("--dialect", o->check.dialects, "Only these dialects")->type_name("DIALECT");
  command->add_option("--level", o->level, "Level of the directed cases: quick or thorough")
      ->check(OneOf({"quick", "thorough"}))
      ->capture_default_str();
  command->add_option("--side", o->check.side, "Rows and columns of the large random matrices")
      ->transform(WholeNumber(128, 65536))
      ->capture_default_str();
  command->add_flag("--no-speed", o->no_speed, "Measure no speed");
  command->add_flag("--no-random", o->no_random, "Directed cases only");
  command
      ->add_flag("--only-products", o->only_products,
                 "Block-scaled matrix products only (--dialect leaves them out)")
      ->excludes("--dialect");
  command->add_option("--out-dir", o->out_dir, "Write crosscheck.json and crosscheck.html here")
      ->type_name("FOLDER");
  command->add_flag("--json", o->json, "Print JSON");
  command
      ->add_option("--write-cases", o->write_cases,
                   "Write the directed cases for a GPU of another machine, and stop")
      ->type_name("FILE");
  command->add_option("--answer", o->answer, "On that machine: answer the cases of this file")
      ->type_name("FILE");
  command->add_option("--to", o->to, "The answers to --answer")->type_name("FILE");
  command
      ->add_option("--device", o->device,
                   "Device that computes the answers of --answer: gpu or cpu")
      ->check(OneOf({"gpu", "cpu"}))
      ->capture_default_str();
  command
      ->add_option("--answers", o->answers,
                   "Back on this machine: compare the answers with the CPU")
      ->type_name("FILE");
  PutInGroup(command, kCasesGroup,
             {"--dialect", "--level", "--side", "--no-speed", "--no-random", "--only-products"});
  PutInGroup(command, "On another machine",
             {"--write-cases", "--answer", "--to", "--device", "--answers"});
  PutInGroup(command, kReportGroup, {"--out-dir", "--json"});
  command->footer(
      "One command on a machine with a GPU:  fp4lab crosscheck --out-dir report\n"
      "Example: cases out, answered (here by the CPU), results in\n"
      "  $ fp4lab crosscheck --dialect nvfp4.te --write-cases cases.bin\n"
      "  $ fp4lab crosscheck --answer cases.bin --to answers.bin --device cpu\n"
      "  $ fp4lab crosscheck --dialect nvfp4.te --answers answers.bin\n"
      "  94 cases of 1 dialects: all equal");
  command->callback([o, exit_code] { Comparing(exit_code, [&] { return Run(*o); }); });
}

}  // namespace fp4lab::tools
