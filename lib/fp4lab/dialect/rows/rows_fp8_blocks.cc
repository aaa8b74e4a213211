// FP8 in blocks of 128, and DeepGEMM's MXFP4, as the code that feeds block-scaled GEMMs makes them.
#include <array>

#include "fp4lab/dialect/rows/rows.h"

namespace fp4lab {
namespace {

struct BlockRow {
  std::string_view name;
  FormatId element;
  int rows;
  bool power;  // scales are powers of two
};

constexpr std::array kTe = {
    BlockRow{"fp8_e4m3.te.1x128", FormatId::kE4M3, 1, true},
    BlockRow{"fp8_e4m3.te.128x128", FormatId::kE4M3, 128, true},
    BlockRow{"fp8_e5m2.te.1x128", FormatId::kE5M2, 1, true},
    BlockRow{"fp8_e5m2.te.128x128", FormatId::kE5M2, 128, true},
    BlockRow{"fp8_e4m3.te.1x128.fp32", FormatId::kE4M3, 1, false},
    BlockRow{"fp8_e4m3.te.128x128.fp32", FormatId::kE4M3, 128, false},
    BlockRow{"fp8_e5m2.te.1x128.fp32", FormatId::kE5M2, 1, false},
    BlockRow{"fp8_e5m2.te.128x128.fp32", FormatId::kE5M2, 128, false},
};
constexpr std::array kDeepGemm = {
    BlockRow{"fp8_e4m3.deepgemm.1x128", FormatId::kE4M3, 1, true},
    BlockRow{"fp8_e4m3.deepgemm.128x128", FormatId::kE4M3, 128, true},
    BlockRow{"fp8_e4m3.deepgemm.1x128.fp32", FormatId::kE4M3, 1, false},
    BlockRow{"fp8_e4m3.deepgemm.128x128.fp32", FormatId::kE4M3, 128, false},
};

// A row without formulas of scales and factors.
constexpr Dialect Blocks(const BlockRow& row) {
  Dialect d{.name = row.name, .element = row.element, .block_rows = row.rows, .block_cols = 128};
  if (row.power) d.scale = FormatId::kE8M0;
  d.tensor_scale = TensorScaleRule::kNone;
  d.scale_encoding = row.power ? ScaleEncoding::kExponent : ScaleEncoding::kBinary32;
  return d;
}

constexpr Dialect TransformerEngine(const BlockRow& row) {
  Dialect d = Blocks(row);
  d.version = kTransformerEngine;
  d.source = row.rows == 1 ? "common/recipe/recipe_common.cuh compute_scale_from_amax; "
                             "common/transpose/quantize_transpose_vector_blockwise.cu"
                           : "common/recipe/recipe_common.cuh compute_scale_from_amax; "
                             "common/transpose/quantize_transpose_square_blockwise.cu";
  d.note = row.power
               ? "Float8BlockScaling with its powers of two, amax_epsilon 0, stored in FP32 there. "
                 "The factor's fraction is cut off. Differs from the .e8m0 rows for blocks of "
                 "zeros, Inf and of less than q/FLT_MAX."
               : "Float8BlockScaling(use_f32_scales=True), amax_epsilon 0, for FP32 input: BF16's "
                 "largest number stands for FLT_MAX of BF16 input.";
  d.block_scale = row.power ? BlockScale::kInverseOfPower : BlockScale::kInverseOfEncode;
  d.factor = row.power ? Factor::kPowerOfTwo : Factor::kEncodeOfBlock;
  return d;
}

constexpr std::string_view kDeepGemmVersion = "deepseek-ai/DeepGEMM 38939a4";

constexpr Dialect DeepGemm(const BlockRow& row) {
  Dialect d = Blocks(row);
  d.version = kDeepGemmVersion;
  d.source = row.rows == 1 ? "deep_gemm/utils/math.py per_token_cast_to_fp8"
                           : "deep_gemm/utils/math.py per_block_cast_to_fp8";
  d.note = row.power
               ? "use_ue8m0=True. Rounds up exactly. The GEMM takes four bytes in an int32, column "
                 "by column (layout deepgemm). A block with Inf or NaN has the scale 2^127. Inf "
                 "saturates, as in the cast of torch 2.15."
               : "use_ue8m0=False. A NaN makes its block's scale NaN.";
  d.block_scale = row.power ? BlockScale::kCeilQuotientFloored : BlockScale::kNoTensorScaleFloored;
  d.factor = row.power ? Factor::kPowerOfTwo : Factor::kReciprocalPlain;
  d.nan = NanRule::kBlock;
  if (row.power) d.nan_scale = 254;
  return d;
}

constexpr Dialect DeepGemmMx() {
  Dialect d = Blocks({"mxfp4.deepgemm", FormatId::kE2M1, 1, true});
  d.block_cols = 32;
  d.version = kDeepGemmVersion;
  d.source = "deep_gemm/utils/math.py per_token_cast_to_fp4, gran_k=32, use_ue8m0=True";
  d.note =
      "Ties go toward zero, and no code is -0. A block with Inf or NaN has the scale 2^127. "
      "NaN has code 7.";
  d.block_scale = BlockScale::kCeilQuotientFloored;
  d.factor = Factor::kPowerOfTwo;
  d.rounding = ElementRounding::kTiesToZero;
  d.never_negative_zero = true;
  d.nan = NanRule::kBlock;
  d.nan_scale = 254;
  d.nan_code = 7;
  return d;
}

}  // namespace

void AddFp8Blocks(std::vector<Dialect>* rows) {
  for (const BlockRow& row : kTe) rows->push_back(TransformerEngine(row));
  for (const BlockRow& row : kDeepGemm) rows->push_back(DeepGemm(row));
  rows->push_back(DeepGemmMx());
}

}  // namespace fp4lab
