// A study that trains in about a second: two arms of a one-layer model on synthetic text.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab::study {

inline Json TinyStudyJson() {
  return Json::parse(R"({
    "name": "tiny",
    "model": {"layers": 1, "d_model": 64, "heads": 2, "ffn": 64, "sequence": 32},
    "schedule": {"learning_rate": 0.01, "warmup_steps": 3},
    "data": {"source": "synthetic", "synthetic_bytes": 20000},
    "batch": 4,
    "evaluation": {"tokens": 512, "chunk_tokens": 128},
    "arms": {"bf16": {"recipe": "bf16"}, "nvfp4": {"recipe": "te_nvfp4"}},
    "seeds": [1, 2],
    "budgets": [1280, 2560]
  })");
}

inline Study TinyStudy(const Json& json = TinyStudyJson()) {
  return ParseStudy(json.dump(), "tiny.json");
}

// An empty folder for one test, removed with the object.
class TestFolder {
 public:
  explicit TestFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("fp4lab-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;
  ~TestFolder() {
    std::error_code status;
    std::filesystem::remove_all(path_, status);
  }
  const std::filesystem::path& Path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fp4lab::study
