// fp4lab pack: writes a golden pack: an input, all intermediates and the bytes in several layouts,
// as a .safetensors file or as text for test benches.
#include "fp4lab/judge/packs/pack.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/io/file.h"
#include "fp4lab/judge/packs/pack_form.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/kernel_options.h"
#include "tools/options/print.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

struct PackCommand {
  KernelOptions kernel;
  std::vector<std::string> layouts;  // "128x4", "high-first", "transposed" ... joined by commas
  std::string out;
  std::string form = std::string(Named(PackForm::kSafetensors).name);
  bool answers_only = false;
};

PackForm ParseForm(const std::string& text) {
  for (const NamedPackForm& row : kPackForms) {
    if (row.name == text) return row.form;
  }
  RefuseUsage("--form " + text, "is not known; " + DidYouMean(text, NamesOf(kPackForms)));
}

// Refuses a command line whose --out does not fit the form.
void CheckOut(const std::string& out, PackForm form) {
  const NamedPackForm& row = Named(form);
  const std::string what = "--out " + out;
  if (form == PackForm::kSafetensors) {
    if (const FilePlace place = SplitPlace(out);
        place.ending != row.ending || !place.name.empty()) {
      RefuseUsage(what,
                  "is not the name of a pack, a whole .safetensors file; end it "
                  "with .safetensors");
    }
    return;
  }
  const std::filesystem::path path(out);
  if (!row.one_file) {
    if (Exists(path) && !std::filesystem::is_directory(path)) {
      RefuseUsage(what, "is a file; --form " + std::string(row.name) + " writes a folder");
    }
    return;
  }
  if (path.extension() != row.ending || !IsIdentifier(path.stem().string())) {
    RefuseUsage(what,
                "is not the name of a C header whose arrays can have its name: letters, "
                "digits and _, then .h, as in golden.h");
  }
}

// Refuses a folder with files of the form that are not of this pack: a bench would read both.
void RefuseOthers(const std::filesystem::path& folder, PackForm form,
                  const std::vector<TextFile>& files) {
  if (!Exists(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = std::any_of(files.begin(), files.end(),
                                  [&](const TextFile& file) { return file.name == name; });
    if (ours || entry.path().extension() != Named(form).ending) continue;
    throw Error("--out " + folder.string(),
                "has " + name + ", which is not of this pack; name an empty folder");
  }
}

void WriteTexts(const SafetensorsFile& pack, PackForm form, const std::string& out) {
  const std::filesystem::path path(out);
  if (Named(form).one_file) {
    WriteFileAtomically(path, PackTexts(pack, form, path.stem().string())[0].text);
    return;
  }
  const std::vector<TextFile> files = PackTexts(pack, form, "pack");
  RefuseOthers(path, form, files);
  for (const TextFile& file : files) WriteFileAtomically(path / file.name, file.text);
}

// Parses a layout such as "high-first,128x4,transposed": names of the layout tables in any order,
// and defaults for the rest. Throws Error for an unknown word.
StorageLayout ParseLayout(const std::string& text, const Dialect& dialect) {
  StorageLayout layout{.codes = DefaultCodeOrder(dialect.element)};
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, comma - at);
    at = comma + 1;
    if (const auto codes = FindCodeOrder(word)) {
      layout.codes = *codes;
    } else if (const auto scales = FindScaleOrder(word)) {
      layout.scales = *scales;
    } else if (const auto tensor_scale = FindTensorScaleConvention(word)) {
      layout.tensor_scale = *tensor_scale;
    } else if (word == "transposed") {
      layout.transposed = true;
    } else if (word == "expanded") {
      layout.expanded_scales = true;
    } else {
      std::vector<std::string> known = {"transposed", "expanded"};
      for (const auto& c : kCodeOrders) known.emplace_back(c.name);
      for (const auto& o : kScaleOrders) known.emplace_back(o.name);
      for (const auto& l : kTensorScaleConventions) known.emplace_back(l.name);
      throw Error("--layout " + text,
                  "\"" + word + "\" is not a word of a layout; " + DidYouMean(word, known));
    }
  }
  return layout;
}

void Run(const PackCommand& o) {
  const PackForm form = ParseForm(o.form);
  CheckOut(o.out, form);
  const Kernel kernel = KernelOf(o.kernel);
  const Matrix<float> input = ReadNumbers(o.kernel.input).values;
  const std::vector<std::uint16_t> random = ReadRandom(o.kernel, input.View());
  const Matrix<float> transformed = QuantizerInput(input.View(), kernel.hadamard, kernel.sign_mask);
  PackOptions options{.quantize = OptionsOf(o.kernel, kernel.dialect, transformed.View(), random),
                      .hadamard = kernel.hadamard,
                      .sign_mask = kernel.sign_mask,
                      .intermediates = !o.answers_only};
  for (const std::string& layout : o.layouts) {
    options.layouts.push_back(ParseLayout(layout, kernel.dialect));
  }
  if (options.layouts.empty()) options.layouts.push_back(kernel.layout);
  const SafetensorsFile pack = MakePack(kernel.dialect, input.View(), options);
  if (form == PackForm::kSafetensors) {
    WriteSafetensors(o.out, pack);
  } else {
    WriteTexts(pack, form, o.out);
  }
  Print("%s: %zu tensors of %s, %zux%zu\n", Printable(o.out).c_str(), pack.tensors.size(),
        std::string(kernel.dialect.name).c_str(), input.rows, input.cols);
}

}  // namespace

void AddPack(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<PackCommand>();
  CLI::App* command = app.add_subcommand(
      "pack", "Write a golden pack: input, every intermediate, bytes in layouts, hashes");
  AddInputOptions(command, &o->kernel)->required();
  AddDialectOptions(command, &o->kernel);
  AddGivenOptions(command, &o->kernel);
  command
      ->add_option("--layout", o->layouts,
                   "Bytes in this layout too: words such as high-first,128x4,transposed")
      ->type_name("WORDS");
  command->add_option("--out", o->out, "The pack: a .safetensors file, a .h file or a folder")
      ->type_name("PATH")
      ->required();
  std::string forms = "How it is written:";
  for (const NamedPackForm& row : kPackForms) {
    forms += (forms.back() == ':' ? " " : ", ") + std::string(row.name);
  }
  command->add_option("--form", o->form, forms)->type_name("FORM")->capture_default_str();
  command->add_flag("--answers-only", o->answers_only, "Leave the intermediates out");
  PutInGroup(command, "The pack", {"--layout", "--out", "--form", "--answers-only"});
  command->footer(
      "lib/fp4lab/judge/README.md describes the tensors and how to read them from NumPy and "
      "C.\n"
      "`fp4lab verify --pack FILE` checks a pack and compares kernels with it. Of --form\n"
      "readmemh, coe and mif, --out is a folder with a file for each tensor; --form c-header\n"
      "writes one header. Each file states its tensor, words and layout in its first lines.\n"
      "Example:\n"
      "  $ fp4lab cases --family tails --out-dir in > list\n"
      "  $ fp4lab pack --input in/0003.x.npy --layout low-first,128x4 --out golden.safetensors\n"
      "  golden.safetensors: 14 tensors of nvfp4.te, 1x17\n"
      "  $ fp4lab verify --pack golden.safetensors | tail -1\n"
      "  tensor scale equal (1)");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
