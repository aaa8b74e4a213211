#include "fp4lab/exchange/vendors/vendor.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/huge_pages.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/exchange/shape.h"
#include "fp4lab/exchange/stored_grid.h"
#include "fp4lab/exchange/vendors/own_convention.h"
#include "fp4lab/exchange/vendors/reading.h"
#include "fp4lab/io/json.h"

namespace fp4lab {
namespace {

std::string ShapeOf(const SafetensorsTensor& t) {
  return t.dtype + " " + (t.shape.empty() ? "scalar" : ShapeText(t.shape));
}

std::vector<std::uint8_t> Raw(const SafetensorsTensor& t) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(t.bytes.data());
  std::vector<std::uint8_t> raw;
  ReserveHugePages(&raw, t.bytes.size());
  raw.assign(data, data + t.bytes.size());
  return raw;
}

std::vector<std::byte> AsBytes(std::span<const std::uint8_t> raw) {
  const auto bytes = std::as_bytes(raw);
  std::vector<std::byte> copy;
  ReserveHugePages(&copy, bytes.size());
  copy.assign(bytes.begin(), bytes.end());
  return copy;
}

// nullptr if the file has no such tensor.
const SafetensorsTensor* Find(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? nullptr : &found->second;
}
const SafetensorsTensor& Require(const SafetensorsFile& file, const std::string& name,
                                 std::string_view where) {
  const SafetensorsTensor* tensor = Find(file, name);
  if (tensor == nullptr) throw Error(where, "has no tensor " + name);
  return *tensor;
}
const SafetensorsTensor* FindTensorScale(const SafetensorsFile& file, const VendorEntry& entry) {
  for (const std::string_view suffix : entry.vendor->tensor_scale) {
    if (suffix.empty()) continue;
    const SafetensorsTensor* tensor = Find(file, PrefixOf(entry) + std::string(suffix));
    if (tensor != nullptr) return tensor;
  }
  return nullptr;
}

FormatId ElementOf(const SafetensorsTensor& codes, const ReadStoredOptions& options,
                   const std::string& where) {
  if (codes.dtype == "F8_E4M3") return FormatId::kE4M3;
  if (codes.dtype == "F8_E5M2") return FormatId::kE5M2;
  if (codes.dtype == "F4") return FormatId::kE2M1;
  if (codes.dtype != "U8") {
    throw Error(where, "is " + ShapeOf(codes) + " where codes are U8, F4 or F8_*");
  }
  return options.dialect != nullptr ? options.dialect->element : FormatId::kE2M1;
}

// Sets m->rows and m->cols from the shape of the codes.
void SetShape(const SafetensorsTensor& codes, const std::string& where, StoredMatrix* m) {
  if (codes.shape.empty()) throw Error(where, "is " + ShapeOf(codes) + " where a matrix is needed");
  std::size_t cols = codes.shape.back();
  std::size_t rows = 1;
  for (std::size_t i = 0; i + 1 < codes.shape.size(); ++i) rows *= codes.shape[i];
  const bool packed = m->layout.codes != CodeOrder::kBytes && codes.dtype != "F4";
  if (packed && m->layout.codes == CodeOrder::kDense6) {
    cols = cols / 3 * 4;
  } else if (packed) {
    cols *= 2;
  }
  m->rows = m->layout.transposed ? cols : rows;
  m->cols = m->layout.transposed ? rows : cols;
}

// The order that is tried before the vendor's own.
ScaleOrder ReadFirst(const Vendor& vendor) {
  return vendor.marker.empty() ? ScaleOrder::kLinear : vendor.scale_order;
}

CodeOrder CodesOrderOf(const Vendor& vendor, FormatId element) {
  return FormatOf(element).bits == 4 ? vendor.codes_order : DefaultCodeOrder(element);
}

// Sets the order of the scales: that of the options, else one that fits the number of bytes.
void SetScaleOrder(const Vendor& vendor, const ReadStoredOptions& options, const std::string& where,
                   StoredMatrix* m) {
  if (options.scales) {
    m->layout.scales = *options.scales;
    return;
  }
  std::string fits;
  for (const bool expanded : {true, false}) {
    if (expanded && m->block_rows == 1 && !m->layout.transposed) continue;
    m->layout.expanded_scales = expanded;
    for (const ScaleOrder order : {ReadFirst(vendor), vendor.scale_order}) {
      m->layout.scales = order;
      if (SizesOf(*m, where).scales == m->scales.size()) return;
    }
    for (const NamedScaleOrder& o : kScaleOrders) {
      m->layout.scales = o.order;
      if (SizesOf(*m, where).scales != m->scales.size()) continue;
      fits += (fits.empty() ? "; they fit the order " : " or ") + std::string(o.name);
    }
  }
  m->layout.scales = ScaleOrder::kLinear;
  m->layout.expanded_scales = false;
  const StoredSizes sizes = SizesOf(*m, where);
  throw Error(where, std::to_string(m->scales.size()) + " bytes of scales; " +
                         std::to_string(m->rows) + "x" + std::to_string(m->cols) + " in " +
                         std::to_string(m->block_rows) + "x" + std::to_string(m->block_cols) +
                         " blocks has " + std::to_string(sizes.scale_rows) + "x" +
                         std::to_string(sizes.scale_cols) + " scales" + fits +
                         (fits.empty() ? "" : ": state the scale order"));
}

std::vector<float> Floats(const SafetensorsTensor& t, const std::string& where) {
  const std::optional<NumberType> type = FindNumberType(t.dtype);
  if (!type || Bits(*type) < 16) {
    throw Error(where, "is " + ShapeOf(t) + " where a tensor scale is F32, BF16 or F16");
  }
  return DecodeNumbers(*type, t.bytes, t.bytes.size() * 8 / static_cast<std::size_t>(Bits(*type)));
}

// Repeats one number per leading index (an expert) as one number a row.
std::vector<float> PerRow(std::vector<float> numbers, std::size_t rows, std::size_t leading) {
  if (numbers.size() <= 1 || numbers.size() != leading || rows % leading != 0) return numbers;
  std::vector<float> repeated;
  for (std::size_t r = 0; r < rows; ++r) repeated.push_back(numbers[r / (rows / leading)]);
  return repeated;
}

// The format of U8 scales without a tensor scale, from the number of bytes. Both formats can fit,
// for example if rows of 64 elements are padded, as Transformer Engine pads them: throws Error.
FormatId ScaleFormatOf(StoredMatrix m, std::size_t bytes, const Vendor& vendor,
                       const ReadStoredOptions& options, const std::string& where) {
  const auto fit = [&](int block_cols) {
    m.block_cols = block_cols;
    for (const ScaleOrder order : {ReadFirst(vendor), vendor.scale_order}) {
      m.layout.scales = options.scales.value_or(order);
      if (SizesOf(m, where).scales == bytes) return true;
    }
    return false;
  };
  const bool could_be_nvfp4 = m.element == FormatId::kE2M1 && fit(16);
  if (!could_be_nvfp4) return FormatId::kE8M0;
  if (!fit(32)) return FormatId::kE4M3;
  throw Error(where, "may be E8M0 in 1x32 blocks, or E4M3 in 1x16 blocks that lack their " +
                         std::string(vendor.tensor_scale[0]) +
                         ": state the dialect with --dialect");
}

void SetScales(const SafetensorsFile& file, const VendorEntry& entry,
               const ReadStoredOptions& options, const std::string& where, StoredMatrix* m) {
  const std::string name = PrefixOf(entry) + std::string(entry.vendor->scales);
  const SafetensorsTensor& scales = Require(file, name, where);
  const std::string place = where + "#" + name;
  if (scales.dtype == "F32") {  // one scale for the tensor (FP8)
    if (scales.bytes.size() != sizeof(float)) {
      throw Error(place,
                  "is " + ShapeOf(scales) + " where block scales are F8_E4M3, F8_E8M0 or U8");
    }
    m->block_rows = m->block_cols = 0;
    m->layout.tensor_scale = TensorScaleConvention::kMultiplier;
    m->tensor_scale = Floats(scales, place);
    return;
  }
  if (scales.dtype == "F8_E4M3") {
    m->scale = FormatId::kE4M3;
  } else if (scales.dtype == "F8_E8M0") {
    m->scale = FormatId::kE8M0;
  } else if (scales.dtype != "U8" && scales.dtype != "I8") {
    throw Error(place, "is " + ShapeOf(scales) +
                           " where block scales are F8_E4M3, F8_E8M0, or bytes as U8 or I8");
  } else if (options.dialect == nullptr) {
    m->scale = FindTensorScale(file, entry) != nullptr
                   ? FormatId::kE4M3
                   : ScaleFormatOf(*m, scales.bytes.size(), *entry.vendor, options, place);
  }
  if (options.dialect == nullptr) m->block_cols = m->scale == FormatId::kE8M0 ? 32 : 16;
  m->scales = Raw(scales);
  SetScaleOrder(*entry.vendor, options, place, m);
  CheckScalesGrid(*m, scales.shape, m->scales.size(), place);
}

// The layers that the metadata of ComfyUI's files without markers name.
std::set<std::string> ComfyLayers(const SafetensorsFile& file) {
  std::set<std::string> layers;
  const auto found = file.metadata.find("_quantization_metadata");
  if (found == file.metadata.end()) return layers;
  try {
    const Json json = ParseJson(found->second, found->first);
    if (!json.is_object() || !json.contains("layers") || !json["layers"].is_object()) return layers;
    for (const auto& [name, layer] : json["layers"].items()) layers.insert(name);
  } catch (const Error&) {  // another program's metadata
  }
  return layers;
}

// ComfyUI's name of a matrix's format; its loader takes no other.
std::string_view ComfyFormat(const StoredMatrix& m) {
  if (m.block_rows == 0 && m.element == FormatId::kE4M3) return "float8_e4m3fn";
  if (m.block_rows == 0 && m.element == FormatId::kE5M2) return "float8_e5m2";
  const bool in_16 =
      m.block_cols == 16 && m.scale == FormatId::kE4M3 && m.layout.scale_type == ScaleType::kByte;
  const bool in_32 = m.block_cols == 32 && m.scale == FormatId::kE8M0;
  if (m.element == FormatId::kE2M1 && in_16 && !m.tensor_scale.empty()) return "nvfp4";
  if (m.element == FormatId::kE4M3 && in_32) return "mxfp8";
  throw Error("comfyui naming", "has no name for " + std::string(Named(m.element).name) +
                                    " in blocks of " + std::to_string(m.block_cols) +
                                    " with scales in " + std::string(ScaleText(m)) +
                                    (m.tensor_scale.empty() ? " and no tensor scale" : "") +
                                    "; it stores NVFP4, MXFP8 and FP8: use --convention fp4lab");
}

// Whether the matrix is quantized to integers: a group of them has a bias (MLX) or a shape of its
// own (compressed-tensors' pack-quantized).
bool IsOfIntegers(const SafetensorsFile& file, const std::string& name, bool dotted) {
  const std::string prefix = name + (dotted && !name.empty() ? "." : "");
  return file.tensors.contains(prefix + "biases") || file.tensors.contains(prefix + "weight_shape");
}

// Whether a prefix before this suffix ends with a dot that is no part of the matrix's name.
bool IsDotted(std::string_view suffix) {
  return suffix.empty() ? false
                        : suffix.front() != '_' && suffix.front() != '.' && suffix.front() != ':';
}

// Whether codes may stand in a byte each: few of the first bytes are above 15.
bool MayBeUnpacked(const SafetensorsTensor& codes) {
  const std::size_t count = std::min<std::size_t>(codes.bytes.size(), 4096);
  const auto large = std::count_if(codes.bytes.begin(), codes.bytes.begin() + count,
                                   [](std::byte b) { return b > std::byte{15}; });
  return static_cast<std::size_t>(large) * 8 <= count;
}

// torchao's metadata: {"_type": ..., "_data": {"block_size": 16, "is_swizzled_scales": true}}.
void ReadTorchAo(const SafetensorsFile& file, const std::string& name, ReadingHints* hints) {
  for (const std::string& key : {name + ".weight", name}) {
    const auto text = file.metadata.find(key);
    if (text == file.metadata.end()) continue;
    try {
      const Json json = ParseJson(text->second, key);
      const auto data = json.is_object() ? json.find("_data") : json.end();
      if (data == json.end() || !data->is_object()) continue;
      const auto swizzled = data->find("is_swizzled_scales");
      if (swizzled != data->end() && swizzled->is_boolean()) {
        hints->swizzled = swizzled->get<bool>();
      }
      const auto block = data->find("block_size");
      if (block != data->end() && block->is_number_unsigned() && *block < 4096u) {
        hints->block_cols = block->get<int>();
      }
    } catch (const Error&) {  // another program's metadata
    }
  }
}

bool IsNumbers(std::string_view dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

// Whether a matrix is read by FindReading: names that are only read, codes or block scales in
// dtypes that no vendor writes.
bool IsReadByShapes(const SafetensorsFile& file, const VendorEntry& entry, const Dialect* dialect) {
  const std::string prefix = PrefixOf(entry);
  const SafetensorsTensor* codes = Find(file, prefix + std::string(entry.vendor->codes));
  const SafetensorsTensor* scales = Find(file, prefix + std::string(entry.vendor->scales));
  if (codes == nullptr || scales == nullptr) return false;
  if (entry.vendor->read_only) return true;
  const bool many = scales->bytes.size() > sizeof(float) ||
                    (dialect != nullptr && ScaleTypeOf(*dialect, {}) != ScaleType::kByte);
  return codes->dtype == "I8" || (IsNumbers(scales->dtype) && (many || scales->dtype != "F32"));
}

// The bytes of E4M3 or E8M0 that have these values; nothing if one has no byte.
std::vector<std::uint8_t> BytesOfNumbers(std::span<const float> numbers, FormatId format) {
  std::vector<std::uint8_t> bytes;
  for (const float x : numbers) {
    const std::uint32_t code = Encode(format, x);
    if (!(Decode(format, code) == x)) return {};
    bytes.push_back(static_cast<std::uint8_t>(code));
  }
  return bytes;
}

// The scales of all parts in rows, without padding.
template <class T>
std::vector<T> LinearScales(const Reading& r, const std::vector<T>& stored) {
  std::vector<T> scales;
  scales.reserve(r.parts * r.scale_rows * r.scale_cols);
  for (std::size_t part = 0; part < r.parts; ++part) {
    const std::size_t first = part * r.stored_rows * r.stored_cols;
    for (std::size_t row = 0; row < r.scale_rows; ++row) {
      for (std::size_t col = 0; col < r.scale_cols; ++col) {
        scales.push_back(stored[first + StoredScaleOffset(r, row, col)]);
      }
    }
  }
  return scales;
}

// Sets scales that are stored as numbers: the bytes that have all of them, if there are such, else
// the numbers. The numbers stay if the dialect's scales are numbers.
void SetNumbers(const SafetensorsTensor& scales, const Reading& r, const Dialect* dialect,
                const std::string& where, StoredMatrix* m) {
  const std::vector<float> numbers = LinearScales<float>(r, Floats(scales, where));
  const bool keeps = dialect != nullptr && ScaleTypeOf(*dialect, {}) != ScaleType::kByte;
  for (const FormatId format : {r.scale, FormatId::kE8M0}) {
    if (keeps || (format == FormatId::kE4M3 && FormatOf(r.element).bits != 4)) continue;
    m->scale = format;
    m->scales = BytesOfNumbers(numbers, format);
    if (m->scales.size() == numbers.size()) return;
  }
  m->scale = FormatId::kE4M3;
  m->layout.scale_type = scales.dtype == "BF16" ? ScaleType::kBF16 : ScaleType::kFP32;
  m->scales.assign(numbers.size() * Named(m->layout.scale_type).bytes, 0);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    PutScaleCode(ScaleCodeOf(m->layout.scale_type, m->scale, numbers[i]), i, m->layout.scale_type,
                 m->scales);
  }
}

// Sets the scales, or where they are one a tensor or a row of FP8, the tensor scales.
void SetScalesByShapes(const SafetensorsTensor& scales, const Reading& r, const Dialect* dialect,
                       const std::string& where, StoredMatrix* m) {
  const bool rows = r.block_rows == 1 && r.block_cols == r.cols && r.cols > 32;
  if (r.block_rows == 0 || (rows && FormatOf(r.element).bits == 8)) {
    const std::vector<float> numbers = r.numbers
                                           ? Floats(scales, where)
                                           : DecodeNumbers({NumberType::Kind::kFormat, r.scale},
                                                           scales.bytes, scales.bytes.size());
    m->block_rows = m->block_cols = 0;
    m->layout.tensor_scale = TensorScaleConvention::kMultiplier;
    m->tensor_scale = numbers;
    if (numbers.size() != 1 && numbers.size() != m->rows) {
      m->tensor_scale.clear();
      const std::size_t each = m->rows / numbers.size();
      for (std::size_t i = 0; i < m->rows; ++i) m->tensor_scale.push_back(numbers[i / each]);
    }
    return;
  }
  m->block_rows = static_cast<int>(r.block_rows);
  m->block_cols = static_cast<int>(r.block_cols);
  if (r.parts > 1 && r.block_rows > 1 && r.rows % r.block_rows != 0) {
    throw Error(where, "has parts of " + std::to_string(r.rows) + " rows, which its blocks of " +
                           std::to_string(r.block_rows) +
                           " rows do not fill; `fp4lab check` reads it");
  }
  if (r.numbers) return SetNumbers(scales, r, dialect, where, m);
  m->scale = r.scale;
  const bool one_grid = r.parts == 1 && r.order != ScaleOrder::kLinear;
  m->layout.scales = one_grid ? r.order : ScaleOrder::kLinear;
  m->scales = one_grid ? Raw(scales) : LinearScales(r, Raw(scales));
}

StoredMatrix ReadByShapes(const SafetensorsFile& file, const VendorEntry& entry,
                          const ReadStoredOptions& options, const std::string& where) {
  const std::string prefix = PrefixOf(entry);
  const std::string codes_name = prefix + std::string(entry.vendor->codes);
  const std::string place = where + "#" + prefix + std::string(entry.vendor->scales);
  const SafetensorsTensor& codes = Require(file, codes_name, where);
  const SafetensorsTensor& scales =
      Require(file, prefix + std::string(entry.vendor->scales), where);
  ReadingHints hints = HintsOf(file, entry);
  if (options.dialect != nullptr) {
    hints.element = options.dialect->element;
    if (options.dialect->block_rows > 0) {
      hints.block_rows = options.dialect->block_rows;
      hints.block_cols = options.dialect->block_cols;
    }
  }
  const ReadingFound found =
      FindReading({codes.dtype, codes.shape}, {scales.dtype, scales.shape}, hints);
  if (!found.problem.empty()) throw Error(place, found.problem);
  const Reading& r = found.reading;
  StoredMatrix m;
  m.rows = r.parts * r.rows;
  m.cols = r.cols;
  m.element = r.element;
  m.scale = r.scale;
  m.layout.codes = r.codes == CodeOrder::kLowFirst ? entry.vendor->codes_order : r.codes;
  m.layout.codes = options.codes.value_or(m.layout.codes);
  m.layout.tensor_scale = options.tensor_scale.value_or(entry.vendor->convention);
  m.codes = Raw(codes);
  SetScalesByShapes(scales, r, options.dialect, place, &m);
  if (options.scales && m.block_rows > 0) m.layout.scales = *options.scales;
  const SafetensorsTensor* number = FindTensorScale(file, entry);
  if (number != nullptr && m.tensor_scale.empty()) {
    m.tensor_scale =
        PerRow(Floats(*number, where + "#tensor scale of " + codes_name), m.rows, r.parts);
  }
  if (m.tensor_scale.empty()) {
    const bool promised = !entry.vendor->read_only && !r.numbers && r.scale == FormatId::kE4M3;
    if (promised && options.tensor_scale != TensorScaleConvention::kNone) {
      RefuseMissingTensorScale(where, prefix + std::string(entry.vendor->tensor_scale[0]),
                               codes_name);
    }
    m.layout.tensor_scale = TensorScaleConvention::kNone;
  }
  CheckStored(m, where);
  return m;
}

}  // namespace

