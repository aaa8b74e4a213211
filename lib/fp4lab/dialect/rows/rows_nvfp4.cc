// NVFP4 outside of Transformer Engine.
#include "fp4lab/dialect/rows/rows.h"

namespace fp4lab {
namespace {

constexpr Dialect Cutlass() {
  Dialect d{.name = "nvfp4.cutlass",
            .version = "NVIDIA/cutlass 18abab5",
            .source = "tools/util/include/cutlass/util/reference/host/gett.hpp",
            .note =
                "The host reference: exact reciprocals. S is the caller's norm constant, taken "
                "as 2688/amax here."};
  d.block_scale = BlockScale::kFoldedOpen;
  d.factor = Factor::kEncodeTimesRcp;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect CutlassEpilogue() {
  Dialect d = Renamed(
      Cutlass(), "nvfp4.cutlass.epilogue",
      "include/cutlass/epilogue/fusion/"
      "sm100_visitor_store_tma_warpspecialized.hpp Sm100BlockScaleFactorRowStore",
      "A set of answers: the device takes rcp.approx.ftz.f32 of 6 and of the stored scale.");
  d.block_scale = BlockScale::kFoldedApproximate;
  d.factor = Factor::kEncodeTimesApproximate;
  return d;
}

constexpr Dialect FlashInfer() {
  Dialect d{.name = "nvfp4.flashinfer",
            .version = "flashinfer-ai/flashinfer 014327a",
            .source =
                "csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh "
                "cvt_warp_fp16_to_fp4; as in NVIDIA/TensorRT-LLM",
            .note =
                "A set of answers: rcp.approx.ftz.f32 is not specified bit for bit. S is the "
                "caller's global scale, taken as 2688/amax here."};
  d.tensor_scale = TensorScaleRule::kDivisor;
  d.block_scale = BlockScale::kApproximate;
  d.factor = Factor::kApproximate;
  return d;
}

constexpr Dialect FlashInferExact() {
  Dialect d = Renamed(FlashInfer(), "nvfp4.flashinfer.te-exact.014327a",
                      "csrc/nv_internal/tensorrt_llm/kernels/quantization_utils.cuh "
                      "cvt_warp_fp16_to_fp4, TE_EXACT_NVFP4",
                      "nvfp4.te without its clamps: under a zero scale the factor is Inf, so zeros "
                      "of such a block become NaN and store +6.");
  d.block_scale = BlockScale::kFoldedOpen;
  d.factor = Factor::kReciprocalInfinite;
  return d;
}

constexpr Dialect FlashInferReference() {
  Dialect d{.name = "nvfp4.flashinfer.reference",
            .version = "flashinfer-ai/flashinfer 014327a",
            .source = "tests/test_helpers/utils_fp4.py ref_fp4_quant (and vLLM's tests)",
            .note = "The tests' PyTorch reference: exact reciprocals, 0 for 1/0."};
  d.tensor_scale = TensorScaleRule::kDivisor;
  d.block_scale = BlockScale::kTimesSixth;
  d.factor = Factor::kReciprocalGuarded;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect TorchAoInference() {
  Dialect d{
      .name = "nvfp4.torchao.inference",
      .version = "pytorch/ao 5c0c814 (2026-03-13, in 0.17) to 36027d8 (2026-08-21)",
      .source =
          "torchao/prototype/mx_formats/nvfp4_tensor.py nvfp4_quantize with "
          "per_tensor_scale",
      .note = "Block scales below 2^-6 become 2^-6, so blocks of small elements become zeros."};
  d.tensor_scale = TensorScaleRule::kMultiplier;
  d.block_scale = BlockScale::kDivideByTensorScale;
  d.scale_encoding = ScaleEncoding::kClamp2m6;
  d.factor = Factor::kRcpTensorScaleOverScale;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect TorchAoTraining() {
  Dialect d{.name = "nvfp4.torchao.training.0.18",
            .version = "pytorch/ao c81eb79 (2026-05-26) to 0.18",
            .source =
                "torchao/prototype/moe_training/nvfp4_training/hadamard_utils.py _nvfp4_quantize "
                "(Triton)",
            .note =
                "The training kernels until they took the formulas of nvfp4.te: they divide first "
                "and keep scales at 2^-6 or more. Triton's float division (div.full.f32) is stated "
                "as IEEE division."};
  d.block_scale = BlockScale::kDivideFirst;
  d.scale_encoding = ScaleEncoding::kClamp2m6;
  return d;
}

void AddTorchAo(std::vector<Dialect>* rows) {
  rows->push_back(
      Renamed(At({}, "pytorch/ao 46e106b (2026-08-19) to 36027d8 (2026-08-21)"), "nvfp4.torchao",
              "torchao/prototype/moe_training/nvfp4_training/hadamard_utils.py _nvfp4_quantize, "
              "quantize_2d_triton.py; their reference, nvfp4_reference.py",
              "NVFP4 training: the formulas of nvfp4.te."));
  rows->push_back(TorchAoTraining());
  const Dialect inference = TorchAoInference();
  rows->push_back(inference);
  constexpr std::string_view kSingle =
      "torchao/prototype/mx_formats/nvfp4_tensor.py nvfp4_quantize without per_tensor_scale";
  // Without a tensor scale, fl(fl(1/D)/s) is fl(1/s).
  Dialect single =
      Renamed(At(inference, "pytorch/ao a302c10 (2026-04-02, in 0.18) to 36027d8 (2026-08-21)"),
              "nvfp4.torchao.single-level", kSingle, "No tensor scale: multiplies by fl(1/s).");
  single.tensor_scale = TensorScaleRule::kNone;
  single.block_scale = BlockScale::kNoTensorScale;
  single.nan = NanRule::kBlock;
  rows->push_back(single);
  Dialect divided =
      Renamed(At(single, "pytorch/ao 02a1bc4 (2025-09-27) to 0.17"),
              "nvfp4.torchao.single-level.0.17", kSingle, "No tensor scale: divides by s.");
  divided.factor = Factor::kDivideByScale;
  rows->push_back(divided);
  Dialect two_scales =
      Renamed(At(inference, "pytorch/ao 02a1bc4 (2025-09-27) to 0.16"),
              "nvfp4.torchao.inference.divide", inference.source, "The older form, which divides.");
  two_scales.factor = Factor::kDivideByProduct;
  rows->push_back(two_scales);
}

constexpr Dialect ModelOpt() {
  Dialect d{.name = "nvfp4.modelopt",
            .version = "NVIDIA/Model-Optimizer 0.45 to 0.47",
            .source =
                "modelopt/torch/quantization/qtensor/nvfp4_tensor.py "
                "get_weights_scaling_factor, _cast_per_block_scale_to_fp8",
            .note = "A tensor of zeros has 0/0 in every block scale: NaN."};
  d.tensor_scale = TensorScaleRule::kMultiplier;
  d.block_scale = BlockScale::kDivideByBoth;
  d.scale_encoding = ScaleEncoding::kOneClamp2m9;
  d.factor = Factor::kDivideByProduct;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  return d;
}

void AddModelOpt(std::vector<Dialect>* rows) {
  const Dialect dynamic = ModelOpt();
  rows->push_back(dynamic);
  Dialect fixed = Renamed(
      At(dynamic, "NVIDIA/Model-Optimizer 211c6b3 (2026-05-14) to 0.47"), "nvfp4.modelopt.static",
      "modelopt/torch/quantization/qtensor/nvfp4_tensor.py "
      "get_weights_scaling_factor_from_quantizer, _cast_per_block_scale_to_fp8",
      "Weights with calibrated block maxima (NVFP4StaticQuantizer), taken as the blocks' "
      "own here. Zeros beside small maxima, and a tensor of zeros, have the scale 448.");
  fixed.block_scale = BlockScale::kOverTensor;
  fixed.scale_encoding = ScaleEncoding::kClamp2m9;
  rows->push_back(fixed);
  Dialect open = Renamed(At(dynamic, "NVIDIA/Model-Optimizer 0.43 to 0.44"), "nvfp4.modelopt.0.44",
                         "modelopt/torch/quantization/qtensor/nvfp4_tensor.py "
                         "get_weights_scaling_factor",
                         "Scales are not clamped: they fall to 0, and torch before 2.13 casts what "
                         "is beyond 464 to NaN.");
  open.scale_encoding = ScaleEncoding::kOneOrNan;
  rows->push_back(open);
  Dialect saturated =
      Renamed(At(fixed, "NVIDIA/Model-Optimizer 0.44"), "nvfp4.modelopt.static.0.44",
              "modelopt/torch/quantization/qtensor/nvfp4_tensor.py "
              "get_weights_scaling_factor_from_quantizer",
              "Scales are clamped to 448 alone: they fall to 0.");
  saturated.scale_encoding = ScaleEncoding::kNearest;
  rows->push_back(saturated);
}

constexpr Dialect CompressedTensors() {
  Dialect d{.name = "nvfp4.compressed-tensors",
            .version = "vllm-project/compressed-tensors 0.15 to 0.20, but for 0d57c7f to 9db3359",
            .source =
                "quantization/utils/helpers.py generate_gparam (since 69e653c), "
                "calculate_qparams; quantization/lifecycle/forward_helpers.py; FP32 input",
            .note =
                "The global scale is stored as a divisor, 2688 times the rounded reciprocal of "
                "amax; 1 where that is Inf (a tensor of zeros, or below 2688/FLT_MAX) or NaN. Its "
                "cast of NaN to int8 is undefined there, code 0 here."};
  d.tensor_scale = TensorScaleRule::kDivisorOrOne;
  d.block_scale = BlockScale::kDivideFirst;
  d.scale_encoding = ScaleEncoding::kZeroToEpsilon;
  d.factor = Factor::kDivideByQuotient;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  d.nan_code = 0;
  return d;
}

void AddCompressedTensors(std::vector<Dialect>* rows) {
  const Dialect now = CompressedTensors();
  rows->push_back(now);
  Dialect narrow =
      Renamed(now, "nvfp4.compressed-tensors.bf16-input",
              "quantization/utils/helpers.py generate_gparam, calculate_qparams; BF16 input",
              "For BF16 weights: 1/amax, the global scale and b/6 are rounded to BF16. The "
              "elements are divided in FP32.");
  narrow.tensor_scale = TensorScaleRule::kDivisorBf16;
  narrow.block_scale = BlockScale::kDivideFirstBf16;
  rows->push_back(narrow);
  Dialect open =
      Renamed(At(now, "vllm-project/compressed-tensors up to 0.14"),
              "nvfp4.compressed-tensors.0.14", now.source,
              "A global scale of Inf or NaN is kept: a tensor of zeros has NaN in every scale.");
  open.tensor_scale = TensorScaleRule::kDivisor;
  rows->push_back(open);
  Dialect bf16 = Renamed(
      At(now, "vllm-project/compressed-tensors 0d57c7f (2026-07-23) to 0d1c655 (2026-08-06)"),
      "nvfp4.compressed-tensors.bf16", "quantization/utils/fp4_utils.py cast_to_fp4 (torch)",
      "The scaled element is rounded to BF16 before FP4. In no release.");
  bf16.rounding = ElementRounding::kBf16First;
  rows->push_back(bf16);
  Dialect triton =
      Renamed(At(bf16, "vllm-project/compressed-tensors 0d57c7f (2026-07-23) to 0.18"),
              "nvfp4.compressed-tensors.triton",
              "quantization/utils/fp4_utils.py _cast_to_fp4_kernel (Triton)",
              "As .bf16, but the sign of -0 is kept. Switched off by default since 7a9c6c8 "
              "(2026-08-05).");
  triton.keeps_negative_zero = true;
  rows->push_back(triton);
}

constexpr Dialect VllmEmulation() {
  Dialect d{.name = "nvfp4.vllm.emulation",
            .version = "vllm-project/vllm 055e47c",
            .source =
                "vllm/model_executor/layers/quantization/utils/nvfp4_emulation_utils.py "
                "_nvfp4_quant_dequant_kernel",
            .note =
                "Writes values, not codes. Triton's float division (div.full.f32) is stated as "
                "IEEE division."};
  d.tensor_scale = TensorScaleRule::kDivisor;
  d.block_scale = BlockScale::kTimesSixth;
  d.factor = Factor::kEncodeOverScaleOpen;
  return d;
}

constexpr Dialect VllmCpu() {
  Dialect d =
      Renamed(At(VllmEmulation(), "vllm-project/vllm 055e47c to 0.33"), "nvfp4.vllm.emulation.cpu",
              "vllm/model_executor/layers/quantization/utils/nvfp4_emulation_utils.py "
              "ref_nvfp4_quant, get_reciprocal",
              "Writes values, not codes: the path without a GPU. Under a zero scale the "
              "factor is 10^-8, so negative elements become -0.");
  d.factor = Factor::kReciprocalOfHuge;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect Quartet2() {
  Dialect d{.name = "nvfp4.quartet2",
            .version = "IST-DASLab/Quartet-II 1d0c0fb",
            .source = "src/models/quantization/quantizers/nvfp4_triton.py rtn_1x16s_fp4_kernel",
            .note =
                "An emulator: it writes values, not codes. Ties go away from zero. Triton's float "
                "division (div.full.f32) is stated as IEEE division."};
  d.tensor_scale = TensorScaleRule::kTwoDivisions;
  d.scale_max = 447.99f;
  d.block_scale = BlockScale::kDivideByTensorScale;
  d.scale_encoding = ScaleEncoding::kZeroToOne;
  d.factor = Factor::kDivideByProduct;
  d.rounding = ElementRounding::kTiesAway;
  return d;
}

constexpr Dialect Qwix() {
  Dialect d{.name = "nvfp4.qwix",
            .version = "google/qwix 83dec5f (2026-06-08) to aa623ac (2026-08-13), 0.1.8",
            .source = "qwix/_src/core/qarray.py, numerics.py",
            .note =
                "For FP32 input, by JAX on a CPU: XLA multiplies by fl(1/6) and fl(1/s) where the "
                "source divides. No tensor scale. A scale of less than 2^-63 becomes 1, one that "
                "underflows E4M3 stays 0. NaN elements have code 8."};
  d.tensor_scale = TensorScaleRule::kNone;
  d.block_scale = BlockScale::kTimesSixth;  // S is 1
  d.scale_encoding = ScaleEncoding::kOneWhereTiny;
  d.factor = Factor::kRcpTensorScaleOverScale;  // D is 1
  d.nan = NanRule::kBlock;
  d.nan_code = 8;
  return d;
}

constexpr Dialect Ggml() {
  Dialect d{
      .name = "nvfp4.ggml",
      .version = "ggml-org/llama.cpp 0096646",
      .source = "ggml/src/ggml-impl.h ggml_fp32_to_ue4m3; ggml-quants.c quantize_row_nvfp4_ref",
      .note = "No tensor scale in the quantizer; codes are stored in split halves (a layout)."};
  d.tensor_scale = TensorScaleRule::kNone;
  d.block_scale = BlockScale::kNoTensorScale;
  d.scale_encoding = ScaleEncoding::kHalfUpGgml;
  d.factor = Factor::kSearch;
  d.rounding = ElementRounding::kClosest;
  d.nan_code = 0;
  return d;
}

constexpr Dialect Universal() {
  Dialect d{.name = "nvfp4.universal",
            .version = "stillwater-sc/universal 1e868e4",
            .source = "include/sw/universal/number/nvblock/nvblock_impl.hpp",
            .note =
                "The tensor scale is the caller's, taken as amax/2688 here. A NaN element is "
                "stored as 0."};
  d.tensor_scale = TensorScaleRule::kMultiplier;
  d.block_scale = BlockScale::kOverDecode;
  d.scale_encoding = ScaleEncoding::kZeroToLeast;
  d.factor = Factor::kTwoSteps;
  d.nan_code = 0;
  return d;
}

}  // namespace

void AddOtherNvfp4(std::vector<Dialect>* rows) {
  rows->push_back(Cutlass());
  rows->push_back(CutlassEpilogue());
  rows->push_back(FlashInfer());
  rows->push_back(FlashInferExact());
  rows->push_back(FlashInferReference());
  AddTorchAo(rows);
  AddModelOpt(rows);
  AddCompressedTensors(rows);
  rows->push_back(VllmEmulation());
  rows->push_back(VllmCpu());
  rows->push_back(Quartet2());
  rows->push_back(Qwix());
  Dialect narrow = Renamed(Qwix(), "nvfp4.qwix.bf16-input", Qwix().source,
                           "For BF16 input: b/6 and the scaled element are rounded to BF16.");
  narrow.block_scale = BlockScale::kDivideFirstBf16;
  narrow.rounding = ElementRounding::kBf16First;
  rows->push_back(narrow);
  rows->push_back(Ggml());
  rows->push_back(Universal());
}

}  // namespace fp4lab
