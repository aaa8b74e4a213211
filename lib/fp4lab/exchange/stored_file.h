// Files of quantized matrices: ours, the vendors', GGUF.
//
// Our convention, in .safetensors (in .npz the same names; "u1" for codes and scales, "f4"):
//   NAME.codes      F4 (rows, cols) for low-first nibbles, F8_* (rows, cols) for FP8, else U8
//                   (rows, bytes of a row): rows and cols as stored, columns rounded up to bytes
//   NAME.scales     F8_E4M3 or F8_E8M0 (U8 in .npz), (rows, cols) with their padding; swizzled ones
//                   are one row of bytes; absent where the tensor is one block
//   NAME.level_two  F32, one or one a row; absent where there is none, which the description says
//                   with "level_two": "none" where NeedsLevelTwo
//   __metadata__    "fp4lab.NAME": a JSON object {"dialect", "shape", "element", "scale", "block",
//                   "codes", "scales", "transposed", "expanded_scales", "level_two"}
// Where a name is empty the tensors are "codes", "scales", "level_two" and the key is "fp4lab".
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/vendor.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/npy.h"

namespace fp4lab {

struct StoredFileEntry {
  std::string name;
  std::string convention;  // "fp4lab", "gguf" or a vendor's
  friend bool operator==(const StoredFileEntry&, const StoredFileEntry&) = default;
};

struct StoredFile {
  StoredFileEntry entry;
  std::string dialect;  // as our convention says it; empty: unknown
  StoredMatrix matrix;
};

// The names of conventions that can be written: "fp4lab", "gguf" and the vendors.
std::vector<std::string_view> Conventions();

// The quantized matrices of a .safetensors, .npz or .gguf file.
std::vector<StoredFileEntry> ListStored(const std::filesystem::path& path);
std::vector<StoredFileEntry> ListStored(const SafetensorsFile& file);

// path or path#name (exchange/matrix_file.h). A name may be that of the matrix or of the tensor
// with its codes; without one the file's only matrix. Error with the names that there are. Options
// apply to vendors' tensors; our own files say everything themselves, but options.level_two = kNone
// lets the number of level 2 be missing there as well.
StoredFile ReadStored(std::string_view place, const ReadStoredOptions& options = {});
StoredFile ReadStored(const SafetensorsFile& file, const StoredFileEntry& entry,
                      const ReadStoredOptions& options, const std::string& where);

// Writes a file with one matrix. The path's ending and the convention must go together: .gguf for
// "gguf", .safetensors or .npz for the others. scale_max is the dialect's.
void WriteStored(std::string_view place, const StoredMatrix& stored, std::string_view dialect,
                 std::string_view convention, float scale_max);

// One matrix in our convention, added to a file or read from it.
void AddStored(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
               SafetensorsFile* file);
StoredFile TakeStored(const SafetensorsFile& file, const std::string& name,
                      const std::string& where, const ReadStoredOptions& options = {});

// A .safetensors or .npz file, open for reading: what it holds, without a copy of the tensors that
// nobody asked for. .npz as .safetensors: u1 as U8, f4 as F32 ...; arrays "fp4lab.NAME" and
// "fp4lab" are metadata.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  // Every tensor with its dtype and shape. Those of a .safetensors file lie in the mapped file;
  // those of an .npz have their bytes after Load.
  const SafetensorsFile& tensors() const { return tensors_; }
  // Unpacks the tensors whose names start so.
  void Load(std::string_view prefix);

 private:
  FileContent content_;
  std::optional<NpzFile> npz_;
  SafetensorsFile tensors_;
};
void WriteTensors(const std::filesystem::path& path, const SafetensorsFile& file);

}  // namespace fp4lab
