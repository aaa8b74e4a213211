#include "fp4lab/judge/products/gemm_file.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/tensors/safetensors.h"

namespace fp4lab {
namespace {

std::string SizeText(const MmaOperand& x) {
  return std::to_string(x.rows) + "x" + std::to_string(x.cols);
}

// The amax behind the single tensor scale of a file, if it has one.
std::optional<float> AmaxOf(const StoredFile& file) {
  const TensorScaleConvention convention = file.matrix.layout.tensor_scale;
  if (file.matrix.tensor_scale.size() != 1 || convention == TensorScaleConvention::kNone) return {};
  const float value = file.matrix.tensor_scale[0];
  if (convention == TensorScaleConvention::kAmax) return value;
  const Dialect* dialect = FindDialect(file.dialect);
  const float constant =
      dialect != nullptr ? TensorScaleConstant(*dialect) : TensorScaleConstant(file.matrix, 448.0f);
  return ConvertTensorScale(value, convention, TensorScaleConvention::kAmax, constant);
}

GemmOperandFile FromStored(std::string_view place) {
  const StoredFile file = ReadStored(place);
  GemmOperandFile result{.operand = MakeMmaOperand(file.matrix, place), .what = {}, .amax = {}};
  result.what = SizeText(result.operand) + " " + std::string(Named(file.matrix.element).name);
  if (result.operand.IsScaled()) {
    result.what += ", " + std::string(Named(file.matrix.scale).name) + " scales of " +
                   std::to_string(result.operand.group);
  }
  result.amax = AmaxOf(file);
  return result;
}

GemmOperandFile FromNumbers(std::string_view place, std::string_view format) {
  const NumberFile file = ReadMatrix(place);
  std::optional<FormatId> id;
  if (!format.empty()) {
    id = FindFormat(format);
    if (!id) {
      throw Error("--operand " + std::string(format),
                  "is not a format; " +
                      DidYouMean(format, NamesOf(kFormats), "`fp4lab formats` lists them"));
    }
  } else if (file.type.kind == NumberType::Kind::kFormat) {
    id = file.type.format;
  } else {
    throw Error(place, "holds " + std::string(Name(file.type)) +
                           " numbers: state with --operand the format they are rounded to");
  }
  GemmOperandFile result{
      .operand = MakeMmaOperand(FormatOf(*id), file.values.View()), .what = {}, .amax = {}};
  result.what = SizeText(result.operand) + " " + std::string(Named(*id).name);
  return result;
}

FormatId IdOf(const Format& format) {
  const auto at = std::find_if(kFormats.begin(), kFormats.end(),
                               [&](const NamedFormat& f) { return f.format == format; });
  Expects(at != kFormats.end(), "an operand of a format of kFormats");
  return at->id;
}

StoredMatrix StoredOf(const MmaOperand& x, FormatId element, FormatId scale) {
  StoredMatrix stored{.rows = x.rows,
                      .cols = x.cols,
                      .element = element,
                      .scale = scale,
                      .block_rows = 1,
                      .block_cols = x.group,
                      .layout = {.tensor_scale = TensorScaleConvention::kNone}};
  const std::vector<std::uint8_t> codes(x.codes.begin(), x.codes.end());
  stored.codes = PackCodes(codes, x.rows, x.cols, stored.layout.codes);
  stored.scales = x.scales;
  return stored;
}

}  // namespace

bool HoldsStored(std::string_view text) {
  const FilePlace place = SplitPlace(text);
  if (place.ending != ".safetensors" && place.ending != ".npz" && place.ending != ".gguf") {
    return false;
  }
  for (const StoredFileEntry& entry : ListStored(place.path)) {
    const bool inside = !entry.name.empty() && place.name.rfind(entry.name + ".", 0) == 0;
    if (place.name.empty() || place.name == entry.name || inside) return true;
  }
  return false;
}

MmaOperand MakeMmaOperand(const StoredMatrix& stored, std::string_view where) {
  const IeeeArithmetic ieee;
  StorageLayout plain{.codes = CodeOrder::kBytes, .scales = ScaleOrder::kLinear};
  plain.tensor_scale = stored.layout.tensor_scale;
  if (stored.layout.scale_type != ScaleType::kByte) {
    throw Error(where, "has block scales in " + std::string(Named(stored.layout.scale_type).name) +
                           ": only products of FP8 operands take them (verify gemm)");
  }
  const StoredMatrix m = Convert(stored, plain, 448.0f, where);
  return MakeMmaOperand(FormatOf(m.element), {m.codes.data(), m.rows, m.cols}, FormatOf(m.scale),
                        m.block_rows, m.block_cols, m.scales);
}

bool HoldsScaledFp8(std::string_view place) {
  const IeeeArithmetic ieee;
  return HoldsStored(place) && IsScaledFp8(ReadStored(place).matrix);
}

ScaledOperandFile ReadScaledOperand(std::string_view place, std::string_view format) {
  const IeeeArithmetic ieee;
  if (!HoldsStored(place)) {
    GemmOperandFile numbers = ReadGemmOperand(place, format);
    if (numbers.operand.format.bits != 8) {
      throw Error(place, "is " + numbers.what +
                             ": numbers without scales are multiplied with scales if they are FP8");
    }
    return {.operand = WithScaleOne(numbers.operand), .what = numbers.what};
  }
  const StoredFile source = ReadStored(place);
  const StoredMatrix& stored = source.matrix;
  ScaledOperandFile file{.operand = MakeScaledOperand(stored, place), .what = {}};
  if (FormatOf(stored.element).bits < 8) file.amax = AmaxOf(source);
  if (file.operand.elements.cols == 0) {
    throw Error(place, "has K = 0: its rows have no elements to multiply");
  }
  const std::string scales = stored.block_rows > 0
                                 ? std::string(ScaleText(stored)) + " scales of " +
                                       std::to_string(stored.block_rows) + "x" +
                                       std::to_string(stored.block_cols) + " blocks"
                             : stored.tensor_scale.size() > 1 ? "a scale a row"
                             : stored.tensor_scale.empty()    ? "no scale"
                                                              : "a scale a tensor";
  file.what = SizeText(file.operand.elements) + " " + std::string(Named(stored.element).name) +
              ", " + scales;
  return file;
}

GemmOperandFile ReadGemmOperand(std::string_view place, std::string_view format) {
  const IeeeArithmetic ieee;
  const bool stored = HoldsStored(place);
  if (stored && !format.empty()) {
    throw Error("--operand " + std::string(format),
                std::string(place) + " is quantized already: leave the option out");
  }
  GemmOperandFile operand = stored ? FromStored(place) : FromNumbers(place, format);
  if (operand.operand.cols == 0) {
    throw Error(
        std::string(place),
        "has K = 0: its rows have no elements to multiply; give operands with K of 1 or more");
  }
  return operand;
}

void AddOperand(const MmaOperand& x, const std::string& name, SafetensorsFile* file) {
  const IeeeArithmetic ieee;
  const FormatId element = IdOf(x.format);
  if (x.IsScaled()) {
    const FormatId scale = IdOf(x.scale_format);
    AddStored(StoredOf(x, element, scale), scale == FormatId::kE8M0 ? "mxfp4.floor" : "nvfp4.te",
              name, file);
    return;
  }
  const NumberType type{NumberType::Kind::kFormat, element};
  const Matrix<float> values = FloatValues(x);
  file->tensors[name] = {
      std::string(SafetensorsName(type)), {x.rows, x.cols}, EncodeNumbers(type, values.values)};
}

void WriteProbes(const ProbeSet& set, std::string_view path) {
  const IeeeArithmetic ieee;
  if (SplitPlace(path).ending != ".safetensors") {
    throw Error(path, "probes are written to a .safetensors file");
  }
  SafetensorsFile file;
  AddOperand(set.a, "a", &file);
  AddOperand(set.b, "b", &file);
  WriteSafetensors(path, file);
}

}  // namespace fp4lab
