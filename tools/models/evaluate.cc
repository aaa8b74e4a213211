// fp4lab evaluate: the loss of a checkpoint on a text under recipes, and its logits.
#include <memory>
#include <optional>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/corpus_fit.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/observe/what_if.h"
#include "fp4lab/train/start/checkpoint_model.h"
#include "fp4lab/train/start/start.h"
#include "fp4lab/train/trainer.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/training/source_options.h"

namespace fp4lab::tools {
namespace {

struct EvaluateOptions {
  std::string checkpoint, logits;
  SourceOptions source;
  std::vector<std::string> recipes;
  std::int64_t sequence = 0, evaluated = EvaluationConfig().tokens;
  int threads = 0;
  bool json = false;
};

// The text to evaluate: all of a token file, the validation part of others.
Corpus TextOf(const EvaluateOptions& o) {
  const std::optional<DataConfig> data = DataOf(o.source);
  if (!data) throw Error("command line", "give the text: --text, --tokens or --data");
  DataConfig whole = *data;
  if (!whole.tokens.empty()) whole.validation_tokens = whole.tokens;
  return LoadCorpus(whole);
}

TrainConfig StartAt(const EvaluateOptions& o) {
  TrainConfig config;
  config.start = o.checkpoint;
  Json model = ModelOfCheckpoint(o.checkpoint, o.checkpoint);
  if (o.sequence > 0) model["sequence"] = o.sequence;
  config.model = ReadModelConfig(model, CheckpointFile(o.checkpoint).string() + "#/model");
  config.batch = 4;
  config.evaluation.tokens = o.evaluated;
  config.tokens = TokensPerStep(config);
  return config;
}

// The logits of the first window of the text, (sequence, vocabulary).
void WriteLogits(const EvaluateOptions& o, const TrainConfig& config, const Corpus& corpus) {
  const auto t = static_cast<std::size_t>(config.model.sequence);
  const std::vector<float> weights = ReadStart(config, o.checkpoint);
  Model model(config.model, config.recipe, weights, 1);
  std::vector<float> logits;
  const TensorInspector inspector = [&](const std::string& name, MatrixView<const float> x) {
    if (name != "head.output") return;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) logits.push_back(x(r, c));
    }
  };
  Pass pass;
  pass.inspector = &inspector;
  model.Forward(pass, std::span(corpus.validation).first(t));
  WriteNpy(o.logits, MakeNpyArray<float>({t, logits.size() / t}, logits));
}

void Run(const EvaluateOptions& o) {
  if (o.threads > 0) SetThreads(o.threads);
  const Corpus corpus = TextOf(o);
  TrainConfig config = StartAt(o);
  CheckCorpus(config, corpus, o.checkpoint);
  std::vector<std::string> names = o.recipes;
  if (names.empty()) names = {"bf16"};
  std::vector<Recipe> recipes;
  for (const std::string& name : names) {
    recipes.push_back(RecipeFrom(name));
    const std::string why = WhyNotInWhatIf(recipes.back());
    if (!why.empty()) throw Error("--recipe " + name, why);
  }
  Json rows = Json::array();
  study::TextRows table = {{"recipe", "loss", "high precision", "added"}};
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    config.recipe = recipes[i];
    Trainer trainer(config, corpus, o.checkpoint);
    const Evaluation seen = trainer.Evaluate(EvaluationPrecision::kTraining);
    const double high = trainer.Evaluate(EvaluationPrecision::kHigh).loss;
    rows.push_back({{"recipe", names[i]},
                    {"loss", seen.loss},
                    {"high_precision_loss", high},
                    {"tokens", seen.tokens}});
    table.push_back({std::string(Printable(names[i])), study::Fixed(seen.loss, 6),
                     study::Fixed(high, 6), study::Signed(seen.loss - high, 6)});
    if (i == 0 && !o.logits.empty()) WriteLogits(o, config, corpus);
  }
  if (o.json) return PrintJson(Json{{"recipes", std::move(rows)}}, 2);
  PrintText(study::AlignedText(table));
}

}  // namespace

void AddEvaluate(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<EvaluateOptions>();
  CLI::App* command = app.add_subcommand(
      "evaluate", "The loss of a checkpoint on a text, under recipes and without quantization");
  AddCheckpoint(command, &o->checkpoint);
  AddRecipes(command, "bf16", &o->recipes);
  command->add_option("--text", o->source.text, "Evaluate the end of this text, 5 %")
      ->type_name("FILE");
  command->add_option("--tokens", o->source.tokens, "Evaluate this token file: llm.c's, or .npy")
      ->type_name("FILE");
  command->add_option("--data", o->source.data, "Evaluate the validation part of this data set")
      ->type_name("CORPUS");
  command->add_option("--evaluated", o->evaluated, "Tokens to evaluate, from the first on; 0: all")
      ->transform(WholeNumber(0, kMostTokensPerStep))
      ->capture_default_str();
  command->add_option("--sequence", o->sequence, "Tokens of a sequence [the checkpoint's]")
      ->transform(WholeNumber(1, 1 << 20));
  command
      ->add_option("--logits", o->logits,
                   "Write the logits of the first sequence under the first recipe, .npy")
      ->type_name("FILE");
  command->add_option("--threads", o->threads, "Threads; results do not depend on it")
      ->transform(ThreadCount());
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, kTextGroup, {"--text", "--tokens", "--data", "--evaluated", "--sequence"});
  PutInGroup(command, kReportGroup, {"--logits", "--json"});
  command->footer(
      "\"high precision\" is the same recipe with nothing quantized.\n"
      "Example: after a short run\n"
      "  $ fp4lab train --data synthetic --set evaluation.tokens=4096 --steps 2 --out-dir run > "
      "log "
      "\\\n      2> progress\n"
      "  $ fp4lab evaluate run --data synthetic --evaluated 1024 --recipe te_nvfp4 | cut -d ' ' -f "
      "1\n  recipe\n  te_nvfp4\n");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
