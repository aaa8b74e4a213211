#include "fp4lab/exchange/vendors/own_convention.h"

#include <span>
#include <utility>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/number_type.h"
#include "fp4lab/io/json.h"

namespace fp4lab {
namespace {

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
  std::vector<std::size_t> shape = {1, m.scales.size() / sizes.scale_bytes};
  if (m.layout.scales == ScaleOrder::kLinear) shape = {sizes.scale_rows, sizes.scale_cols};
  const std::size_t count = m.scales.size() / sizes.scale_bytes;
  if (m.layout.scales == ScaleOrder::kPadded && sizes.scale_cols > 0) {
    const std::size_t width = RoundUp(sizes.scale_cols, 4);
    shape = {count / width, width};
  }
  return Tensor(ScalesDtype(m), std::move(shape), bytes);
}

Json Description(const StoredMatrix& m, std::string_view dialect) {
  const bool has_none = m.tensor_scale.empty() && NeedsTensorScale(m, FindDialect(dialect));
  return {{"dialect", dialect},
          {"shape", {m.rows, m.cols}},
          {"element", Named(m.element).name},
          {"scale", m.layout.scale_type == ScaleType::kByte ? Named(m.scale).name
                                                            : Named(m.layout.scale_type).name},
          {"block", {m.block_rows, m.block_cols}},
          {"codes", Name(m.layout.codes)},
          {"scales", Named(m.layout.scales).name},
          {"transposed", m.layout.transposed},
          {"expanded_scales", m.layout.expanded_scales},
          {"tensor_scale_is", has_none ? "none" : Name(m.layout.tensor_scale)}};
}

}  // namespace

std::string_view ScalesDtype(const StoredMatrix& m) {
  switch (m.layout.scale_type) {
    case ScaleType::kBF16:
      return "BF16";
    case ScaleType::kFP32:
      return "F32";
    case ScaleType::kByte:
      break;
  }
  return FormatDtype(m.scale);
}

std::string OwnPrefix(const std::string& name) { return name.empty() ? "" : name + "."; }
std::string OwnMetadataKey(const std::string& name) {
  return std::string(kOwnConvention) + (name.empty() ? "" : "." + name);
}

void AddViews(const StoredMatrix& stored, std::string_view dialect, const std::string& name,
              SafetensorsFile* file) {
  const IeeeArithmetic ieee;
  const StoredSizes sizes = SizesOf(stored, name);
  file->metadata[OwnMetadataKey(name)] = Description(stored, dialect).dump();
  file->tensors[OwnPrefix(name) + "codes"] = CodesTensor(stored, sizes);
  if (stored.block_rows > 0)
    file->tensors[OwnPrefix(name) + "scales"] = ScalesTensor(stored, sizes);
  if (stored.tensor_scale.empty()) return;
  file->tensors[OwnPrefix(name) + "tensor_scale"] =
      Tensor("F32", {stored.tensor_scale.size()}, std::as_bytes(std::span(stored.tensor_scale)));
}

}  // namespace fp4lab
