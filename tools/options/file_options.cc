#include "tools/options/file_options.h"

#include <charconv>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "fp4lab/transform/hadamard.h"
#include "tools/help/help_group.h"
#include "tools/options/usage.h"

namespace fp4lab::tools {
namespace {

template <class Table>
std::string Names(const Table& table) {
  std::string names;
  for (const auto& row : table) names += " " + std::string(row.name);
  return names;
}

template <class T, class Table>
std::optional<T> Find(const std::string& name, std::optional<T> (*find)(std::string_view),
                      const Table& table, const char* option) {
  if (name.empty()) return std::nullopt;
  if (const std::optional<T> found = find(name)) return found;
  throw Error(std::string(option) + " " + name,
              "is not known; " + DidYouMean(name, NamesOf(table)));
}

std::optional<CodeOrder> CodesOf(const LayoutOptions& o) {
  return Find(o.codes, FindCodeOrder, kCodeOrders, "--codes-order");
}
std::optional<ScaleOrder> ScalesOf(const LayoutOptions& o) {
  return Find(o.scales, FindScaleOrder, kScaleOrders, "--scales-order");
}
std::optional<ScaleType> ScaleTypeOf(const LayoutOptions& o) {
  return Find(o.scale_type, FindScaleType, kScaleTypes, "--scales-type");
}
std::optional<TensorScaleConvention> TensorScaleConventionOf(const LayoutOptions& o) {
  return Find(o.tensor_scale, FindTensorScaleConvention, kTensorScaleConventions,
              "--tensor-scale-is");
}

ReadMatrixOptions MatrixOptionsOf(const NumberOptions& options) {
  ReadMatrixOptions read{.dtype = options.dtype};
  if (!options.shape.empty()) read.shape = ParseShape(options.shape, "--shape");
  return read;
}

}  // namespace

CLI::Option* AddNumberOptions(CLI::App* command, const std::string& name, const std::string& what,
                              NumberOptions* options) {
  const HelpGroup group(command, kInputGroup);
  CLI::Option* place =
      command
          ->add_option(name, options->place,
                       what +
                           ": .npy, FILE.npz#ARRAY, FILE.safetensors#TENSOR, FILE.gguf#TENSOR, or "
                           "raw numbers with --shape and --dtype")
          ->type_name("FILE");
  command->add_option("--shape", options->shape, "Shape of a raw file")->type_name("ROWSxCOLS");
  command
      ->add_option(
          "--dtype", options->dtype,
          "Type of the numbers in a raw file, or the type stored as integers (16 bits: BF16 "
          "by default)")
      ->type_name("TYPE");
  command->add_flag("--transpose-input", options->transpose, "Take the transposed matrix");
  return place;
}

NumberFile ReadNumbers(const NumberOptions& options) {
  NumberFile file = ReadMatrix(options.place, MatrixOptionsOf(options));
  if (options.transpose) file.values = Transposed(file.values.View());
  return file;
}

NumberView ViewNumbers(const NumberOptions& options) {
  NumberView view = ViewMatrix(options.place, MatrixOptionsOf(options));
  if (!options.transpose) return view;
  Matrix<float> transposed = Transposed(view.values);
  view.content = nullptr;
  view.bytes = {};
  view.decoded = std::move(transposed.values);
  view.values = {view.decoded.data(), transposed.rows, transposed.cols};
  return view;
}

Matrix<float> Transposed(MatrixView<const float> x) {
  Matrix<float> t(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) t(c, r) = x(r, c);
  }
  return t;
}

void AddStoredFile(CLI::App* command, const std::string& name, std::string* place) {
  command->add_option(name, *place, "FILE.safetensors, .npz or .gguf; #NAME where it holds several")
      ->type_name("FILE")
      ->required();
}

void AddFileDialect(CLI::App* command, std::string* dialect) {
  const HelpGroup group(command, kDialectGroup);
  command
      ->add_option("--dialect", *dialect,
                   "Blocks and order of operations, where the file does not state them: a name or "
                   "FILE.json")
      ->type_name("DIALECT");
}

void AddLayoutOptions(CLI::App* command, const std::string& before, LayoutOptions* options) {
  const HelpGroup group(command, before.empty() ? kLayoutGroup : kReadLayoutGroup);
  const std::string dashes = "--" + before;
  const std::string file = before.empty() ? "" : ", in the vendor's file that is read";
  const auto add_name = [&](const std::string& name, std::string* text, const std::string& what) {
    command->add_option(dashes + name, *text, what)->type_name("NAME");
  };
  const auto add_flag = [&](const char* yes, const char* no, std::optional<bool>* flag,
                            const char* what) {
    command->add_flag_function(
        dashes + yes + ",!" + dashes + no, [flag](std::int64_t n) { *flag = n > 0; }, what + file);
  };
  add_name("codes-order", &options->codes,
           "Packing of the codes" + file + ":" + Names(kCodeOrders));
  add_name("scales-order", &options->scales,
           "Order of the scales" + file + ":" + Names(kScaleOrders));
  if (before.empty()) {
    add_name("scales-type", &options->scale_type,
             "Type of the block scales, where it is not the dialect's:" + Names(kScaleTypes));
  }
  add_name("tensor-scale-is," + dashes + "level-two-is", &options->tensor_scale,
           "Convention of the tensor scale" + file + ":" + Names(kTensorScaleConventions));
  add_flag("transposed", "not-transposed", &options->transposed,
           "The bytes are those of the transposed matrix");
  add_flag("expanded-scales", "single-scales", &options->expanded,
           "The scale of a square block is repeated for each of its rows");
}

