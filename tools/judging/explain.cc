// fp4lab explain: finds out why a kernel's bytes are not those of its dialect.
#include "fp4lab/judge/explain/explain.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/printable.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "fp4lab/judge/explain/tally.h"
#include "fp4lab/judge/packs/pack.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/kernel_options.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct ExplainCommand {
  KernelOptions kernel;
  std::string pack;  // a golden pack, in place of the input and of what the kernel was given
  std::string kept;  // a folder of cases
  std::string parts;
  std::string block, cpp, python;  // output files for the reproducing block
  bool no_pairs = false, json = false;
};

constexpr const char* kFooter =
    "Exit code: 0 equal, 1 different, 2 an error.\n"
    "Example: a kernel whose codes have the even column in the high nibble\n"
    "  fp4lab explain --input x.npy --codes codes.npy --scales scales.npy \\\n"
    "    --dialect nvfp4.te --block block.safetensors";

void WriteBlock(const ExplainCommand& command, const Explanation& explanation) {
  if (!explanation.reproducer) return;
  const Reproducer& r = *explanation.reproducer;
  if (!command.block.empty()) WriteReproducer(r, command.block);
  if (!command.cpp.empty()) WriteFileAtomically(command.cpp, std::string_view(CppTest(r)));
  if (!command.python.empty()) WriteFileAtomically(command.python, std::string_view(PythonTest(r)));
}

// The kernel of the cases in the folder --kept: kept.json states its dialect and layout, which
// options may repeat and not contradict.
Kernel KeptKernel(const ExplainCommand& command, const KeptKind& kind) {
  KernelOptions options = command.kernel;
  const auto require = [&](bool agrees, const std::string& option, std::string_view is) {
    if (agrees) return;
    throw Error(option, "contradicts " + Printable(command.kept) + "/kept.json, which says " +
                            std::string(is) + "; leave the option out");
  };
  const std::string& dialect = options.dialect;
  if (!dialect.empty()) {
    require(RequireDialect(dialect).name == kind.dialect, "--dialect " + dialect, kind.dialect);
  }
  const StorageLayout asked = Changed(kind.layout, options.layout), &kept = kind.layout;
  require(asked.codes == kept.codes, "--codes-order " + options.layout.codes, Name(kept.codes));
  require(asked.scales == kept.scales, "--scales-order " + options.layout.scales,
          Named(kept.scales).name);
  require(asked.scale_type == kept.scale_type, "--scales-type " + options.layout.scale_type,
          Named(kept.scale_type).name);
  require(asked.tensor_scale == kept.tensor_scale,
          "--tensor-scale-is " + options.layout.tensor_scale, Name(kept.tensor_scale));
  require(asked.transposed == kept.transposed,
          asked.transposed ? "--transposed" : "--not-transposed",
          kept.transposed ? "\"transposed\": true" : "\"transposed\": false");
  require(asked.expanded_scales == kept.expanded_scales,
          asked.expanded_scales ? "--expanded-scales" : "--single-scales",
          kept.expanded_scales ? "\"expanded_scales\": true" : "\"expanded_scales\": false");
  options.dialect = kind.dialect;
  Kernel kernel = KernelOf(options);
  kernel.layout = kind.layout;
  return kernel;
}

// Counts the causes over all cases of the folder --kept. Returns whether the folder has no case.
bool RunKept(const ExplainCommand& command) {
  const std::optional<KeptKind> kind = ReadKeptKind(command.kept);
  const Kernel kernel = kind ? KeptKernel(command, *kind) : KernelOf(command.kernel);
  const CauseTally tally =
      TallyCauses(kernel, command.kept, kind ? kind->amax : std::vector<float>{});
  if (command.json) {
    PrintJson(ToJson(kernel, tally), 2);
  } else {
    PrintText(Text(kernel, tally));
  }
  return tally.cases == 0;
}

// Refuses options that have no effect with --kept.
void CheckUsage(const ExplainCommand& command, const CLI::App& app) {
  if (!command.parts.empty()) {
    RefuseGiven(app, {"--block", "--cpp", "--python"},
                "is of one matrix, and --parts makes several; give one part alone");
  }
  if (!command.pack.empty()) {
    RefuseGiven(app,
                {"--input", "--shape", "--dtype", "--transpose-input", "--dialect", "--hadamard",
                 "--signs", "--amax", "--random", "--parts", "--kept"},
                "has no effect with --pack, which holds it; leave it out");
  }
  if (command.kept.empty()) return;
  RefuseGiven(app,
              {"--input", "--shape", "--dtype", "--transpose-input", "--stored", "--codes",
               "--scales", "--tensor-scale", "--amax", "--random", "--block", "--cpp", "--python",
               "--no-pairs", "--parts", "--codes-bytes", "--scales-bytes"},
              "has no effect with --kept, whose folder holds the cases; leave it out");
}

