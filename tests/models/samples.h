// The sample models of tests/models/samples, which tests/python_transformers/models.py makes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {

inline std::filesystem::path SampleFolder(const std::string& name) {
  return std::filesystem::path(FP4LAB_TEST_SOURCE_DIR) / "tests/models/samples" / name;
}

inline std::vector<std::string> SampleNames() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(SampleFolder(""))) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// A folder with a copy of a sample, whose config.json has other members, and tensors.
struct ChangedSample {
  Json config;
  SafetensorsFile file;

  explicit ChangedSample(const std::string& name)
      : config(ReadJsonFile(SampleFolder(name) / "config.json")),
        file(ReadSafetensors(SampleFolder(name) / "model.safetensors")) {}

  void Write(const std::filesystem::path& folder) const {
    WriteFileAtomically(folder / "config.json", config.dump());
    WriteSafetensors(folder / "model.safetensors", file);
  }
};

}  // namespace fp4lab
