#include "tools/options/kernel_options.h"

#include <cstring>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/exchange/order/byte_order.h"
#include "fp4lab/exchange/stored_grid.h"
#include "fp4lab/io/json.h"
#include "tools/help/help_group.h"
#include "tools/options/given_amax.h"

namespace fp4lab::tools {
namespace {

const Dialect& DialectOf(const KernelOptions& options) {
  return RequireDialect(options.dialect.empty() ? "nvfp4.te" : options.dialect);
}

// The elements of an array at `place`; *dims receives the shape that the file states, if any.
template <class T>
std::vector<T> ReadElements(const std::string& place, std::vector<std::size_t>* dims) {
  ByteGrid grid = ReadByteGrid(place);
  const std::vector<std::byte>& bytes = grid.bytes;
  *dims = std::move(grid.shape);
  if (bytes.size() % sizeof(T) != 0) {
    throw Error(
        place, "its " + std::to_string(bytes.size()) + " bytes are not a whole number of elements");
  }
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), bytes.size());
  return elements;
}

// The numbers of --tensor-scale: the text as a number, or a file of numbers, which are float32 if
// the file states no type.
std::vector<float> ReadTensorScale(const std::string& text) {
  char* end = nullptr;
  const float number = std::strtof(text.c_str(), &end);
  if (end != text.c_str() && *end == '\0') return {number};
  std::vector<std::size_t> dims;
  return HoldsType(text) ? ReadMatrix(text).values.values : ReadElements<float>(text, &dims);
}

// The type of scales whose file states its grid, by the size of an element: numbers of 4 bytes are
// binary32, of 2 bytes BF16. kByte for bytes and for raw files, which state none.
ScaleType TypeOf(const ByteGrid& scales) {
  std::size_t count = 1;
  for (const std::size_t n : scales.shape) count *= n;
  for (const NamedScaleType& t : kScaleTypes) {
    if (!scales.shape.empty() && count > 0 && scales.bytes.size() == count * t.bytes) return t.type;
  }
  return ScaleType::kByte;
}

std::vector<std::uint8_t> BytesOf(const ByteGrid& grid) {
  std::vector<std::uint8_t> bytes(grid.bytes.size());
  std::memcpy(bytes.data(), grid.bytes.data(), bytes.size());
  return bytes;
}

StoredMatrix ReadParts(const KernelOptions& o, const Dialect& dialect,
                       MatrixView<const float> input) {
  if (o.codes.empty()) {
    throw Error("--codes", "is missing: a file of the kernel's codes, or --stored and a file");
  }
  ByteGrid scales;
  if (!o.scales.empty()) scales = ReadByteGrid(o.scales);
  StoredMatrix m =
      ShapeOf(dialect, input.rows, input.cols,
              Changed({.codes = DefaultCodeOrder(dialect.element), .scale_type = TypeOf(scales)},
                      o.layout));
  std::vector<std::size_t> dims;
  const StoredSizes sizes = SizesOf(m, o.codes);
  m.codes = ReadElements<std::uint8_t>(o.codes, &dims);
  if (o.codes_bytes.empty()) {
    CheckCodesGrid(m, dims, m.codes.size(), o.codes);
  } else {
    m.codes = FromByteOrder(m.codes, ByteOrderOf(o.codes_bytes, CodeByteOrders(), "--codes-bytes"),
                            sizes.code_rows, sizes.code_row_bytes, o.codes);
  }
  if (!o.scales.empty()) {
    m.scales = BytesOf(scales);
    if (o.scales_bytes.empty()) {
      CheckScalesGrid(m, scales.shape, m.scales.size(), o.scales);
    } else {
      m.scales =
          FromByteOrder(m.scales, ByteOrderOf(o.scales_bytes, ScaleByteOrders(), "--scales-bytes"),
                        sizes.scale_rows, sizes.scale_cols, o.scales);
    }
  }
  if (!o.tensor_scale.empty()) m.tensor_scale = ReadTensorScale(o.tensor_scale);
  return m;
}

}  // namespace

ByteOrder ByteOrderOf(const std::string& text, std::span<const ByteOrder> known,
                      const std::string& option) {
  if (const ByteOrder* order = FindByteOrder(known, text)) return *order;
  if (text.ends_with(".json")) return ReadByteOrder(ReadJsonFile(text), text);
  throw Error(option + " " + text,
              "is not known; " + DidYouMean(text, NamesOf(known), "give a .json file for another"));
}

CLI::Option* AddInputOptions(CLI::App* command, KernelOptions* options) {
  return AddNumberOptions(command, "--input", "The matrix that the kernel quantizes",
                          &options->input);
}

void AddDialectOptions(CLI::App* command, KernelOptions* options) {
  const HelpGroup group(command, kDialectGroup);
  command
      ->add_option("--dialect", options->dialect,
                   "The dialect that the kernel should compute: a name of `fp4lab dialects`, or "
                   "FILE.json with a formula of your own [nvfp4.te, or that of --stored]")
      ->type_name("DIALECT");
  AddHadamardOptions(command, &options->hadamard);
}

void AddGivenOptions(CLI::App* command, KernelOptions* options) {
  const HelpGroup group(command, kDialectGroup);
  command->add_option("--amax", options->amax,
                      "The tensor's amax that the kernel was given (one, or one per row)");
  command
      ->add_option("--random", options->random,
                   "The random bits of stochastic rounding: uint16, one per element")
      ->type_name("FILE");
}