// Explains each part alone. Returns whether all are equal.
bool RunParts(const ExplainCommand& command, const Kernel& asked, const StoredFile& answer,
              MatrixView<const float> x, const std::vector<std::uint16_t>& random) {
  bool equal = true;
  Json list = Json::array();
  for (const AnswerPart& part : PartsOf(command.parts, command.kernel, x, answer.matrix)) {
    Kernel kernel = asked;
    kernel.layout = part.bytes.layout;
    KernelOptions own = command.kernel;
    own.amax = part.amax;
    std::vector<std::uint16_t> bits;
    if (!random.empty()) {
      const auto first = random.begin() + static_cast<std::ptrdiff_t>(part.at.row * x.cols);
      bits.assign(first, first + static_cast<std::ptrdiff_t>(part.x.size()));
    }
    const Matrix<float> input = QuantizerInput(part.x, kernel.hadamard, kernel.sign_mask);
    ExplainOptions options;
    options.dialect = OptionsOf(own, kernel.dialect, input.View(), bits);
    options.search.pairs = !command.no_pairs;
    const Explanation explanation = Explain(kernel, part.x, part.bytes, options);
    equal = equal && explanation.equal;
    if (command.json) {
      list.push_back(ToJson(kernel, explanation));
      list.back()["first_row"] = part.at.row;
      list.back()["rows"] = part.at.rows;
    } else {
      Print("%s: ", part.title.c_str());
      PrintText(Text(kernel, explanation));
    }
  }
  if (command.json) PrintJson({{"equal", equal}, {"parts", std::move(list)}}, 2);
  return equal;
}

// The kernel's input: the matrix and the random bits.
struct KernelInput {
  Matrix<float> x;
  std::vector<std::uint16_t> random;
};

// The input of the golden pack; the options become those of the pack's kernel.
KernelInput InputOfPack(const std::string& path, KernelOptions* options) {
  const FileContent content(path);
  Pack pack = ReadPack(ViewSafetensors(content.bytes(), path), path);
  RequireElements(pack.input.View(), path);
  options->dialect = std::string(pack.dialect.name);
  options->hadamard = {.size = pack.hadamard, .signs = HexText(pack.sign_mask, 8)};
  const Matrix<float> x = QuantizerInput(pack.input.View(), pack.hadamard, pack.sign_mask);
  const std::vector<float> own = QuantizeAs(pack.dialect, x.View(), {.random = pack.random}).amax;
  if (pack.answer.amax != own) options->amax = pack.answer.amax;
  return {std::move(pack.input), std::move(pack.random)};
}

KernelInput InputOf(ExplainCommand* command) {
  if (!command->pack.empty()) return InputOfPack(command->pack, &command->kernel);
  if (command->kernel.input.place.empty())
    throw Error("--input", "is missing, or --pack, or --kept");
  Matrix<float> x = ReadNumbers(command->kernel.input).values;
  std::vector<std::uint16_t> random = ReadRandom(command->kernel, x.View());
  return {std::move(x), std::move(random)};
}

// Explains the difference and prints it. Returns whether there is none.
bool Run(ExplainCommand command) {
  if (!command.kept.empty()) return RunKept(command);
  const auto [x, random] = InputOf(&command);
  const StoredFile answer = ReadAnswer(command.kernel, x.View());
  const Kernel kernel = KernelOf(command.kernel, answer);
  if (!command.parts.empty()) return RunParts(command, kernel, answer, x.View(), random);
  ExplainOptions options;
  const Matrix<float> input = QuantizerInput(x.View(), kernel.hadamard, kernel.sign_mask);
  options.dialect = OptionsOf(command.kernel, kernel.dialect, input.View(), random);
  options.search.pairs = !command.no_pairs;
  const Explanation explanation = Explain(kernel, x.View(), answer.matrix, options);
  WriteBlock(command, explanation);
  if (command.json) {
    PrintJson(ToJson(kernel, explanation), 2);
  } else {
    PrintText(Text(kernel, explanation));
  }
  return explanation.equal;
}

}  // namespace

void AddExplain(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<ExplainCommand>();
  CLI::App* command = app.add_subcommand(
      "explain", "Find out why a kernel's bytes differ from those of its dialect");
  AddInputOptions(command, &options->kernel);
  AddBytesOptions(command, &options->kernel);
  AddLayoutOptions(command, "", &options->kernel.layout);
  AddByteOrderOptions(command, &options->kernel);
  AddDialectOptions(command, &options->kernel);
  AddGivenOptions(command, &options->kernel);
  AddPartsOption(command, &options->parts);
  command
      ->add_option("--kept", options->kept,
                   "Count the causes over all cases that `verify --keep` wrote into this folder")
      ->type_name("FOLDER");
  command
      ->add_option("--block", options->block,
                   "Write the smallest block that shows the difference (.safetensors)")
      ->type_name("FILE");
  command->add_option("--cpp", options->cpp, "Write that block as a C++ test")->type_name("FILE");
  command->add_option("--python", options->python, "Write that block as a pytest")
      ->type_name("FILE");
  command->add_flag("--no-pairs", options->no_pairs, "Try single causes only");
  command->add_flag("--json", options->json, "Print JSON");
  command
      ->add_option("--pack", options->pack,
                   "The input, and what the kernel was given, of a golden pack")
      ->type_name("FILE");
  PutInGroup(command, kBytesGroup, {"--pack", "--kept"});
  PutInGroup(command, kReportGroup, {"--block", "--cpp", "--python", "--no-pairs", "--json"});
  command->footer(kFooter);
  command->callback([options, command, exit_code] {
    CheckUsage(*options, *command);
    Comparing(exit_code, [&] { return Run(*options); });
  });
}

}  // namespace fp4lab::tools
