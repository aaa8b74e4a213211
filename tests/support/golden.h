// The golden vectors of tests/golden (see its README.md for where they come from).
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "fp4lab/io/json.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {

// The source tree: the environment variable FP4LAB_SOURCE_DIR, which ctest sets, or the folder that
// the test was compiled from.
inline std::filesystem::path SourceDirectory() {
  const char* folder = std::getenv("FP4LAB_SOURCE_DIR");
  return folder != nullptr && *folder != '\0' ? folder : FP4LAB_TEST_SOURCE_DIR;
}

inline std::filesystem::path GoldenPath(const std::string& name) {
  return SourceDirectory() / "tests" / "golden" / name;
}

inline NpzFile OpenGolden(const std::string& name) { return NpzFile(GoldenPath(name)); }

// The list of cases that the te_*.npz files carry as an array of UTF-8 bytes, "index".
inline Json GoldenIndex(const NpzFile& file) {
  const NpyArray index = file.Read("index");
  return ParseJson(index.Text(), index.where);
}

}  // namespace fp4lab
