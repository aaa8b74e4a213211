#include "fp4lab/study/run/checkpoint_step.h"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/study/run/study.h"
#include "fp4lab/train/batch.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/corpus_fit.h"
#include "fp4lab/train/model/memory.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/optimizer/optimizers.h"
#include "fp4lab/train/start/teacher.h"

namespace fp4lab::study {
namespace {

// The place of the tokens and the learning rate of the step, which the checkpoint does not hold.
struct Surroundings {
  std::optional<DataConfig> data;
  std::optional<double> learning_rate;
  std::vector<TeacherConfig> teachers;  // of the runs there that the checkpoint may be of
};

// Of config.json beside a checkpoint of fp4lab train, or of study.json two folders above one of a
// study, where the arm is found by its recipe, model and optimizer. A decay's rate is not known
// there, so the rate is that of the trunk.
Surroundings SurroundingsOf(const std::filesystem::path& checkpoint,
                            const CheckpointHeader& header) {
  const std::filesystem::path folder = checkpoint.parent_path();
  const std::filesystem::path own = folder / "config.json";
  if (Exists(own)) {
    const TrainConfig config = ReadTrainConfig(ReadJsonFile(own), own.string());
    const std::int64_t total = TotalSteps(config);
    Surroundings found{
        config.data, LearningRate(config.schedule, std::min(header.step, total - 1), total), {}};
    if (config.teacher.Asked()) found.teachers = {config.teacher};
    return found;
  }
  const std::filesystem::path file = folder.parent_path().parent_path() / "study.json";
  if (!Exists(file)) return {};
  const Study study = ReadStudy(file);
  Surroundings found{study.base.data, std::nullopt, {}};
  std::optional<double> rate;
  bool is_sweep = false;
  for (const Arm& arm : study.arms) {
    const Json& there = header.configuration;
    if (ToJson(arm.recipe) != there.at("recipe") || ToJson(arm.model) != there.at("model") ||
        ToJson(arm.optimizer) != there.at("optimizer")) {
      continue;
    }
    if (arm.teacher.Asked()) found.teachers.push_back(arm.teacher);
    is_sweep |= rate && *rate != arm.schedule.learning_rate;
    rate = arm.schedule.learning_rate;
  }
  if (!is_sweep) found.learning_rate = rate;  // else it is not known which
  return found;
}

void LoadTokens(const CheckpointStepOptions& o, const DataConfig& data, const Json& there,
                StepState* state) {
  TrainConfig& config = state->config;
  const Corpus corpus = LoadCorpus(data);
  if (!there.contains("corpus")) {  // an import: any text that fits
    CheckCorpus(config, corpus, o.checkpoint.string());
  } else if (const Json& hash = there.at("corpus").at("train_sha256");
             hash != corpus.train_sha256) {
    throw Error(o.checkpoint.string(), "was trained on another text than " + corpus.name +
                                           ": SHA-256 of its training part " +
                                           hash.get<std::string>() + ", there " +
                                           corpus.train_sha256);
  }
  const std::uint64_t first =
      static_cast<std::uint64_t>(state->step) * static_cast<std::uint64_t>(config.batch);
  if (o.sequences) {  // a part of the step is one micro-batch
    const std::int64_t most = config.batch / config.micro_batches;
    if (*o.sequences > most) {
      throw Error("--sequences", "a micro-batch of the run has " + std::to_string(most));
    }
    config.batch = static_cast<int>(*o.sequences);
    config.micro_batches = 1;
  }
  const auto t = static_cast<std::size_t>(config.model.sequence);
  state->inputs.resize(static_cast<std::size_t>(config.batch) * t);
  state->targets.resize(state->inputs.size());
  const std::uint64_t order =
      there.contains("order_seed")
          ? WholeNumber<std::uint64_t>(there.at("order_seed"),
                                       o.checkpoint.string() + "#/configuration/order_seed")
          : config.seed;
  CopySequences({order, corpus.train.size(), t}, corpus.train, first, state->inputs,
                state->targets);
}

// What the run's configuration says of its steps.
void ReadStepOf(const Json& there, const std::string& where, TrainConfig* config) {
  config->optimizer = ReadOptimizerConfig(there.at("optimizer"), where + "optimizer");
  config->recipe = ReadRecipe(there.at("recipe"), where + "recipe");
  config->seed = WholeNumber<std::uint64_t>(there.at("seed"), where + "seed");
  config->batch = WholeNumber<int>(there.at("batch"), where + "batch");
  config->micro_batches = WholeNumber<int>(there.at("micro_batches"), where + "micro_batches");
}

// The first step from an import, which states none: AdamW, as many sequences as are asked for.
void SetStep(const CheckpointStepOptions& o, TrainConfig* config) {
  constexpr std::int64_t kSequences = 4;
  config->recipe = ReadRecipe("bf16", "recipe");
  config->batch = static_cast<int>(o.sequences.value_or(kSequences));
  config->tokens = TokensPerStep(*config);
}

// The teacher of the run, of which the checkpoint holds the identity, as files beside it name it.
std::shared_ptr<LogitSource> TeacherOf(const std::string& checkpoint, const Json& there,
                                       const Surroundings& around, TrainConfig* config) {
  if (!there.contains("teacher")) return nullptr;
  for (const TeacherConfig& teacher : around.teachers) {
    config->teacher = teacher;
    if (TeacherIdentity(*config, checkpoint) == there.at("teacher")) {
      return std::make_shared<Teacher>(*config, checkpoint);
    }
  }
  throw Error(checkpoint, around.teachers.empty()
                              ? "the run has a teacher, which no file beside it names"
                              : "the run had another teacher than " + config->teacher.from);
}

DataConfig DataOf(const CheckpointStepOptions& o, const Surroundings& around) {
  if (o.data) return *o.data;
  if (around.data) return *around.data;
  throw Error(o.checkpoint.string(),
              "has neither config.json beside it nor a study.json above it that names the text; "
              "give --text, --tokens or --data");
}

}  // namespace

StepState ReadCheckpointStep(const CheckpointStepOptions& o) {
  const IeeeArithmetic ieee;
  std::filesystem::path path = o.checkpoint;
  if (std::filesystem::is_directory(path)) path /= "checkpoint.fp4lab";
  const FileContent content(path);
  const Checkpoint checkpoint = ReadCheckpoint(content.bytes(), path.string());
  const Json& there = checkpoint.header.configuration;
  StepState state;
  try {
    TrainConfig& config = state.config;
    const std::string where = path.string() + "#/configuration/";
    config.model = ReadModelConfig(there.at("model"), where + "model");
    const bool imported = there.contains("imported");
    imported ? SetStep(o, &config) : ReadStepOf(there, where, &config);
    state.step = checkpoint.header.step;
    CheckShapes(config, path.string());
    CheckMemory(config, path.string());
    const std::size_t n = MakeLayout(config.model).total;
    const std::size_t states = OptimizerOf(config.optimizer).states;
    if (checkpoint.payload.size() < (imported ? 1 : 1 + states) * n) {
      throw Error(path.string(), "checkpoint does not hold this model's numbers");
    }
    const auto part = [&](std::size_t i) {
      const auto first = checkpoint.payload.begin() + static_cast<std::ptrdiff_t>(i * n);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(n));
    };
    state.parameters = part(0);
    for (std::size_t i = 1; i <= states; ++i) {
      state.states.push_back(imported ? std::vector<float>(n) : part(i));
    }
    const Surroundings around = imported ? Surroundings{} : SurroundingsOf(path, checkpoint.header);
    const std::optional<double> rate = o.learning_rate ? o.learning_rate : around.learning_rate;
    if (!rate) {
      throw Error(o.checkpoint.string(),
                  "no file beside it says its learning rate; give --learning-rate");
    }
    state.learning_rate = *rate;
    LoadTokens(o, DataOf(o, around), there, &state);
    state.teacher = TeacherOf(path.string(), there, around, &config);
  } catch (const Json::exception& e) {
    throw Error(path.string(), "has no configuration of a run: " + ProblemOf(e));
  }
  return state;
}

}  // namespace fp4lab::study
