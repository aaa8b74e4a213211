// fp4lab identify: finds the dialects and layouts that give a kernel's bytes.
#include "fp4lab/judge/identify/identify.h"

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/exchange/order/row_parts.h"
#include "tools/help/help_group.h"
#include "tools/help/working.h"
#include "tools/options/commands.h"
#include "tools/options/comparing.h"
#include "tools/options/given_amax.h"
#include "tools/options/kernel_options.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct IdentifyCommand {
  KernelOptions kernel;
  std::vector<std::string> dialects, also;
  std::string parts;
  std::string deciding;  // prefix of the output files for deciding inputs
  std::uint64_t seed = 1;
  bool json = false;
};

constexpr const char* kFooter =
    "Exit code: 0 at least one fits, 1 none fits as it is, or the tensor scale is wrong, 2 an "
    "error.\n"
    "Example: bytes of unknown dialect and layout\n"
    "  fp4lab identify --input x.npy --codes codes.npy --scales scales.npy \\\n"
    "    --deciding deciding";

// The bytes of equal parts, which follow each other in any layout.
std::vector<StoredMatrix> EqualBytes(const StoredMatrix& bytes, std::size_t parts,
                                     const std::string& where) {
  if (bytes.codes.size() % parts != 0 || bytes.scales.size() % parts != 0) {
    throw Error(where, "its " + std::to_string(bytes.codes.size()) + " bytes of codes and " +
                           std::to_string(bytes.scales.size()) + " of scales are not " +
                           std::to_string(parts) + " equal parts");
  }
  if (bytes.tensor_scale.size() > 1 && bytes.tensor_scale.size() != parts) {
    throw Error(where, std::to_string(bytes.tensor_scale.size()) + " tensor scales; " +
                           std::to_string(parts) + " parts have one each, or one for all");
  }
  std::vector<StoredMatrix> split(parts);
  for (std::size_t k = 0; k < parts; ++k) {
    const auto part_of = [&](const std::vector<std::uint8_t>& all) {
      const auto count = static_cast<std::ptrdiff_t>(all.size() / parts);
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(k) * count;
      return std::vector<std::uint8_t>(first, first + count);
    };
    split[k].codes = part_of(bytes.codes);
    split[k].scales = part_of(bytes.scales);
    if (bytes.tensor_scale.empty()) continue;
    split[k].tensor_scale = {bytes.tensor_scale[bytes.tensor_scale.size() == 1 ? 0 : k]};
  }
  return split;
}

// Identifies each part alone. Returns whether some dialect and layout fit every part.
bool RunParts(const IdentifyCommand& command, MatrixView<const float> x, const StoredMatrix& bytes,
              const IdentifyOptions& options) {
  const std::vector<RowPart> rows = ParseRowParts(command.parts, x.rows, "--parts");
  for (const RowPart& at : rows) {
    if (at.rows == rows[0].rows) continue;
    throw Error("--parts", "identify takes equal parts: where others begin depends on the layout");
  }
  const std::vector<StoredMatrix> split = EqualBytes(bytes, rows.size(), command.kernel.bytes());
  bool fit = true;
  Json list = Json::array();
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const Identification result =
        Identify(x.Block(rows[k].row, 0, rows[k].rows, x.cols), split[k], options);
    fit = fit && result.Fits();
    if (command.json) {
      list.push_back(ToJson(result));
      continue;
    }
    Print("part %zu, rows %zu..%zu: ", k, rows[k].row, rows[k].row + rows[k].rows - 1);
    PrintText(Text(result));
  }
  if (command.json) PrintJson({{"fits", fit}, {"parts", std::move(list)}}, 2);
  return fit;
}

// Identifies the bytes and prints the result. Returns whether any dialect and layout fit.
bool Run(const IdentifyCommand& command) {
  const Matrix<float> x = ReadNumbers(command.kernel.input).values;
  const StoredMatrix bytes = ReadAnswer(command.kernel, x.View()).matrix;
  const std::vector<std::uint16_t> random = ReadRandom(command.kernel, x.View());
  CheckGivenAmax(command.kernel.amax);
  IdentifyOptions options;
  options.dialect = {.amax = command.kernel.amax, .random = random};
  options.seed = command.seed;
  options.progress = [](std::size_t tried, std::size_t all) { SayDone(tried, all, "candidates"); };
  for (const std::string& name : command.dialects) {
    options.dialects.push_back(&RequireDialect(name, "--dialects"));
  }
  if (options.dialects.empty() && !command.also.empty()) {
    for (const Dialect& row : Dialects()) options.dialects.push_back(&row);
  }
  for (const std::string& name : command.also) {
    options.dialects.push_back(&RequireDialect(name, "--also"));
  }
  if (!command.parts.empty()) return RunParts(command, x.View(), bytes, options);
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
  command->add_option("--dialects", options->dialects, "Try these only (default: all)")
      ->type_name("DIALECT");
  command
      ->add_option("--also", options->also,
                   "Try these as well: FILE.json with a formula of your own")
      ->type_name("FILE");
  AddGivenOptions(command, &options->kernel);
  AddPartsOption(command, &options->parts)
      ->excludes(command->get_option("--amax"))
      ->excludes(command->get_option("--random"));
  command
      ->add_option(
          "--deciding", options->deciding,
          "Write inputs that decide between the candidates that fit: PREFIX.0.safetensors, ...")
      ->type_name("PREFIX");
  command->add_option("--seed", options->seed, "Seed of the search for a deciding input")
      ->transform(AnySeed())
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON");
  PutInGroup(command, "The search", {"--dialects", "--also", "--seed"});
  PutInGroup(command, kReportGroup, {"--deciding", "--json"});
  command->footer(kFooter);
  command->callback([options, command, exit_code] {
    if (!options->parts.empty()) {
      RefuseGiven(*command, {"--deciding"}, "is of one matrix, and --parts makes several");
    }
    Comparing(exit_code, [&] { return Run(*options); });
  });
}

}  // namespace fp4lab::tools
