// Answers of a CUDA kernel built with -use_fast_math, run on an H200 (tests/golden/README.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/stored.h"
#include "tests/support/golden.h"

namespace fp4lab {

// Cases whose answers differ from nvfp4.te, and the plain random tensor, whose answer does not.
inline constexpr const char* kFastMathCases[] = {"c03", "c07", "c11", "c14", "c17", "c75"};
inline constexpr const char* kFastMathRandn = "c90";

struct DeviceAnswer {
  Matrix<float> x;
  StoredMatrix bytes;
};

inline DeviceAnswer ReadFastMathAnswer(const std::string& name) {
  const NpzFile file = OpenGolden("h200_use_fast_math.npz");
  const NpyArray x = file.Read(name + ".x"), codes = file.Read(name + ".codes"),
                 scales = file.Read(name + ".scales"), amax = file.Read(name + ".amax");
  DeviceAnswer answer{Matrix<float>(x.shape.at(0), x.shape.at(1)), {}};
  std::transform(x.As<std::uint32_t>().begin(), x.As<std::uint32_t>().end(),
                 answer.x.values.begin(), [](std::uint32_t u) { return std::bit_cast<float>(u); });
  StoredMatrix& bytes = answer.bytes;
  bytes.rows = answer.x.rows;
  bytes.cols = answer.x.cols;
  bytes.codes.assign(codes.As<std::uint8_t>().begin(), codes.As<std::uint8_t>().end());
  bytes.scales.assign(scales.As<std::uint8_t>().begin(), scales.As<std::uint8_t>().end());
  bytes.tensor_scale = {std::bit_cast<float>(amax.As<std::uint32_t>()[0])};
  return answer;
}

}  // namespace fp4lab
