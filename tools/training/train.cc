// fp4lab train: one training run from a configuration, with metrics, checkpoints and --resume.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/run/train_run.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/world.h"
#include "tools/help/help_group.h"
#include "tools/options/commands.h"
#include "tools/options/number_option.h"
#include "tools/options/print.h"
#include "tools/options/status_line.h"
#include "tools/options/stop_signals.h"
#include "tools/training/source_options.h"

namespace fp4lab::tools {
namespace {

struct TrainOptions {
  std::string config, text, tokens, data, recipe, start, device, out_dir = "out/train";
  std::vector<std::string> set;
  std::optional<std::int64_t> steps, tokens_budget, eval_every, diagnostics_every;
  std::vector<std::int64_t> diagnostics_steps;
  std::optional<std::uint64_t> seed;
  int threads = 0;
  bool resume = false, shard_optimizer = false;

  // Whether the command line has any part of the configuration; the device does not count as one.
  bool HasConfiguration() const {
    return !config.empty() || !text.empty() || !tokens.empty() || !data.empty() ||
           !recipe.empty() || !start.empty() || !set.empty() || steps || tokens_budget ||
           eval_every || seed || diagnostics_every || !diagnostics_steps.empty();
  }
};

// Applies --set KEY=VALUE, as in model.layers=2. The value is JSON if it parses as JSON, else a
// string. A string on the way to the key becomes {"base": string}, so that members of a recipe that
// is a name can be set.
void SetMember(const std::string& assignment, Json* root) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error("--set " + assignment, "must be key=value, as in model.layers=2");
  }
  const std::string key = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  Json value = Json::accept(text) ? ParseJson(text, "--set " + key) : Json(text);
  Json* at = root;
  std::size_t begin = 0;
  for (std::size_t dot = key.find('.'); dot != key.npos; dot = key.find('.', begin)) {
    at = &(*at)[key.substr(begin, dot - begin)];
    if (at->is_string()) *at = Json{{"base", *at}};
    if (!at->is_object() && !at->is_null()) {
      throw Error("--set " + assignment, key.substr(0, dot) + " is not an object");
    }
    begin = dot + 1;
  }
  (*at)[key.substr(begin)] = std::move(value);
}

void SetData(const TrainOptions& options, Json* json) {
  const int ways = (options.text.empty() ? 0 : 1) + (options.tokens.empty() ? 0 : 1) +
                   (options.data.empty() ? 0 : 1);
  if (ways > 1) throw Error("command line", "give one of --text, --tokens and --data");
  for (const auto& [key, value] :
       {std::pair{"text", &options.text}, {"tokens", &options.tokens}, {"source", &options.data}}) {
    if (value->empty()) continue;
    const Json there = json->value("data", Json());
    const bool is_same = there.is_object() && there.value(key, Json()) == *value;
    if (!is_same) (*json)["data"] = {{key, *value}};
  }
}

// The prefix of JSON pointers into the configuration.
std::string Where(const TrainOptions& options) {
  if (!options.config.empty()) return options.config;
  return options.HasConfiguration() ? "command line" : options.out_dir;
}

// Sets diagnostics.every or diagnostics.steps in place of either; the other members stay.
void SetDiagnostics(const char* key, const Json& value, Json* json) {
  Json& diagnostics = (*json)["diagnostics"];
  if (!diagnostics.is_object()) diagnostics = Json::object();
  diagnostics.erase("every");
  diagnostics.erase("steps");
  diagnostics[key] = value;
}

// Puts the recipe of the command line into the configuration of a run that is resumed, which has it
// resolved. A base that is named again is that of the run. Where --set gives a part of the recipe,
// the whole recipe is that of the command line, since a resolved operand would win over a switch.
void SetRecipeAgain(const TrainOptions& options, Json* json) {
  const bool has_parts = std::any_of(options.set.begin(), options.set.end(),
                                     [](const auto& set) { return set.starts_with("recipe."); });
  const Json there = json->value("recipe", Json());
  const Json base = there.is_object() ? there.value("base", Json()) : there;
  if (has_parts && options.recipe.empty() && !base.is_null()) (*json)["recipe"] = base;
  if (options.recipe.empty()) return;
  const Json asked = RecipeJsonFrom(options.recipe);
  if (has_parts || base != asked) (*json)["recipe"] = asked;
}

