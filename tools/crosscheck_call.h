// One use of a GPU kernel, and the oracle's answer to the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/cuda/device.h"
#include "fp4lab/cuda/quantize.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/quantize.h"

namespace fp4lab::tools {

// What is asked of one side of a matrix in device memory.
struct SideCall {
  bool on = false;
  cuda::RandomBits bits = cuda::RandomBits::kNone;
  RandomStream random = {};
  std::vector<std::uint16_t> given = {};  // for kGiven
  int hadamard = 0;
  ScaleOrder order = ScaleOrder::kLinear;
  bool values = false;  // BF16 values as well
};

struct KernelCall {
  std::string kernel;  // for the report: "rows", "tiles", "dialects"
  Dialect dialect;
  bool fast = false;  // by Quantize, which has fast kernels, not by QuantizeAs
  SideCall row = {}, column = {};
};

// Bytes of one side, as quantize.h describes them.
struct SideBytes {
  std::vector<std::uint8_t> codes = {}, scales = {};
  std::vector<std::uint16_t> values = {};  // as the quantized matrix lies, not transposed
  std::vector<float> amax = {};
  friend bool operator==(const SideBytes&, const SideBytes&) = default;
};

struct CallBytes {
  SideBytes row, column;
};

// Runs the call on x, which lies in device memory, with the kernels' own amaxes.
CallBytes RunCall(const KernelCall& call, const cuda::DeviceMatrix& x);

// Uploads x, rounded to BF16 bits where asked.
cuda::DeviceMemory Upload(MatrixView<const float> x, bool bf16);

// What the oracle (QuantizeAs of dialect/quantize.h, RandomHadamard) says of one side; x as that
// side has it, transposed for a column.
SideBytes ExpectedSide(const Dialect& dialect, const SideCall& side, MatrixView<const float> x);

// The same from the vector kernels of block/quantize.h, for large matrices; of dialects that they
// compute.
SideBytes ExpectedSideFast(const Dialect& dialect, const SideCall& side, MatrixView<const float> x);

// How many bytes of codes, scales, values and amaxes differ; sizes that differ count whole.
std::size_t DifferingBytes(const SideBytes& expected, const SideBytes& got);

// What `explain` says about the first rows that differ: text for people.
std::string ExplainSide(const Dialect& dialect, const SideCall& side, MatrixView<const float> x,
                        const SideBytes& expected, const SideBytes& got);

}  // namespace fp4lab::tools