ReadingHints HintsOf(const SafetensorsFile& file, const VendorEntry& entry) {
  const Vendor& vendor = *entry.vendor;
  ReadingHints hints{.has_number = FindTensorScale(file, entry) != nullptr,
                     .blocks_first = vendor.blocks_first,
                     .grouped_codes = vendor.grouped_codes,
                     .swizzled = !vendor.marker.empty()};
  if (vendor.scale_order == ScaleOrder::kPadded) hints.padded = ScaleOrder::kPadded;
  const SafetensorsTensor* codes = Find(file, PrefixOf(entry) + std::string(vendor.codes));
  if (codes != nullptr) hints.unpacked = MayBeUnpacked(*codes);
  ReadTorchAo(file, entry.name, &hints);
  return hints;
}

std::string PrefixOf(const VendorEntry& entry) {
  const bool dotted = !entry.name.empty() && IsDotted(entry.vendor->codes);
  return entry.name + (dotted ? "." : "");
}

const Vendor* FindVendor(std::string_view name) {
  for (const Vendor& v : kVendors) {
    if (v.name == name) return &v;
  }
  return nullptr;
}

std::optional<StorageLayout> OwnLayout(const Dialect& dialect) {
  const std::string_view name = dialect.name.substr(dialect.name.find('.') + 1);
  const std::string_view code_base = name.substr(0, name.find('.'));
  if (code_base == "ggml") {
    return StorageLayout{.codes = CodeOrder::kSplitHalves,
                         .tensor_scale = TensorScaleConvention::kMultiplier};
  }
  const Vendor* vendor = FindVendor(code_base);
  if (vendor == nullptr || vendor->read_only) return std::nullopt;
  return StorageLayout{.codes = CodesOrderOf(*vendor, dialect.element),
                       .scales = vendor->scale_order,
                       .tensor_scale = vendor->convention};
}

