// Matrices of numbers in the common file formats: .npy, .npz, .safetensors, .gguf and raw files.
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
#include "fp4lab/exchange/shape.h"
#include "fp4lab/io/byte_array.h"
#include "fp4lab/io/file_content.h"

namespace fp4lab {

struct NumberFile {
  // (product of the leading dimensions, last dimension); a scalar is 1x1.
  Matrix<float> values;
  NumberType type;                 // type of the numbers in the file
  std::vector<std::size_t> shape;  // shape in the file
};

// A NumberFile for callers that only read the numbers. Binary32 numbers that are aligned and in
// row-major order stay in the mapped file; all others are decoded into memory.
struct NumberView {
  MatrixView<const float> values;
  NumberType type;
  std::vector<std::size_t> shape;
  // The memory that `values` refers to; moving a NumberView keeps `values` valid.
  std::unique_ptr<FileContent> content = {};
  ByteArray bytes = {};             // a view of `content`, or a copy in row-major order
  std::vector<float> decoded = {};  // empty if `values` refers to `bytes`
};

struct ReadMatrixOptions {
  // The shape: needed for raw files, which do not state it. For other files it may be empty; a
  // stated shape must agree with the file's.
  std::vector<std::size_t> shape = {};
  // The type of the numbers: needed for raw files, and for .npy arrays of unsigned integers or raw
  // bytes ("u1", "u2", "V1", "V2"), one element an integer. 16-bit integers are BF16 if it is
  // empty.
  std::string dtype = {};
};

// Reads a matrix. `place` is a path, or path#name (path:name) for an array of an .npz file or a
// tensor of a .safetensors or .gguf file; without a name, the file's only one. By the file's
// ending:
//   .npy .npz       f2, f4; u2, V2 as BF16 or a stated dtype; u1, V1 with a stated dtype
//   .safetensors    F32, F16, BF16, F8_*, F6_*, F4; U16 and U8 as u2 and u1
//   .gguf           F32, F16, BF16
//   any other       raw little-endian elements with a stated shape and dtype
NumberFile ReadMatrix(std::string_view place, const ReadMatrixOptions& options = {});
NumberView ViewMatrix(std::string_view place, const ReadMatrixOptions& options = {});

// The bytes at such a place, whatever their type; of a raw file all bytes.
std::vector<std::byte> ReadBytes(std::string_view place);
// The same bytes with the shape that the file states for the array, in its elements; empty for a
// scalar, and for raw and .gguf files, which state none.
struct ByteGrid {
  std::vector<std::byte> bytes;
  std::vector<std::size_t> shape;
};
ByteGrid ReadByteGrid(std::string_view place);

// Writes a matrix by the ending of the file: .npy and .npz (float32 and float16 as such; other
// types as "u1" or "u2" codes), .safetensors, any other ending raw. A name after '#' is the name of
// the array or tensor ["x"]. Throws Error for .gguf, and for types of less than 8 bits in .npy and
// .npz.
void WriteMatrix(std::string_view place, MatrixView<const float> values, NumberType type = {});

// Splits path#name or path:name at the first '#' or ':' that follows one of the endings above;
// without one, the whole text is the path.
struct FilePlace {
  std::filesystem::path path;
  std::string name;    // empty: none given
  std::string ending;  // ".npz", in lower case
};
FilePlace SplitPlace(std::string_view place);
// Whether the file states the type of its numbers: its ending is .npy, .npz, .safetensors or .gguf.
bool HoldsType(std::string_view place);

}  // namespace fp4lab
