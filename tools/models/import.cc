// fp4lab import: a model of transformers as a checkpoint.
#include <memory>

#include "fp4lab/models/published.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"

namespace fp4lab::tools {
namespace {

struct ImportArguments {
  std::string from, to;
  std::int64_t sequence = 0;
};

void Run(const ImportArguments& o) {
  const Imported done = ImportModel({o.from, o.to, static_cast<int>(o.sequence)});
  Print("%s  %lld parameters  %s  %s\n", done.architecture.c_str(),
        static_cast<long long>(done.parameters), done.dtype.c_str(), Printable(o.to).c_str());
}

}  // namespace

void AddImport(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<ImportArguments>();
  CLI::App* command = app.add_subcommand(
      "import", "Make a checkpoint of a model of transformers (config.json and .safetensors)");
  command
      ->add_option(
          "model", o->from,
          "Folder with config.json and weights, its *.index.json, or one .safetensors file")
      ->type_name("PATH")
      ->required();
  command->add_option("--out", o->to, "Checkpoint to write")->type_name("FILE")->required();
  command
      ->add_option("--sequence", o->sequence,
                   "Tokens of a sequence [max_position_embeddings, at most 512]")
      ->transform(WholeNumber(1, 1 << 20));
  command->footer(
      "The checkpoint holds the weights exactly. It is read by what-if, evaluate, export, train "
      "--start\nand the key \"start\" of a study. A value of config.json that fp4lab's model does "
      "not state is refused.\n"
      "Example: a folder made by export\n"
      "  $ fp4lab train --data synthetic --set evaluation.tokens=4096 --set "
      "model.activation=swiglu \\\n"
      "      --steps 2 --out-dir small > log 2> progress\n"
      "  $ fp4lab export small --out folder > log && fp4lab import folder --out again.fp4lab\n"
      "  LlamaForCausalLM  295488 parameters  F32  again.fp4lab\n");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
