#include "buffers.h"

#include <array>

namespace fp4lab::handlers {
namespace {

struct NamedDtype {
  ffi::DataType type;
  std::string_view name;
  int bits;
};
constexpr std::array kDtypes = {
    NamedDtype{ffi::DataType::F32, "float32", 32},
    NamedDtype{ffi::DataType::F16, "float16", 16},
    NamedDtype{ffi::DataType::BF16, "bfloat16", 16},
    NamedDtype{ffi::DataType::F8E4M3FN, "float8_e4m3fn", 8},
    NamedDtype{ffi::DataType::F8E5M2, "float8_e5m2", 8},
    NamedDtype{ffi::DataType::F8E8M0FNU, "float8_e8m0fnu", 8},
    NamedDtype{ffi::DataType::F4E2M1FN, "float4_e2m1fn", 4},
    NamedDtype{ffi::DataType::U8, "uint8", 8},
    NamedDtype{ffi::DataType::U32, "uint32", 32},
    NamedDtype{ffi::DataType::S32, "int32", 32},
};

const NamedDtype& Find(ffi::DataType type) {
  for (const NamedDtype& d : kDtypes) {
    if (d.type == type) return d;
  }
  throw CallError("an operand of a type that the handlers do not know (XLA's number " +
                  std::to_string(static_cast<int>(type)) + ")");
}

}  // namespace

std::string_view NameOf(ScalingMode mode) {
  constexpr std::array<std::string_view, 6> kNames = {"none",    "delayed", "mxfp8",
                                                      "current", "nvfp4",   "nvfp4.2d"};
  const auto i = static_cast<std::size_t>(mode);
  Demand(i < kNames.size(), "scaling mode " + std::to_string(i) +
                                ": this version of Transformer Engine is not served");
  return kNames[i];
}

Folded Fold(const Buffer& buffer, std::int64_t axis) {
  const auto dims = buffer.dimensions();
  const auto rank = static_cast<std::int64_t>(dims.size());
  if (axis < 0) axis += rank;
  Demand(axis > 0 && axis < rank, "an operand of shape " + ShapeText(buffer) +
                                      " cannot be cut at axis " + std::to_string(axis));
  Folded folded;
  for (std::int64_t i = 0; i < rank; ++i) {
    (i < axis ? folded.rows : folded.cols) *=
        static_cast<std::size_t>(dims[static_cast<std::size_t>(i)]);
  }
  return folded;
}

std::string_view DtypeName(ffi::DataType type) { return Find(type).name; }

std::string ShapeText(const Buffer& buffer) {
  std::string text = "(";
  for (std::size_t i = 0; i < buffer.dimensions().size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(buffer.dimensions()[i]);
  }
  return text + ")";
}

std::size_t DataBytes(const Buffer& buffer) {
  return (buffer.element_count() * static_cast<std::size_t>(Find(buffer.element_type()).bits) + 7) /
         8;
}

float ScalarOf(const Buffer& buffer, std::string_view name) {
  Demand(buffer.element_type() == ffi::DataType::F32 && buffer.element_count() == 1,
         std::string(name) + " is one float32, not " +
             std::string(DtypeName(buffer.element_type())) + ShapeText(buffer));
  return *FloatsOf(buffer);
}

RecordedBuffer Copy(std::string_view name, const Buffer& buffer) {
  const std::uint8_t* const data = BytesOf(buffer);
  const auto dims = buffer.dimensions();
  return {.name = std::string(name),
          .dtype = std::string(DtypeName(buffer.element_type())),
          .shape = {dims.begin(), dims.end()},
          .bytes = {data, data + DataBytes(buffer)}};
}

}  // namespace fp4lab::handlers
