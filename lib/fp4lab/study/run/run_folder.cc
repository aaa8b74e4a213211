#include "fp4lab/study/run/run_folder.h"

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/io/file.h"

namespace fp4lab::study {
namespace {

constexpr std::string_view kSchema = "fp4lab.study.run/1";
constexpr std::size_t kFolderDigits = 16;  // digits of the key; enough to tell folders apart

}  // namespace

Json RunInputs(const TrainConfig& config, const Corpus& corpus, const std::string& numerics) {
  Json inputs = {{"numerics", numerics},
                 {"model", ToJson(config.model)},
                 {"optimizer", ToJson(config.optimizer)},
                 {"schedule", ToJson(config.schedule)},
                 {"recipe", ToJson(config.recipe)},
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
  // A GPU sums in another order than a CPU, so runs of different devices have different keys.
  if (config.device != Device::kCpu) inputs["device"] = DeviceName(config.device);
  return inputs;
}

RunFolder::RunFolder(const std::filesystem::path& out_dir, const TrainConfig& config,
                     const Corpus& corpus, const std::string& numerics)
    : inputs_(RunInputs(config, corpus, numerics)),
      key_(Sha256(inputs_.dump())),
      folder_(out_dir / "runs" / key_.substr(0, kFolderDigits)) {}

void RunFolder::Sweep() const {
  constexpr std::string_view kWritten[] = {"result.json", "checkpoint"};
  RemovePartialFiles(folder_, kWritten);
}

std::optional<RunRecord> RunFolder::ReadResult() const {
  const std::string where = ResultPath().string();
  if (!Exists(ResultPath())) return std::nullopt;
  const Json json = ReadJsonFile(ResultPath());
  if (!json.is_object() || json.value("schema", Json()) != kSchema ||
      json.value("key", Json()) != key_ || !json.contains("record") || !json.contains("inputs") ||
      Sha256(json["inputs"].dump()) != key_ ||  // the key is the hash of the inputs
      json.value("sha256", Json()) != Sha256(json["record"].dump())) {
    throw Error(where, "is damaged, or was changed after fp4lab wrote it");
  }
  return ReadRunRecord(json["record"], where);
}

void RunFolder::WriteResult(const RunRecord& record) const {
  Json body = ToJson(record);
  std::string hash = Sha256(body.dump());
  const Json json = {{"schema", kSchema},
                     {"key", key_},
                     {"inputs", inputs_},
                     {"record", std::move(body)},
                     {"sha256", std::move(hash)}};
  WriteFileAtomically(ResultPath(), json.dump() + "\n");
}

std::optional<std::vector<std::byte>> RunFolder::ReadCheckpoint() const {
  if (!Exists(CheckpointPath())) return std::nullopt;
  const std::string text = ReadFile(CheckpointPath());
  const auto bytes = std::as_bytes(std::span(text));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

void RunFolder::WriteCheckpoint(std::span<const std::byte> bytes) const {
  WriteFileAtomically(CheckpointPath(), bytes);
}

}  // namespace fp4lab::study
