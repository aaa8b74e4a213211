#include "fp4lab/study/run/record/run_folder.h"

#include <system_error>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/io/shared_lock.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/start/start.h"
#include "fp4lab/train/start/teacher.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kSchema = "fp4lab.study.run/1";
constexpr std::size_t kFolderDigits = 16;  // digits of the key; enough to tell folders apart

// `config` without the members that may differ between the sittings of one run.
Json WithoutLogging(Json config) {
  for (const char* key : {"device", "log_every", "checkpoint_every", "checkpoint_minutes"}) {
    config.erase(key);
  }
  return config;
}

// The recipe without the names that it was derived from: what it computes is spelled out.
Json WithoutNames(Json recipe) {
  recipe.erase("base");
  if (recipe.contains("rules")) {
    recipe.erase("name");
    for (Json& rule : recipe["rules"]) rule["recipe"] = WithoutNames(std::move(rule["recipe"]));
    recipe["rest"] = WithoutNames(std::move(recipe["rest"]));
  }
  if (recipe.contains("then")) {
    recipe["then"]["recipe"] = WithoutNames(std::move(recipe["then"]["recipe"]));
  }
  return recipe;
}

}  // namespace

Json RunInputs(const TrainConfig& config, const Corpus& corpus, const std::string& numerics) {
  const IeeeArithmetic ieee;
  Json inputs = {{"numerics", numerics},
                 {"model", ToJson(config.model)},
                 {"optimizer", ToJson(config.optimizer)},
                 {"schedule", ToJson(config.schedule)},
                 {"recipe", WithoutNames(ToJson(config.recipe))},
                 {"seed", config.seed},
                 {"batch", config.batch},
                 {"micro_batches", config.micro_batches},
                 {"evaluation",
                  {{"tokens", config.evaluation.tokens},
                   {"chunk_tokens", config.evaluation.chunk_tokens},
                   {"high_precision", config.evaluation.high_precision}}},
                 {"corpus",
                  {{"vocabulary", corpus.vocabulary},
                   {"train_sha256", corpus.train_sha256},
                   {"validation_sha256", corpus.validation_sha256}}}};
  for (const ValidationPart& text : corpus.texts) {
    inputs["evaluation"]["texts"][text.name] = text.sha256;
  }
  if (!config.start.empty()) inputs["start"] = HashOfCheckpoint(config.start, "start");
  if (config.teacher.Asked()) inputs["teacher"] = TeacherIdentity(config, "teacher");
  if (config.data.order_seed) inputs["order_seed"] = *config.data.order_seed;
  if (config.nudge_ulps != 0) inputs["nudge_ulps"] = config.nudge_ulps;
  if (config.diagnostics.Asked()) inputs["diagnostics"] = ToJson(config.diagnostics);
  // The order in which the CPU adds gradients; runs of one micro-batch have nothing to add.
  if (config.device == Device::kCpu && config.micro_batches > 1) {
    inputs["gradients"] = "summed by micro-batch";
  }
  // A GPU sums in another order than a CPU, so runs of different devices have different keys.
  if (config.device != Device::kCpu) inputs["device"] = DeviceName(config.device);
  return inputs;
}

std::string RunKey(const Json& inputs) { return Sha256(inputs.dump()); }

RunFolder::RunFolder(const std::filesystem::path& out_dir, const Json& inputs)
    : folder_(out_dir / "runs" / RunKey(inputs).substr(0, kFolderDigits)) {}

bool RunFolder::HasRemains() const {
  std::error_code status;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, status)) {
    const std::string file = entry.path().filename().string();
    if (file.starts_with(SharedLock::kFile) || file.find(".partial-") != file.npos) return true;
  }
  return false;
}

void RunFolder::Sweep() const {
  constexpr std::string_view kWritten[] = {"checkpoint.fp4lab",  "config.json",
                                           "metrics.jsonl",      "diagnostics.jsonl",
                                           "observations.jsonl", "result.json"};
  RemovePartialFiles(folder_, kWritten);
}

std::unique_ptr<FileContent> RunFolder::OpenCheckpoint() const {
  return Exists(Checkpoint()) ? std::make_unique<FileContent>(Checkpoint()) : nullptr;
}

void RunFolder::SaveCheckpoint(const std::function<void(const ByteSink& sink)>& save) const {
  WriteFileAtomically(Checkpoint(), save);
}

void RunFolder::RefuseToOverwrite() const {
  if (!HasConfiguration() && !Exists(Checkpoint())) return;
  throw Error(folder_.string(),
              "already holds a run; continue it with --resume, or give another --out-dir");
}

void RunFolder::CheckSameRun(const TrainConfig& config) const {
  const IeeeArithmetic ieee;
  const std::string path = Configuration().string();
  const TrainConfig there = ReadTrainConfig(ReadJsonFile(path), path);
  const std::string difference =
      FirstDifference(WithoutLogging(ToJson(config)), WithoutLogging(ToJson(there)));
  if (difference.empty()) return;
  throw Error(path, "is the configuration of another run: " + difference);
}

std::optional<RunRecord> RunFolder::ReadResult(const Json& inputs) const {
  const IeeeArithmetic ieee;
  const std::string where = Result().string(), key = RunKey(inputs);
  if (!Exists(Result())) return std::nullopt;
  const Json json = ReadJsonFile(Result());
  if (!json.is_object() || json.value("schema", Json()) != kSchema ||
      json.value("key", Json()) != key || !json.contains("record") || !json.contains("inputs") ||
      RunKey(json["inputs"]) != key ||
      json.value("sha256", Json()) != Sha256(json["record"].dump())) {
    throw Error(where, "is damaged, or was changed after fp4lab wrote it");
  }
  return ReadRunRecord(json["record"], where);
}

void RunFolder::WriteResult(const Json& inputs, const RunRecord& record) const {
  const IeeeArithmetic ieee;
  Json body = ToJson(record);
  std::string hash = Sha256(body.dump());
  const Json json = {{"schema", kSchema},
                     {"key", RunKey(inputs)},
                     {"inputs", inputs},
                     {"record", std::move(body)},
                     {"sha256", std::move(hash)}};
  WriteFileAtomically(Result(), json.dump() + "\n");
}

}  // namespace fp4lab::study
