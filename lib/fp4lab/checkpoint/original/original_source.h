// The matrices that a checkpoint was quantized from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "fp4lab/checkpoint/checkpoint.h"
#include "fp4lab/checkpoint/original/original.h"
#include "fp4lab/exchange/number_type.h"

namespace fp4lab {

// A checkpoint of binary32, BF16 or FP16 tensors, or one .npy file.
class OriginalSource {
 public:
  OriginalSource(const std::filesystem::path& path, const NpzReader& read_npz);

  // The tensor of a matrix: of its name, its name and ".weight", either one without or with
  // "model." before it; the only one, if there is one only and the checkpoint has one matrix only.
  // Empty: there is none.
  std::string Find(const std::string& matrix, bool only_matrix) const;

  // The rows of all parts of a tensor, which may be stored transposed. Sets *problem, and returns
  // nothing, for another number of elements or another dtype.
  RowReader Rows(const std::string& tensor, const Reading& reading, std::string* problem) const;

 private:
  std::unique_ptr<FileContent> npy_;
  ModelFiles checkpoint_;
};

}  // namespace fp4lab
