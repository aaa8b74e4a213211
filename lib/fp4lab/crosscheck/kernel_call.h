// One call of a GPU kernel, and the oracle's answer to the same call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab::crosscheck {

// The request for one side of a quantization of a matrix in device memory.
struct SideCall {
  bool on = false;
  cuda::RandomBits bits = cuda::RandomBits::kNone;
  RandomStream random = {};
  std::vector<std::uint16_t> given = {};  // the random bits of kGiven
  int hadamard = 0;
  ScaleOrder order = ScaleOrder::kLinear;
  bool values = false;  // whether to write BF16 values, too
};

struct KernelCall {
  std::string kernel;  // for the report: "rows", "tiles", "dialects"
  Dialect dialect;
  bool fast = false;  // call cuda::Quantize, which has fast kernels, instead of cuda::QuantizeAs
  SideCall row = {}, column = {};
};

// The outputs of one side, as cuda/quantize/quantized_side.h describes them.
struct SideBytes {
  std::vector<std::uint8_t> codes = {}, scales = {};
  std::vector<std::uint16_t> values = {};  // laid out as the quantized matrix, not as x
  std::vector<float> amax = {};
  friend bool operator==(const SideBytes&, const SideBytes&) = default;
};

struct CallBytes {
  SideBytes row, column;
};

// Runs the call on x in device memory and waits for it. The device computes the amaxes.
CallBytes RunCall(const KernelCall& call, const cuda::DeviceMatrix& x);

// Uploads x, as floats or, if bf16, as the upper 16 bits of its elements, which must be BF16
// numbers.
cuda::DeviceMemory Upload(MatrixView<const float> x, bool bf16);

// The oracle's answer for one side (QuantizeAs of quantize/quantize.h, RandomHadamard). x: the
// matrix that the side quantizes, for a columnwise side the transpose.
SideBytes ExpectedSide(const Dialect& dialect, const SideCall& side, MatrixView<const float> x);

// ExpectedSide by the vector kernels of block/quantize.h, for large matrices. Only for dialects
// that those kernels compute.
SideBytes ExpectedSideFast(const Dialect& dialect, const SideCall& side, MatrixView<const float> x);

// The number of differing bytes in codes, scales, values and amaxes. Vectors of different sizes
// count as different in every byte.
std::size_t DifferingBytes(const SideBytes& expected, const SideBytes& got);

// The text of `explain` about the first rows that differ.
std::string ExplainSide(const Dialect& dialect, const SideCall& side, MatrixView<const float> x,
                        const SideBytes& expected, const SideBytes& got);

}  // namespace fp4lab::crosscheck