// The configuration of the command line over `json`: that of --config, of the run to resume
// (`again`), or {}.
TrainConfig ConfigurationOf(const TrainOptions& options, Json json, bool again) {
  const std::string where = Where(options);
  if (!json.is_object()) throw Error(where, "must be a JSON object");
  SetData(options, &json);
  if (again) SetRecipeAgain(options, &json);
  if (!again && !options.recipe.empty()) json["recipe"] = RecipeJsonFrom(options.recipe);
  if (!options.start.empty()) json["start"] = options.start;
  for (const std::string& assignment : options.set) SetMember(assignment, &json);
  if (!options.device.empty()) json["device"] = options.device;
  if (options.seed) json["seed"] = *options.seed;
  const bool has_evaluation = json.contains("evaluation") && !json["evaluation"].is_null();
  if (options.eval_every && (!has_evaluation || json["evaluation"].is_object())) {
    json["evaluation"]["every"] =
        *options.eval_every;  // ReadTrainConfig refuses a member that is no object
  }
  if (options.diagnostics_every) SetDiagnostics("every", *options.diagnostics_every, &json);
  if (!options.diagnostics_steps.empty()) {
    SetDiagnostics("steps", options.diagnostics_steps, &json);
  }
  if (options.tokens_budget) json["tokens"] = *options.tokens_budget;
  TrainConfig config = ReadTrainConfig(json, where);
  if (options.steps) config.tokens = *options.steps * TokensPerStep(config);
  return config;
}

TrainConfig ConfigurationOf(const TrainOptions& options) {
  return ConfigurationOf(
      options, options.config.empty() ? Json::object() : ReadJsonFile(options.config), false);
}

// The configuration to run: that of the command line, or that of the folder, with which whatever
// the command line repeats must agree.
TrainConfig Decide(const TrainOptions& options, const study::RunFolder& folder) {
  if (!options.resume) {
    if (WorldOfEnvironment().rank == 0) folder.RefuseToOverwrite();
    return ConfigurationOf(options);
  }
  if (!folder.HasConfiguration()) {
    if (!options.HasConfiguration()) throw Error(options.out_dir, "has no run to resume");
    return ConfigurationOf(options);
  }
  const std::string path = folder.Configuration().string();
  if (!options.HasConfiguration()) {
    TrainConfig config = ReadTrainConfig(ReadJsonFile(path), path);
    if (!options.device.empty()) config.device = ReadDevice(options.device, "--device");
    return config;
  }
  const TrainConfig config = options.config.empty()
                                 ? ConfigurationOf(options, ReadJsonFile(path), true)
                                 : ConfigurationOf(options);
  folder.CheckSameRun(config);
  return config;
}

study::TrainResult Train(const TrainConfig& config, const study::RunFolder& folder,
                         const std::string& where, bool shard_optimizer) {
  study::TrainRun run(config, folder, where, shard_optimizer);
  if (WorldOfEnvironment().rank == 0 && !run.Note().empty()) {
    tools::Note("note: %s\n", Printable(run.Note()).c_str());
  }
  const StopSignals signals;
  StatusLine line(std::chrono::seconds(0), std::chrono::seconds(10));
  const auto show = [&](const study::Progress& progress) {
    const study::RunningJob& job = progress.running.front();
    job.step < job.steps ? line.Show(ProgressText(progress)) : line.Print(ProgressText(progress));
  };
  return run.Train(show, StopSignals::Asked());
}

int Run(const TrainOptions& options) {
  if (options.threads > 0) SetThreads(options.threads);
  const study::RunFolder folder(options.out_dir);
  const TrainConfig config = Decide(options, folder);
  if (WorldOfEnvironment().rank == 0) NoteSlowTarget();
  const study::TrainResult result = Train(config, folder, Where(options), options.shard_optimizer);
  if (WorldOfEnvironment().rank > 0) {  // only rank 0 prints
    return result.interrupted ? StopSignals::ExitCode() : 0;
  }
  if (result.interrupted) {
    // The folder's configuration names the device of the first start, not one given later.
    const std::string device = options.device.empty() ? "" : " --device " + options.device;
    Note("stopped after step %lld; continue with: fp4lab train --resume --out-dir %s%s\n",
         static_cast<long long>(result.steps), Printable(options.out_dir).c_str(),
         Printable(device).c_str());
    return StopSignals::ExitCode();
  }
  Print("step %lld  validation loss %.4f nats", static_cast<long long>(result.steps),
        result.validation_loss);
  if (result.validation_loss_high) {
    Print(" (high precision %.4f)", *result.validation_loss_high);
  }
  Print("  %s\n", Printable(folder.Checkpoint().string()).c_str());
  for (const TextLoss& text : result.texts) {
    Print("  %s %.4f nats", Printable(text.name).c_str(), text.loss);
    if (text.loss_high) Print(" (high precision %.4f)", *text.loss_high);
    Print("\n");
  }
  return 0;
}

