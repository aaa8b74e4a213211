// What `verify`, `explain`, `identify` and `pack` share: the options that say where a kernel's
// input and bytes lie and how they are to be read.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/judge/deviation.h"
#include "tools/file_options.h"

namespace fp4lab::tools {

struct KernelOptions {
  NumberOptions input;
  std::string stored;                    // a quantized matrix of ours, a vendor's or GGUF
  std::string codes, scales, level_two;  // or its parts: arrays, tensors or raw files
  LayoutOptions layout;
  std::string dialect;  // empty: what the stored matrix says, else nvfp4.te
  HadamardOptions hadamard;
  std::vector<float> amax;
  std::string random;

  const std::string& bytes() const { return stored.empty() ? codes : stored; }
};

// The input matrix: --input, --shape, --dtype, --transpose-input.
CLI::Option* AddInputOptions(CLI::App* command, KernelOptions* options);
// What the kernel should be: --dialect, --hadamard, --signs.
void AddDialectOptions(CLI::App* command, KernelOptions* options);
// What it was given beside the input: --amax, --random.
void AddGivenOptions(CLI::App* command, KernelOptions* options);
// Its bytes: --stored, or --codes, --scales, --level-two.
void AddBytesOptions(CLI::App* command, KernelOptions* options);

// Error for a matrix without elements, on which every kernel is right.
void RequireElements(MatrixView<const float> input, const std::string& where);
// The kernel's bytes for an input of this shape, with their layout; sizes of parts are not checked.
StoredFile ReadAnswer(const KernelOptions& options, MatrixView<const float> input);

// The kernel that should have written the bytes, or, without them, any in the layout of the
// options. Error where the dialect has other blocks or formats than the bytes.
Kernel KernelOf(const KernelOptions& options);
Kernel KernelOf(const KernelOptions& options, const StoredFile& answer);

// The fields of --random, one an element; empty without.
std::vector<std::uint16_t> ReadRandom(const KernelOptions& options);
// The given amax and random bits, checked against the dialect. `random` must outlive the result.
DialectOptions OptionsOf(const KernelOptions& options, const Dialect& dialect,
                         MatrixView<const float> x, const std::vector<std::uint16_t>& random);

}  // namespace fp4lab::tools
