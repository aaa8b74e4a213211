// fp4lab identify: which dialects and layouts give a kernel's bytes.
#include "fp4lab/judge/identify.h"

#include <filesystem>
#include <memory>
#include <string>

#include "tools/commands.h"
#include "tools/comparing.h"
#include "tools/kernel_options.h"
#include "tools/number_option.h"
#include "tools/print.h"

namespace fp4lab::tools {
namespace {

struct IdentifyCommand {
  KernelOptions kernel;
  std::vector<std::string> dialects;
  std::string deciding;  // where deciding inputs go
  std::uint64_t seed = 1;
  bool json = false;
};

constexpr const char* kFooter =
    "Exit code: 0 at least one fits, 1 none does (or not the tensor number), 2 an error.\n"
    "Example: bytes of which nothing is known but the input\n"
    "  fp4lab identify --input x.npy --codes codes.npy --scales scales.npy \\\n"
    "    --deciding deciding";

// Whether any fits.
bool Run(const IdentifyCommand& command) {
  const Matrix<float> x = ReadNumbers(command.kernel.input).values;
  const StoredMatrix bytes = ReadAnswer(command.kernel, x.View()).matrix;
  const std::vector<std::uint16_t> random = ReadRandom(command.kernel);
  IdentifyOptions options;
  options.dialect = {.amax = command.kernel.amax, .random = random};
  options.seed = command.seed;
  for (const std::string& name : command.dialects) {
    options.dialects.push_back(&RequireDialect(name, "--dialects"));
  }
  const Identification result = Identify(x.View(), bytes, options);
  if (!command.deciding.empty()) {
    for (std::size_t k = 0; k < result.deciding.size(); ++k) {
      WriteDecidingInput(result.deciding[k], result.exact,
                         command.deciding + "." + std::to_string(k) + ".safetensors");
    }
  }
  if (command.json) {
    PrintJson(ToJson(result), 2);
  } else {
    PrintText(Text(result));
  }
  return result.Fits();
}

}  // namespace

void AddIdentify(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<IdentifyCommand>();
  CLI::App* command =
      app.add_subcommand("identify", "Find the dialects and layouts that give a kernel's bytes");
  AddInputOptions(command, &options->kernel)->required();
  AddBytesOptions(command, &options->kernel);
  command->add_option("--dialects", options->dialects, "Try these only (default: all)");
  AddGivenOptions(command, &options->kernel);
  command
      ->add_option("--deciding", options->deciding,
                   "Write inputs that decide between those that fit: PREFIX.0.safetensors, ...")
      ->type_name("PREFIX");
  command->add_option("--seed", options->seed, "Of the search for a deciding input")
      ->transform(AnySeed())
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(kFooter);
  command->callback([options, exit_code] { Comparing(exit_code, [&] { return Run(*options); }); });
}

}  // namespace fp4lab::tools