void AddRunOptions(CLI::App* command, TrainOptions* o) {
  command->add_option("--out-dir", o->out_dir, "Folder for config, metrics and checkpoint")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_flag("--resume", o->resume,
                    "Continue the run in --out-dir, bit for bit as without the interruption; its "
                    "configuration is that of the folder, and options given again must agree");
  command->add_option("--device", o->device, "cpu or cuda; a run may change it at a --resume")
      ->type_name("NAME");
  command->add_flag("--shard-optimizer", o->shard_optimizer,
                    "In several processes, each keeps the optimizer's states of its share of the "
                    "parameters only; results do not depend on it");
  command
      ->add_option("--threads", o->threads,
                   "Threads; results do not depend on it [the processors that the process may use]")
      ->transform(ThreadCount());
}

}  // namespace

void AddTrain(CLI::App& app, int* exit_code) {
  const auto options = std::make_shared<TrainOptions>();
  CLI::App* command = app.add_subcommand("train", "Train a small decoder under a recipe");
  TrainOptions* o = options.get();
  command->add_option("--config", o->config, "Run configuration, JSON")->type_name("FILE");
  command->add_option("--set", o->set, "Override a member: model.layers=2 (repeatable)")
      ->type_name("KEY=VALUE");
  command->add_option("--text", o->text, "Train on this text file, byte by byte")
      ->type_name("FILE");
  command->add_option("--tokens", o->tokens, "Train on this llm.c token file")->type_name("FILE");
  command->add_option("--data", o->data, "Train on this data set (see fp4lab data list)")
      ->type_name("CORPUS");
  command
      ->add_option("--recipe", o->recipe,
                   "One of " + Joined(RecipeNames(), ", ") +
                       ", or of fp4lab recipes; or a JSON file, or JSON")
      ->type_name("RECIPE");
  command
      ->add_option("--start", o->start,
                   "Begin with the weights, and the model, of this checkpoint or folder")
      ->type_name("CHECKPOINT");
  command->add_option("--steps", o->steps, "Length of the run in optimizer steps")
      ->transform(WholeNumber(1, kMostSteps));
  command->add_option("--tokens-budget", o->tokens_budget, "Length of the run in tokens")
      ->transform(WholeNumber(1, kMostSteps * kMostTokensPerStep))
      ->excludes("--steps");
  command->add_option("--seed", o->seed, "Seed of weights, data order and stochastic rounding")
      ->transform(AnySeed());
  command->add_option("--eval-every", o->eval_every, "Steps between evaluations; 0: at the end")
      ->transform(WholeNumber(0, kMostSteps));
  command
      ->add_option("--diagnostics-every", o->diagnostics_every,
                   "Observe the step every so many steps, into observations.jsonl")
      ->transform(WholeNumber(1, kMostSteps));
  command
      ->add_option("--diagnostics-steps", o->diagnostics_steps, "Observe these steps: 0,100,1000")
      ->delimiter(',')
      ->type_name("STEPS")
      ->excludes("--diagnostics-every");
  AddRunOptions(command, o);
  PutInGroup(
      command, "What is trained, and on what",
      {"--config", "--set", "--recipe", "--start", "--text", "--tokens", "--data", "--seed"});
  PutInGroup(
      command, "Length and observation",
      {"--steps", "--tokens-budget", "--eval-every", "--diagnostics-every", "--diagnostics-steps"});
  command->footer(
      "Examples: text of a known entropy, 5 steps without the Hadamard transform\n"
      "  $ fp4lab train --data synthetic --recipe te_nvfp4 --set recipe.disable_rht=true \\\n"
      "      --set evaluation.tokens=4096 --steps 5 --out-dir demo 2> progress | cut -c 1-23\n"
      "  step 5  validation loss\n"
      "  $ wc -l < demo/metrics.jsonl\n"
      "  6\n"
      "(continue an interrupted run with: fp4lab train --resume --out-dir demo)\n");
  command->callback([options, exit_code] { *exit_code = Run(*options); });
}

}  // namespace fp4lab::tools
