#include "fp4lab/exchange/stored_file.h"

#include <tuple>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_grid.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/tensors/npy.h"

namespace fp4lab {
namespace {

constexpr std::string_view kOurs = "fp4lab", kGguf = "gguf";

std::string Prefix(const std::string& name) { return name.empty() ? "" : name + "."; }
std::string MetadataKey(const std::string& name) {
  return std::string(kOurs) + (name.empty() ? "" : "." + name);
}

// The functions below return tensors that are views of the matrix's bytes.
SafetensorsTensor Tensor(std::string_view dtype, std::vector<std::size_t> shape,
                         std::span<const std::byte> bytes) {
  return {std::string(dtype), std::move(shape), ByteArray::ViewOf(bytes)};
}

std::string_view FormatDtype(FormatId id) {
  return SafetensorsName({NumberType::Kind::kFormat, id});
}

SafetensorsTensor CodesTensor(const StoredMatrix& m, const StoredSizes& sizes) {
  const auto bytes = std::as_bytes(std::span(m.codes));
  if (m.layout.codes == CodeOrder::kLowFirst) {
    return Tensor("F4", {sizes.code_rows, sizes.code_row_bytes * 2}, bytes);
  }
  const bool whole = m.layout.codes == CodeOrder::kBytes && FormatOf(m.element).bits == 8;
  return Tensor(whole ? FormatDtype(m.element) : "U8", {sizes.code_rows, sizes.code_row_bytes},
                bytes);
}

SafetensorsTensor ScalesTensor(const StoredMatrix& m, const StoredSizes& sizes) {
  const auto bytes = std::as_bytes(std::span(m.scales));
  std::vector<std::size_t> shape = {1, m.scales.size()};
  if (m.layout.scales == ScaleOrder::kLinear) shape = {sizes.scale_rows, sizes.scale_cols};
  if (m.layout.scales == ScaleOrder::kPadded && sizes.scale_cols > 0) {
    const std::size_t width = RoundUp(sizes.scale_cols, 4);
    shape = {m.scales.size() / width, width};
  }
  return Tensor(FormatDtype(m.scale), std::move(shape), bytes);
}

Json Description(const StoredMatrix& m, std::string_view dialect) {
  const bool has_none = m.tensor_scale.empty() && NeedsTensorScale(m, FindDialect(dialect));
  return {{"dialect", dialect},
          {"shape", {m.rows, m.cols}},
          {"element", Named(m.element).name},
          {"scale", Named(m.scale).name},
          {"block", {m.block_rows, m.block_cols}},
          {"codes", Name(m.layout.codes)},
          {"scales", Named(m.layout.scales).name},
          {"transposed", m.layout.transposed},
          {"expanded_scales", m.layout.expanded_scales},
          {"level_two", has_none ? "none" : Name(m.layout.tensor_scale)}};
}

FormatId RequireFormat(JsonObject& o, const char* key) {
  std::string name;
  o.Require(key, &name);
  if (const std::optional<FormatId> id = FindFormat(name)) return *id;
  throw Error(o.Where(key),
              "\"" + name + "\" is not a format; " + DidYouMean(name, NamesOf(kFormats)));
}

template <class T, class Table>
T RequireNamed(JsonObject& o, const char* key, std::optional<T> (*find)(std::string_view),
               const Table& table) {
  std::string name;
  o.Require(key, &name);
  if (const std::optional<T> found = find(name)) return *found;
  throw Error(o.Where(key), "\"" + name + "\" is not known; " + DidYouMean(name, NamesOf(table)));
}

// AddStored with tensors that are views of `stored`, which must outlive them.
void AddViews(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
              SafetensorsFile* file) {
  const StoredSizes sizes = SizesOf(stored, name);
  file->metadata[MetadataKey(name)] = Description(stored, dialect).dump();
  file->tensors[Prefix(name) + "codes"] = CodesTensor(stored, sizes);
  if (stored.block_rows > 0) file->tensors[Prefix(name) + "scales"] = ScalesTensor(stored, sizes);
  if (stored.tensor_scale.empty()) return;
  file->tensors[Prefix(name) + "level_two"] =
      Tensor("F32", {stored.tensor_scale.size()}, std::as_bytes(std::span(stored.tensor_scale)));
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
  std::tie(m.rows, m.cols) = RequirePair(o, "shape");
  m.element = RequireFormat(o, "element");
  m.scale = RequireFormat(o, "scale");
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
  m.layout.tensor_scale =
      RequireNamed(o, "level_two", FindTensorScaleConvention, kTensorScaleConventions);
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
    const auto found = file.tensors.find(Prefix(name) + part);
    if (found == file.tensors.end()) return;
    check_grid(m, found->second.shape, bytes, where + "#" + found->first);
  };
  check("codes", m.codes.size(), CheckCodesGrid);
  check("scales", m.scales.size(), CheckScalesGrid);
}

std::vector<StoredFileEntry> List(const GgufFile& file) {
  std::vector<StoredFileEntry> entries;
  for (const std::string& name : ListGgufMatrices(file)) entries.push_back({name, "gguf"});
  return entries;
}

bool IsNamed(const StoredFileEntry& entry, const std::string& name) {
  if (entry.name == name) return true;
  const Vendor* vendor = FindVendor(entry.convention);
  const std::string codes = vendor != nullptr ? std::string(vendor->codes) : "codes";
  return entry.name + codes == name || Prefix(entry.name) + codes == name ||
         (entry.convention == kGguf && entry.name == name + ".weight");
}

const StoredFileEntry& Pick(const std::vector<StoredFileEntry>& entries, const std::string& name,
                            const std::string& where) {
  const StoredFileEntry* found = nullptr;
  std::size_t matches = 0;
  for (const StoredFileEntry& entry : entries) {
    if (!name.empty() && !IsNamed(entry, name)) continue;
    if (found == nullptr || entry.convention != "te-columnwise") found = &entry;
    matches += entry.convention != "te-columnwise" ? 1 : 0;
  }
  if (found != nullptr && matches <= 1) return *found;
  if (entries.empty()) {
    throw Error(where,
                "holds no quantized matrix under the names of fp4lab, te, modelopt, "
                "compressed-tensors, comfyui or gguf");
  }
  std::string names;
  for (std::size_t i = 0; i < entries.size() && i < 8; ++i) {
    names += (names.empty() ? "" : ", ") + entries[i].name + " (" + entries[i].convention + ")";
  }
  if (entries.size() > 8) names += ", ...";
  throw Error(where,
              (name.empty() ? "holds " + std::to_string(entries.size()) + " quantized matrices"
                            : "has no quantized matrix " + name) +
                  "; name one, as in file#name: " + names);
}

}  // namespace

