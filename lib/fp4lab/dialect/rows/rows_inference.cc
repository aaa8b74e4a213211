// Inference and attention: FlashInfer after its fast-math switch, torchao's CuTeDSL kernels, MLX,
// ComfyUI, SageAttention3, FastVideo, AMD Quark's AMDFP4 and auto-round.
#include <array>

#include "fp4lab/dialect/rows/rows.h"

namespace fp4lab {
namespace {

// ---- FlashInfer

constexpr std::string_view kFlashInfer = "flashinfer-ai/flashinfer a0f61ad (2026-05-21) to 0.7.2";
constexpr std::string_view kConversion =
    "csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh cvt_warp_fp16_to_fp4, "
    "DISABLE_FP4_QUANT_FAST_MATH; S by make_nvfp4_global_scale";

constexpr Dialect FlashInferExact() {
  Dialect d{.name = "nvfp4.flashinfer.te-exact",
            .version = kFlashInfer,
            .source = kConversion,
            .note =
                "nvfp4.te but for S. For numbers that -use_fast_math, FlashInfer's default, "
                "does not flush."};
  d.tensor_scale = TensorScaleRule::kTimesReciprocal;
  d.block_scale = BlockScale::kFoldedOrZero;
  return d;
}

struct FourOverSixRow {
  std::string_view name;
  Adaptive adaptive;
  float scale_max;
  bool fp16, per_token;
};
constexpr std::array kFourOverSix = {
    FourOverSixRow{"nvfp4.flashinfer.4over6.mae.448", Adaptive::kMae, 448, false, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mae.256", Adaptive::kMae, 256, false, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mse.448", Adaptive::kMse, 448, false, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mse.256", Adaptive::kMse, 256, false, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mae.448.fast-error", Adaptive::kMae, 448, true, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mae.256.fast-error", Adaptive::kMae, 256, true, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mse.448.fast-error", Adaptive::kMse, 448, true, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mse.256.fast-error", Adaptive::kMse, 256, true, false},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mae.448.per-token", Adaptive::kMae, 448, false, true},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mae.256.per-token", Adaptive::kMae, 256, false, true},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mse.448.per-token", Adaptive::kMse, 448, false, true},
    FourOverSixRow{"nvfp4.flashinfer.4over6.mse.256.per-token", Adaptive::kMse, 256, false, true},
};

// A block of zeros has a scale and codes of 0, whatever the signs of its zeros. Per token: one amax
// per row, S as in Transformer Engine, and its errors; else the errors are those of value*s*D.
constexpr Dialect FourOverSix(const FourOverSixRow& row) {
  Dialect d = Renamed(
      At(FlashInferExact(), "flashinfer-ai/flashinfer d9b175a (2026-06-03) to 0.7.2"), row.name,
      row.per_token ? "csrc/nv_internal/tensorrt_llm/kernels/quantization.cuh, the kernel with one "
                      "scale per token; NVFP44Over6Config without fast math"
                    : "csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh "
                      "cvt_warp_fp16_to_fp4, NVFP44Over6Config without fast math",
      row.fp16        ? "Errors from FP16 products: err_use_fast_math."
      : row.per_token ? "A tie of the errors keeps the scale for 6."
                      : "Errors are summed in element order, as by threads of 16 elements. A tie "
                        "keeps the scale for 6.");
  d.scale_max = row.scale_max;
  d.block_scale = BlockScale::kDivideFirstOrZero;
  d.factor = Factor::kReciprocalZeroBlock;
  d.adaptive = row.adaptive;
  d.adaptive_fp16 = row.fp16;
  d.adaptive_decode = !row.fp16 && !row.per_token;
  if (row.per_token) {
    d.row_scaled = true;
    d.tensor_scale = TensorScaleRule::kEncodeScale;
  }
  return d;
}

constexpr Dialect FlashInferMx() {
  Dialect d = DialectUnder(BlockScale::kRceilApproximate, FormatId::kE2M1, 1, 32);
  d.name = "mxfp4.flashinfer";
  d.version = kFlashInfer;
  d.source =
      "csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh cvt_warp_fp16_to_fp4, UE8M0_SF";
  d.note =
      "A set of answers around mxfp4.rceil: rcp.approx.ftz.f32 of 6. Products below 2^-126 may be "
      "flushed, and under a byte of 0 elements are not scaled.";
  d.factor = Factor::kPowerOfTwoApproximate;
  return d;
}

// ---- torchao

constexpr Dialect TorchAoCuteDsl() {
  Dialect d{.name = "nvfp4.torchao.cutedsl",
            .version = "pytorch/ao 36027d8 (2026-08-21)",
            .source =
                "torchao/prototype/moe_training/nvfp4_training/_cutedsl_kernels_impl.py "
                "_quant16_from_amax",
            .note =
                "A set of answers: nvfp4.te with rcp.approx.f32, which keeps subnormals. The "
                "sign of a NaN element is that of its code there. The random words of its "
                "stochastic rounding are not modelled."};
  d.factor = Factor::kReciprocalSubnormalApproximate;
  d.nan = NanRule::kTensor;
  return d;
}

// ---- One level of scales: SageAttention3 and MLX

constexpr Dialect SageAttention3() {
  Dialect d{.name = "nvfp4.sageattention3",
            .version = "thu-ml/SageAttention d1a57a5 (2026-01-17)",
            .source =
                "sageattention3_blackwell/sageattn3/quantization/fp4_quantization_4d.cu "
                "scaled_fp4_quant_kernel",
            .note =
                "Q, K and V in FP16 or BF16; no tensor scale. The two levels of P are part of "
                "its softmax and not stated here."};
  d.tensor_scale = TensorScaleRule::kNone;
  d.block_scale = BlockScale::kNoTensorScale;
  d.factor = Factor::kEncodeOverScaleOpen;
  return d;
}

constexpr std::string_view kMlx = "ml-explore/mlx 0.31 to 0.32.4";
constexpr std::string_view kMlxRound = "ml-explore/mlx 0.31 to 0.32.1";
constexpr std::string_view kMlxCeil = "ml-explore/mlx 0.32.2 to 0.32.4";
constexpr std::string_view kMlxCpu = "mlx/ops.cpp fp_quantize, the path of the CPU";

constexpr Dialect Mlx() {
  return Renamed(
      At(SageAttention3(), kMlx), "nvfp4.mlx",
      "mlx/backend/metal/kernels/fp_quantized.h fp_quantize, without global_scale",
      "On a GPU, where Metal's division and maximum are stated as IEEE. mx.quantize on a "
      "CPU computes nvfp4.mlx.cpu.");
}

constexpr Dialect MlxCpu() {
  Dialect d = Renamed(
      Mlx(), "nvfp4.mlx.cpu", kMlxCpu,
      "FP32 input (BF16 is divided in BF16 there). Divides by s and takes the first nearest code: "
      "ties toward zero. Elements of 2^25 s and more, and all under a scale of 0, have code 0.");
  d.factor = Factor::kDivideByScale;
  d.rounding = ElementRounding::kClosestScaled;
  d.nan = NanRule::kBlock;
  d.nan_scale = 0x7E;
  return d;
}

constexpr Dialect MlxCpuMx(std::string_view name, FormatId element, BlockScale rule,
                           std::string_view version) {
  Dialect d = DialectUnder(rule, element, 1, 32);
  d = Renamed(At(d, version), name, kMlxCpu,
              "FP32 input. The byte of a scale below 2^-127 wraps. A block with NaN or Inf has "
              "byte 128 and "
              "is divided by 0.");
  d.factor = Factor::kDivideByWrapped;
  d.nan = NanRule::kBlock;
  if (element == FormatId::kE2M1) d.rounding = ElementRounding::kClosestScaled;
  if (element == FormatId::kE4M3) d.nan_code = 0x7E;
  return d;
}

// ---- ComfyUI

constexpr Dialect ComfyUi() {
  Dialect d{.name = "nvfp4.comfyui",
            .version = "Comfy-Org/comfy-kitchen 0.2.40",
            .source = "comfy_kitchen/backends/eager/quantization.py quantize_nvfp4",
            .note =
                "ComfyUI's files: codes high-first, scales in tiles of 128x4, D as a "
                "multiplier. Zero codes where s*D is 0. The scales of a tensor of zeros are NaN "
                "(0/0); the "
                "sign of a NaN scale and codes of NaN are not specified."};
  d.tensor_scale = TensorScaleRule::kMultiplier;
  d.block_scale = BlockScale::kDivideByTensorScale;
  d.factor = Factor::kDivideByProductOrZero;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect ComfyUiCentre() {
  Dialect d = Renamed(
      At(ComfyUi(), "Comfy-Org/ComfyUI 86d9f43"), "nvfp4.comfyui.stochastic-centre",
      "comfy/float.py stochastic_round_quantize_nvfp4_block with 1/2 for every random number",
      "FP32 input. The stochastic rounding itself adds (u - 1/2) * 1.25 * 2^(e - 2) and moves "
      "exact values; verify --stochastic judges it. [1.75, 1.7502) becomes 1, 7 and more becomes "
      "4, and so do "
      "elements under a scale of 0.");
  d.factor = Factor::kDivideByProduct;
  d.rounding = ElementRounding::kComfyCentre;
  d.nan_code = 0;
  return d;
}

// ---- FastVideo

constexpr Dialect FastVideo() {
  Dialect d{.name = "nvfp4.fastvideo",
            .version = "hao-ai-lab/FastVideo 2f3d407 (2026-08-21)",
            .source =
                "fastvideo-kernel/python/fastvideo_kernel/triton_kernels/nvfp4_utils.py "
                "_compute_quant_and_scale (Attn-QAT)",
            .note =
                "One S per tile of Q, K or V there, per tensor here. Zeros under a scale of 0 "
                "become NaN, code 7. Triton's float division (div.full.f32) is stated as IEEE "
                "division."};
  d.tensor_scale = TensorScaleRule::kOverFloored;
  d.block_scale = BlockScale::kDivideFirst;
  d.factor = Factor::kReciprocalPlain;
  return d;
}

// ---- AMD Quark's AMDFP4: E2M1 under UE5M3 scales

constexpr std::string_view kQuarkNote =
    "FP32 input. A NaN block has the scale byte 0xFC; the code of a NaN element is not specified.";

constexpr Dialect AmdFp4(std::string_view name, int group) {
  Dialect d{.name = name,
            .version = "amd-quark 0.13 (2026-09-23)",
            .source =
                "quark/torch/quantization/observer/observer.py PerBlockMXObserver.get_scale, "
                "e5m3; quark/torch/kernel/float8_e5m3/reference.py",
            .note = kQuarkNote};
  d.scale = FormatId::kUE5M3;
  d.block_cols = group;
  d.scale_max = MaxFinite(FormatId::kUE5M3);
  d.tensor_scale = TensorScaleRule::kNone;
  d.block_scale = BlockScale::kNoTensorScale;
  d.factor = Factor::kDivideByProductOrEpsilon;
  d.nan = NanRule::kBlock;
  d.nan_scale = 0xFC;
  d.never_negative_zero = true;
  return d;
}

constexpr Dialect AmdFp4Global(std::string_view name, int group) {
  Dialect d = Renamed(AmdFp4(name, group), name,
                      "quark/torch/quantization/config/template.py AmdFP4GlobalScaleScheme; "
                      "quark/torch/quantization/tensor_quantize.py SequentialQuantize",
                      kQuarkNote);
  d.tensor_scale = TensorScaleRule::kMultiplierOrEpsilon;
  d.block_scale = BlockScale::kEpsilonOverDecode;
  d.nan = NanRule::kTensor;
  return d;
}

// ---- auto-round

constexpr std::string_view kAutoRound = "intel/auto-round 0.16.1";

constexpr Dialect AutoRound() {
  Dialect d{
      .name = "nvfp4.auto-round",
      .version = kAutoRound,
      .source =
          "auto_round/data_type/nvfp.py ref_nvfp4_quant; "
          "auto_round/export/export_to_autoround/qlinear_fp.py pack",
      .note =
          "Without tuning (v = 0, max_scale = 1). The export rounds the decoded weight again, "
          "which drops the sign of zeros. The global scale is stored as a divisor."};
  d.tensor_scale = TensorScaleRule::kTimesReciprocalOrZero;
  d.block_scale = BlockScale::kTimesSixth;
  d.factor = Factor::kReciprocalGuarded;
  d.never_negative_zero = true;
  d.nan = NanRule::kTensor;
  d.nan_code = 0;
  return d;
}

constexpr Dialect AutoRoundMx(std::string_view name, FormatId element, BlockScale rule,
                              std::string_view function) {
  Dialect d = DialectUnder(rule, element, 1, 32);
  d = Renamed(
      At(d, kAutoRound), name, function,
      "Without tuning. A block of zeros has a scale all the same: 2^(1 - emax) for floor, 2 "
      "for rceil. The bytes of a block with NaN are not specified.");
  d.factor = Factor::kDivideByScale;
  d.rounding = ElementRounding::kHalfAddedEven;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kBlock;
  if (element == FormatId::kE2M1) d.nan_code = 0;
  return d;
}

}  // namespace

void AddInference(std::vector<Dialect>* rows) {
  rows->push_back(FlashInferExact());
  for (const FourOverSixRow& row : kFourOverSix) rows->push_back(FourOverSix(row));
  rows->push_back(FlashInferMx());
  rows->push_back(TorchAoCuteDsl());
  rows->push_back(SageAttention3());
  rows->push_back(Mlx());
  rows->push_back(MlxCpu());
  constexpr BlockScale kCeil = BlockScale::kCeilLog2Wrapped, kRound = BlockScale::kRoundLog2;
  rows->push_back(MlxCpuMx("mxfp4.mlx.cpu", FormatId::kE2M1, kCeil, kMlxCeil));
  rows->push_back(MlxCpuMx("mxfp8_e4m3.mlx.cpu", FormatId::kE4M3, kCeil, kMlxCeil));
  rows->push_back(MlxCpuMx("mxfp4.mlx.cpu.round", FormatId::kE2M1, kRound, kMlxRound));
  rows->push_back(MlxCpuMx("mxfp8_e4m3.mlx.cpu.round", FormatId::kE4M3, kRound, kMlxRound));
  rows->push_back(ComfyUi());
  rows->push_back(ComfyUiCentre());
  rows->push_back(FastVideo());
  rows->push_back(AmdFp4("amdfp4.quark", 16));
  rows->push_back(AmdFp4("amdfp4.quark.g32", 32));
  rows->push_back(AmdFp4Global("amdfp4.quark.global16", 16));
  rows->push_back(AmdFp4Global("amdfp4.quark.global32", 32));
  rows->push_back(AutoRound());
  rows->push_back(AutoRoundMx("mxfp4.auto-round", FormatId::kE2M1, BlockScale::kFloorLog2Clamped,
                              "auto_round/data_type/mxfp.py quant_mx"));
  rows->push_back(AutoRoundMx("mxfp4.auto-round.rceil", FormatId::kE2M1,
                              BlockScale::kCeilLog2Clamped,
                              "auto_round/data_type/mxfp.py quant_mx_rceil"));
  rows->push_back(AutoRoundMx("mxfp8_e4m3.auto-round", FormatId::kE4M3,
                              BlockScale::kFloorLog2Clamped,
                              "auto_round/data_type/mxfp.py quant_mx"));
}

}  // namespace fp4lab
