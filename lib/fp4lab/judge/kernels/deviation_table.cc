// The table of deviations. Each deviation is an edit of a KernelPlan.
#include <algorithm>
#include <array>
#include <bit>

#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/judge/kernels/kernel_plan.h"
#include "fp4lab/judge/kernels/plan_edits.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

using Plan = KernelPlan;

// clang-format off
constexpr auto kTable = std::to_array<Deviation>({
    // ---- Layout: the right numbers at the wrong places
    {"codes-low-first", "packs the even column into the low nibble", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, CodeOrder::kLowFirst); }},
    {"codes-high-first", "packs the even column into the high nibble", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, CodeOrder::kHighFirst); }},
    {"codes-split-halves", "packs column j of a block with column j + half a block (ggml)",
     Stage::kLayout, [](Plan& p) { return SetWritten(p, CodeOrder::kSplitHalves); }},
    {"codes-one-a-byte", "writes one code per byte", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, CodeOrder::kBytes); }},
    {"scales-linear", "writes the scales row by row, unswizzled and unpadded", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, ScaleOrder::kLinear); }},
    {"scales-padded", "writes the scales row by row, rows padded to 128 and columns to 4",
     Stage::kLayout, [](Plan& p) { return SetWritten(p, ScaleOrder::kPadded); }},
    {"scales-128x4", "writes the scales swizzled in tiles of 128x4", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, ScaleOrder::k128x4); }},
    {"scales-8x4", "writes the scales swizzled in tiles of 8x4", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, ScaleOrder::k8x4); }},
    {"scales-columns-padded", "writes the scales row by row, columns padded to 4 and rows not",
     Stage::kLayout, [](Plan& p) { return SetScaleBytes(p, "columns-padded"); }},
    {"scales-rows-padded", "writes the scales row by row, rows padded to 128 and columns not",
     Stage::kLayout, [](Plan& p) {
       return p.output.written.scales != ScaleOrder::kLinear && SetScaleBytes(p, "rows-padded");
     }},
    {"scales-aiter", "writes the scales in the order of AITER's e8m0_shuffle", Stage::kLayout,
     [](Plan& p) { return SetScaleBytes(p, "aiter"); }},
    {"scales-deepgemm", "packs the scales of four blocks into a word, words column by column (DeepGEMM)",
     Stage::kLayout, [](Plan& p) { return IsMx(p) && SetScaleBytes(p, "deepgemm"); }},
    {"codes-16x16", "writes the codes' bytes shuffled in tiles of 16 rows and 32 bytes (AITER's shuffle_weight)",
     Stage::kLayout, [](Plan& p) { return SetCodeBytes(p, "16x16"); }},
    {"scales-swizzled-twice", "swizzles the scales a second time", Stage::kLayout,
     [](Plan& p) {
       return HasScales(p) && p.output.written.scales != ScaleOrder::kLinear &&
              p.output.written.scales != ScaleOrder::kPadded && Change(p.output.swizzled_twice, true);
     }},
    {"scale-tiles-by-column", "writes the tiles of scales column of tiles by column of tiles",
     Stage::kLayout, [](Plan& p) { return SetTiles(p, ScaleTiles::kColumnByColumn); }},
    {"scale-tiles-not-interleaved", "writes each tile of scales row by row, without the interleaving",
     Stage::kLayout, [](Plan& p) { return SetTiles(p, ScaleTiles::kRowByRow); }},
    {"scale-tiles-inner-transposed", "exchanges, in a 128x4 tile, a row's quarter and its column",
     Stage::kLayout, [](Plan& p) { return SetTiles(p, ScaleTiles::kInnerTransposed); }},
    {"scale-tiles-transposed", "writes each tile of scales column by column", Stage::kLayout,
     [](Plan& p) { return SetTiles(p, ScaleTiles::kTransposed); }},
    {"scales-expanded", "repeats the scale of a tile for each of its rows", Stage::kLayout,
     [](Plan& p) { return p.kernel.dialect.block_rows > 1 && Change(p.output.written.expanded_scales, true); }},
    {"scales-not-expanded", "writes the scale of a tile once, not for each of its rows", Stage::kLayout,
     [](Plan& p) { return p.kernel.dialect.block_rows > 1 && Change(p.output.written.expanded_scales, false); }},
    {"transposed", "writes codes and scales of the transposed matrix", Stage::kLayout,
     [](Plan& p) { return Change(p.output.written.transposed, !p.kernel.layout.transposed); }},
    {"codes-transposed", "writes the codes transposed, the scales not", Stage::kLayout,
     [](Plan& p) { return HasScales(p) && Change(p.output.codes_transposed, true); }},
    {"scales-transposed", "writes the scales transposed, the codes not", Stage::kLayout,
     [](Plan& p) { return HasScales(p) && Change(p.output.scales_transposed, true); }},
    {"codes-shifted", "writes every code one element too late", Stage::kLayout,
     [](Plan& p) { return Change(p.output.code_shift, 1); }},
    {"codes-shifted-back", "writes every code one element too early", Stage::kLayout,
     [](Plan& p) { return Change(p.output.code_shift, -1); }},
    {"scales-shifted", "writes every scale one block too late", Stage::kLayout,
     [](Plan& p) { return HasScales(p) && Change(p.output.scale_shift, 1); }},
    {"scales-shifted-back", "writes every scale one block too early", Stage::kLayout,
     [](Plan& p) { return HasScales(p) && Change(p.output.scale_shift, -1); }},
    {"scales-rows-down", "writes the scales rows too far down", Stage::kLayout, nullptr,
     ValueKind::kRowShift,
     [](Plan& p, const DeviationValue& v) { return HasScales(p) && Change(p.output.scale_row_shift, v.number); },
     {.number = 1}},
    {"code-bytes-swapped", "writes the bytes of every 32-bit word of codes in reverse order",
     Stage::kLayout, [](Plan& p) { return Change(p.output.words_reversed, true); }},
    {"code-nibbles-reversed", "writes the eight nibbles of every 32-bit word in reverse order",
     Stage::kLayout, [](Plan& p) { return IsFp4(p) && Change(p.output.nibbles_reversed, true); }},
    {"tensor-scale-as-amax", "stores the amax where another number is asked for", Stage::kLayout,
     [](Plan& p) { return SetWritten(p, TensorScaleConvention::kAmax); }},
    {"tensor-scale-as-multiplier", "stores the multiplier amax / C where another number is asked for",
     Stage::kLayout, [](Plan& p) { return SetWritten(p, TensorScaleConvention::kMultiplier); }},
    {"tensor-scale-as-divisor", "stores the divisor C / amax where another number is asked for",
     Stage::kLayout, [](Plan& p) { return SetWritten(p, TensorScaleConvention::kDivisor); }},
    {"tensor-scale-stored-inverted", "stores the reciprocal of the tensor scale", Stage::kLayout,
     [](Plan& p) { return HasTensorScale(p) && Change(p.output.tensor_scale_inverted, true); }},

    // ---- Input: another matrix is quantized
    {"input-transposed", "quantizes the transposed matrix (blocks down the columns)", Stage::kInput,
     [](Plan& p) { return Change(p.input.transposed, true); }},
    {"input-shifted", "reads the next element in memory in place of every element", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard == 0 && Change(p.input.shift, 1); }},
    {"input-shifted-back", "reads the previous element in memory in place of every element",
     Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard == 0 && Change(p.input.shift, -1); }},
    {"input-times", "multiplies the input by a number first", Stage::kInput, nullptr,
     ValueKind::kTimes,
     [](Plan& p, const DeviationValue& v) {
       return p.kernel.hadamard == 0 && v.amax > 0.0f && Change(p.input.times, v.amax);
     },
     {.amax = 1.1f}},
    {"input-columns-dropped", "reads the last columns as zeros", Stage::kInput, nullptr,
     ValueKind::kLastCols,
     [](Plan& p, const DeviationValue& v) {
       return v.number > 0 && Change(p.input.cols_dropped, static_cast<std::size_t>(v.number));
     },
     {.number = 1}},
    {"input-rows-permuted", "quantizes the rows in another order", Stage::kInput, nullptr,
     ValueKind::kRowOrder,
     [](Plan& p, const DeviationValue& v) { return Change(p.input.rows, static_cast<RowOrder>(v.number)); },
     {.number = static_cast<int>(RowOrder::kPairsSwapped)}},
    {"input-rows-in-turn", "quantizes the rows in another order", Stage::kInput, nullptr,
     ValueKind::kRowTurns,
     [](Plan& p, const DeviationValue& v) {
       p.input.row_group = v.group;
       return Change(p.input.row_parts, v.parts);
     },
     {.parts = 2, .turns = 8, .group = 2}},
    {"input-columns-permuted", "quantizes the columns in another order", Stage::kInput, nullptr,
     ValueKind::kColumnOrder,
     [](Plan& p, const DeviationValue& v) { return Change(p.input.cols, static_cast<RowOrder>(v.number)); },
     {.number = static_cast<int>(RowOrder::kReversed)}},
    {"input-reversed", "reads the input from its last element to its first", Stage::kInput,
     [](Plan& p) {
       p.input.rows = RowOrder::kReversed;
       return Change(p.input.cols, RowOrder::kReversed);
     }},
    {"input-bf16", "rounds the input to BF16 first", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard == 0 && Change(p.input.rounded, FormatId::kBF16); }},
    {"input-fp16", "rounds the input to FP16 first", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard == 0 && Change(p.input.rounded, FormatId::kFP16); }},
    {"input-subnormals-flushed", "reads subnormal input as zero", Stage::kInput,
     [](Plan& p) {
       // Without a tensor scale, subnormals vanish under the least E4M3 scale, under a floored one and
       // under a scale of 1.
       const Dialect& d = p.kernel.dialect;
       return !SubnormalsVanish(p) && !HasFlooredScale(p) &&
              d.block_scale != BlockScale::kOverflowAware &&
              d.block_scale != BlockScale::kCeilLog2 &&
              Change(p.input.flushed, true);
     }},
    {"rht-missing", "leaves the random Hadamard transform out", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard != 0 && Change(p.input.hadamard, 0); }},
    {"rht-added", "transforms the input (Hadamard, 16, Transformer Engine's signs) unasked",
     Stage::kInput, [](Plan& p) {
       if (p.kernel.hadamard != 0 || p.kernel.dialect.block_cols % 16 != 0) return false;
       p.input.sign_mask = kTeSignMask16;
       return Change(p.input.hadamard, 16);
     }},
    {"rht-without-signs", "transforms the input without the signs", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard != 0 && Change(p.input.sign_mask, 0u); }},
    {"rht-signs-reversed", "takes the signs of the transform from the mask in reverse order",
     Stage::kInput, [](Plan& p) {
       if (p.kernel.hadamard == 0) return false;
       std::uint32_t reversed = 0;
       for (int i = 0; i < p.kernel.hadamard; ++i) {
         reversed |= (p.kernel.sign_mask >> i & 1u) << (p.kernel.hadamard - 1 - i);
       }
       return Change(p.input.sign_mask, reversed);
     }},
    {"rht-signs-flipped", "negates where the mask says keep, and keeps where it says negate",
     Stage::kInput, [](Plan& p) {
       const std::uint32_t all = p.kernel.hadamard == 16 ? 0xFFFFu : 0xFFFFFFFFu;
       return p.kernel.hadamard != 0 && Change(p.input.sign_mask, ~p.kernel.sign_mask & all);
     }},
    {"rht-signs-after", "puts the signs on the transform's results, not on its inputs", Stage::kInput,
     [](Plan& p) {
       return p.kernel.hadamard != 0 && p.kernel.sign_mask != 0 && Change(p.input.signs_after, true);
     }},
    {"rht-sign-wrong", "takes one sign of the transform wrong", Stage::kInput, nullptr,
     ValueKind::kPlace,
     [](Plan& p, const DeviationValue& v) {
       return v.number < p.kernel.hadamard && Change(p.input.sign_mask, p.kernel.sign_mask ^ 1u << v.number);
     },
     {.number = 5}},
    {"rht-row-negated", "negates one row of the transform's matrix", Stage::kInput, nullptr,
     ValueKind::kPlace,
     [](Plan& p, const DeviationValue& v) {
       return v.number < p.kernel.hadamard && Change(p.input.negated_result, v.number);
     },
     {.number = 3}},
    {"rht-unnormalised", "leaves the factor size^(-1/2) of the transform out", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard != 0 && Change(p.input.normalised, false); }},
    {"rht-not-rounded", "does not round the transform's results to BF16", Stage::kInput,
     [](Plan& p) { return p.kernel.hadamard != 0 && Change(p.input.bf16_result, false); }},

    // ---- Tensor scales
    {"tensor-scale-missing", "has no tensor scale: S = D = 1", Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && HasScales(p) && Change(p.tensor.missing, true); }},
    {"tensor-scale-inverted", "exchanges the encode scale S and the decode scale D",
     Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && Change(p.tensor.inverted, true); }},
    {"scale-without-tensor-scale", "leaves the tensor scale out of the block scales", Stage::kTensorScale,
     [](Plan& p) {
       return HasTensorScale(p) && HasScales(p) &&
              p.kernel.dialect.block_scale != BlockScale::kOverTensor &&
              Change(p.tensor.missing_in_scale, true);
     }},
    {"factor-without-tensor-scale", "leaves the tensor scale out of the element factor",
     Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && HasScales(p) && Change(p.tensor.missing_in_factor, true); }},
    {"constant-448x6", "computes the tensor scale from C = 448 * 6", Stage::kTensorScale,
     [](Plan& p) { return SetConstant(p, 448.0f); }},
    {"constant-256x6", "computes the tensor scale from C = 256 * 6", Stage::kTensorScale,
     [](Plan& p) { return SetConstant(p, 256.0f); }},
    {"constant-448", "computes the tensor scale from C = 448, without the 6", Stage::kTensorScale,
     [](Plan& p) { return SetConstant(p, 448.0f / 6.0f); }},
    {"constant-6", "computes the tensor scale from C = 6, without the 448", Stage::kTensorScale,
     [](Plan& p) { return SetConstant(p, 1.0f); }},
    {"amax-of-first-row", "takes the tensor's amax from its first row only", Stage::kTensorScale,
     [](Plan& p) {
       return HasTensorScale(p) && !p.kernel.dialect.row_scaled && Change(p.tensor.amax, AmaxFrom::kFirstRow);
     }},
    {"amax-of-first-block", "takes the tensor's amax from its first block only", Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && Change(p.tensor.amax, AmaxFrom::kFirstBlock); }},
    {"amax-without-abs", "takes the tensor's largest value, not its largest magnitude",
     Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && Change(p.tensor.amax, AmaxFrom::kLargestSigned); }},
    {"amax-without-last-rows", "leaves the last rows out of the tensor's amax", Stage::kTensorScale,
     nullptr, ValueKind::kLastRows,
     [](Plan& p, const DeviationValue& v) {
       if (!HasTensorScale(p) || p.kernel.dialect.row_scaled || v.number <= 0) return false;
       p.tensor.rows_left_out = static_cast<std::size_t>(v.number);
       return Change(p.tensor.amax, AmaxFrom::kWithoutLastRows);
     },
     {.number = 1}},
    {"row-amax-of-first-columns", "takes a row's amax from its first columns only",
     Stage::kTensorScale, nullptr, ValueKind::kFirstCols,
     [](Plan& p, const DeviationValue& v) {
       if (!HasTensorScale(p) || !p.kernel.dialect.row_scaled || v.number <= 0) return false;
       p.tensor.first_cols = static_cast<std::size_t>(v.number);
       return Change(p.tensor.amax, AmaxFrom::kFirstCols);
     },
     {.number = 16}},
    {"amax-stale", "scales by an amax that is not the tensor's", Stage::kTensorScale, nullptr,
     ValueKind::kAmax,
     [](Plan& p, const DeviationValue& v) {
       if (!HasTensorScale(p) || p.kernel.dialect.row_scaled) return false;
       p.tensor.given = v.amax;
       return Change(p.tensor.amax, AmaxFrom::kGiven);
     },
     {.amax = 2.7f}},
    {"amax-of-parts", "scales each part of the matrix by the part's own amax", Stage::kTensorScale,
     nullptr, ValueKind::kAmaxParts,
     [](Plan& p, const DeviationValue& v) {
       if (!HasTensorScale(p) || p.kernel.dialect.row_scaled) return false;
       if (v.starts[0] == 0 && v.parts == 0) return false;
       p.tensor.parts = {.starts = v.starts,
                         .by_columns = v.by_columns,
                         .in_turn = static_cast<std::uint32_t>(v.parts),
                         .group = static_cast<std::uint32_t>(v.group),
                         .stored = static_cast<AmaxParts::Stored>(v.stored)};
       return Change(p.tensor.amax, AmaxFrom::kParts);
     },
     {.starts = {16}}},
    {"parts-folded", "scales each part of the matrix by the part's own amax, and encodes the scales again for one number",
     Stage::kTensorScale, nullptr, ValueKind::kFoldedParts,
     [](Plan& p, const DeviationValue& v) {
       if (!HasE4m3Scale(p) || p.kernel.dialect.row_scaled || v.starts[0] == 0) return false;
       if (!ScaleFollowsAmax(p) || !FactorFollowsAmax(p)) return false;
       p.tensor.parts = {.starts = v.starts, .folded = true};
       return Change(p.tensor.amax, AmaxFrom::kParts);
     },
     {.starts = {16}}},
    {"factor-amax-stale", "scales the elements, not the block scales, by an amax that is not the tensor's",
     Stage::kTensorScale, nullptr, ValueKind::kFactorAmax,
     [](Plan& p, const DeviationValue& v) {
       return FactorFollowsAmax(p) && Change(p.tensor.factor_amax, v.amax);
     },
     {.amax = 2.7f}},
    {"scale-amax-stale", "computes the block scales, not the elements, with an amax that is not the tensor's",
     Stage::kTensorScale, nullptr, ValueKind::kScaleAmax,
     [](Plan& p, const DeviationValue& v) {
       return ScaleFollowsAmax(p) && Change(p.tensor.scale_amax, v.amax);
     },
     {.amax = 2.7f}},
    {"encode-scale-unclamped", "lets the tensor's encode scale S overflow to infinity, without the clamp to FLT_MAX",
     Stage::kTensorScale,
     [](Plan& p) { return ClampsEncodeScale(p) && Change(p.tensor.unclamped, true); }},
    {"amax-bf16", "rounds the tensor's amax to BF16", Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && Change(p.tensor.rounded, FormatId::kBF16); }},
    {"amax-fp16", "rounds the tensor's amax to FP16", Stage::kTensorScale,
     [](Plan& p) { return HasTensorScale(p) && Change(p.tensor.rounded, FormatId::kFP16); }},
    {"encode-scale-bf16", "rounds the tensor's encode scale S to BF16", Stage::kTensorScale,
     [](Plan& p) {
       return UsesEncodeScale(p) &&
              p.kernel.dialect.tensor_scale != TensorScaleRule::kDivisorBf16 &&
              Change(p.tensor.encode_rounded, FormatId::kBF16);
     }},
    {"encode-scale-fp16", "rounds the tensor's encode scale S to FP16", Stage::kTensorScale,
     [](Plan& p) { return UsesEncodeScale(p) && Change(p.tensor.encode_rounded, FormatId::kFP16); }},
    {"decode-scale-bf16", "rounds the tensor's decode scale D to BF16", Stage::kTensorScale,
     [](Plan& p) { return UsesDecodeScale(p) && Change(p.tensor.decode_rounded, FormatId::kBF16); }},
    {"decode-scale-fp16", "rounds the tensor's decode scale D to FP16", Stage::kTensorScale,
     [](Plan& p) { return UsesDecodeScale(p) && Change(p.tensor.decode_rounded, FormatId::kFP16); }},

    // ---- Scale
    {"reciprocal-for-division", "multiplies the block amax by fl(1/6) before the tensor scale: "
     "fl(fl(b * fl(1/6)) * S)", Stage::kScale,
     [](Plan& p) { return SetFormula(p, BlockScale::kTimesSixth); }},
    {"division-for-reciprocal", "divides the block amax by 6: fl(fl(b / 6) * S)", Stage::kScale,
     [](Plan& p) { return SetFormula(p, BlockScale::kDivideFirst); }},
    {"scale-folded", "folds fl(1/6) into the tensor scale: fl(b * fl(S * fl(1/6)))", Stage::kScale,
     [](Plan& p) { return SetFormula(p, BlockScale::kFolded); }},
    {"scale-over-level", "divides by the decode scale: fl(fl(b / 6) / D)", Stage::kScale,
     [](Plan& p) { return SetFormula(p, BlockScale::kDivideByTensorScale); }},
    {"scale-over-product", "divides once: fl(b / fl(6 * D))", Stage::kScale,
     [](Plan& p) { return SetFormula(p, BlockScale::kDivideByBoth); }},
    {"scale-decode-first", "divides by the decode scale first: fl(fl(b / D) / 6)", Stage::kScale,
     [](Plan& p) { return SetFormula(p, BlockScale::kOverDecode); }},
    {"scale-448-over-amax", "computes the scale as fl(fl(b * 448) / amax)", Stage::kScale,
     [](Plan& p) {
       return HasE4m3Scale(p) && HasTensorScale(p) && Change(p.scale.constant_over_amax, true);
     }},
    {"scale-half-up", "rounds the scale half up, not half to even", Stage::kScale,
     [](Plan& p) { return HasScaleBytes(p) && Change(p.scale.encoding, OtherEncoding::kHalfUp); }},
    {"scale-truncated", "truncates the scale", Stage::kScale,
     [](Plan& p) { return RoundsScales(p, OtherEncoding::kTowardZero); }},
    {"scale-rounded-up", "rounds the scale up, so that nothing saturates", Stage::kScale,
     [](Plan& p) { return RoundsScales(p, OtherEncoding::kUp); }},
    {"scale-power-of-two", "rounds the scale down to a power of two", Stage::kScale,
     [](Plan& p) { return HasE4m3Scale(p) && Change(p.scale.encoding, OtherEncoding::kPowerOfTwo); }},
    {"scale-power-of-two-up", "rounds the scale up to a power of two", Stage::kScale,
     [](Plan& p) { return HasScaleNumbers(p) && Change(p.scale.encoding, OtherEncoding::kPowerOfTwoUp); }},
    {"scale-stored-inverted", "stores the reciprocal of the block's scale", Stage::kScale,
     [](Plan& p) {
       return ScaleTypeOf(p) != ScaleType::kByte && Change(p.scale.stored, StoredScale::kInverse);
     }},
    {"scale-stored-bf16", "stores the scale rounded to BF16, and scales the elements by the scale before its rounding",
     Stage::kScale,
     [](Plan& p) {
       return HasScaleNumbers(p) && !HasBf16Scale(p) && ScaleTypeOf(p) == ScaleType::kFP32 &&
              Change(p.scale.stored, StoredScale::kBf16);
     }},
    {"scale-stored-power-of-two", "stores the scale rounded up to a power of two, and scales the elements by the scale before its rounding",
     Stage::kScale,
     [](Plan& p) { return HasScaleNumbers(p) && Change(p.scale.stored, StoredScale::kPowerOfTwoUp); }},
    {"block-amax-at-least", "lets no block's amax fall below a number", Stage::kScale, nullptr,
     ValueKind::kLeastAmax,
     [](Plan& p, const DeviationValue& v) {
       const bool has_it = HasFlooredScale(p) && v.amax <= kLeastAmax;
       return HasScaleNumbers(p) && !has_it && Change(p.scale.least_amax, v.amax);
     },
     {.amax = 1e-4f}},
    {"scale-bf16-first", "rounds the scale to BF16 before it is encoded", Stage::kScale,
     [](Plan& p) {
       return HasE4m3Scale(p) && !HasBf16Scale(p) && Change(p.scale.before_rounded, FormatId::kBF16);
     }},
    {"scale-fp16-first", "rounds the scale to FP16 before it is encoded", Stage::kScale,
     [](Plan& p) { return HasE4m3Scale(p) && Change(p.scale.before_rounded, FormatId::kFP16); }},
    {"block-amax-bf16", "rounds the block's amax to BF16", Stage::kScale,
     [](Plan& p) {
       return HasScales(p) && !HasBf16Scale(p) && Change(p.scale.amax_rounded, FormatId::kBF16);
     }},
    {"block-amax-fp16", "rounds the block's amax to FP16", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.amax_rounded, FormatId::kFP16); }},
    {"block-amax-without-abs", "takes a block's largest value, not its largest magnitude",
     Stage::kScale, [](Plan& p) { return HasScales(p) && Change(p.scale.largest_signed, true); }},
    {"block-of-twice-the-width", "takes the amax over two neighbouring blocks", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.window, AmaxWindow::kTwoBlocks); }},
    {"block-of-half-the-width", "takes the amax over the first half of the block", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.window, AmaxWindow::kHalfBlock); }},
    {"block-of-one-more", "takes the amax over the block and the column after it", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.window, AmaxWindow::kOnePast); }},
    {"block-of-even-lanes", "takes the amax over the block's even columns", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.window, AmaxWindow::kEvenLanes); }},
    {"block-of-16-rows", "takes the amax over 16 rows (square blocks)", Stage::kScale,
     [](Plan& p) {
       return p.kernel.dialect.block_rows == 1 && Change(p.scale.window, AmaxWindow::kSixteenRows);
     }},
    {"block-amax-of-previous", "takes the amax of the block before", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.window, AmaxWindow::kPreviousBlock); }},
    {"scale-one-up", "stores a scale byte one too large", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.offset, 1); }},
    {"scale-one-down", "stores a scale byte one too small", Stage::kScale,
     [](Plan& p) { return HasScales(p) && Change(p.scale.offset, -1); }},
    {"scale-value-as-byte", "stores the scale's value, cut to an integer modulo 256, in place of its byte",
     Stage::kScale,
     [](Plan& p) {
       return HasScales(p) && ScaleTypeOf(p) == ScaleType::kByte && Change(p.scale.value_is_byte, true);
     }},
    {"mx-emax-missing", "leaves the element's largest exponent out of the scale", Stage::kScale,
     [](Plan& p) { return IsMx(p) && IsFp4(p) && Change(p.scale.offset, 2); }},
    {"scale-floor-2^-6", "lets no scale fall below 2^-6", Stage::kScale,
     [](Plan& p) { return SetEncoding(p, ScaleEncoding::kClamp2m6); }},
    {"scale-floor-2^-9", "turns a scale of 0 into 1 and lets none fall below 2^-9", Stage::kScale,
     [](Plan& p) { return SetEncoding(p, ScaleEncoding::kOneClamp2m9); }},
    {"scale-zero-to-one", "turns a scale that rounds to 0 into 1", Stage::kScale,
     [](Plan& p) { return SetEncoding(p, ScaleEncoding::kZeroToOne); }},
    {"scale-zero-to-least", "turns a scale that rounds to 0 into the least one", Stage::kScale,
     [](Plan& p) { return SetEncoding(p, ScaleEncoding::kZeroToLeast); }},
    {"scale-zero-to-epsilon", "turns a scale that rounds to 0 into 2^-3", Stage::kScale,
     [](Plan& p) { return SetEncoding(p, ScaleEncoding::kZeroToEpsilon); }},
    {"scale-unclamped", "lets scales fall to 0 where the dialect does not", Stage::kScale,
     [](Plan& p) { return SetEncoding(p, ScaleEncoding::kNearest); }},
    {"scale-overflow-nan", "writes NaN for a scale beyond 448 instead of saturating", Stage::kScale,
     [](Plan& p) {
       // kOneOrNan writes NaN itself; kEncodeFused and kOverFloored have S = 0 for an Inf amax.
       const Dialect& d = p.kernel.dialect;
       return HasScaleBytes(p) && d.scale_encoding != ScaleEncoding::kOneOrNan &&
              d.tensor_scale != TensorScaleRule::kEncodeFused &&
              d.tensor_scale != TensorScaleRule::kOverFloored &&
              Change(p.scale.overflow_is_nan, true);
     }},
    {"scale-overflow-stored-nan", "stores NaN for a scale beyond 448, a cast without a clamp, and scales elements by 448",
     Stage::kScale, [](Plan& p) {
       const Dialect& d = p.kernel.dialect;
       return HasScaleBytes(p) && d.scale_encoding != ScaleEncoding::kOneOrNan &&
              d.tensor_scale != TensorScaleRule::kEncodeFused &&
              d.tensor_scale != TensorScaleRule::kOverFloored &&
              Change(p.scale.overflow_stored_as_nan, true);
     }},
    {"scale-subnormals-flushed", "flushes subnormal scales to 0", Stage::kScale,
     [](Plan& p) {
       return HasE4m3Scale(p) && p.kernel.dialect.scale_encoding != ScaleEncoding::kClamp2m6 &&
              !HasFlooredScale(p) && Change(p.scale.subnormals_flushed, true);
     }},
    {"mx-floor", "takes the E8M0 scale by FLOOR", Stage::kScale,
     [](Plan& p) { return SetRule(p, BlockScale::kFloor); }},
    {"mx-ceil", "takes the E8M0 scale by CEIL", Stage::kScale,
     [](Plan& p) { return SetRule(p, BlockScale::kCeil); }},
    {"mx-rceil", "takes the E8M0 scale by RCEIL", Stage::kScale,
     [](Plan& p) { return SetRule(p, BlockScale::kRceil); }},
    {"mx-even", "takes the E8M0 scale by EVEN", Stage::kScale,
     [](Plan& p) { return SetRule(p, BlockScale::kEven); }},
    {"nan-scale-saturated", "writes the largest scale where it is NaN", Stage::kScale,
     [](Plan& p) {
       return HasScales(p) && StoresNanScales(p.kernel.dialect) && Change(p.scale.nan_is_largest, true);
     }},
    {"nan-poisons-block", "gives a block with a NaN element a NaN scale", Stage::kScale,
     [](Plan& p) { return SetNan(p, NanRule::kBlock); }},
    {"nan-poisons-tensor", "makes every scale NaN where one element is NaN", Stage::kScale,
     [](Plan& p) { return HasTensorScale(p) && SetNan(p, NanRule::kTensor); }},
    {"nan-ignored-in-block", "gives a block with a NaN element the scale of its other elements",
     Stage::kScale,
     [](Plan& p) { return SetNan(p, NanRule::kElement); }},

    // ---- Element
    {"factor-reciprocal", "multiplies by e = 1/(s*D)", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kReciprocal); }},
    {"factor-encode-over-scale", "multiplies by e = S/s", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kEncodeOverScale); }},
    {"factor-encode-times-reciprocal", "multiplies by e = S*(1/s)", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kEncodeTimesRcp); }},
    {"factor-reciprocal-over-scale", "multiplies by e = (1/D)/s", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kRcpTensorScaleOverScale); }},
    {"factor-bf16", "rounds the factor S/s to BF16", Stage::kElement,
     [](Plan& p) { return HasTensorScale(p) && SetFactor(p, Factor::kBf16); }},
    {"elements-over-product", "divides the elements by s*D", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kDivideByProduct); }},
    {"elements-over-quotient", "divides the elements by s/S", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kDivideByQuotient); }},
    {"elements-in-two-steps", "divides the elements by D, then multiplies by 1/s", Stage::kElement,
     [](Plan& p) { return SetFactor(p, Factor::kTwoSteps); }},
    {"factor-rounded-bf16", "rounds the element factor to BF16", Stage::kElement,
     [](Plan& p) {
       // A stored scale, the divisor without a tensor scale, is a BF16 value already.
       const Factor factor = p.kernel.dialect.factor;
       const bool by_scale = factor == Factor::kDivideByProductOrEpsilon && !HasTensorScale(p);
       return HasE4m3Scale(p) && !Searches(p) && factor != Factor::kBf16 && !by_scale &&
              SameFactor(p, factor) != Factor::kDivideByScale &&
              Change(p.element.factor_rounded, FormatId::kBF16);
     }},
    {"factor-rounded-fp16", "rounds the element factor to FP16", Stage::kElement,
     [](Plan& p) {
       return HasE4m3Scale(p) && !Searches(p) &&
              SameFactor(p, p.kernel.dialect.factor) != Factor::kDivideByScale &&
              Change(p.element.factor_rounded, FormatId::kFP16);
     }},
    {"factor-from-unrounded-scale", "scales the elements by the block scale before its rounding",
     Stage::kElement,
     [](Plan& p) {
       if (HasWideFp8Blocks(p)) return Change(p.element.over_quotient, true);
       return HasScaleBytes(p) && !Searches(p) && Change(p.element.unrounded_scale, true);
     }},
    {"elements-over-amax", "computes x * 6 / b, without the stored scale", Stage::kElement,
     [](Plan& p) { return HasScales(p) && !Searches(p) && Change(p.element.over_amax, true); }},
    {"factor-of-previous", "scales the elements by the factor of the block before", Stage::kElement,
     nullptr, ValueKind::kBefore,
     [](Plan& p, const DeviationValue& v) {
       return HasScales(p) && !Searches(p) &&
              Change(p.element.factor_of, static_cast<FactorOfBlock>(v.number));
     },
     {.number = static_cast<int>(FactorOfBlock::kBefore)}},
    {"scaled-bf16", "rounds the scaled element to BF16 before the code (double rounding)",
     Stage::kElement, [](Plan& p) {
       return !Searches(p) && p.kernel.dialect.rounding != ElementRounding::kBf16First &&
              Change(p.element.scaled_rounded, FormatId::kBF16);
     }},
    {"scaled-fp16", "rounds the scaled element to FP16 before the code (double rounding)",
     Stage::kElement,
     [](Plan& p) { return !Searches(p) && Change(p.element.scaled_rounded, FormatId::kFP16); }},
    {"flush-to-zero", "flushes subnormal intermediates to zero", Stage::kElement,
     [](Plan& p) { return MayFlush(p) && Change(p.element.flush, true); }},
    {"nearest-even", "rounds elements to nearest, ties to even", Stage::kElement,
     [](Plan& p) { return SetRounding(p, ElementRounding::kNearestEven); }},
    {"truncation", "truncates elements toward zero (for stochastic rounding: random bits 0)",
     Stage::kElement, [](Plan& p) { return SetRounding(p, ElementRounding::kTowardZero); }},
    {"ties-away", "rounds ties away from zero", Stage::kElement,
     [](Plan& p) { return SetRounding(p, ElementRounding::kTiesAway); }},
    {"ties-toward-zero", "rounds ties toward zero", Stage::kElement,
     [](Plan& p) { return Change(p.element.rounding, OtherRounding::kTiesTowardZero); }},
    {"ties-toward-positive", "rounds ties toward plus infinity", Stage::kElement,
     [](Plan& p) { return Change(p.element.rounding, OtherRounding::kTiesToPositive); }},
    {"ties-toward-negative", "rounds ties toward minus infinity", Stage::kElement,
     [](Plan& p) { return Change(p.element.rounding, OtherRounding::kTiesToNegative); }},
    {"ties-to-odd", "rounds ties to the odd code", Stage::kElement,
     [](Plan& p) { return Change(p.element.rounding, OtherRounding::kTiesToOdd); }},
    {"round-away", "rounds every element away from zero", Stage::kElement,
     [](Plan& p) { return Change(p.element.rounding, OtherRounding::kAwayFromZero); }},
    {"round-down", "rounds every element toward minus infinity", Stage::kElement,
     [](Plan& p) { return Change(p.element.rounding, OtherRounding::kTowardNegative); }},
    {"sign-dropped", "drops the sign of every element", Stage::kElement,
     [](Plan& p) { return Change(p.element.negative, Negative::kAbs); }},
    {"sign-flipped", "flips the sign of every element", Stage::kElement,
     [](Plan& p) { return Change(p.element.negative, Negative::kFlipped); }},
    {"negative-to-zero", "writes 0 for every negative element", Stage::kElement,
     [](Plan& p) { return Change(p.element.negative, Negative::kToZero); }},
    {"saturated-sign-lost", "writes +6 for an element below -6", Stage::kElement,
     [](Plan& p) {
       return IsFp4(p) && !LeavesNoneAbove(p) && Change(p.element.saturation, Saturation::kLosesSign);
     }},
    {"saturation-missing", "wraps around beyond the largest code", Stage::kElement,
     [](Plan& p) {
       return IsFp4(p) && !LeavesNoneToWrap(p) && Change(p.element.saturation, Saturation::kWraps);
     }},
    {"overflow-to-zero", "writes 0 for an element beyond the largest", Stage::kElement,
     [](Plan& p) {
       return IsFp4(p) && !LeavesNoneAbove(p) && Change(p.element.saturation, Saturation::kToZero);
     }},
    {"negative-zero-dropped", "writes +0 for every code -0", Stage::kElement,
     [](Plan& p) {
       return !WritesNoNegativeZero(p) &&
              Change(p.element.zero, ZeroCode::kPositive);
     }},
    {"zeros-negative", "writes -0 for every code 0", Stage::kElement,
     [](Plan& p) { return Change(p.element.zero, ZeroCode::kNegative); }},
    {"input-negative-zero-dropped", "writes +0 for inputs that are -0", Stage::kElement,
     [](Plan& p) {
       // kTiesToZero has one code for both zeros.
       return !WritesNoNegativeZero(p) &&
              p.kernel.dialect.rounding != ElementRounding::kTiesToZero &&
              Change(p.kernel.dialect.keeps_negative_zero, false);
     }},
    {"input-negative-zero-kept", "keeps the sign of inputs that are -0", Stage::kElement,
     [](Plan& p) {
       return !WritesNoNegativeZero(p) &&
              Change(p.kernel.dialect.keeps_negative_zero, true);
     }},
    {"zero-under-zero-scale", "writes codes 0 under a scale of 0", Stage::kElement,
     [](Plan& p) {
       return HasE4m3Scale(p) && !Searches(p) && !HasNoZeroScale(p) && !ZeroScaleGivesZeros(p) &&
              Change(p.element.zero_under_zero_scale, true);
     }},
    {"random-bits-neighbours", "gives neighbouring elements each other's random bits",
     Stage::kElement,
     [](Plan& p) { return IsStochastic(p) && Change(p.element.random_index_xor, std::size_t{1}); }},
    {"random-bits-reversed", "takes the four fields of a random word in reverse order",
     Stage::kElement,
     [](Plan& p) { return IsStochastic(p) && Change(p.element.random_index_xor, std::size_t{3}); }},
    {"random-bytes-swapped", "swaps the two bytes of every random field", Stage::kElement,
     [](Plan& p) {
       return p.kernel.dialect.rounding == ElementRounding::kStochastic16 &&
              Change(p.element.random_bytes_swapped, true);
     }},

    {"random-bits-of-first-row", "gives every row the random bits of the first", Stage::kElement,
     [](Plan& p) { return IsStochastic(p) && Change(p.element.random_from, RandomFrom::kFirstRow); }},
    {"random-bits-counter", "takes the element's index for its random bits", Stage::kElement,
     [](Plan& p) { return IsStochastic(p) && Change(p.element.random_from, RandomFrom::kCounter); }},

    // ---- Output that was not computed, and swapped parts
    {"all-zeros", "writes zeros only", Stage::kNothing, [](Plan& p) {
       p.output.codes_filled = std::uint8_t{0};
       p.output.scales_filled = 0u;
       p.output.tensor_scale_filled = 0.0f;
       return true;
     }},
    {"all-ones", "writes bytes 0xFF only", Stage::kNothing, [](Plan& p) {
       p.output.codes_filled = std::uint8_t{0xFF};
       p.output.scales_filled = 0xFFFFFFFFu >> (32 - 8 * Named(ScaleTypeOf(p)).bytes);
       p.output.tensor_scale_filled = std::bit_cast<float>(0xFFFFFFFFu);
       return true;
     }},
    {"codes-zero", "writes 0 for all codes", Stage::kNothing,
     [](Plan& p) { return Change(p.output.codes_filled, std::uint8_t{0}); }},
    {"scales-zero", "writes 0 for all scales", Stage::kNothing,
     [](Plan& p) { return HasScales(p) && Change(p.output.scales_filled, 0u); }},
    {"scales-one", "writes the scale 1.0 everywhere", Stage::kNothing, [](Plan& p) {
       const std::uint32_t one = ScaleCodeOf(ScaleTypeOf(p), p.kernel.dialect.scale, 1.0f);
       return HasScales(p) && Change(p.output.scales_filled, one);
     }},
    {"tail-block-missing", "leaves a partial last block at 0", Stage::kNothing,
     [](Plan& p) { return HasScales(p) && Change(p.output.tail_block_zero, true); }},
    {"tail-rows-missing", "leaves the rows beyond the last whole 16 at 0", Stage::kNothing,
     [](Plan& p) { return Change(p.output.tail_rows_zero, true); }},
    {"part-unwritten", "leaves a part of the output unwritten", Stage::kNothing, nullptr,
     ValueKind::kUnwritten,
     [](Plan& p, const DeviationValue& v) {
       return Change(p.output.unwritten, UnwrittenPart{v.region, v.even_code, v.odd_code, v.scale});
     },
     {.region = {0, 0, 1, 16}, .even_code = std::uint8_t{0xD}, .odd_code = std::uint8_t{0xC}, .scale = 0xCDu}},
    {"parts-swapped", "writes two parts of the output in each other's place", Stage::kLayout, nullptr,
     ValueKind::kSwapped,
     [](Plan& p, const DeviationValue& v) {
       const auto height = static_cast<std::size_t>(std::max(1, p.kernel.dialect.block_rows));
       const SwappedParts first_two{{0, 0, height, ~std::size_t{0}}, height, 0};
       return Change(p.output.swapped, v.region.rows == 0 ? first_two : SwappedParts{v.region, v.other_row, v.other_col});
     }},
});
// clang-format on

}  // namespace

std::span<const Deviation> Deviations() { return kTable; }

const Deviation* FindDeviation(std::string_view name) {
  for (const Deviation& d : kTable) {
    if (d.name == name) return &d;
  }
  return nullptr;
}

}  // namespace fp4lab
