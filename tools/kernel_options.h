// What `verify`, `explain`, `identify` and `pack` share: the options that say where a kernel's
// input and bytes lie and how they are to be read.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/judge/deviation.h"

namespace fp4lab::tools {

struct KernelOptions {
  // Files: .npy, "file.npz#array", "file.safetensors#tensor", or raw bytes.
  std::string input, codes, scales, level_two, random;
  std::string shape;  // "ROWSxCOLS" of a raw input
  std::string dtype;  // of a raw input: f32, bf16, f16
  std::string dialect = "nvfp4.te";
  std::string codes_order, scales_order = "linear", level_two_is = "amax";
  bool transposed = false, expanded_scales = false;
  bool transpose_input = false;
  int hadamard = 0;
  std::string signs;
  std::vector<float> amax;
};

// The input matrix: --input, --shape, --dtype, --transpose-input.
void AddInputOptions(CLI::App* command, KernelOptions* options);
// What the kernel should be: --dialect, --hadamard, --signs, --amax, --random.
void AddDialectOptions(CLI::App* command, KernelOptions* options);
// Its bytes: --codes, --scales, --level-two.
void AddBytesOptions(CLI::App* command, KernelOptions* options);
// How they lie: --codes-order, --scales-order, --transposed, --expanded-scales, --level-two-is.
void AddLayoutOptions(CLI::App* command, KernelOptions* options);

// Error for an unknown name, with the names that there are.
const Dialect& DialectNamed(std::string_view name, std::string_view where);
Kernel KernelOf(const KernelOptions& options);
StorageLayout LayoutOf(const KernelOptions& options, const Dialect& dialect);

// The matrix to quantize (transposed where asked).
Matrix<float> ReadInput(const KernelOptions& options);
// The kernel's bytes; their sizes are not checked.
StoredMatrix ReadBytes(const KernelOptions& options, const Kernel& kernel,
                       MatrixView<const float> x);
// 16-bit fields, one an element; empty without --random.
std::vector<std::uint16_t> ReadRandom(const KernelOptions& options);
// The given amax and random bits, checked against the kernel. `random` must outlive the result.
DialectOptions OptionsOf(const KernelOptions& options, const Kernel& kernel,
                         MatrixView<const float> x, const std::vector<std::uint16_t>& random);

}  // namespace fp4lab::tools
