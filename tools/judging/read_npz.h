// The reader of .npz files for commands that take checkpoints (checkpoint/checkpoint.h).
#pragma once

#include <filesystem>

#include "fp4lab/exchange/stored_file.h"

namespace fp4lab::tools {

inline SafetensorsFile ReadNpzTensors(const std::filesystem::path& path) {
  TensorFile file(path);
  file.Load("");
  return file.tensors();
}

}  // namespace fp4lab::tools
