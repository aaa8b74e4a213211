// fp4lab what-if: one optimizer step from a checkpoint under other recipes.
#include "fp4lab/train/observe/what_if.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/inspect.h"
#include "fp4lab/io/file.h"
#include "fp4lab/study/numbers/number_text.h"
#include "fp4lab/study/report/tables/text_table.h"
#include "fp4lab/study/run/checkpoint_step.h"
#include "fp4lab/train/model/shapes.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/status_line.h"
#include "tools/training/source_options.h"

namespace fp4lab::tools {
namespace {

struct WhatIfOptions {
  std::string checkpoint, tensor, error_map;
  SourceOptions source;
  std::vector<std::string> recipes;
  std::optional<std::int64_t> sequences;
  std::optional<double> learning_rate;
  int threads = 0;
  bool no_shares = false, json = false;
};

struct Step {
  StepState state;
  std::vector<std::string> names;  // of the recipes
  std::vector<Recipe> recipes;
};

Step Load(const WhatIfOptions& o) {
  Step step;
  step.state = study::ReadCheckpointStep({.checkpoint = o.checkpoint,
                                          .data = DataOf(o.source),
                                          .learning_rate = o.learning_rate,
                                          .sequences = o.sequences});
  step.names = o.recipes;
  for (const std::string& text : o.recipes) step.recipes.push_back(RecipeFrom(text));
  if (step.recipes.empty()) {
    step.names = {step.state.config.recipe.base};
    step.recipes = {step.state.config.recipe};
  }
  for (std::size_t i = 0; i < step.recipes.size(); ++i) {
    const std::string where = "--recipe " + step.names[i];
    const std::string why = WhyNotInWhatIf(step.recipes[i]);
    if (!why.empty()) throw Error(where, why);
    if (step.recipes[i].rest != step.recipes[0].rest) {
      throw Error(where, "has another training_dtype than " + step.names[0]);
    }
    TrainConfig config = step.state.config;
    config.recipe = step.recipes[i];
    CheckShapes(config, o.checkpoint, where);
  }
  return step;
}

Json Number(double x) { return std::isfinite(x) ? Json(x) : Json(); }

Json JsonOf(const GradientDifference& d) {
  return {{"cosine", Number(d.cosine)},
          {"norm_ratio", Number(d.norm_ratio)},
          {"relative_error", Number(d.relative_error)}};
}

Json JsonOf(const Step& step, const WhatIf& what) {
  Json recipes = Json::array();
  for (std::size_t i = 0; i < what.outcomes.size(); ++i) {
    const StepOutcome& outcome = what.outcomes[i];
    Json linears = Json::object(), shares = Json::object(), parting;
    for (const GradientDifference& d : outcome.linears) linears[d.name] = JsonOf(d);
    if (outcome.parting) {
      parting = {{"tensor", outcome.parting->tensor},
                 {"relative_error", Number(outcome.parting->relative_error)},
                 {"largest", Number(outcome.parting->largest)}};
    }
    for (const OperandShares& s : outcome.shares) {
      Json operands = Json::object();
      for (std::uint32_t k = 0; k < kLinearOperands; ++k) {
        operands[std::string(OperandName(static_cast<LinearOperand>(k)))] = Number(s.shares[k]);
      }
      shares[s.quantity] = {
          {"without", Number(s.without)}, {"with", Number(s.with)}, {"operands", operands}};
    }
    recipes.push_back({{"recipe", step.names[i]},
                       {"loss", Number(outcome.loss)},
                       {"loss_after", Number(outcome.loss_after)},
                       {"gradient", JsonOf(outcome.gradient)},
                       {"linears", std::move(linears)},
                       {"first_difference", std::move(parting)},
                       {"shares", std::move(shares)}});
  }
  return {
      {"step", step.state.step},
      {"tokens", step.state.inputs.size()},
      {"learning_rate", step.state.learning_rate},
      {"high_precision", {{"loss", Number(what.loss)}, {"loss_after", Number(what.loss_after)}}},
      {"recipes", std::move(recipes)}};
}

std::string Text(double x, int digits) { return study::Fixed(x, digits); }

void PrintShares(const Step& step, const WhatIf& what) {
  for (std::size_t i = 0; i < what.outcomes.size(); ++i) {
    const StepOutcome& outcome = what.outcomes[i];
    if (outcome.shares.empty()) continue;
    Print("\nwhich operands of %s cause it (Shapley values, which sum to the total)\n",
          Printable(step.names[i]).c_str());
    study::TextRows rows = {{"operand", "loss", "gradient error", "loss after"}};
    for (std::uint32_t k = 0; k < kLinearOperands; ++k) {
      rows.push_back({std::string(OperandName(static_cast<LinearOperand>(k)))});
      for (const OperandShares& s : outcome.shares) {
        rows.back().push_back(study::Signed(s.shares[k], 6));
      }
    }
    rows.push_back({"total"});
    for (const OperandShares& s : outcome.shares) {
      rows.back().push_back(study::Signed(s.with - s.without, 6));
    }
    PrintText(study::AlignedText(rows));
  }
}

void PrintReport(const Step& step, const WhatIf& what) {
  Print("step %lld, %zu tokens, learning rate %s\n\n", static_cast<long long>(step.state.step + 1),
        step.state.inputs.size(), ShortestText(step.state.learning_rate).c_str());
  study::TextRows rows = {
      {"recipe", "loss", "added", "loss after", "added", "cosine", "norm ratio", "error"}};
  rows.push_back({"high precision", Text(what.loss, 6), "", Text(what.loss_after, 6)});
  rows.back().resize(8);
  for (std::size_t i = 0; i < what.outcomes.size(); ++i) {
    const StepOutcome& o = what.outcomes[i];
    rows.push_back({std::string(Printable(step.names[i])), Text(o.loss, 6),
                    study::Signed(o.loss - what.loss, 6), Text(o.loss_after, 6),
                    study::Signed(o.loss_after - what.loss_after, 6), Text(o.gradient.cosine, 5),
                    Text(o.gradient.norm_ratio, 5), Text(o.gradient.relative_error, 5)});
  }
  PrintText(study::AlignedText(rows));
  Print("\ngradient of each weight against high precision: cosine, norm ratio\n");
  rows = {{"linear"}};
  for (const std::string& name : step.names) {
    rows[0].push_back(Printable(name));
    rows[0].emplace_back("");
  }
  for (std::size_t l = 0; l < what.outcomes[0].linears.size(); ++l) {
    rows.push_back({what.outcomes[0].linears[l].name});
    for (const StepOutcome& o : what.outcomes) {
      rows.back().push_back(Text(o.linears[l].cosine, 5));
      rows.back().push_back(Text(o.linears[l].norm_ratio, 5));
    }
  }
  PrintText(study::AlignedText(rows));
  for (std::size_t i = 1; i < what.outcomes.size(); ++i) {
    const std::optional<Parting>& parting = what.outcomes[i].parting;
    const std::string name = Printable(step.names[i]), first = Printable(step.names[0]);
    if (!parting) {
      Print("\n%s gives the bits of %s in every tensor\n", name.c_str(), first.c_str());
      continue;
    }
    Print("\n%s parts from %s in %s: relative error %.3g, at most %.3g\n", name.c_str(),
          first.c_str(), parting->tensor.c_str(), parting->relative_error, parting->largest);
  }
  PrintShares(step, what);
}

void Run(const WhatIfOptions& o) {
  if (o.threads > 0) SetThreads(o.threads);
  if (o.tensor.empty() != o.error_map.empty()) {
    throw Error("command line",
                "--error-map and --tensor go together: a file, and an operand as "
                "blocks.0.mlp.up.fprop.input");
  }
  const Step step = Load(o);
  if (!o.error_map.empty()) {
    const BlockErrors errors = BlockErrorsOf(step.state, step.recipes[0], o.tensor, "--tensor");
    WriteFileAtomically(o.error_map,
                        ErrorMapSvg(errors, o.tensor + " under " + step.names[0] + ", step " +
                                                std::to_string(step.state.step + 1)));
  }
  StatusLine line(std::chrono::seconds(2), std::chrono::seconds(10));
  std::size_t steps = 0;
  const WhatIf what = TryRecipes(step.state, step.recipes, !o.no_shares,
                                 [&] { line.Show(std::to_string(++steps) + " steps computed"); });
  if (o.json) {
    PrintJson(JsonOf(step, what), 1);
  } else {
    PrintReport(step, what);
  }
}

}  // namespace

void AddWhatIf(CLI::App& app, int* /*exit_code*/) {
  const auto o = std::make_shared<WhatIfOptions>();
  CLI::App* command = app.add_subcommand(
      "what-if", "One step from a checkpoint under other recipes: losses, gradients, causes");
  AddCheckpoint(command, &o->checkpoint);
  AddRecipes(command, "the run's", &o->recipes);
  command
      ->add_option("--sequences", o->sequences,
                   "Only the first sequences of the step; at most a micro-batch [the whole step]")
      ->transform(WholeNumber(1, kMostTokensPerStep));
  command
      ->add_option("--learning-rate", o->learning_rate, "Of the step [the run's, or its trunk's]")
      ->check(Decimal(0.0, 1e6))
      ->type_name("RATE");
  command->add_flag("--no-shares", o->no_shares,
                    "Leave out the shares of the operands, which take 64 steps a recipe");
  command
      ->add_option("--error-map", o->error_map,
                   "Write the relative error of each block of --tensor, first recipe, as an SVG")
      ->type_name("FILE");
  command->add_option("--tensor", o->tensor, "An operand: blocks.0.mlp.up.fprop.input")
      ->type_name("NAME");
  command->add_option("--text", o->source.text, "The text of the run, if its folder does not say")
      ->type_name("FILE");
  command->add_option("--tokens", o->source.tokens, "The token file of the run: llm.c's, or .npy")
      ->type_name("FILE");
  command->add_option("--data", o->source.data, "The data set of the run")->type_name("CORPUS");
  command->add_option("--threads", o->threads, "Threads; results do not depend on it")
      ->transform(ThreadCount());
  command->add_flag("--json", o->json, "Print JSON");
  PutInGroup(command, "The step", {"--recipe", "--sequences", "--learning-rate"});
  PutInGroup(command, kTextGroup, {"--text", "--tokens", "--data"});
  PutInGroup(command, kReportGroup, {"--no-shares", "--error-map", "--tensor", "--json"});
  command->footer(
      "The step is that which follows the checkpoint, on its tokens. \"high precision\" quantizes\n"
      "nothing; \"loss after\" is the loss of the same tokens after the step, in high precision.\n"
      "Example: after a short run\n"
      "  $ fp4lab train --data synthetic --recipe te_nvfp4 --set evaluation.tokens=4096 --steps 3 "
      "\\\n"
      "      --set batch=2 --out-dir seen > log 2> progress\n"
      "  $ fp4lab what-if seen --recipe te_nvfp4 --recipe mxfp4 --no-shares | cut -d , -f 1,2 "
      "| head -1\n"
      "  step 4, 256 tokens\n");
  command->callback([o] { Run(*o); });
}

}  // namespace fp4lab::tools
