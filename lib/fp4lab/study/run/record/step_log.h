// A log of a training run: metrics.jsonl, diagnostics.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>

#include "fp4lab/io/json.h"

namespace fp4lab::study {

// A text file of one JSON object a line, each with a "step".
class StepLog {
 public:
  // Keeps the lines of the first `steps` steps. Drops later lines and a half-written last line,
  // which an interrupted run wrote after its last checkpoint. Throws Error for a line without a
  // "step".
  StepLog(std::filesystem::path path, std::int64_t steps);
  // Appends a line. Throws Error if the file cannot be written.
  void Write(const Json& line);

 private:
  std::filesystem::path path_;
};

}  // namespace fp4lab::study
