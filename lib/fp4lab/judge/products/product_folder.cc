#include "fp4lab/judge/products/product_folder.h"

#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/products/gemm_file.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

SafetensorsTensor Floats(const std::vector<std::size_t>& shape, const std::vector<float>& values) {
  const NumberType type{NumberType::Kind::kFloat32};
  return {std::string(SafetensorsName(type)), shape, EncodeNumbers(type, values)};
}

}  // namespace

void WriteProductCases(std::span<const ProductCase> cases, const fs::path& folder) {
  const IeeeArithmetic ieee;
  for (const ProductCase& c : cases) {
    SafetensorsFile file;
    AddOperand(c.a, "a", &file);
    AddOperand(c.b, "b", &file);
    file.tensors["d"] = Floats({c.before.rows, c.before.cols}, c.before.values);
    file.tensors["alpha"] = Floats({1}, {c.alpha});
    file.metadata["case"] = c.name;
    file.metadata["output"] = Name(c.output);
    WriteSafetensors(folder / (std::string(c.name) + ".safetensors"), file);
  }
}

void WriteProductAnswer(const ProductCase& c, const Matrix<float>& d, const fs::path& folder) {
  const IeeeArithmetic ieee;
  WriteNpy(folder / (std::string(c.name) + ".d.npy"),
           MakeNpyArray<float>({d.rows, d.cols}, d.values));
}

std::optional<Matrix<float>> ReadProductAnswer(const ProductCase& c, const fs::path& folder) {
  const IeeeArithmetic ieee;
  const fs::path npy = folder / (std::string(c.name) + ".d.npy");
  const fs::path safetensors = folder / (std::string(c.name) + ".d.safetensors");
  if (!Exists(npy) && !Exists(safetensors)) return std::nullopt;
  const std::string place = Exists(npy) ? npy.string() : safetensors.string() + "#d";
  Matrix<float> d = ReadMatrix(place).values;
  if (d.rows != c.a.rows || d.cols != c.b.rows) {
    throw Error(place, "is " + std::to_string(d.rows) + "x" + std::to_string(d.cols) +
                           "; the product of this case is " + std::to_string(c.a.rows) + "x" +
                           std::to_string(c.b.rows));
  }
  return d;
}

}  // namespace fp4lab
