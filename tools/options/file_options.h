// Options that the commands on matrices share (a file of numbers, a dialect, the layout of a
// quantized matrix), and the text that describes a quantized matrix.
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

// A file of numbers: the option that names it, and --shape, --dtype, --transpose-input.
struct NumberOptions {
  std::string place, shape, dtype;
  bool transpose = false;
};
// Adds the option or positional argument `name` for the file, with the help text `what`, and the
// other three options. Returns the one for the file.
CLI::Option* AddNumberOptions(CLI::App* command, const std::string& name, const std::string& what,
                              NumberOptions* options);
// The numbers of the file, transposed if --transpose-input is given.
NumberFile ReadNumbers(const NumberOptions& options);
// The same numbers as a view, without a copy of the file's bytes where possible.
NumberView ViewNumbers(const NumberOptions& options);
Matrix<float> Transposed(MatrixView<const float> x);

// Adds the required positional argument `name`: a quantized matrix to read, in fp4lab's names, a
// vendor's, or GGUF.
void AddStoredFile(CLI::App* command, const std::string& name, std::string* place);
// Adds --dialect, for a file of AddStoredFile.
void AddFileDialect(CLI::App* command, std::string* dialect);

// The options --codes-order, --scales-order, --transposed, --expanded-scales, --tensor-scale-is. An
// empty member stands for an option that is not given.
struct LayoutOptions {
  std::string codes, scales, tensor_scale, scale_type;
  std::optional<bool> transposed, expanded;
};
// `before` is the prefix of the options' names: "", or "read-" for the layout of the file read.
void AddLayoutOptions(CLI::App* command, const std::string& before, LayoutOptions* options);
// `layout` with the given options in place of its own values. Throws Error for an unknown name.
StorageLayout Changed(StorageLayout layout, const LayoutOptions& options);

// How to read a stored matrix: its dialect, and the layout that a vendor's file does not state.
ReadStoredOptions ReadOptionsOf(const LayoutOptions& options, const Dialect* dialect);

// The random Hadamard transform before a quantizer: --hadamard, --signs.
struct HadamardOptions {
  int size = 0;
  bool gives_signs = false;  // --signs is on the command line
  std::string signs = "te";
};
void AddHadamardOptions(CLI::App* command, HadamardOptions* options);
// Refuses --signs without a transform, which would have no effect.
void CheckHadamardOptions(const HadamardOptions& options);
// The sign mask of the transform; 0 without one. Throws Error for --signs that are no mask.
std::uint32_t SignMask(const HadamardOptions& options);

// The dialect `name`: a row's name, a path that ends in .json, or the JSON text. Throws Error for
// an unknown name, with a suggestion, and for JSON that spells no dialect out.
const Dialect& RequireDialect(const std::string& name, const std::string& option = "--dialect");
// RequireDialect, or nullptr for "".
const Dialect* DialectOrNothing(const std::string& name);
// `named` if it is not nullptr, else the dialect that the file states, or nullptr if it states no
// known one.
const Dialect* DialectOf(const StoredFile& file, const Dialect* named);

// Refuses a named dialect whose elements, scales or blocks are not those of the file, and one that
// contradicts the dialect that the file states. `named` may be nullptr.
void CheckNamedDialect(const StoredFile& file, const Dialect* named, const std::string& where);
// Refuses options of a layout that contradict the fixed layout of a naming convention (all but
// fp4lab's own), for a matrix of this shape; `has_tensor_scale`: it has a number to store.
void CheckConventionLayout(const LayoutOptions& options, const std::string& convention,
                           FormatId element, int block_rows, bool has_tensor_scale);

// "low-first codes, 128x4 scales, transposed, the tensor scale as amax"
std::string LayoutText(const StoredMatrix& stored);
// "128x256 float4_e2m1fn in 1x16 blocks with float8_e4m3fn scales"
std::string FormatText(const StoredMatrix& stored);
Json FormatJson(const StoredMatrix& stored);

// The values of a stored matrix, the tensor scale included. They are decoded in the dialect's order
// of operations if the dialect is known and the file has the tensor scale that it needs, else in
// the order of the file's convention.
Matrix<float> ValuesOf(const StoredFile& file, const Dialect* dialect, std::string_view where);

}  // namespace fp4lab::tools
