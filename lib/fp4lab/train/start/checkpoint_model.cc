#include "fp4lab/train/start/checkpoint_model.h"

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/io/file.h"
#include "fp4lab/train/checkpoint.h"

namespace fp4lab {

std::filesystem::path CheckpointFile(const std::filesystem::path& checkpoint) {
  return std::filesystem::is_directory(checkpoint) ? checkpoint / "checkpoint.fp4lab" : checkpoint;
}

FileContent OpenCheckpoint(const std::filesystem::path& checkpoint, const std::string& where) {
  const std::filesystem::path path = CheckpointFile(checkpoint);
  if (!Exists(path)) throw Error(where, "there is no checkpoint " + path.string());
  return FileContent(path);
}

const Json& ModelIn(const CheckpointHeader& header, const std::string& where,
                    const std::filesystem::path& checkpoint) {
  const Json& configuration = header.configuration;
  if (!configuration.is_object() || !configuration.contains("model")) {
    throw Error(where, CheckpointFile(checkpoint).string() + " has no configuration of a model");
  }
  return configuration.at("model");
}

Json ModelOfCheckpoint(const std::filesystem::path& checkpoint, const std::string& where) {
  const IeeeArithmetic ieee;
  const FileContent content = OpenCheckpoint(checkpoint, where);
  return ModelIn(ReadCheckpointHeader(content.bytes(), CheckpointFile(checkpoint).string()), where,
                 checkpoint);
}

}  // namespace fp4lab
