// Files of quantized matrices: in fp4lab's own convention, in the vendors' and in GGUF.
//
// The convention of fp4lab, in .safetensors (.npz has the same names, with "u1" for codes and
// scales and "f4" for the tensor scale):
//   NAME.codes      F4 (rows, cols) for low-first nibbles, F8_* (rows, cols) for FP8, else U8
//                   (rows, bytes of a row): rows and cols as stored, columns rounded up to bytes
//   NAME.scales     F8_E4M3 or F8_E8M0 (U8 in .npz), F32 or BF16 (U16 in .npz), (rows, cols) with
//                   their padding; swizzled scales are one row; absent if the tensor is one block
//   NAME.tensor_scale
//                   F32, one number or one a row; absent if there is none. If NeedsTensorScale, the
//                   description then has "tensor_scale_is": "none"
//   __metadata__    "fp4lab.NAME": a JSON object {"dialect", "shape", "element", "scale", "block",
//                   "codes", "scales", "transposed", "expanded_scales", "tensor_scale_is"}
// If the name is empty, the tensors are "codes", "scales" and "tensor_scale", and the key is
// "fp4lab". Older files say "level_two" for "tensor_scale" and "tensor_scale_is"; they are read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/exchange/vendors/vendor.h"
#include "fp4lab/io/file_content.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {

struct StoredFileEntry {
  std::string name;
  std::string convention;  // "fp4lab", "gguf" or the name of a vendor
  friend bool operator==(const StoredFileEntry&, const StoredFileEntry&) = default;
};

struct StoredFile {
  StoredFileEntry entry;
  std::string dialect;  // the name in fp4lab's description or in the options; empty: unknown
  StoredMatrix matrix;
};

// The names of conventions that can be written: "fp4lab", "gguf" and the vendors.
std::vector<std::string_view> Conventions();

// The quantized matrices of a .safetensors, .npz or .gguf file.
std::vector<StoredFileEntry> ListStored(const std::filesystem::path& path);
std::vector<StoredFileEntry> ListStored(const SafetensorsFile& file);

// Reads a quantized matrix. `place` is path or path#name (exchange/matrix_file.h); the name is that
// of the matrix or of the tensor with its codes; without a name, the file must hold one matrix.
// Throws Error with the existing names for an unknown or missing name. The options apply to
// vendors' tensors. Files in fp4lab's convention state everything themselves, but
// options.tensor_scale = kNone allows a missing tensor scale in them, too.
StoredFile ReadStored(std::string_view place, const ReadStoredOptions& options = {});
StoredFile ReadStored(const SafetensorsFile& file, const StoredFileEntry& entry,
                      const ReadStoredOptions& options, const std::string& where);

// Writes a file with one matrix. The path's ending and the convention must go together: .gguf for
// "gguf", .safetensors or .npz for the others. scale_max is the dialect's.
void WriteStored(std::string_view place, const StoredMatrix& stored, std::string_view dialect,
                 std::string_view convention, float scale_max);

// Adds a matrix in fp4lab's convention to a file, or reads one from it.
void AddStored(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
               SafetensorsFile* file);
StoredFile TakeStored(const SafetensorsFile& file, const std::string& name,
                      const std::string& where, const ReadStoredOptions& options = {});

// A .safetensors or .npz file, open for reading: its list of tensors, and the bytes of the tensors
// that the caller needs. An .npz file is presented as .safetensors: u1 as U8, f4 as F32 ...; the
// arrays "fp4lab.NAME" and "fp4lab" are metadata.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  // Every tensor with its dtype and shape. The tensors of a .safetensors file are views of the
  // mapped file; the tensors of an .npz file have no bytes before Load.
  const SafetensorsFile& tensors() const { return tensors_; }
  // Unpacks the tensors whose names start with `prefix`.
  void Load(std::string_view prefix);

 private:
  FileContent content_;
  std::optional<NpzFile> npz_;
  SafetensorsFile tensors_;
};
// Writes a .safetensors file, or an .npz file for any other ending.
void WriteTensors(const std::filesystem::path& path, const SafetensorsFile& file);

}  // namespace fp4lab
