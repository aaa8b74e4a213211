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

}  // namespace

void AddMicroscaling(std::vector<Dialect>* rows) {
  for (const MxRow& row : kMxRows) {
    const Dialect d = Mx(row.name, row.element, row.rule);
    rows->push_back(row.square ? Square(d) : d);
  }
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