void AddBytesOptions(CLI::App* command, KernelOptions* options) {
  const HelpGroup group(command, kBytesGroup);
  CLI::Option* const stored =
      command
          ->add_option("--stored", options->stored,
                       "The kernel's bytes and their layout: .safetensors, .npz or .gguf of fp4lab "
                       "or a vendor; the layout options describe vendors' files; FILE#NAME where "
                       "it holds several")
          ->type_name("FILE");
  const auto add_part = [&](const char* name, std::string* place, const char* what) {
    command->add_option(name, *place, what)->type_name("FILE")->excludes(stored);
  };
  add_part("--codes", &options->codes, "Or its codes: .npy, FILE#NAME or raw bytes");
  add_part("--scales", &options->scales, "Its scale bytes");
  add_part("--tensor-scale,--level-two", &options->tensor_scale,
           "Its tensor scale: float32, or the number itself");
}

void AddByteOrderOptions(CLI::App* command, KernelOptions* options) {
  const HelpGroup group(command, kLayoutGroup);
  AddByteOrderOption(command, "--codes-bytes", &options->codes_bytes, CodeByteOrders(), "--codes")
      ->needs(command->get_option("--codes"));
  AddByteOrderOption(command, "--scales-bytes", &options->scales_bytes, ScaleByteOrders(),
                     "--scales")
      ->needs(command->get_option("--scales"));
}

CLI::Option* AddByteOrderOption(CLI::App* command, const char* name, std::string* order,
                                std::span<const ByteOrder> known, const std::string& of) {
  std::string names;
  for (const ByteOrder& o : known) names += " " + std::string(o.name);
  return command
      ->add_option(name, *order,
                   "Order of the bytes of " + of + " that no layout has:" + names +
                       ", or a .json file with \"pad\", \"reshape\" and \"transpose\"")
      ->type_name("ORDER");
}

void RequireElements(MatrixView<const float> input, const std::string& where) {
  if (input.size() != 0) return;
  throw Error(where, "is " + ShapeText({input.rows, input.cols}) + ": the matrix has no elements");
}

StoredFile ReadAnswer(const KernelOptions& o, MatrixView<const float> input) {
  RequireElements(input, o.input.place.empty() ? "the pack's input" : o.input.place);
  if (o.stored.empty()) {
    const Dialect& dialect = DialectOf(o);
    return {{}, std::string(dialect.name), ReadParts(o, dialect, input)};
  }
  StoredFile file = ReadStored(o.stored, ReadOptionsOf(o.layout, DialectOrNothing(o.dialect)));
  if (file.matrix.rows == input.rows && file.matrix.cols == input.cols) return file;
  throw Error(o.stored, "is " + FormatText(file.matrix) + "; the input is " +
                            ShapeText({input.rows, input.cols}));
}

Kernel KernelOf(const KernelOptions& o) {
  const Dialect& dialect = DialectOf(o);
  return {.dialect = dialect,
          .layout = Changed({.codes = DefaultCodeOrder(dialect.element)}, o.layout),
          .hadamard = o.hadamard.size,
          .sign_mask = SignMask(o.hadamard)};
}

Kernel KernelOf(const KernelOptions& o, const StoredFile& answer) {
  Kernel kernel = KernelOf(o);
  if (const Dialect* own = DialectOf(answer, DialectOrNothing(o.dialect))) kernel.dialect = *own;
  const Dialect& d = kernel.dialect;
  const StoredMatrix& m = answer.matrix;
  if (!HasFormatsOf(m, d)) {
    throw Error(o.bytes(), "is " + FormatText(m) + ", which " + std::string(d.name) +
                               " does not write: give another --dialect");
  }
  kernel.layout = m.layout;
  return kernel;
}

CLI::Option* AddPartsOption(CLI::App* command, std::string* parts) {
  const HelpGroup group(command, kBytesGroup);
  return command
      ->add_option("--parts", *parts,
                   "The rows are so many parts (experts, joined projections, ranks), each with an "
                   "amax and a tensor scale of its own: 4, or the rows of each: 64,64,32")
      ->type_name("PARTS");
}

std::vector<AnswerPart> PartsOf(const std::string& text, const KernelOptions& o,
                                MatrixView<const float> x, const StoredMatrix& bytes) {
  const std::vector<RowPart> rows = ParseRowParts(text, x.rows, "--parts");
  std::vector<StoredMatrix> split = SplitRows(bytes, rows, o.bytes());
  if (!o.amax.empty() && o.amax.size() != rows.size()) {
    throw Error("--amax", std::to_string(o.amax.size()) + " numbers; the parts are " +
                              std::to_string(rows.size()));
  }
  std::vector<AnswerPart> parts;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    const RowPart& at = rows[k];
    parts.push_back({.at = at,
                     .x = x.Block(at.row, 0, at.rows, x.cols),
                     .bytes = std::move(split[k]),
                     .title = "part " + std::to_string(k) + ", rows " + std::to_string(at.row) +
                              ".." + std::to_string(at.row + at.rows - 1)});
    if (!o.amax.empty()) parts.back().amax = {o.amax[k]};
  }
  return parts;
}

std::vector<std::uint16_t> ReadRandom(const KernelOptions& options, MatrixView<const float> x) {
  if (options.random.empty()) return {};
  std::vector<std::size_t> dims;
  std::vector<std::uint16_t> random = ReadElements<std::uint16_t>(options.random, &dims);
  CheckElementsGrid(x.rows, x.cols, dims, options.random);
  return random;
}

DialectOptions OptionsOf(const KernelOptions& o, const Dialect& d, MatrixView<const float> x,
                         const std::vector<std::uint16_t>& random) {
  CheckGivenAmax(o.amax, d, x);
  if (IsStochastic(d) && random.size() != x.size()) {
    throw Error("--random", "the dialect " + std::string(d.name) +
                                " rounds stochastically: give the file of its random bits, " +
                                std::to_string(x.size()) +
                                " uint16 (verify --stochastic judges several runs without)");
  }
  return {.amax = o.amax, .random = random};
}

}  // namespace fp4lab::tools
