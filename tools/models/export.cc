// fp4lab export: a checkpoint as a folder that transformers loads.
#include <memory>

#include "fp4lab/models/published.h"
#include "tools/options/commands.h"
#include "tools/options/print.h"
#include "tools/training/source_options.h"

namespace fp4lab::tools {
namespace {

void Run(const ExportOptions& o) {
  const Exported done = ExportModel(o);
  Print("%s  %lld parameters  %s  %s\n", done.architecture.c_str(),
        static_cast<long long>(done.parameters), done.dtype.c_str(),
        Printable(o.to.string()).c_str());
}

}  // namespace

void AddExport(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<ExportOptions>();
  CLI::App* command = app.add_subcommand(
      "export", "Write config.json and model.safetensors of a checkpoint, for transformers");
  AddCheckpoint(command, &o->from);
  command->add_option("--out", o->to, "Folder to write into")->type_name("FOLDER")->required();
  command->add_option("--dtype", o->dtype, "BF16, F16 or F32 [that of the import, else F32]")
      ->type_name("DTYPE");
  command->footer(
      "The architecture is that of the import if the model is still the same, else the first that "
      "states\nthe model: Llama, Qwen3, Qwen3 MoE, Mistral, Mixtral, SmolLM3 or Arcee.\n"
      "Example: the default model, which Arcee states\n"
      "  $ fp4lab train --data synthetic --set evaluation.tokens=4096 --steps 2 --out-dir plain > "
      "log \\\n      2> progress\n"
      "  $ fp4lab export plain --out arcee\n"
      "  ArceeForCausalLM  229952 parameters  F32  arcee\n");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
