#include "fp4lab/study/run/record/step_log.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/io/file.h"

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

}  // namespace

StepLog::StepLog(std::filesystem::path path, std::int64_t steps) : path_(std::move(path)) {
  const IeeeArithmetic ieee;
  const std::string old = Exists(path_) ? ReadFile(path_) : "";
  WriteFileAtomically(path_, LinesUpTo(old, steps, path_.string()));
}

void StepLog::Write(const Json& line) {
  const IeeeArithmetic ieee;
  errno = 0;
  std::ofstream file(path_, std::ios::app | std::ios::binary);
  file << line.dump() + "\n" << std::flush;
  if (!file) throw Error(path_.string(), std::string("cannot be written: ") + std::strerror(errno));
}

}  // namespace fp4lab::study
