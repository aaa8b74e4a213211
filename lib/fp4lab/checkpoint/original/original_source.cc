#include "fp4lab/checkpoint/original/original_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/shape.h"
#include "fp4lab/exchange/stored.h"
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

// The matrix in a layout of which every row is a run of bytes.
StoredMatrix WithLinearRows(const StoredMatrix& m, float scale_max) {
  StorageLayout rows{.codes = m.layout.codes};
  rows.tensor_scale = m.layout.tensor_scale;
  return Convert(m, rows, scale_max, "matrix");
}

// One row, with the scales and the number of its own.
StoredMatrix RowOf(const StoredMatrix& m, std::size_t row, const std::string& where) {
  const StoredSizes sizes = SizesOf(m, where);
  StoredMatrix one{.rows = 1,
                   .cols = m.cols,
                   .element = m.element,
                   .scale = m.scale,
                   .block_rows = m.block_rows,
                   .block_cols = m.block_cols,
                   .layout = m.layout};
  const auto take = [](const std::vector<std::uint8_t>& bytes, std::size_t size, std::size_t n) {
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(n * size);
    return std::vector<std::uint8_t>(from, from + static_cast<std::ptrdiff_t>(size));
  };
  one.codes = take(m.codes, sizes.code_row_bytes, row);
  if (!m.scales.empty()) {
    const auto height = static_cast<std::size_t>(std::max(m.block_rows, 1));
    one.scales = take(m.scales, m.scales.size() / sizes.scale_rows, row / height);
  }
  const std::size_t numbers = m.tensor_scale.size();
  if (numbers > 0) one.tensor_scale = {m.tensor_scale[row / DivideUp(m.rows, numbers)]};
  return one;
}

}  // namespace

OriginalSource::OriginalSource(const std::filesystem::path& path, const NpzReader& read_npz) {
  if (LowerCase(path.extension().string()) != ".npy") {
    checkpoint_ = OpenCheckpoint(path, read_npz);
    entries_ = ListStored(checkpoint_.tensors);
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
  for (const std::string& stem : stems) {
    if (EntryOf(stem) != nullptr) return stem;
  }
  if (!entries_.empty()) return only_matrix && entries_.size() == 1 ? entries_[0].name : "";
  const auto count = std::count_if(tensors.begin(), tensors.end(),
                                   [](const auto& t) { return IsOriginal(t.second); });
  if (!only_matrix || count != 1) return "";
  for (const auto& [name, tensor] : tensors) {
    if (IsOriginal(tensor)) return name;
  }
  return "";
}

const StoredFileEntry* OriginalSource::EntryOf(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const StoredFileEntry& e) { return e.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

RowReader OriginalSource::DecodedRows(const StoredFileEntry& entry, const Reading& r,
                                      std::string* problem) const {
  std::shared_ptr<const StoredMatrix> plain;
  float scale_max = 448.0f;
  try {
    const StoredFile file = ReadStored(checkpoint_.tensors, entry, {}, entry.name);
    if (const Dialect* dialect = FindDialect(file.dialect)) scale_max = dialect->scale_max;
    plain = std::make_shared<const StoredMatrix>(WithLinearRows(file.matrix, scale_max));
  } catch (const Error& error) {
    *problem = error.what();
    return {};
  }
  if (plain->rows != r.parts * r.rows || plain->cols != r.cols) {
    *problem = entry.name + " is " + ShapeText({plain->rows, plain->cols}) + "; the matrix is " +
               ShapeText({r.parts * r.rows, r.cols});
    return {};
  }
  return [plain, scale_max, name = entry.name](std::size_t first, std::size_t count) {
    Matrix<float> x(count, plain->cols);
    for (std::size_t i = 0; i < count; ++i) {
      const Matrix<float> row = StoredValues(RowOf(*plain, first + i, name), scale_max, name);
      std::copy(row.values.begin(), row.values.end(), &x(i, 0));
    }
    return x;
  };
}

bool OriginalSource::IsTransposed(const std::string& name, const Reading& r) const {
  const auto found = checkpoint_.tensors.tensors.find(name);
  if (found == checkpoint_.tensors.tensors.end() || found->second.shape.empty()) return false;
  return found->second.shape.back() != r.cols && found->second.shape.back() == r.rows;
}

std::vector<OtherOriginal> OriginalSource::Others(const std::string& tensor,
                                                  const Reading& r) const {
  constexpr std::size_t kMost = 512;
  // Letters that two names have in common, at their beginnings and ends.
  const auto nearness = [&](const std::string& name) {
    const auto front = std::mismatch(name.begin(), name.end(), tensor.begin(), tensor.end());
    const auto back = std::mismatch(name.rbegin(), name.rend(), tensor.rbegin(), tensor.rend());
    return (front.first - name.begin()) + (back.first - name.rbegin());
  };
  std::vector<std::pair<std::ptrdiff_t, std::string>> names;
  for (const auto& [name, t] : checkpoint_.tensors.tensors) {
    std::size_t elements = 1;
    for (const std::size_t n : t.shape) elements *= n;
    const bool fits = !t.shape.empty() && t.shape.back() == r.cols;
    if (name == tensor || !IsOriginal(t) || !fits || elements != r.parts * r.rows * r.cols) {
      continue;
    }
    names.emplace_back(-nearness(name), name);
  }
  std::sort(names.begin(), names.end());
  if (names.size() > kMost) names.resize(kMost);
  std::vector<OtherOriginal> others;
  for (const auto& [distance, name] : names) {
    std::string problem;
    others.push_back({name, Rows(name, r, &problem)});
  }
  return others;
}

RowReader OriginalSource::Rows(const std::string& name, const Reading& r,
                               std::string* problem) const {
  if (!checkpoint_.tensors.tensors.contains(name)) return DecodedRows(*EntryOf(name), r, problem);
  const SafetensorsTensor& tensor = checkpoint_.tensors.tensors.at(name);
  const std::vector<std::size_t>& shape = tensor.shape;
  std::size_t elements = 1;
  for (const std::size_t n : shape) elements *= n;
  if (elements != r.parts * r.rows * r.cols || shape.empty() || elements == 0) {
    *problem = name + " is " + ShapeText(shape) + "; the matrix is " +
               std::to_string(r.parts * r.rows) + "x" + std::to_string(r.cols);
    return {};
  }
  const bool transposed = IsTransposed(name, r);
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