std::vector<VendorEntry> ListVendorMatrices(const SafetensorsFile& file) {
  std::vector<VendorEntry> entries;
  const std::set<std::string> comfy_layers = ComfyLayers(file);
  for (const auto& [name, tensor] : file.tensors) {
    for (const Vendor& vendor : kVendors) {
      if (!std::string_view(name).ends_with(vendor.codes)) continue;
      std::string prefix = name.substr(0, name.size() - vendor.codes.size());
      const bool dotted = IsDotted(vendor.codes);
      if (dotted && !prefix.empty() && prefix.back() != '.') continue;
      if (!file.tensors.contains(prefix + std::string(vendor.scales))) continue;
      const bool plain = tensor.dtype == "BF16" || tensor.dtype == "F16" || tensor.dtype == "F32";
      if (plain) continue;  // a weight that is not quantized
      const bool marked = file.tensors.contains(prefix + "comfy_quant");
      if (dotted && !prefix.empty()) prefix.pop_back();
      const bool is_comfy = marked || comfy_layers.contains(prefix);
      const bool shared = vendor.codes == "weight" && vendor.scales == "weight_scale";
      if (shared && is_comfy == vendor.marker.empty()) continue;
      if (IsOfIntegers(file, prefix, dotted)) continue;
      entries.push_back({prefix, &vendor});
    }
  }
  return entries;
}

