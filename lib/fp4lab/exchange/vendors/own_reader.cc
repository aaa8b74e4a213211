// The reader of fp4lab's own convention of names, on tensors in memory: a part of stored_file.h
// that needs no files.
#include <tuple>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/exchange/stored_grid.h"
#include "fp4lab/exchange/vendors/own_convention.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/renamed_key.h"
#include "fp4lab/spelling/spelled_dialect.h"

namespace fp4lab {
namespace {

constexpr std::string_view kOurs = kOwnConvention;

FormatId RequireFormat(JsonObject& o, const char* key) {
  std::string name;
  o.Require(key, &name);
  if (const std::optional<FormatId> id = FindFormat(name)) return *id;
  throw Error(o.Where(key),
              "\"" + name + "\" is not a format; " + DidYouMean(name, NamesOf(kFormats)));
}

// The type of scales that are numbers.
std::optional<ScaleType> ReadScaleType(JsonObject& o) {
  std::string name;
  o.Require("scale", &name);
  const std::optional<ScaleType> type = FindScaleType(name);
  return type == ScaleType::kByte ? std::nullopt : type;
}

template <class T, class Table>
T RequireNamed(JsonObject& o, std::string_view key, std::optional<T> (*find)(std::string_view),
               const Table& table) {
  std::string name;
  o.Require(key, &name);
  if (const std::optional<T> found = find(name)) return *found;
  throw Error(o.Where(key), "\"" + name + "\" is not known; " + DidYouMean(name, NamesOf(table)));
}

std::pair<std::uint64_t, std::uint64_t> RequirePair(JsonObject& o, const char* key) {
  std::vector<std::uint64_t> pair;
  o.Require(key, &pair);
  if (pair.size() != 2) throw Error(o.Where(key), "must be two numbers");
  return {pair[0], pair[1]};
}

// Parses a description: a matrix without bytes.
StoredFile ReadDescription(const std::string& text, const std::string& where) {
  const Json json = ParseJson(text, where);
  JsonObject o(json, where);
  StoredFile file;
  StoredMatrix& m = file.matrix;
  o.Require("dialect", &file.dialect);
  if (file.dialect.starts_with('{')) {
    file.dialect = DialectNamed(file.dialect, o.Where("dialect"))->name;
  }
  std::tie(m.rows, m.cols) = RequirePair(o, "shape");
  m.element = RequireFormat(o, "element");
  if (const std::optional<ScaleType> numbers = ReadScaleType(o)) {
    m.layout.scale_type = *numbers;
  } else {
    m.scale = RequireFormat(o, "scale");
  }
  const auto [block_rows, block_cols] = RequirePair(o, "block");
  constexpr std::uint64_t kMost = 1 << 20;
  if (block_rows > kMost || block_cols > kMost || (block_rows == 0) != (block_cols == 0)) {
    throw Error(o.Where("block"), "must be two sizes, or [0, 0] for the whole tensor");
  }
  m.block_rows = static_cast<int>(block_rows);
  m.block_cols = static_cast<int>(block_cols);
  m.layout.codes = RequireNamed(o, "codes", FindCodeOrder, kCodeOrders);
  m.layout.scales = RequireNamed(o, "scales", FindScaleOrder, kScaleOrders);
  o.Require("transposed", &m.layout.transposed);
  o.Require("expanded_scales", &m.layout.expanded_scales);
  m.layout.tensor_scale = RequireNamed(o, RenamedKey(o, "tensor_scale_is", kOldTensorScale),
                                       FindTensorScaleConvention, kTensorScaleConventions);
  o.Finish();
  if (FormatOf(m.element).bits > 8 || FormatOf(m.scale).bits > 8) {
    throw Error(where, "elements and scales are formats of at most 8 bits");
  }
  return file;
}

std::vector<std::uint8_t> TakeBytes(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  if (found == file.tensors.end()) return {};
  const auto* data = reinterpret_cast<const std::uint8_t*>(found->second.bytes.data());
  std::vector<std::uint8_t> bytes;
  ReserveHugePages(&bytes, found->second.bytes.size());
  bytes.assign(data, data + found->second.bytes.size());
  return bytes;
}

// Throws Error for codes or scales in another grid than that of the layout.
void CheckGrids(const SafetensorsFile& file, const std::string& name, const StoredMatrix& m,
                const std::string& where) {
  const auto check = [&](const char* part, std::size_t bytes, auto check_grid) {
    const auto found = file.tensors.find(OwnPrefix(name) + part);
    if (found == file.tensors.end()) return;
    check_grid(m, found->second.shape, bytes, where + "#" + found->first);
  };
  check("codes", m.codes.size(), CheckCodesGrid);
  check("scales", m.scales.size(), CheckScalesGrid);
}

}  // namespace

void AddStored(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
               SafetensorsFile* file) {
  const IeeeArithmetic ieee;
  AddViews(stored, dialect, name, file);
  for (const char* part : {"codes", "scales", "tensor_scale"}) {
    const auto found = file->tensors.find(OwnPrefix(name) + part);
    if (found != file->tensors.end()) found->second.bytes.Own();
  }
}

StoredFile TakeStored(const SafetensorsFile& file, const std::string& name,
                      const std::string& where, const ReadStoredOptions& options) {
  const IeeeArithmetic ieee;
  const auto text = file.metadata.find(OwnMetadataKey(name));
  if (text == file.metadata.end()) throw Error(where, "has no quantized matrix " + name);
  StoredFile result = ReadDescription(text->second, where + "#" + OwnMetadataKey(name));
  result.entry = {name, std::string(kOurs)};
  StoredMatrix& m = result.matrix;
  m.codes = TakeBytes(file, OwnPrefix(name) + "codes");
  m.scales = TakeBytes(file, OwnPrefix(name) + "scales");
  CheckGrids(file, name, m, where);
  auto tensor_scale = file.tensors.find(OwnPrefix(name) + "tensor_scale");
  if (tensor_scale == file.tensors.end()) {
    tensor_scale = file.tensors.find(OwnPrefix(name) + std::string(kOldTensorScale));
  }
  if (tensor_scale != file.tensors.end()) {
    if (tensor_scale->second.dtype != "F32") {
      throw Error(where + "#" + tensor_scale->first, "must be F32");
    }
    m.tensor_scale =
        DecodeNumbers({}, tensor_scale->second.bytes, tensor_scale->second.bytes.size() / 4);
  }
  if (options.tensor_scale == TensorScaleConvention::kNone && m.tensor_scale.empty()) {
    m.layout.tensor_scale = TensorScaleConvention::kNone;
  }
  const Dialect* dialect =
      options.dialect != nullptr ? options.dialect : FindDialect(result.dialect);
  if (m.tensor_scale.empty() && m.layout.tensor_scale != TensorScaleConvention::kNone &&
      NeedsTensorScale(m, dialect)) {
    RefuseMissingTensorScale(where, OwnPrefix(name) + "tensor_scale", OwnPrefix(name) + "codes");
  }
  CheckStored(m, where);
  return result;
}

std::vector<StoredFileEntry> ListStored(const SafetensorsFile& file) {
  const IeeeArithmetic ieee;
  std::vector<StoredFileEntry> entries;
  for (const auto& [key, text] : file.metadata) {
    if (key == kOurs) entries.push_back({"", std::string(kOurs)});
    if (key.starts_with("fp4lab.")) entries.push_back({key.substr(7), std::string(kOurs)});
  }
  for (const VendorEntry& e : ListVendorMatrices(file)) {
    entries.push_back({e.name, std::string(e.vendor->name)});
  }
  return entries;
}

StoredFile ReadStored(const SafetensorsFile& file, const StoredFileEntry& entry,
                      const ReadStoredOptions& options, const std::string& where) {
  const IeeeArithmetic ieee;
  if (entry.convention == kOurs) return TakeStored(file, entry.name, where, options);
  const VendorEntry vendor{entry.name, FindVendor(entry.convention)};
  Expects(vendor.vendor != nullptr, "an entry that ListStored gave");
  const std::string_view dialect = options.dialect == nullptr ? "" : options.dialect->name;
  return {entry, std::string(dialect), ReadVendorMatrix(file, vendor, options, where)};
}

}  // namespace fp4lab
