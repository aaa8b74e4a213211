#include "fp4lab/study/run/train_folder.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/train/checkpoint.h"

namespace fp4lab::study {
namespace {

// The whole lines of `text` that belong to the first `steps` steps.
std::string LinesUpTo(const std::string& text, std::int64_t steps, const std::string& where) {
  std::string kept;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    const Json json = ParseJson(line, where);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) {
      throw Error(where, "a line has no \"step\"; remove the file to continue without it");
    }
    if (json["step"].get<std::int64_t>() <= steps) kept += line + "\n";
    begin = end + 1;
  }
  return kept;
}

// `config` without the members that may differ between the sittings of one run.
Json WithoutLogging(Json config) {
  for (const char* key : {"device", "log_every", "checkpoint_every", "checkpoint_minutes"}) {
    config.erase(key);
  }
  return config;
}

}  // namespace

StepLog::StepLog(std::filesystem::path path, std::int64_t steps) : path_(std::move(path)) {
  const std::string old = Exists(path_) ? ReadFile(path_) : "";
  WriteFileAtomically(path_, LinesUpTo(old, steps, path_.string()));
}

void StepLog::Write(const Json& line) {
  errno = 0;
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  file << line.dump() + "\n" << std::flush;
  if (!file) throw Error(path_.string(), std::string("cannot be written: ") + std::strerror(errno));
}

void TrainFolder::Sweep() const {
  std::vector<std::string> names;
  for (const auto& path : {Configuration(), Checkpoint(), Metrics(), Diagnostics()}) {
    names.push_back(path.filename().string());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  RemovePartialFiles(folder_, views);
}

void TrainFolder::RefuseToOverwrite() const {
  if (!HasConfiguration() && !HasCheckpoint()) return;
  throw Error(folder_.string(),
              "already holds a run; continue it with --resume, or give another --out-dir");
}

void TrainFolder::CheckSameRun(const TrainConfig& config) const {
  const std::string path = Configuration().string();
  const TrainConfig there = ReadTrainConfig(ReadJsonFile(path), path);
  const std::string difference =
      FirstDifference(WithoutLogging(ToJson(config)), WithoutLogging(ToJson(there)));
  if (difference.empty()) return;
  throw Error(path, "is the configuration of another run: " + difference);
}

}  // namespace fp4lab::study
