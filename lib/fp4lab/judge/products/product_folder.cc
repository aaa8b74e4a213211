#include "fp4lab/judge/products/product_folder.h"

#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/judge/products/gemm_file.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

void WriteCaseFile(SafetensorsFile& file, std::string_view name, GemmOutput output,
                   const fs::path& folder) {
  file.metadata["case"] = name;
  file.metadata["output"] = Name(output);
  WriteSafetensors(folder / (std::string(name) + ".safetensors"), file);
}

}  // namespace

SafetensorsTensor FloatTensor(const std::vector<std::size_t>& shape,
                              const std::vector<float>& values) {
  const IeeeArithmetic ieee;
  const NumberType type{NumberType::Kind::kFloat32};
  return {std::string(SafetensorsName(type)), shape, EncodeNumbers(type, values)};
}

void WriteDirectedCases(std::span<const ProductCase> cases, const fs::path& folder) {
  const IeeeArithmetic ieee;
  for (const ProductCase& c : cases) {
    SafetensorsFile file;
    AddOperand(c.a, "a", &file);
    AddOperand(c.b, "b", &file);
    file.tensors["d"] = FloatTensor({c.before.rows, c.before.cols}, c.before.values);
    file.tensors["alpha"] = FloatTensor({1}, {c.alpha});
    if (c.beta != 0.0f) {
      file.tensors["c"] = FloatTensor({c.c.rows, c.c.cols}, c.c.values);
      file.tensors["beta"] = FloatTensor({1}, {c.beta});
    }
    WriteCaseFile(file, c.name, c.output, folder);
  }
}

void WriteDirectedCases(std::span<const GroupedCase> cases, const fs::path& folder) {
  const IeeeArithmetic ieee;
  for (const GroupedCase& c : cases) {
    SafetensorsFile file;
    AddOperand(c.in.a, "a", &file);
    std::vector<float> ends, sizes, alphas;
    for (std::size_t g = 0; g < c.in.b.size(); ++g) {
      AddOperand(c.in.b[g], "b." + std::to_string(g), &file);
      ends.push_back(static_cast<float>(c.in.ends[g]));
      sizes.push_back(static_cast<float>(c.in.Size(g)));
      alphas.push_back(c.in.Alpha(g));
    }
    const std::vector<std::size_t> shape = {c.in.b.size()};
    file.tensors["ends"] = FloatTensor(shape, ends);
    file.tensors["sizes"] = FloatTensor(shape, sizes);
    file.tensors["alphas"] = FloatTensor(shape, alphas);
    WriteCaseFile(file, c.name, c.in.output, folder);
  }
}

void WriteDirectedAnswer(std::string_view name, const Matrix<float>& d, const fs::path& folder) {
  const IeeeArithmetic ieee;
  WriteNpy(folder / (std::string(name) + ".d.npy"),
           MakeNpyArray<float>({d.rows, d.cols}, d.values));
}

std::optional<Matrix<float>> ReadDirectedAnswer(std::string_view name, const Matrix<float>& right,
                                                const fs::path& folder) {
  const IeeeArithmetic ieee;
  const fs::path npy = folder / (std::string(name) + ".d.npy");
  const fs::path safetensors = folder / (std::string(name) + ".d.safetensors");
  if (!Exists(npy) && !Exists(safetensors)) return std::nullopt;
  const std::string place = Exists(npy) ? npy.string() : safetensors.string() + "#d";
  Matrix<float> d = ReadMatrix(place).values;
  if (d.rows != right.rows || d.cols != right.cols) {
    throw Error(place, "is " + std::to_string(d.rows) + "x" + std::to_string(d.cols) +
                           "; the product of this case is " + std::to_string(right.rows) + "x" +
                           std::to_string(right.cols));
  }
  return d;
}

}  // namespace fp4lab