StorageLayout Changed(StorageLayout layout, const LayoutOptions& options) {
  layout.codes = CodesOf(options).value_or(layout.codes);
  layout.scales = ScalesOf(options).value_or(layout.scales);
  layout.tensor_scale = TensorScaleConventionOf(options).value_or(layout.tensor_scale);
  layout.scale_type = ScaleTypeOf(options).value_or(layout.scale_type);
  layout.transposed = options.transposed.value_or(layout.transposed);
  layout.expanded_scales = options.expanded.value_or(layout.expanded_scales);
  return layout;
}

ReadStoredOptions ReadOptionsOf(const LayoutOptions& options, const Dialect* dialect) {
  return {.dialect = dialect,
          .codes = CodesOf(options),
          .scales = ScalesOf(options),
          .tensor_scale = TensorScaleConventionOf(options),
          .transposed = options.transposed.value_or(false),
          .expanded_scales = options.expanded.value_or(false)};
}

void AddHadamardOptions(CLI::App* command, HadamardOptions* options) {
  const HelpGroup group(command, kDialectGroup);
  command
      ->add_option("--hadamard,--rht", options->size,
                   "Random Hadamard transform before the quantizer: 16 or 32 elements, 0: none")
      ->check(CLI::IsMember({0, 16, 32}));
  command
      ->add_option("--signs", options->signs,
                   "Signs of the transform: te, none, or a mask as in 0xD7E8")
      ->capture_default_str()
      ->each([options](const std::string&) { options->gives_signs = true; });
}

void CheckHadamardOptions(const HadamardOptions& options) {
  if (!options.gives_signs || options.size != 0) return;
  RefuseUsage("--signs " + options.signs,
              "are those of a transform that is not asked for; add --rht 16 or --rht 32, or leave "
              "them out");
}

std::uint32_t SignMask(const HadamardOptions& options) {
  CheckHadamardOptions(options);
  const bool long_groups = options.size == 32;
  if (options.size == 0 || options.signs == "none") return 0;
  if (options.signs == "te") return long_groups ? kTeSignMask32 : kTeSignMask16;
  std::string_view digits = options.signs;
  if (digits.starts_with("0x")) digits.remove_prefix(2);
  std::uint32_t mask = 0;
  const char* const end = digits.data() + digits.size();
  const auto [at, error] = std::from_chars(digits.data(), end, mask, 16);
  const bool fits = long_groups || mask <= 0xFFFFu;
  if (error == std::errc() && at == end && fits) return mask;
  throw Error("--signs " + options.signs, "is not a mask; te, none, or bits as in 0xD7E8");
}

const Dialect* DialectOrNothing(const std::string& name) {
  return name.empty() ? nullptr : &RequireDialect(name);
}

const Dialect& RequireDialect(const std::string& name, const std::string& option) {
  const std::string where = option + " " + name;
  if (const Dialect* d = DialectOfText(name, where)) return *d;
  throw Error(where, "is not known; " +
                         DidYouMean(name, NamesOf(Dialects()), "`fp4lab dialects` lists them"));
}

const Dialect* DialectOf(const StoredFile& file, const Dialect* named) {
  return named != nullptr ? named : FindDialect(file.dialect);
}

void CheckNamedDialect(const StoredFile& file, const Dialect* named, const std::string& where) {
  if (named == nullptr) return;
  const StoredMatrix& m = file.matrix;
  const std::string option = "--dialect " + std::string(named->name);
  if (!HasFormatsOf(m, *named)) {
    RefuseUsage(option, where + " holds " + FormatText(m) +
                            ", which this dialect does not write; name one of that format");
  }
  const Dialect* stated = FindDialect(file.dialect);
  if (stated == nullptr || SameFormulas(*stated, *named)) return;
  RefuseUsage(option, where + " states the dialect " + file.dialect +
                          "; leave the option out, which is for files that state none");
}

