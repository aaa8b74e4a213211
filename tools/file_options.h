// What the commands share that read matrices: options for a file of numbers, for a dialect, for the
// layout of a quantized matrix, and how one is described.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/json.h"

namespace fp4lab::tools {

// A file of numbers: --shape, --dtype, --transpose-input beside the option that names it.
struct NumberOptions {
  std::string place, shape, dtype;
  bool transpose = false;
};
// `name`: the option or the positional argument for the place, and what it is.
CLI::Option* AddNumberOptions(CLI::App* command, const std::string& name, const std::string& what,
                              NumberOptions* options);
NumberFile ReadNumbers(const NumberOptions& options);  // transposed where asked
// The same for who only reads them.
NumberView ViewNumbers(const NumberOptions& options);
Matrix<float> Transposed(MatrixView<const float> x);

// The positional argument `name`: a file of ours, of a vendor's or of GGUF that is read.
void AddStoredFile(CLI::App* command, const std::string& name, std::string* place);
// --dialect, for such a file.
void AddFileDialect(CLI::App* command, std::string* dialect);

// --codes-order, --scales-order, --transposed, --expanded-scales, --level-two-is; what is not given
// stays as it is. `before` stands between the dashes and the name: "" or "read-".
struct LayoutOptions {
  std::string codes, scales, level_two;
  std::optional<bool> transposed, expanded;
};
void AddLayoutOptions(CLI::App* command, const std::string& before, LayoutOptions* options);
StorageLayout Changed(StorageLayout layout, const LayoutOptions& options);

// How vendors' tensors are to be read.
ReadStoredOptions ReadOptionsOf(const LayoutOptions& options, const Dialect* dialect);

// The random Hadamard transform before a quantizer: --hadamard, --signs.
struct HadamardOptions {
  int size = 0;
  std::string signs = "te";
};
void AddHadamardOptions(CLI::App* command, HadamardOptions* options);
std::uint32_t SignMask(const HadamardOptions& options);

// Error for an unknown name, with the names that there are; nullptr for "".
const Dialect& RequireDialect(const std::string& name, const std::string& option = "--dialect");
const Dialect* DialectOrNothing(const std::string& name);
// The file's own dialect, or the one that was named.
const Dialect* DialectOf(const StoredFile& file, const Dialect* named);

// "low-first codes, 128x4 scales, transposed, level 2 as amax"
std::string LayoutText(const StoredMatrix& stored);
// "128x256 float4_e2m1fn in 1x16 blocks with float8_e4m3fn scales"
std::string FormatText(const StoredMatrix& stored);
Json FormatJson(const StoredMatrix& stored);

// Level 2: the values of a stored matrix, in the order of the dialect where it is known and stores
// what the dialect needs, else of the convention.
Matrix<float> ValuesOf(const StoredFile& file, const Dialect* dialect, std::string_view where);

std::string NumberText(double value);  // shortest text that reads back as the same float

}  // namespace fp4lab::tools
