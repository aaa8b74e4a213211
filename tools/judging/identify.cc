// fp4lab identify: finds the dialects and layouts that give a kernel's bytes.
#include "fp4lab/judge/identify/identify.h"

#include <filesystem>
#include <memory>
#include <string>

#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/given_amax.h"
#include "tools/options/kernel_options.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct IdentifyCommand {
  KernelOptions kernel;
  std::vector<std::string> dialects;
  std::string deciding;  // prefix of the output files for deciding inputs
  std::uint64_t seed = 1;
  bool json = false;
};

constexpr const char* kFooter =
    "Exit code: 0 at least one fits, 1 none fits, or the tensor number is wrong, 2 an error.\n"
    "Example: bytes of unknown dialect and layout\n"
    "  fp4lab identify --input x.npy --codes codes.npy --scales scales.npy \\\n"
    "    --deciding deciding";

// Identifies the bytes and prints the result. Returns whether any dialect and layout fit.
bool Run(const IdentifyCommand& command) {
  const Matrix<float> x = ReadNumbers(command.kernel.input).values;
  const StoredMatrix bytes = ReadAnswer(command.kernel, x.View()).matrix;
  const std::vector<std::uint16_t> random = ReadRandom(command.kernel, x.View());
  CheckGivenAmax(command.kernel.amax);
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
      ->add_option(
          "--deciding", options->deciding,
          "Write inputs that decide between the candidates that fit: PREFIX.0.safetensors, ...")
      ->type_name("PREFIX");
  command->add_option("--seed", options->seed, "Seed of the search for a deciding input")
      ->transform(AnySeed())
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  command->footer(kFooter);
  command->callback([options, exit_code] { Comparing(exit_code, [&] { return Run(*options); }); });
}

}  // namespace fp4lab::tools
