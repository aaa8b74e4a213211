#include "fp4lab/train/config.h"

#include <cmath>
#include <string>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/config_members.h"
#include "fp4lab/train/start/named_model.h"

namespace fp4lab {
namespace {

constexpr NamedValue<Device> kDevices[] = {{Device::kCpu, "cpu"}, {Device::kCuda, "cuda"}};

}  // namespace

std::string_view DeviceName(Device device) { return NameIn(kDevices, device); }

Device ReadDevice(std::string_view name, const std::string& where) {
  for (const NamedValue<Device>& d : kDevices) {
    if (d.name == name) return d.value;
  }
  throw Error(where, "must be \"cpu\" or \"cuda\", not \"" + std::string(name) + "\"");
}

TeacherConfig ReadTeacherConfig(const Json& json, const std::string& where,
                                const std::string& start) {
  const IeeeArithmetic ieee;
  TeacherConfig c;
  JsonObject o(json, where);
  c.from = start;
  o.Read("from", &c.from);
  o.Read("temperature", &c.temperature);
  o.Read("share", &c.share);
  o.Finish();
  if (!(c.temperature > 0 && std::isfinite(c.temperature))) {
    throw Error(o.Where("temperature"), "must be positive");
  }
  if (!(c.share >= 0 && c.share <= 1)) {
    throw Error(o.Where("share"), "must be from 0, no teacher, to 1, the teacher alone");
  }
  if (c.share == 0) return {};
  if (c.from.empty()) {
    throw Error(o.Where("from"), "must be the checkpoint of a teacher, as there is no \"start\"");
  }
  return c;
}

Json ToJson(const TeacherConfig& c) {
  const IeeeArithmetic ieee;
  return {{"from", c.from}, {"temperature", Shortest(c.temperature)}, {"share", Shortest(c.share)}};
}

EvaluationConfig ReadEvaluationConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  EvaluationConfig c;
  JsonObject o(json, where);
  o.Read("every", &c.every);
  o.Read("tokens", &c.tokens);
  o.Read("chunk_tokens", &c.chunk_tokens);
  o.Read("high_precision", &c.high_precision);
  o.Read("diagnostics_every", &c.diagnostics_every);
  if (const Json* texts = o.Member("texts")) {
    c.texts = ReadValidationTexts(*texts, o.Where("texts"));
  }
  o.Finish();
  CheckAtLeast<std::int64_t>(o, "every", c.every, 0);
  CheckAtLeast<std::int64_t>(o, "tokens", c.tokens, 0);
  CheckAtLeast<std::int64_t>(o, "chunk_tokens", c.chunk_tokens, 1);
  CheckAtLeast(o, "diagnostics_every", c.diagnostics_every, 0);
  return c;
}

Json ToJson(const EvaluationConfig& c) {
  const IeeeArithmetic ieee;
  Json json = {{"every", c.every},
               {"tokens", c.tokens},
               {"chunk_tokens", c.chunk_tokens},
               {"high_precision", c.high_precision},
               {"diagnostics_every", c.diagnostics_every}};
  if (!c.texts.empty()) json["texts"] = ToJson(std::span(c.texts));
  return json;
}

TrainConfig ReadTrainConfig(const Json& json, const std::string& where) {
  const IeeeArithmetic ieee;
  TrainConfig c;
  c.recipe = ReadRecipe(Json("bf16"), where);
  JsonObject o(json, where);
  std::string device(DeviceName(c.device));
  o.Read("device", &device);
  c.device = ReadDevice(device, o.Where("device"));
  c.start = ReadStartKey(&o);
  c.model = ReadModelConfig(ModelWithStart(&o, c.start), o.Where("model"));
  if (const Json* teacher = o.Member("teacher")) {
    c.teacher = ReadTeacherConfig(*teacher, o.Where("teacher"), c.start);
  }
  ReadMember(&o, "optimizer", &ReadOptimizerConfig, &c.optimizer);
  ReadMember(&o, "schedule", &ReadScheduleConfig, &c.schedule);
  ReadMember(&o, "recipe", &ReadRecipe, &c.recipe);
  ReadMember(&o, "data", &ReadDataConfig, &c.data);
  ReadMember(&o, "evaluation", &ReadEvaluationConfig, &c.evaluation);
  ReadMember(&o, "diagnostics", &ReadDiagnosticsConfig, &c.diagnostics);
  o.Read("seed", &c.seed);
  o.Read("nudge_ulps", &c.nudge_ulps);
  o.Read("tokens", &c.tokens);
  o.Read("batch", &c.batch);
  o.Read("micro_batches", &c.micro_batches);
  o.Read("log_every", &c.log_every);
  o.Read("checkpoint_every", &c.checkpoint_every);
  o.Read("checkpoint_minutes", &c.checkpoint_minutes);
  o.Finish();
  CheckSize(o, "nudge_ulps", c.nudge_ulps, 0, kMostNudge);
  CheckAtLeast(o, "batch", c.batch, 1);
  CheckAtLeast(o, "micro_batches", c.micro_batches, 1);
  CheckAtLeast<std::int64_t>(o, "log_every", c.log_every, 1);
  CheckAtLeast<std::int64_t>(o, "checkpoint_every", c.checkpoint_every, 0);
  CheckAtLeast(o, "checkpoint_minutes", c.checkpoint_minutes, 0.0);
  CheckShapes(c, where);
  return c;
}

Json ToJson(const TrainConfig& c) {
  const IeeeArithmetic ieee;
  Json json = {{"device", DeviceName(c.device)},
               {"model", ToJson(c.model)},
               {"optimizer", ToJson(c.optimizer)},
               {"schedule", ToJson(c.schedule)},
               {"recipe", ToJson(c.recipe)},
               {"data", ToJson(c.data)},
               {"evaluation", ToJson(c.evaluation)},
               {"seed", c.seed},
               {"nudge_ulps", c.nudge_ulps},
               {"tokens", c.tokens},
               {"batch", c.batch},
               {"micro_batches", c.micro_batches},
               {"log_every", c.log_every},
               {"checkpoint_every", c.checkpoint_every},
               {"checkpoint_minutes", c.checkpoint_minutes}};
  if (c.diagnostics.Asked()) json["diagnostics"] = ToJson(c.diagnostics);
  if (!c.start.empty()) json["start"] = c.start;
  if (c.teacher.Asked()) json["teacher"] = ToJson(c.teacher);
  return json;
}

std::int64_t TokensPerStep(const TrainConfig& c) {
  return static_cast<std::int64_t>(c.batch) * c.model.sequence;
}

std::int64_t TotalSteps(const TrainConfig& c) { return c.tokens / TokensPerStep(c); }

}  // namespace fp4lab
