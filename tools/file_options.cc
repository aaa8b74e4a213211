#include "tools/file_options.h"

#include <charconv>

#include "fp4lab/base/error.h"
#include "fp4lab/dialect/dialect.h"

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
  throw Error(std::string(option) + " " + name, "is not known; one of:" + Names(table));
}

std::optional<CodeOrder> CodesOf(const LayoutOptions& o) {
  return Find(o.codes, FindCodeOrder, kCodeOrders, "--codes-order");
}
std::optional<ScaleOrder> ScalesOf(const LayoutOptions& o) {
  return Find(o.scales, FindScaleOrder, kScaleOrders, "--scales-order");
}
std::optional<LevelTwoConvention> LevelTwoOf(const LayoutOptions& o) {
  return Find(o.level_two, FindLevelTwoConvention, kLevelTwoConventions, "--level-two-is");
}

}  // namespace

void AddNumberOptions(CLI::App* command, NumberOptions* options) {
  command->add_option("--shape", options->shape, "Shape of a raw file")->type_name("ROWSxCOLS");
  command
      ->add_option("--dtype", options->dtype,
                   "Type of the numbers in a raw file, or behind the integers of a .npy")
      ->type_name("TYPE");
  command->add_flag("--transpose-input", options->transpose, "Take the transposed matrix");
}

NumberFile ReadNumbers(const NumberOptions& options) {
  ReadMatrixOptions read{.dtype = options.dtype};
  if (!options.shape.empty()) read.shape = ParseShape(options.shape, "--shape");
  NumberFile file = ReadMatrix(options.place, read);
  if (!options.transpose) return file;
  Matrix<float> transposed(file.values.cols, file.values.rows);
  for (std::size_t r = 0; r < file.values.rows; ++r) {
    for (std::size_t c = 0; c < file.values.cols; ++c) transposed(c, r) = file.values(r, c);
  }
  file.values = std::move(transposed);
  return file;
}

void AddLayoutOptions(CLI::App* command, const std::string& before, LayoutOptions* options) {
  const std::string dashes = "--" + before;
  const std::string file = before.empty() ? "" : ", in the vendor's file that is read";
  command
      ->add_option(dashes + "codes-order", options->codes,
                   "How codes are packed" + file + ":" + Names(kCodeOrders))
      ->type_name("ORDER");
  command
      ->add_option(dashes + "scales-order", options->scales,
                   "How scales lie" + file + ":" + Names(kScaleOrders))
      ->type_name("ORDER");
  command
      ->add_option(dashes + "level-two-is", options->level_two,
                   "What the tensor's number is" + file + ":" + Names(kLevelTwoConventions))
      ->type_name("WHAT");
  options->transposed = command->add_flag(dashes + "transposed,!" + dashes + "not-transposed",
                                          options->transposed_value,
                                          "The bytes are those of the transposed matrix" + file);
  options->expanded = command->add_flag(
      dashes + "expanded-scales,!" + dashes + "single-scales", options->expanded_value,
      "The scale of a square block is repeated for each of its rows" + file);
}

StorageLayout Changed(StorageLayout layout, const LayoutOptions& options) {
  layout.codes = CodesOf(options).value_or(layout.codes);
  layout.scales = ScalesOf(options).value_or(layout.scales);
  layout.level_two = LevelTwoOf(options).value_or(layout.level_two);
  if (options.transposed->count() > 0) layout.transposed = options.transposed_value;
  if (options.expanded->count() > 0) layout.expanded_scales = options.expanded_value;
  return layout;
}

ReadStoredOptions ReadOptionsOf(const LayoutOptions& options, const Dialect* dialect) {
  return {.dialect = dialect,
          .codes = CodesOf(options),
          .scales = ScalesOf(options),
          .level_two = LevelTwoOf(options),
          .transposed = options.transposed_value,
          .expanded_scales = options.expanded_value};
}

const Dialect* DialectOrNothing(const std::string& name) {
  return name.empty() ? nullptr : &RequireDialect(name);
}

const Dialect& RequireDialect(const std::string& name) {
  if (const Dialect* d = FindDialect(name)) return *d;
  throw Error("--dialect " + name, "is not known; one of:" + Names(Dialects()));
}

const Dialect* DialectOf(const StoredFile& file, const Dialect* named) {
  return named != nullptr ? named : FindDialect(file.dialect);
}

std::string LayoutText(const StoredMatrix& stored) {
  const StorageLayout& layout = stored.layout;
  std::string text = std::string(Name(layout.codes)) + " codes";
  if (stored.block_rows > 0) text += ", " + std::string(Named(layout.scales).name) + " scales";
  if (layout.transposed) text += ", transposed";
  if (layout.expanded_scales) text += ", expanded scales";
  if (stored.level_two.empty()) return text + ", no level 2";
  return text + ", level 2 as " + std::string(Name(layout.level_two));
}

std::string FormatText(const StoredMatrix& stored) {
  const std::string text = std::to_string(stored.rows) + "x" + std::to_string(stored.cols) + " " +
                           std::string(Named(stored.element).name);
  if (stored.block_rows == 0) return text + ", one scale for the tensor";
  return text + " in " + std::to_string(stored.block_rows) + "x" +
         std::to_string(stored.block_cols) + " blocks with " +
         std::string(Named(stored.scale).name) + " scales";
}

Json FormatJson(const StoredMatrix& stored) {
  const StorageLayout& layout = stored.layout;
  return {
      {"shape", {stored.rows, stored.cols}},    {"element", Named(stored.element).name},
      {"scale", Named(stored.scale).name},      {"block", {stored.block_rows, stored.block_cols}},
      {"codes_order", Name(layout.codes)},      {"scales_order", Named(layout.scales).name},
      {"transposed", layout.transposed},        {"expanded_scales", layout.expanded_scales},
      {"level_two_is", Name(layout.level_two)}, {"level_two", stored.level_two},
      {"codes_bytes", stored.codes.size()},     {"scales_bytes", stored.scales.size()}};
}

Matrix<float> ValuesOf(const StoredFile& file, const Dialect* dialect, std::string_view where) {
  if (dialect != nullptr) {
    const Quantized q = Load(*dialect, file.matrix, where);
    const bool same_levels =
        HasLevelTwo(*dialect) ? !q.amax.empty() : file.matrix.level_two.empty();
    if (same_levels) return DequantizeAs(*dialect, q);
  }
  const float scale_max = dialect == nullptr ? Dialect{}.scale_max : dialect->scale_max;
  return StoredValues(file.matrix, scale_max, where);
}

std::string NumberText(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr;
  return std::string(buffer, end);
}

}  // namespace fp4lab::tools
