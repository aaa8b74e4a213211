// The formats with E8M0 block scales, and FP8 with one scale for the tensor.
#include <array>

#include "fp4lab/dialect/rows.h"

namespace fp4lab {
namespace {

constexpr std::string_view kFloorSource =
    "OCP Microscaling Formats v1.0 section 6.3; pytorch/ao ScaleCalculationMode.FLOOR";
constexpr std::string_view kCeilSource = "pytorch/ao ScaleCalculationMode.CEIL";
constexpr std::string_view kRceilSource =
    "NVIDIA/TransformerEngine d0067d0 (2026-08-22), common/cast/mxfp8 (cvt.rp.satfinite.ue8m0x2); "
    "pytorch/ao ScaleCalculationMode.RCEIL";
constexpr std::string_view kEvenSource = "pytorch/ao ScaleCalculationMode.EVEN";

constexpr std::string_view SourceOf(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::kCeil:
      return kCeilSource;
    case ScaleRule::kRceil:
      return kRceilSource;
    case ScaleRule::kEven:
      return kEvenSource;
    case ScaleRule::kFloor:
    case ScaleRule::kNvfp4:
    case ScaleRule::kTensor:
      break;
  }
  return kFloorSource;
}

constexpr Dialect Mx(std::string_view name, FormatId element, ScaleRule rule) {
  Dialect d{.name = name, .source = SourceOf(rule)};
  d.element = element;
  d.scale = FormatId::kE8M0;
  d.block_cols = 32;
  d.level_two = LevelTwo::kNone;
  d.block_scale = BlockScale::kMicroscaling;
  d.mx_rule = rule;
  d.scale_encoding = ScaleEncoding::kExponent;
  d.factor = Factor::kPowerOfTwo;
  return d;
}

struct MxRow {
  std::string_view name;
  FormatId element;
  ScaleRule rule;
  bool square = false;
};
constexpr std::array kMxRows = {
    MxRow{"mxfp4.floor", FormatId::kE2M1, ScaleRule::kFloor},
    MxRow{"mxfp4.ceil", FormatId::kE2M1, ScaleRule::kCeil},
    MxRow{"mxfp4.rceil", FormatId::kE2M1, ScaleRule::kRceil},
    MxRow{"mxfp4.even", FormatId::kE2M1, ScaleRule::kEven},
    MxRow{"mxfp4.floor.2d", FormatId::kE2M1, ScaleRule::kFloor, true},
    MxRow{"mxfp4.ceil.2d", FormatId::kE2M1, ScaleRule::kCeil, true},
    MxRow{"mxfp4.rceil.2d", FormatId::kE2M1, ScaleRule::kRceil, true},
    MxRow{"mxfp4.even.2d", FormatId::kE2M1, ScaleRule::kEven, true},
    MxRow{"mxfp6_e2m3.floor", FormatId::kE2M3, ScaleRule::kFloor},
    MxRow{"mxfp6_e2m3.ceil", FormatId::kE2M3, ScaleRule::kCeil},
    MxRow{"mxfp6_e2m3.rceil", FormatId::kE2M3, ScaleRule::kRceil},
    MxRow{"mxfp6_e2m3.even", FormatId::kE2M3, ScaleRule::kEven},
    MxRow{"mxfp6_e3m2.floor", FormatId::kE3M2, ScaleRule::kFloor},
    MxRow{"mxfp6_e3m2.ceil", FormatId::kE3M2, ScaleRule::kCeil},
    MxRow{"mxfp6_e3m2.rceil", FormatId::kE3M2, ScaleRule::kRceil},
    MxRow{"mxfp6_e3m2.even", FormatId::kE3M2, ScaleRule::kEven},
    MxRow{"mxfp8_e4m3.floor", FormatId::kE4M3, ScaleRule::kFloor},
    MxRow{"mxfp8_e4m3.ceil", FormatId::kE4M3, ScaleRule::kCeil},
    MxRow{"mxfp8_e4m3.rceil", FormatId::kE4M3, ScaleRule::kRceil},
    MxRow{"mxfp8_e4m3.even", FormatId::kE4M3, ScaleRule::kEven},
    MxRow{"mxfp8_e5m2.floor", FormatId::kE5M2, ScaleRule::kFloor},
    MxRow{"mxfp8_e5m2.ceil", FormatId::kE5M2, ScaleRule::kCeil},
    MxRow{"mxfp8_e5m2.rceil", FormatId::kE5M2, ScaleRule::kRceil},
    MxRow{"mxfp8_e5m2.even", FormatId::kE5M2, ScaleRule::kEven},
};

constexpr std::array kTorchAoRows = {
    MxRow{"mxfp4.torchao.floor", FormatId::kE2M1, ScaleRule::kFloor},
    MxRow{"mxfp4.torchao.ceil", FormatId::kE2M1, ScaleRule::kCeil},
    MxRow{"mxfp4.torchao.rceil", FormatId::kE2M1, ScaleRule::kRceil},
    MxRow{"mxfp4.torchao.even", FormatId::kE2M1, ScaleRule::kEven},
    MxRow{"mxfp8_e4m3.torchao.floor", FormatId::kE4M3, ScaleRule::kFloor},
    MxRow{"mxfp8_e4m3.torchao.rceil", FormatId::kE4M3, ScaleRule::kRceil},
};

constexpr Dialect TorchAo(const MxRow& row) {
  Dialect d = Renamed(Mx(row.name, row.element, row.rule), row.name,
                      "pytorch/ao 050515e, torchao/prototype/mx_formats/mx_tensor.py to_mx",
                      "A NaN or Inf element makes its block's scale NaN. What codes such a block "
                      "has is not specified there.");
  d.inf_scale_is_nan = true;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect Microxcaling() {
  Dialect d =
      Renamed(Mx("", FormatId::kE2M1, ScaleRule::kFloor), "mxfp4.microxcaling",
              "microsoft/microxcaling 3b429a8, mx/mx_ops.py _quantize_mx, round=nearest",
              "An emulator: it writes values. floor(log2) in FP32 takes the floats next below "
              "a power of two for it; ties go away from zero.");
  d.block_scale = BlockScale::kFloorLog2;
  d.inf_scale_is_nan = true;
  d.factor = Factor::kDivideByScale;
  d.rounding = ElementRounding::kHalfAdded;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect MicroxcalingCuda() {
  Dialect d =
      Renamed(Microxcaling(), "mxfp4.microxcaling.cuda",
              "microsoft/microxcaling 3b429a8, mx/cpp/quantize.cuh, shared_exp.cuh",
              "The exponent field instead of log2; ties away from zero on the bits; what rounds "
              "to 0 loses its sign.");
  d.block_scale = BlockScale::kMicroscaling;
  d.rounding = ElementRounding::kTiesUp;
  d.never_negative_zero = true;
  return d;
}

constexpr Dialect Qwix() {
  Dialect d = Renamed(Mx("", FormatId::kE2M1, ScaleRule::kRceil), "mxfp4.qwix",
                      "google/qwix 04d2536, qwix/_src/core/qarray.py compute_scale_zero_point",
                      "ceil(log2(b/6)) in FP32; a block of zeros has the scale 1.");
  d.block_scale = BlockScale::kCeilLog2;
  d.factor = Factor::kDivideByScale;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect Ggml() {
  Dialect d =
      Renamed(Mx("", FormatId::kE2M1, ScaleRule::kFloor), "mxfp4.ggml",
              "ggml-org/llama.cpp 0096646, ggml/src/ggml-quants.c quantize_row_mxfp4_ref",
              "Below 2^-125 and for Inf its cast of the exponent is undefined C: byte 0 and "
              "NaN here.");
  d.block_scale = BlockScale::kFloorLog2;
  d.factor = Factor::kSearch;
  d.rounding = ElementRounding::kTiesToLower;
  d.nan_code = 0;
  return d;
}

}  // namespace

void AddMicroscaling(std::vector<Dialect>* rows) {
  for (const MxRow& row : kMxRows) {
    const Dialect d = Mx(row.name, row.element, row.rule);
    rows->push_back(row.square ? Square(d) : d);
  }
  for (const MxRow& row : kTorchAoRows) rows->push_back(TorchAo(row));
  rows->push_back(Microxcaling());
  rows->push_back(MicroxcalingCuda());
  rows->push_back(Qwix());
  Dialect aware =
      Renamed(Qwix(), "mxfp4.qwix.oas",
              "google/qwix, snapshot of August 2026: overflow-aware scaling, bias 12/7",
              "Steps up where the maximum would exceed 7, as EVEN does. The order of the "
              "roundings is not verified.");
  aware.block_scale = BlockScale::kOverflowAware;
  rows->push_back(aware);
  rows->push_back(Ggml());
}

void AddFp8(std::vector<Dialect>* rows) {
  constexpr std::string_view kSource =
      "NVIDIA/TransformerEngine d0067d0 (2026-08-22), Float8CurrentScaling, "
      "common/recipe/recipe_common.cuh compute_scale_from_amax";
  Dialect d{.name = "fp8_e4m3", .source = kSource, .note = "One scale for the tensor."};
  d.element = FormatId::kE4M3;
  d.scale = FormatId::kE8M0;
  d.block_rows = d.block_cols = 0;
  d.level_two = LevelTwo::kTensorFp8;
  d.scale_max = 1.0f;
  d.block_scale = BlockScale::kOneBlock;
  d.factor = Factor::kTensorScale;
  rows->push_back(d);
  d.name = "fp8_e5m2";
  d.element = FormatId::kE5M2;
  rows->push_back(d);
}

}  // namespace fp4lab
