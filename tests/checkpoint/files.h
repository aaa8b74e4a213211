// Small checkpoints under the names of every code base.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/checkpoint/check.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/values.h"

namespace fp4lab {

inline SafetensorsTensor TensorOf(std::string dtype, std::vector<std::size_t> shape,
                                  const std::vector<std::uint8_t>& bytes) {
  const auto raw = std::as_bytes(std::span(bytes));
  return {std::move(dtype), std::move(shape), ByteArray(raw.begin(), raw.end())};
}
inline SafetensorsTensor NumbersTensor(std::vector<std::size_t> shape,
                                       const std::vector<float>& numbers) {
  const auto raw = std::as_bytes(std::span(numbers));
  return {"F32", std::move(shape), ByteArray(raw.begin(), raw.end())};
}

// Values of BF16, so that a BF16 original holds them exactly.
inline Matrix<float> Weights(std::uint64_t seed, std::size_t rows, std::size_t cols,
                             double deviation = 0.02) {
  Matrix<float> x = NormalMatrix(seed, rows, cols, deviation);
  for (float& v : x.values) v = Decode(FormatId::kBF16, Encode(FormatId::kBF16, v));
  return x;
}

// x in a dialect, with packed codes.
inline StoredMatrix Quantize(const char* dialect, const Matrix<float>& x, StorageLayout layout = {},
                             const DialectOptions& options = {}) {
  const Dialect& d = *FindDialect(dialect);
  return Store(d, QuantizeAs(d, x.View(), options), layout);
}

// ModelOpt's tensors of a matrix.
inline void AddModelOpt(SafetensorsFile* file, const std::string& name, const Matrix<float>& x,
                        bool input_scale = true) {
  const StoredMatrix m =
      Quantize("nvfp4.modelopt", x, {.tensor_scale = TensorScaleConvention::kMultiplier});
  file->tensors[name + ".weight"] = TensorOf("U8", {x.rows, x.cols / 2}, m.codes);
  file->tensors[name + ".weight_scale"] = TensorOf("F8_E4M3", {x.rows, x.cols / 16}, m.scales);
  file->tensors[name + ".weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
  if (input_scale) file->tensors[name + ".input_scale"] = NumbersTensor({}, {0.01f});
}

// The names of the findings of a report, in its order, as "finding@where".
inline std::vector<std::string> FindingsOf(const CheckReport& report) {
  std::vector<std::string> names;
  for (const Finding& f : report.findings) {
    names.push_back(std::string(Named(f.kind).name) + "@" + f.where);
  }
  return names;
}

}  // namespace fp4lab