StoredMatrix ReadVendorMatrix(const SafetensorsFile& file, const VendorEntry& entry,
                              const ReadStoredOptions& options, std::string_view where_view) {
  const IeeeArithmetic ieee;
  const std::string where(where_view);
  if (IsReadByShapes(file, entry, options.dialect))
    return ReadByShapes(file, entry, options, where);
  const std::string name = PrefixOf(entry) + std::string(entry.vendor->codes);
  const SafetensorsTensor& codes = Require(file, name, where);
  StoredMatrix m;
  m.element = ElementOf(codes, options, where + "#" + name);
  if (options.dialect != nullptr) {
    m.scale = options.dialect->scale;
    m.block_rows = options.dialect->block_rows;
    m.block_cols = options.dialect->block_cols;
  }
  m.layout = {.codes = options.codes.value_or(CodesOrderOf(*entry.vendor, m.element)),
              .transposed = options.transposed,
              .expanded_scales = options.expanded_scales,
              .tensor_scale = options.tensor_scale.value_or(entry.vendor->convention)};
  SetShape(codes, where + "#" + name, &m);
  m.codes = Raw(codes);
  SetScales(file, entry, options, where, &m);
  const SafetensorsTensor* tensor_scale = FindTensorScale(file, entry);
  if (tensor_scale != nullptr && m.tensor_scale.empty()) {
    const std::string place = where + "#tensor scale of " + name;
    const std::size_t leading = codes.shape.size() > 2 ? codes.shape.front() : 0;
    m.tensor_scale = PerRow(Floats(*tensor_scale, place), m.rows, leading);
  }
  if (m.tensor_scale.empty()) {
    if (options.tensor_scale != TensorScaleConvention::kNone &&
        NeedsTensorScale(m, options.dialect)) {
      RefuseMissingTensorScale(where, PrefixOf(entry) + std::string(entry.vendor->tensor_scale[0]),
                               name);
    }
    m.layout.tensor_scale = TensorScaleConvention::kNone;
  }
  CheckStored(m, where);
  return m;
}

