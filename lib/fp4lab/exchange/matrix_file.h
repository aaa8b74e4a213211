// A matrix of numbers from any file that the field keeps one in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/byte_array.h"
#include "fp4lab/io/file_content.h"

namespace fp4lab {

struct NumberFile {
  Matrix<float> values;            // (product of the leading dimensions, last one); a scalar: 1x1
  NumberType type;                 // of the numbers in the file
  std::vector<std::size_t> shape;  // in the file
};

// The same for who only reads the numbers. Binary32 that lies in row-major order at addresses for
// numbers stays in the mapped file; all else is decoded into memory.
struct NumberView {
  MatrixView<const float> values;
  NumberType type;
  std::vector<std::size_t> shape;
  // What the values lie in, all of which may be moved about with them.
  std::unique_ptr<FileContent> content = {};
  ByteArray bytes = {};             // in the content, or a copy in row-major order
  std::vector<float> decoded = {};  // empty where the values are those of `bytes`
};

struct ReadMatrixOptions {
  // For raw files, which do not say it; elsewhere it must agree.
  std::vector<std::size_t> shape = {};
  // The type of numbers: for raw files, and where .npy holds unsigned integers or raw bytes ("u1",
  // "u2", "V1", "V2"), one element an integer. 16-bit ones are BF16 where nothing is stated.
  std::string dtype = {};
};

// "128x256" and "4x128x256". Error("--shape 12x", ...) for anything else.
std::vector<std::size_t> ParseShape(std::string_view text, std::string_view where);
std::string ShapeText(const std::vector<std::size_t>& shape);

// A path, or path#name (path:name) for an array of an .npz, a tensor of a .safetensors or .gguf
// file; without a name, its only one. By the file's ending:
//   .npy .npz       f2, f4; u2, V2 as BF16 or a stated dtype; u1, V1 with a stated dtype
//   .safetensors    F32, F16, BF16, F8_*, F6_*, F4; U16 and U8 as u2 and u1
//   .gguf           F32, F16, BF16
//   any other       raw little-endian elements with a stated shape and dtype
NumberFile ReadMatrix(std::string_view place, const ReadMatrixOptions& options = {});
NumberView ViewMatrix(std::string_view place, const ReadMatrixOptions& options = {});

// The bytes of the same places, whatever they mean; of a raw file all.
std::vector<std::byte> ReadBytes(std::string_view place);

// By the ending: .npy and .npz (float32, float16 as they are; other types as "u1" or "u2" codes),
// .safetensors, any other raw. A name after '#' names the array ["x"].
void WriteMatrix(std::string_view place, MatrixView<const float> values, NumberType type = {});

// path#name or path:name, split at the first such sign that follows one of the endings above; the
// whole is the path where there is none.
struct FilePlace {
  std::filesystem::path path;
  std::string name;    // empty: none given
  std::string ending;  // ".npz", in small letters
};
FilePlace SplitPlace(std::string_view place);
// Whether the file says the type of its numbers: it has one of the endings above.
bool HoldsType(std::string_view place);

}  // namespace fp4lab
