// The matrices that a checkpoint is compared with: numbers, or quantized ones, which are decoded.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/checkpoint/checkpoint.h"
#include "fp4lab/checkpoint/original/original.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/stored_file.h"

namespace fp4lab {

// A checkpoint of binary32, BF16 or FP16 tensors or of quantized matrices, or one .npy file.
class OriginalSource {
 public:
  OriginalSource(const std::filesystem::path& path, const NpzReader& read_npz);

  // The tensor of a matrix: of its name, its name and ".weight", either one without or with
  // "model." before it; else the quantized matrix of such a name; the only one, if there is one
  // only and the checkpoint has one matrix only. Empty: there is none.
  std::string Find(const std::string& matrix, bool only_matrix) const;

  // The rows of all parts of a tensor, which may be stored transposed, or of a quantized matrix,
  // decoded row by row. Sets *problem, and returns nothing, for another number of elements, another
  // dtype, or a quantized matrix that cannot be read.
  RowReader Rows(const std::string& tensor, const Reading& reading, std::string* problem) const;

  // Whether the rows of a tensor, of another shape than the matrix, are columns of the file's.
  bool IsTransposed(const std::string& tensor, const Reading& reading) const;

  // Up to 512 other tensors of numbers that have the size of the matrix, those of the nearest names
  // first.
  std::vector<OtherOriginal> Others(const std::string& tensor, const Reading& reading) const;

 private:
  RowReader DecodedRows(const StoredFileEntry& entry, const Reading& reading,
                        std::string* problem) const;
  const StoredFileEntry* EntryOf(const std::string& name) const;

  std::unique_ptr<FileContent> npy_;
  ModelFiles checkpoint_;
  std::vector<StoredFileEntry> entries_;  // quantized matrices
};

}  // namespace fp4lab
