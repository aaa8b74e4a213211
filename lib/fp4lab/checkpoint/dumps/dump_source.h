// Named tensors that a program dumped: the .safetensors, .npz and .npy files of a folder, or one of
// them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/checkpoint/checkpoint.h"

namespace fp4lab {

class DumpSource {
 public:
  // An .npy file is a tensor with the file's name. Throws Error for what cannot be read, and for a
  // folder without a tensor.
  DumpSource(const std::filesystem::path& path, const NpzReader& read_npz);

  // Tensors in memory.
  explicit DumpSource(SafetensorsFile tensors) { checkpoint_.tensors = std::move(tensors); }

  const std::string& path() const { return checkpoint_.path; }
  const SafetensorsFile& tensors() const { return checkpoint_.tensors; }
  // Decodes `values.size()` elements of a tensor from element `first` on; integers and booleans are
  // numbers (beyond 2^53 to the nearest of binary64), U16 is BF16. Pages of mapped files that were
  // read are released.
  void Decode(const SafetensorsTensor& tensor, std::size_t first, std::span<double> values) const;
  // Whether Decode reads this dtype.
  static bool IsRead(const std::string& dtype);

 private:
  void AddNpy(const std::filesystem::path& path);

  ModelFiles checkpoint_;
  std::vector<std::unique_ptr<FileContent>> npys_;
};

}  // namespace fp4lab
