#include "fp4lab/checkpoint/original/original_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/exchange/shape.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

// The safetensors dtype of a NumPy array of numbers; two-byte integers are BF16.
std::string DtypeOf(const NpyArray& array, const std::string& where) {
  if (array.dtype == "<f4") return "F32";
  if (array.dtype == "<f2") return "F16";
  if (array.dtype == "<u2" || array.dtype == "|V2") return "BF16";
  throw Error(where, "is " + array.dtype + "; an original is f4, f2 or BF16 as u2");
}

bool IsOriginal(const SafetensorsTensor& t) {
  return t.dtype == "F32" || t.dtype == "BF16" || t.dtype == "F16";
}

}  // namespace

OriginalSource::OriginalSource(const std::filesystem::path& path, const NpzReader& read_npz) {
  if (LowerCase(path.extension().string()) != ".npy") {
    checkpoint_ = OpenCheckpoint(path, read_npz);
    return;
  }
  npy_ = std::make_unique<FileContent>(path);
  NpyArray array = ViewNpy(npy_->bytes(), path.string());
  SafetensorsTensor tensor{DtypeOf(array, path.string()), array.shape, {}};
  tensor.bytes = std::move(array.bytes);
  checkpoint_.tensors.tensors.emplace("weight", std::move(tensor));
}

std::string OriginalSource::Find(const std::string& matrix, bool only_matrix) const {
  const auto& tensors = checkpoint_.tensors.tensors;
  std::vector<std::string> stems = {matrix, "model." + matrix};
  if (matrix.starts_with("model.")) stems.push_back(matrix.substr(6));
  for (const std::string& stem : stems) {
    for (const std::string& name : {stem + ".weight", stem}) {
      const auto found = tensors.find(name);
      if (found != tensors.end() && IsOriginal(found->second)) return name;
    }
  }
  const auto count = std::count_if(tensors.begin(), tensors.end(),
                                   [](const auto& t) { return IsOriginal(t.second); });
  if (!only_matrix || count != 1) return "";
  for (const auto& [name, tensor] : tensors) {
    if (IsOriginal(tensor)) return name;
  }
  return "";
}

RowReader OriginalSource::Rows(const std::string& name, const Reading& r,
                               std::string* problem) const {
  const SafetensorsTensor& tensor = checkpoint_.tensors.tensors.at(name);
  const std::vector<std::size_t>& shape = tensor.shape;
  std::size_t elements = 1;
  for (const std::size_t n : shape) elements *= n;
  if (elements != r.parts * r.rows * r.cols || shape.empty() || elements == 0) {
    *problem = name + " is " + ShapeText(shape) + "; the matrix is " +
               std::to_string(r.parts * r.rows) + "x" + std::to_string(r.cols);
    return {};
  }
  const bool transposed = shape.back() != r.cols && shape.back() == r.rows;
  if (shape.back() != r.cols && !transposed) {
    *problem = name + " has rows of " + std::to_string(shape.back()) + "; the matrix has rows of " +
               std::to_string(r.cols);
    return {};
  }
  const NumberType type = FindNumberType(tensor.dtype).value();
  const std::size_t size = static_cast<std::size_t>(Bits(type)) / 8;
  const std::span<const std::byte> bytes(tensor.bytes.data(), tensor.bytes.size());
  const FileContent* content = npy_ != nullptr ? npy_.get() : checkpoint_.ContentOf(bytes);
  const std::size_t rows = r.rows, cols = r.cols;
  if (!transposed) {
    return [=](std::size_t first, std::size_t count) {
      const auto part = bytes.subspan(first * cols * size, count * cols * size);
      Matrix<float> x(count, cols);
      DecodeNumbers(type, part, x.values);
      if (content != nullptr) content->Forget(part);
      return x;
    };
  }
  return [=](std::size_t first, std::size_t count) {
    Matrix<float> x(count, cols);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t part = (first + i) / rows, row = (first + i) % rows;
      for (std::size_t col = 0; col < cols; ++col) {
        const std::size_t at = (part * cols + col) * rows + row;
        DecodeNumbers(type, bytes.subspan(at * size, size), {&x(i, col), 1});
      }
    }
    return x;
  };
}

}  // namespace fp4lab