namespace {

// Refuses the option if it is given and is not what the convention stores.
void CheckFixed(const std::string& option, const std::string& given, std::string_view fixed,
                const std::string& convention) {
  if (given.empty() || given == fixed) return;
  RefuseUsage(option + " " + given, "contradicts --convention " + convention +
                                        ", whose files have " + std::string(fixed) +
                                        "; leave it out, or write --convention fp4lab");
}
void CheckFixed(const std::string& option, bool contradicts, const std::string& what,
                const std::string& convention) {
  if (!contradicts) return;
  RefuseUsage(option, "contradicts --convention " + convention + ", whose files " + what +
                          "; leave it out, or write --convention fp4lab");
}

}  // namespace

void CheckConventionLayout(const LayoutOptions& options, const std::string& convention,
                           FormatId element, int block_rows, bool has_tensor_scale) {
  const Vendor* vendor = FindVendor(convention);
  if (vendor == nullptr && convention != "gguf") return;
  const bool one_block = block_rows == 0;
  const CodeOrder codes = vendor == nullptr ? CodeOrder::kSplitHalves : DefaultCodeOrder(element);
  const ScaleOrder scales = vendor == nullptr ? ScaleOrder::kLinear : vendor->scale_order;
  const TensorScaleConvention number =
      vendor == nullptr || one_block ? TensorScaleConvention::kMultiplier : vendor->convention;
  CheckFixed("--codes-order", options.codes, Name(codes), convention);
  CheckFixed("--scales-order", options.scales, Named(scales).name, convention);
  if (has_tensor_scale) {
    CheckFixed("--tensor-scale-is", options.tensor_scale, Name(number), convention);
  }
  CheckFixed("--transposed", options.transposed.value_or(false),
             "hold the matrix itself (--transpose-input of quantize transposes it)", convention);
  CheckFixed("--single-scales", !options.expanded.value_or(true) && block_rows > 1,
             "repeat the scale of a square block for each of its rows", convention);
  CheckFixed("--expanded-scales", options.expanded.value_or(false) && block_rows <= 1,
             "hold the scale of each block once", convention);
}

std::string LayoutText(const StoredMatrix& stored) {
  const StorageLayout& layout = stored.layout;
  std::string text = std::string(Name(layout.codes)) + " codes";
  if (stored.block_rows > 0) text += ", " + std::string(Named(layout.scales).name) + " scales";
  if (layout.transposed) text += ", transposed";
  if (layout.expanded_scales) text += ", expanded scales";
  if (stored.tensor_scale.empty()) return text + ", no tensor scale";
  return text + ", tensor scale as " + std::string(Name(layout.tensor_scale));
}

namespace {

// "float8_e4m3fn" or "fp32".
std::string ScaleName(const StoredMatrix& stored) {
  const ScaleType type = stored.layout.scale_type;
  return std::string(type == ScaleType::kByte ? Named(stored.scale).name : Named(type).name);
}

}  // namespace

std::string FormatText(const StoredMatrix& stored) {
  const std::string text = std::to_string(stored.rows) + "x" + std::to_string(stored.cols) + " " +
                           std::string(Named(stored.element).name);
  if (stored.block_rows == 0) return text + ", one scale for the tensor";
  return text + " in " + std::to_string(stored.block_rows) + "x" +
         std::to_string(stored.block_cols) + " blocks with " + ScaleName(stored) + " scales";
}

Json FormatJson(const StoredMatrix& stored) {
  const StorageLayout& layout = stored.layout;
  return {{"shape", {stored.rows, stored.cols}},
          {"element", Named(stored.element).name},
          {"scale", ScaleName(stored)},
          {"block", {stored.block_rows, stored.block_cols}},
          {"codes_order", Name(layout.codes)},
          {"scales_order", Named(layout.scales).name},
          {"transposed", layout.transposed},
          {"expanded_scales", layout.expanded_scales},
          {"tensor_scale_is", Name(layout.tensor_scale)},
          {"tensor_scale", stored.tensor_scale},
          {"codes_bytes", stored.codes.size()},
          {"scales_bytes", stored.scales.size()}};
}

Matrix<float> ValuesOf(const StoredFile& file, const Dialect* dialect, std::string_view where) {
  // Numbers that no byte of the dialect has are another kernel's: they are decoded as they are.
  const bool as_bytes = dialect != nullptr && ScaleTypeOf(*dialect, {}) == ScaleType::kByte;
  if (dialect != nullptr && !(as_bytes && file.matrix.layout.scale_type != ScaleType::kByte)) {
    const Quantized q = Load(*dialect, file.matrix, where);
    const bool same_tensor_scales =
        HasTensorScale(*dialect) ? !q.amax.empty() : file.matrix.tensor_scale.empty();
    if (same_tensor_scales) return DequantizeAs(*dialect, q);
  }
  const float scale_max = dialect == nullptr ? Dialect{}.scale_max : dialect->scale_max;
  return StoredValues(file.matrix, scale_max, where);
}

}  // namespace fp4lab::tools