std::vector<std::string_view> Conventions() {
  std::vector<std::string_view> names = {kOurs, kGguf};
  for (const Vendor& v : kVendors) {
    if (!v.read_only) names.push_back(v.name);
  }
  return names;
}

void AddStored(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
               SafetensorsFile* file) {
  const IeeeArithmetic ieee;
  AddViews(stored, dialect, name, file);
  for (const char* part : {"codes", "scales", "level_two"}) {
    const auto found = file->tensors.find(Prefix(name) + part);
    if (found != file->tensors.end()) found->second.bytes.Own();
  }
}

StoredFile TakeStored(const SafetensorsFile& file, const std::string& name,
                      const std::string& where, const ReadStoredOptions& options) {
  const IeeeArithmetic ieee;
  const auto text = file.metadata.find(MetadataKey(name));
  if (text == file.metadata.end()) throw Error(where, "has no quantized matrix " + name);
  StoredFile result = ReadDescription(text->second, where + "#" + MetadataKey(name));
  result.entry = {name, std::string(kOurs)};
  StoredMatrix& m = result.matrix;
  m.codes = TakeBytes(file, Prefix(name) + "codes");
  m.scales = TakeBytes(file, Prefix(name) + "scales");
  CheckGrids(file, name, m, where);
  const auto tensor_scale = file.tensors.find(Prefix(name) + "level_two");
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
    RefuseMissingTensorScale(where, Prefix(name) + "level_two", Prefix(name) + "codes");
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

std::vector<StoredFileEntry> ListStored(const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(path.string());
  if (place.ending != ".gguf") return ListStored(TensorFile(path).tensors());
  const FileContent content(path);
  return List(ViewGguf(content.bytes(), path.string()));
}

StoredFile ReadStored(std::string_view text, const ReadStoredOptions& options) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(text);
  const std::string where = place.path.string();
  if (place.ending == ".gguf") {
    const FileContent content(place.path);
    const GgufFile file = ViewGguf(content.bytes(), where);
    const StoredFileEntry entry = Pick(List(file), place.name, where);
    return {entry, "", ReadGgufMatrix(file, entry.name, where)};
  }
  TensorFile file(place.path);
  const StoredFileEntry entry = Pick(ListStored(file.tensors()), place.name, where);
  file.Load(entry.name);
  return ReadStored(file.tensors(), entry, options, where);
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

void WriteStored(std::string_view text, const StoredMatrix& stored, std::string_view dialect,
                 std::string_view convention, float scale_max) {
  const IeeeArithmetic ieee;
  const FilePlace place = SplitPlace(text);
  const bool tensors = place.ending == ".safetensors" || place.ending == ".npz";
  if (convention == kGguf ? place.ending != ".gguf" : !tensors) {
    throw Error(text, "cannot be used with the naming convention " + std::string(convention) +
                          ": .gguf for gguf, .safetensors or .npz for the others");
  }
  if (convention == kGguf) {
    GgufFile file;
    AddGgufMatrix(stored, place.name, scale_max, &file);
    return WriteGguf(place.path, file);
  }
  SafetensorsFile file;
  if (convention == kOurs) {
    AddViews(stored, dialect, place.name, &file);
  } else {
    const Vendor* vendor = FindVendor(convention);
    if (vendor == nullptr || vendor->read_only) {
      const auto names = Conventions();
      throw Error("convention " + std::string(convention),
                  "is not known; " +
                      DidYouMean(convention, std::vector<std::string>(names.begin(), names.end())));
    }
    AddVendorMatrix(stored, {place.name, vendor}, scale_max, &file);
  }
  WriteTensors(place.path, file);
}

}  // namespace fp4lab