void RefuseMissingTensorScale(std::string_view where, const std::string& name,
                              const std::string& codes) {
  throw Error(where,
              "has no number in " + name + ", the tensor scale of " + codes +
                  ": add it as F32, or state that it has none with --read-tensor-scale-is none "
                  "(verify, explain, identify: --tensor-scale-is none)");
}

StoredMatrix WithRowBlocks(const StoredMatrix& stored, float scale_max, std::string_view where) {
  const IeeeArithmetic ieee;
  if (stored.block_rows <= 1) return stored;
  StorageLayout layout = stored.layout;
  layout.transposed = false;
  layout.expanded_scales = true;
  StoredMatrix m = Convert(stored, layout, scale_max, where);
  m.block_rows = 1;
  m.layout.expanded_scales = false;
  return m;
}

void AddVendorMatrix(const StoredMatrix& stored, const VendorEntry& entry, float scale_max,
                     SafetensorsFile* file) {
  const IeeeArithmetic ieee;
  const Vendor& vendor = *entry.vendor;
  const std::string where = std::string(vendor.name) + " naming";
  const std::string prefix = PrefixOf(entry);
  const int bits = FormatOf(stored.element).bits;
  if (bits == 6 || (bits == 4 && stored.cols % 2 != 0)) {
    throw Error(where, "cannot store " + std::to_string(stored.rows) + "x" +
                           std::to_string(stored.cols) + " codes of " +
                           std::string(Named(stored.element).name));
  }
  const StorageLayout layout{
      .codes = CodesOrderOf(vendor, stored.element),
      .scales = vendor.scale_order,
      .tensor_scale = stored.tensor_scale.empty() ? TensorScaleConvention::kNone
                      : stored.block_rows == 0    ? TensorScaleConvention::kMultiplier
                                                  : vendor.convention};
  // Square blocks of FP8 have one scale in every file, those of FP4 are read as blocks of one row.
  const StoredMatrix m = Convert(bits == 8 ? stored : WithRowBlocks(stored, scale_max, where),
                                 layout, scale_max, where);
  if (!vendor.marker.empty()) {
    const std::string text = "{\"format\": \"" + std::string(ComfyFormat(m)) + "\"}";
    const auto bytes = std::as_bytes(std::span(text));
    file->tensors[prefix + std::string(vendor.marker)] = {
        "U8", {text.size()}, {bytes.begin(), bytes.end()}};
  }
  const std::string_view dtype =
      bits == 4 ? "U8" : SafetensorsName({NumberType::Kind::kFormat, m.element});
  const std::size_t row = bits == 4 ? m.cols / 2 : m.cols;
  file->tensors[prefix + std::string(vendor.codes)] = {
      std::string(dtype), {m.rows, row}, AsBytes(m.codes)};
  const auto numbers = std::as_bytes(std::span(m.tensor_scale));
  const SafetensorsTensor tensor_scale{
      "F32", {m.tensor_scale.size()}, {numbers.begin(), numbers.end()}};
  if (m.block_rows == 0) {
    if (m.tensor_scale.empty()) throw Error(where, "needs the tensor's scale, which is not stored");
    file->tensors[prefix + std::string(vendor.scales)] = tensor_scale;
    return;
  }
  const NamedScaleOrder& order = Named(m.layout.scales);
  const StoredSizes sizes = SizesOf(m, where);
  const std::size_t width = RoundUp(sizes.scale_cols, order.tile_cols);
  const bool as_bytes = m.layout.scale_type == ScaleType::kByte &&
                        (vendor.scales_as_bytes || m.scale == FormatId::kE8M0);
  file->tensors[prefix + std::string(vendor.scales)] = {
      as_bytes ? "U8" : std::string(ScalesDtype(m)),
      {width == 0 ? sizes.scale_rows : m.scales.size() / sizes.scale_bytes / width, width},
      AsBytes(m.scales)};
  if (!m.tensor_scale.empty())
    file->tensors[prefix + std::string(vendor.tensor_scale[0])] = tensor_scale;
}

}  // namespace fp4lab
