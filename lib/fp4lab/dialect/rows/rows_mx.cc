// The formats with E8M0 block scales, and FP8 with one scale for the tensor.
#include <array>

#include "fp4lab/dialect/rows/rows.h"

namespace fp4lab {
namespace {

// The source of a row's scale rule. The results for NaN and Inf are this library's own; the rows of
// torchao have torchao's.
struct Origin {
  BlockScale rule;
  std::string_view version, source, note;
};
constexpr std::array kOrigins = {
    Origin{BlockScale::kFloor, "OCP Microscaling Formats v1.0", "section 6.3", ""},
    Origin{BlockScale::kCeil, "pytorch/ao 36027d8 (2026-08-21)",
           "torchao/prototype/mx_formats/mx_tensor.py to_mx, ScaleCalculationMode.CEIL",
           "NaN is left out of the maximum, unlike there (mxfp4.torchao.ceil)."},
    Origin{BlockScale::kRceil, kTransformerEngine, "common/cast/mxfp8 (cvt.rp.satfinite.ue8m0x2)",
           ""},
    Origin{BlockScale::kEven, "pytorch/ao 0.18",
           "torchao/prototype/mx_formats/mx_tensor.py to_mx, ScaleCalculationMode.EVEN",
           "A maximum of 0x7F800000 less half a unit of the element's fraction (0x7F600000 for "
           "E2M1) or more rounds up to 2^128, a scale like any other; torchao has NaN there now "
           "(mxfp4.torchao.even). NaN is left out of the maximum, unlike there."},
};

constexpr Dialect Mx(std::string_view name, FormatId element, BlockScale rule) {
  Dialect d = DialectUnder(rule, element, 1, 32);
  d.name = name;
  for (const Origin& origin : kOrigins) {
    if (origin.rule != rule) continue;
    d.version = origin.version;
    d.source = origin.source;
    d.note = origin.note;
  }
  return d;
}

struct MxRow {
  std::string_view name;
  FormatId element;
  BlockScale rule;
  bool square = false;
};
constexpr std::array kMxRows = {
    MxRow{"mxfp4.floor", FormatId::kE2M1, BlockScale::kFloor},
    MxRow{"mxfp4.ceil", FormatId::kE2M1, BlockScale::kCeil},
    MxRow{"mxfp4.rceil", FormatId::kE2M1, BlockScale::kRceil},
    MxRow{"mxfp4.even", FormatId::kE2M1, BlockScale::kEven},
    MxRow{"mxfp4.floor.2d", FormatId::kE2M1, BlockScale::kFloor, true},
    MxRow{"mxfp4.ceil.2d", FormatId::kE2M1, BlockScale::kCeil, true},
    MxRow{"mxfp4.rceil.2d", FormatId::kE2M1, BlockScale::kRceil, true},
    MxRow{"mxfp4.even.2d", FormatId::kE2M1, BlockScale::kEven, true},
    MxRow{"mxfp6_e2m3.floor", FormatId::kE2M3, BlockScale::kFloor},
    MxRow{"mxfp6_e2m3.ceil", FormatId::kE2M3, BlockScale::kCeil},
    MxRow{"mxfp6_e2m3.rceil", FormatId::kE2M3, BlockScale::kRceil},
    MxRow{"mxfp6_e2m3.even", FormatId::kE2M3, BlockScale::kEven},
    MxRow{"mxfp6_e3m2.floor", FormatId::kE3M2, BlockScale::kFloor},
    MxRow{"mxfp6_e3m2.ceil", FormatId::kE3M2, BlockScale::kCeil},
    MxRow{"mxfp6_e3m2.rceil", FormatId::kE3M2, BlockScale::kRceil},
    MxRow{"mxfp6_e3m2.even", FormatId::kE3M2, BlockScale::kEven},
    MxRow{"mxfp8_e4m3.floor", FormatId::kE4M3, BlockScale::kFloor},
    MxRow{"mxfp8_e4m3.ceil", FormatId::kE4M3, BlockScale::kCeil},
    MxRow{"mxfp8_e4m3.rceil", FormatId::kE4M3, BlockScale::kRceil},
    MxRow{"mxfp8_e4m3.even", FormatId::kE4M3, BlockScale::kEven},
    MxRow{"mxfp8_e5m2.floor", FormatId::kE5M2, BlockScale::kFloor},
    MxRow{"mxfp8_e5m2.ceil", FormatId::kE5M2, BlockScale::kCeil},
    MxRow{"mxfp8_e5m2.rceil", FormatId::kE5M2, BlockScale::kRceil},
    MxRow{"mxfp8_e5m2.even", FormatId::kE5M2, BlockScale::kEven},
};

constexpr std::array kTorchAoRows = {
    MxRow{"mxfp4.torchao.floor", FormatId::kE2M1, BlockScale::kFloor},
    MxRow{"mxfp4.torchao.ceil", FormatId::kE2M1, BlockScale::kCeil},
    MxRow{"mxfp4.torchao.rceil", FormatId::kE2M1, BlockScale::kRceil},
    MxRow{"mxfp4.torchao.even", FormatId::kE2M1, BlockScale::kEven},
    MxRow{"mxfp8_e4m3.torchao.floor", FormatId::kE4M3, BlockScale::kFloor},
    MxRow{"mxfp8_e4m3.torchao.ceil", FormatId::kE4M3, BlockScale::kCeil},
    MxRow{"mxfp8_e4m3.torchao.rceil", FormatId::kE4M3, BlockScale::kRceil},
    MxRow{"mxfp8_e4m3.torchao.even", FormatId::kE4M3, BlockScale::kEven},
};
constexpr std::array kTorchAo18Rows = {
    MxRow{"mxfp4.torchao.floor.0.18", FormatId::kE2M1, BlockScale::kFloor},
    MxRow{"mxfp4.torchao.ceil.0.18", FormatId::kE2M1, BlockScale::kCeil},
    MxRow{"mxfp4.torchao.rceil.0.18", FormatId::kE2M1, BlockScale::kCeilLog2Least},
    MxRow{"mxfp4.torchao.even.0.18", FormatId::kE2M1, BlockScale::kEven},
    MxRow{"mxfp8_e4m3.torchao.floor.0.18", FormatId::kE4M3, BlockScale::kFloor},
    MxRow{"mxfp8_e4m3.torchao.ceil.0.18", FormatId::kE4M3, BlockScale::kCeil},
    MxRow{"mxfp8_e4m3.torchao.rceil.0.18", FormatId::kE4M3, BlockScale::kCeilLog2Least},
    MxRow{"mxfp8_e4m3.torchao.even.0.18", FormatId::kE4M3, BlockScale::kEven},
};

constexpr std::string_view kToMx = "torchao/prototype/mx_formats/mx_tensor.py to_mx";

constexpr Dialect TorchAo(const MxRow& row) {
  Dialect d =
      Renamed(At(Mx(row.name, row.element, row.rule), "pytorch/ao 5d73a0c (2026-08-12) to 050515e"),
              row.name, kToMx,
              "A NaN or Inf element makes its block's scale NaN; for EVEN a finite maximum "
              "that rounds to 2^128 does, too. torchao does not specify the codes "
              "of such a block.");
  d.inf_scale = InfScale::kNan;
  d.nan = NanRule::kBlock;
  return d;
}

// torchao's formulas until commit 5d73a0c.
constexpr Dialect TorchAo18(const MxRow& row) {
  if (row.rule == BlockScale::kCeilLog2Least) {
    Dialect d = Renamed(At(TorchAo(row), "pytorch/ao 0.18, eager"), row.name, kToMx,
                        "RCEIL by a division and a logarithm; a scale byte of 0 multiplies by 1, "
                        "not by 2^127. Inf has the scale 2^127, NaN makes its block's scale NaN.");
    d.inf_scale = InfScale::kRule;
    d.factor = Factor::kPowerOfTwoOrOne;
    return d;
  }
  Dialect d =
      Renamed(At(TorchAo(row), "pytorch/ao 0.18"), row.name, kToMx,
              "Inf, and for EVEN a finite maximum that rounds to 2^128, has the scale of 2^128. "
              "Divides by a scale of 2^-126 or more: a scale byte of 0 has codes for 2^-126.");
  d.inf_scale = InfScale::kNumber;
  d.factor = Factor::kDivideByNormal;
  return d;
}

constexpr Dialect Microxcaling() {
  Dialect d =
      Renamed(At(Mx("", FormatId::kE2M1, BlockScale::kFloor), "microsoft/microxcaling 3b429a8"),
              "mxfp4.microxcaling", "mx/mx_ops.py _quantize_mx, round=nearest",
              "An emulator: it writes values. floor(log2) in FP32 takes the floats next below "
              "a power of two for it; ties go away from zero.");
  d.block_scale = BlockScale::kFloorLog2;
  d.inf_scale = InfScale::kNan;
  d.factor = Factor::kDivideByScale;
  d.rounding = ElementRounding::kHalfAdded;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect MicroxcalingCuda() {
  Dialect d =
      Renamed(Microxcaling(), "mxfp4.microxcaling.cuda", "mx/cpp/quantize.cuh, shared_exp.cuh",
              "The exponent field instead of log2; ties away from zero on the bits; elements "
              "that round to 0 lose their sign.");
  d.block_scale = BlockScale::kFloor;
  d.rounding = ElementRounding::kTiesAway;
  d.never_negative_zero = true;
  return d;
}

constexpr Dialect Qwix() {
  Dialect d = Renamed(At(Mx("", FormatId::kE2M1, BlockScale::kRceil), "google/qwix 0.1.8"),
                      "mxfp4.qwix", "qwix/_src/core/qarray.py compute_scale_zero_point",
                      "For FP32 input, by JAX 0.10 on a CPU: its log2 is a natural logarithm times "
                      "fl(1/ln 2), so a power of two may get the next one's scale. The scale of a "
                      "block with Inf is Inf there, NaN here; Inf and NaN elements have code 8.");
  d.block_scale = BlockScale::kCeilLog2;
  d.inf_scale = InfScale::kNan;
  d.factor = Factor::kDivideByScaleOrAmax;
  d.nan = NanRule::kBlock;
  d.nan_code = 8;
  return d;
}

// ---- compressed-tensors, ModelOpt, AMD Quark ----------------------------------------------------

constexpr Dialect CompressedTensorsMx(std::string_view name, FormatId element, BlockScale rule,
                                      std::string_view version) {
  Dialect d = Renamed(At(Mx("", element, rule), version), name,
                      "quantization/utils/mxfp_utils.py generate_mx_scales; "
                      "quantization/lifecycle/forward_helpers.py",
                      "A maximum that is Inf or NaN or rounds to 2^128 has the exponent 255 and "
                      "divides by Inf; the cast that stores it is undefined there (127 on x86).");
  d.inf_scale = InfScale::kNan;
  d.factor = Factor::kDivideByScaleOrInf;
  d.nan = NanRule::kBlock;
  return d;
}

void AddCompressedTensorsMx(std::vector<Dialect>* rows) {
  Dialect four = CompressedTensorsMx("mxfp4.compressed-tensors", FormatId::kE2M1, BlockScale::kEven,
                                     "vllm-project/compressed-tensors 0.15 to 0.20");
  four.keeps_negative_zero = false;
  four.nan_code = 0;
  rows->push_back(four);
  Dialect narrow = Renamed(four, "mxfp4.compressed-tensors.bf16-input", four.source,
                           "For BF16 weights: x/s is rounded to BF16, so that a negative element "
                           "below 2^-134 s is -0 and has code 0.");
  narrow.rounding = ElementRounding::kBf16First;
  rows->push_back(narrow);
  Dialect six = CompressedTensorsMx("mxfp6_e2m3.compressed-tensors", FormatId::kE2M3,
                                    BlockScale::kEven, "vllm-project/compressed-tensors 0.20");
  six.nan_code = 0;
  rows->push_back(six);
  rows->push_back(CompressedTensorsMx("mxfp8_e4m3.compressed-tensors", FormatId::kE4M3,
                                      BlockScale::kEvenQuarter,
                                      "vllm-project/compressed-tensors 0.15 to 0.20"));
}

constexpr Dialect ModelOpt() {
  Dialect d = Renamed(At(Mx("", FormatId::kE2M1, BlockScale::kCeilLog2Least),
                         "NVIDIA/Model-Optimizer 0.43 to 0.47"),
                      "mxfp4.modelopt", "modelopt/torch/quantization/qtensor/mxfp4_tensor.py",
                      "Ties go toward zero; 0, Inf and NaN have code 8 (Inf and NaN divide by "
                      "themselves). The byte of a block with Inf or NaN is an undefined cast there "
                      "(0 on x86).");
  d.inf_scale = InfScale::kNan;
  d.factor = Factor::kDivideByScaleOrAmax;
  d.rounding = ElementRounding::kTiesToZero;
  d.nan = NanRule::kBlock;
  d.nan_code = 8;
  return d;
}

constexpr std::array kQuarkRows = {
    MxRow{"mxfp4.quark.even", FormatId::kE2M1, BlockScale::kQuarkEven},
    MxRow{"mxfp4.quark.floor", FormatId::kE2M1, BlockScale::kQuarkFloor},
    MxRow{"mxfp4.quark.ceil", FormatId::kE2M1, BlockScale::kQuarkCeil},
};

constexpr Dialect Quark(const MxRow& row) {
  const bool even = row.rule == BlockScale::kQuarkEven;
  Dialect d = Renamed(
      At(Mx("", row.element, row.rule), "amd-quark 0.13"), row.name,
      "quark/torch/quantization/observer/observer.py get_scale (PerBlockMXObserver); "
      "quark/torch/utils/numerics.py to_e8m0_uint8; quark/torch/utils/pack.py Pack_fp4",
      even
          ? "The export stores 2^-126 for a scale of 2^-127, that of zeros, too. An Inf element is "
            "packed as 4 there, saturates here; a NaN scale is an undefined cast (127 on x86)."
          : "For FP32 input: on BF16 the logarithm is rounded to BF16 there. The byte of Inf and "
            "NaN is an undefined cast there (127 on x86). Zeros have the scale 2^-23.");
  d.factor = Factor::kDivideByQuark;
  d.nan = NanRule::kBlock;
  d.never_negative_zero = true;
  return d;
}

// Between FLOOR and CEIL of b/q: half of the blocks saturate a little, half lose range.
constexpr Dialect NearestLog2() {
  Dialect d =
      Renamed(At(Mx("", FormatId::kE2M1, BlockScale::kRceil), "fp4lab 0.1.0"), "mxfp4.nearest-log2",
              "lib/fp4lab/dialect/block_scale_rules.h",
              "The power of two nearest to b/q by its logarithm. In no other code base: the "
              "worked example of a new scale rule.");
  d.block_scale = BlockScale::kNearestLog2;
  return d;
}

constexpr Dialect Ggml() {
  Dialect d =
      Renamed(At(Mx("", FormatId::kE2M1, BlockScale::kFloor), "ggml-org/llama.cpp 0096646"),
              "mxfp4.ggml", "ggml/src/ggml-quants.c quantize_row_mxfp4_ref",
              "Below 2^-125 and for Inf its cast of the exponent is undefined C: byte 0 and "
              "NaN here.");
  d.block_scale = BlockScale::kFloorLog2;
  d.factor = Factor::kSearch;
  d.rounding = ElementRounding::kClosest;
  d.nan_code = 0;
  return d;
}

struct Fp8BlockRow {
  std::string_view name;
  FormatId element;
  int rows;
};
constexpr std::array kFp8Blocks = {
    Fp8BlockRow{"fp8_e4m3.1x128.e8m0", FormatId::kE4M3, 1},
    Fp8BlockRow{"fp8_e4m3.128x128.e8m0", FormatId::kE4M3, 128},
    Fp8BlockRow{"fp8_e5m2.1x128.e8m0", FormatId::kE5M2, 1},
    Fp8BlockRow{"fp8_e5m2.128x128.e8m0", FormatId::kE5M2, 128},
};

struct Fp8NumberRow {
  std::string_view name;
  FormatId element;
  int rows;
  BlockScale scale;
};
constexpr std::array kFp8Numbers = {
    Fp8NumberRow{"fp8_e4m3.1x128.fp32", FormatId::kE4M3, 1, BlockScale::kNoTensorScale},
    Fp8NumberRow{"fp8_e4m3.128x128.fp32", FormatId::kE4M3, 128, BlockScale::kNoTensorScale},
    Fp8NumberRow{"fp8_e5m2.1x128.fp32", FormatId::kE5M2, 1, BlockScale::kNoTensorScale},
    Fp8NumberRow{"fp8_e5m2.128x128.fp32", FormatId::kE5M2, 128, BlockScale::kNoTensorScale},
    Fp8NumberRow{"fp8_e4m3.1x128.bf16", FormatId::kE4M3, 1, BlockScale::kDivideFirstBf16},
    Fp8NumberRow{"fp8_e4m3.128x128.bf16", FormatId::kE4M3, 128, BlockScale::kDivideFirstBf16},
};

// FP8 in blocks whose scales are numbers.
Dialect Fp8Numbers(const Fp8NumberRow& row) {
  Dialect d{.name = row.name, .element = row.element, .block_rows = row.rows, .block_cols = 128};
  d.tensor_scale = TensorScaleRule::kNone;
  d.block_scale = row.scale;
  d.scale_encoding = ScaleEncoding::kBinary32;
  d.factor = Factor::kDivideByScale;
  if (row.element == FormatId::kE5M2 || row.scale == BlockScale::kDivideFirstBf16) {
    d.version = "fp4lab 0.1.0";
    d.source = "lib/fp4lab/dialect/block_scale_rules.h";
    d.note =
        row.element == FormatId::kE5M2
            ? "The formula of fp8_e4m3.128x128.fp32. A block of zeros has NaN codes."
            : "Scales are numbers of BF16, as of a BF16 tensor. A block of zeros has NaN codes.";
    return d;
  }
  d.version = "deepseek-ai/DeepSeek-V3 0623163";
  d.source = row.rows == 1 ? "inference/kernel.py act_quant_kernel"
                           : "inference/kernel.py weight_quant_kernel";
  d.note =
      row.rows == 1
          ? "A block of zeros has NaN codes. Triton's quotients may be two units in the last place "
            "off these. vLLM's per_token_group_quant_fp8 (csrc/quantization/fp8/"
            "per_token_group_quant.cu 0ba022c) is this formula with b >= 10^-10. DeepGEMM's "
            "per_token_cast_to_fp8 (deep_gemm/utils/math.py 54e2261) has b >= 10^-4 and v = "
            "fl(x*fl(1/s)). Transformer Engine's FP32 scales are fl(1/fl(448/b)), with v = "
            "fl(x*fl(448/b)); 1 where b is 0."
          : "A block of zeros has NaN codes. Triton's quotients may be two units in the last place "
            "off these. DeepGEMM's per_block_cast_to_fp8 (deep_gemm/utils/math.py 54e2261) has b "
            ">= 10^-4 and v = fl(x*fl(1/s)). Transformer Engine's FP32 scales are fl(1/fl(448/b)), "
            "with v = fl(x*fl(448/b)); 1 where b is 0.";
  return d;
}

}  // namespace

void AddMicroscaling(std::vector<Dialect>* rows) {
  for (const MxRow& row : kMxRows) {
    const Dialect d = Mx(row.name, row.element, row.rule);
    rows->push_back(row.square ? Square(d) : d);
  }
  for (const MxRow& row : kTorchAoRows) rows->push_back(TorchAo(row));
  for (const MxRow& row : kTorchAo18Rows) rows->push_back(TorchAo18(row));
  rows->push_back(Microxcaling());
  rows->push_back(MicroxcalingCuda());
  rows->push_back(Qwix());
  Dialect aware = Renamed(
      At(Qwix(), "google/qwix 901efed (2026-08-07) to aa623ac (2026-08-13)"), "mxfp4.qwix.oas",
      "qwix/_src/core/qarray.py compute_scale_zero_point, bias 12/7",
      "Steps up where the maximum would exceed 7, as EVEN does, and just below that, by its "
      "rounding to BF16. A scale of less than 2^-63 becomes 1.");
  aware.block_scale = BlockScale::kOverflowAware;
  aware.inf_scale = InfScale::kRule;
  aware.factor = Factor::kDivideByScale;
  aware.nan_code = -1;
  rows->push_back(aware);
  AddCompressedTensorsMx(rows);
  rows->push_back(ModelOpt());
  for (const MxRow& row : kQuarkRows) rows->push_back(Quark(row));
  rows->push_back(Ggml());
  rows->push_back(NearestLog2());
}

void AddFp8(std::vector<Dialect>* rows) {
  Dialect d = Renamed(
      At(DialectUnder(BlockScale::kOneBlock, FormatId::kE4M3, 0, 0), kTransformerEngine),
      "fp8_e4m3", "Float8CurrentScaling, common/recipe/recipe_common.cuh compute_scale_from_amax",
      "One scale for the tensor.");
  rows->push_back(d);
  d.name = "fp8_e5m2";
  d.element = FormatId::kE5M2;
  rows->push_back(d);
  for (const FormatId element : {FormatId::kE4M3, FormatId::kE5M2}) {
    Dialect row =
        Renamed(At(DialectUnder(BlockScale::kOneBlock, element, 0, 0), "fp4lab 0.1.0"),
                element == FormatId::kE4M3 ? "fp8_e4m3.row" : "fp8_e5m2.row",
                "lib/fp4lab/dialect/tensor_scale_rules.h",
                "fp8_e4m3's formula with one scale a row. Files store amax/448 (E5M2: amax/57344); "
                "kernels that divide by it differ where a product is near a tie.");
    row.row_scaled = true;
    rows->push_back(row);
  }
  for (const Fp8BlockRow& b : kFp8Blocks) {
    Dialect block =
        Renamed(At(DialectUnder(BlockScale::kRceil, b.element, b.rows, 128), kTransformerEngine),
                b.name, "Float8BlockScaling, common/transpose/quantize_transpose_*_blockwise.cu",
                "Scales are powers of two, rounded up. Transformer Engine stores them in FP32, "
                "DeepSeek-V4's files in E8M0. Transformer Engine's scale of a block of zeros, or "
                "with Inf or NaN, is 1; that of zeros is 2^-127 here. DeepGEMM's ceil_to_ue8m0 "
                "(deep_gemm/utils/math.py 54e2261) is this rule with b >= 10^-4.");
    rows->push_back(block);
  }
  for (const Fp8NumberRow& row : kFp8Numbers) rows->push_back(Fp8Numbers(row));
}

}  // namespace fp4lab
