// The options that `verify`, `explain`, `identify` and `pack` share: a kernel's input and bytes,
// their layout, and the dialect that the kernel should compute.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/exchange/order/row_parts.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/quantize/quantize.h"
#include "tools/options/file_options.h"

namespace fp4lab::tools {

struct KernelOptions {
  NumberOptions input;
  std::string stored;                       // a quantized matrix of ours, a vendor's or GGUF
  std::string codes, scales, tensor_scale;  // or its parts: arrays, tensors or raw files
  std::string codes_bytes, scales_bytes;    // orders of their bytes: names or .json files
  LayoutOptions layout;
  std::string dialect;  // empty: the dialect that the stored matrix states, else nvfp4.te
  HadamardOptions hadamard;
  std::vector<float> amax;
  std::string random;

  const std::string& bytes() const { return stored.empty() ? codes : stored; }
};

// Adds the options of the input matrix: --input, --shape, --dtype, --transpose-input.
CLI::Option* AddInputOptions(CLI::App* command, KernelOptions* options);
// Adds the options of the formula that the kernel should compute: --dialect, --hadamard, --signs.
void AddDialectOptions(CLI::App* command, KernelOptions* options);
// Adds the options of the kernel's inputs beside the matrix: --amax, --random.
void AddGivenOptions(CLI::App* command, KernelOptions* options);
// Adds the options of the kernel's bytes: --stored, or --codes, --scales, --tensor-scale.
void AddBytesOptions(CLI::App* command, KernelOptions* options);
// Adds the orders of bytes that no layout has: --codes-bytes, --scales-bytes.
void AddByteOrderOptions(CLI::App* command, KernelOptions* options);

// Throws Error for a matrix without elements, on which every kernel is right.
void RequireElements(MatrixView<const float> input, const std::string& where);
// Reads the kernel's bytes for an input of this shape, with their layout. The sizes of --codes,
// --scales and --tensor-scale are not checked.
StoredFile ReadAnswer(const KernelOptions& options, MatrixView<const float> input);

// The kernel that the options describe.
Kernel KernelOf(const KernelOptions& options);
// The kernel that should have written `answer`, in the layout of `answer`. Throws Error if the
// dialect has other blocks or formats than the bytes.
Kernel KernelOf(const KernelOptions& options, const StoredFile& answer);

// Adds --parts, which `parts` receives.
CLI::Option* AddPartsOption(CLI::App* command, std::string* parts);
// One part of an input and of its answer.
struct AnswerPart {
  RowPart at;
  MatrixView<const float> x;
  StoredMatrix bytes;
  std::vector<float> amax = {};  // that the kernel was given
  std::string title;             // "part 0, rows 0..63"
};
// The parts that `text` states. Throws Error as SplitRows does, and unless --amax has a number for
// each part, or none.
std::vector<AnswerPart> PartsOf(const std::string& text, const KernelOptions& options,
                                MatrixView<const float> x, const StoredMatrix& bytes);

// The random bits of --random, one uint16 for each element of x; empty if the option is not given.
std::vector<std::uint16_t> ReadRandom(const KernelOptions& options, MatrixView<const float> x);
// The given amax and random bits, checked against the dialect and `x`, the matrix that the
// quantizer gets after any transform. `random` must outlive the result.
DialectOptions OptionsOf(const KernelOptions& options, const Dialect& dialect,
                         MatrixView<const float> x, const std::vector<std::uint16_t>& random);

}  // namespace fp4lab::tools
