#include "fp4lab/train/start/teacher.h"

#include <algorithm>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/model/model.h"
#include "fp4lab/train/parts/parts.h"
#include "fp4lab/train/start/checkpoint_model.h"
#include "fp4lab/train/start/start.h"

namespace fp4lab {
namespace {

std::string PlaceOfTeacher(const std::string& where) {
  const Json empty = Json::object();
  return JsonObject(empty, where).Where("teacher") + "/from";
}

// The teacher computes as what the run does not quantize.
Recipe PlainRecipe(const Recipe& recipe) {
  Recipe plain;
  plain.linear = plain.rest = recipe.rest;
  return plain;
}

std::size_t SequencesOf(const TrainConfig& config) {
  const auto length = static_cast<std::size_t>(config.model.sequence);
  const auto micro_batch = static_cast<std::size_t>(config.batch / config.micro_batches);
  return std::clamp<std::size_t>(kTeacherTokens / length, 1, std::max<std::size_t>(micro_batch, 1));
}

ModelConfig ShapeIn(const Json& model, const TrainConfig& config, const std::string& place) {
  const std::string file = CheckpointFile(config.teacher.from).string();
  ModelConfig shape = ReadModelConfig(model, file + "#/configuration/model");
  if (shape.vocabulary != config.model.vocabulary) {
    throw Error(place, file + " has a vocabulary of " + std::to_string(shape.vocabulary) +
                           ", and the run one of " + std::to_string(config.model.vocabulary) +
                           "; a teacher reads the run's tokens");
  }
  shape.sequence = config.model.sequence;
  return shape;
}

}  // namespace

ModelConfig TeacherModel(const TrainConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  const std::string place = PlaceOfTeacher(where);
  return ShapeIn(ModelOfCheckpoint(config.teacher.from, place), config, place);
}

void CheckTeacher(const TrainConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  if (!config.teacher.Asked()) return;
  const ModelConfig shape = TeacherModel(config, where);
  if (config.device != Device::kCuda) return;
  for (const Part* part : PartsOf(shape)) {
    if (part->on_gpu) continue;
    throw Error(PlaceOfTeacher(where),
                "the GPU does not compute the teacher's part \"" + std::string(part->name) +
                    "\"; the CPU does (\"device\": \"cpu\" or --device cpu)");
  }
}

Json TeacherIdentity(const TrainConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  Json identity = ToJson(config.teacher);
  identity.erase("from");
  identity["sha256"] = HashOfCheckpoint(config.teacher.from, PlaceOfTeacher(where));
  return identity;
}

TrainConfig TeacherRun(const TrainConfig& config) {
  TrainConfig run;
  run.model = TeacherModel(config, "config");
  run.recipe = PlainRecipe(config.recipe);
  run.batch = static_cast<int>(SequencesOf(config));
  run.evaluation.diagnostics_every = 0;  // nothing observes a teacher
  return run;
}

TeacherNumbers ReadTeacher(const TrainConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  const std::string place = PlaceOfTeacher(where), from = config.teacher.from;
  const FileContent content = OpenCheckpoint(from, place);
  const std::string file = CheckpointFile(from).string();
  Checkpoint checkpoint = ReadCheckpoint(content.bytes(), file);
  const ModelConfig shape = ShapeIn(ModelIn(checkpoint.header, place, from), config, place);
  const std::size_t total = MakeLayout(shape).total;
  if (checkpoint.payload.size() < total) {
    throw Error(place, file + " does not hold its model's numbers");
  }
  checkpoint.payload.resize(total);
  checkpoint.payload.shrink_to_fit();  // without the states of the optimizer
  return {shape, std::move(checkpoint.payload)};
}

Teacher::Teacher(const TrainConfig& config, const std::string& where)
    : config_(config.teacher),
      numbers_(ReadTeacher(config, where)),
      sequences_(SequencesOf(config)),
      model_(std::make_unique<Model>(numbers_.shape, PlainRecipe(config.recipe),
                                     numbers_.parameters, sequences_)) {}
Teacher::~Teacher() = default;

TeacherLoss Teacher::LossOf(std::span<const std::uint16_t> tokens) {
  const IeeeArithmetic ieee;
  const auto length = static_cast<std::size_t>(numbers_.shape.sequence);
  Expects(!tokens.empty() && tokens.size() % length == 0, "Teacher: whole sequences");
  row_kl_.resize(tokens.size());
  const auto vocabulary = static_cast<std::size_t>(numbers_.shape.vocabulary);
  Reserve(&logits_, tokens.size() * vocabulary);
  const MatrixView<float> logits(logits_.data(), tokens.size(), vocabulary);
  Pass pass;
  pass.high_precision = true;
  for (std::size_t first = 0; first < tokens.size(); first += sequences_ * length) {
    const std::size_t rows = std::min(sequences_ * length, tokens.size() - first);
    model_->Forward(pass, tokens.subspan(first, rows));
    const MatrixView<const float> made = model_->Logits();
    std::copy_n(made.data, made.size(), &logits(first, 0));
  }
  return {logits, config_.temperature, config_.share, row_kl_};
}

}  // namespace fp4lab
