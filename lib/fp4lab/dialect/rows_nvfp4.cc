// NVFP4 outside of Transformer Engine.
#include "fp4lab/dialect/rows.h"

namespace fp4lab {
namespace {

constexpr Dialect Cutlass() {
  Dialect d{.name = "nvfp4.cutlass",
            .source =
                "NVIDIA/cutlass 18abab5, tools/util/include/cutlass/util/reference/host/"
                "gett.hpp",
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
      "NVIDIA/cutlass 18abab5, include/cutlass/epilogue/fusion/"
      "sm100_visitor_store_tma_warpspecialized.hpp Sm100BlockScaleFactorRowStore",
      "A set of answers: the device takes rcp.approx.ftz.f32 of 6 and of the stored scale.");
  d.block_scale = BlockScale::kFoldedApproximate;
  d.factor = Factor::kEncodeTimesApproximate;
  return d;
}

constexpr Dialect FlashInfer() {
  Dialect d{.name = "nvfp4.flashinfer",
            .source =
                "flashinfer-ai/flashinfer 014327a, csrc/nv_internal/tensorrt_llm/kernels/"
                "quantization_utils.cuh cvt_warp_fp16_to_fp4; as in NVIDIA/TensorRT-LLM",
            .note =
                "A set of answers: rcp.approx.ftz.f32 is not specified bit for bit. S is the "
                "caller's global scale, taken as 2688/amax here."};
  d.level_two = LevelTwo::kDivisor;
  d.block_scale = BlockScale::kApproximate;
  d.factor = Factor::kApproximate;
  return d;
}

constexpr Dialect FlashInferExact() {
  Dialect d = Renamed(FlashInfer(), "nvfp4.flashinfer.te-exact",
                      "flashinfer-ai/flashinfer 014327a, csrc/nv_internal/tensorrt_llm/kernels/"
                      "quantization_utils.cuh cvt_warp_fp16_to_fp4, TE_EXACT_NVFP4",
                      "nvfp4.te without its clamps: under a zero scale the factor is Inf, so zeros "
                      "of such a block become NaN and store +6.");
  d.block_scale = BlockScale::kFoldedOpen;
  d.factor = Factor::kReciprocalInfinite;
  return d;
}

constexpr Dialect FlashInferReference() {
  Dialect d{.name = "nvfp4.flashinfer.reference",
            .source =
                "flashinfer-ai/flashinfer, tests/test_helpers/utils_fp4.py ref_fp4_quant "
                "(and vLLM's tests)",
            .note = "The tests' PyTorch reference: exact reciprocals, 0 for 1/0."};
  d.level_two = LevelTwo::kDivisor;
  d.block_scale = BlockScale::kTimesSixth;
  d.factor = Factor::kReciprocalGuarded;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect TorchAoInference() {
  Dialect d{.name = "nvfp4.torchao.inference",
            .source =
                "pytorch/ao, torchao/prototype/mx_formats/nvfp4_tensor.py nvfp4_quantize "
                "with per_tensor_scale (snapshot of August 2026)",
            .note = "Block scales below 2^-6 become 2^-6: small blocks are wiped out."};
  d.level_two = LevelTwo::kMultiplier;
  d.block_scale = BlockScale::kDivideByLevel;
  d.scale_encoding = ScaleEncoding::kClamp2m6;
  d.factor = Factor::kRcpLevelOverScale;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect ModelOpt() {
  Dialect d{.name = "nvfp4.modelopt",
            .source =
                "NVIDIA/Model-Optimizer 211c6b3, "
                "modelopt/torch/quantization/qtensor/nvfp4_tensor.py",
            .note = "A tensor of zeros has 0/0 in every block scale: NaN."};
  d.level_two = LevelTwo::kMultiplier;
  d.block_scale = BlockScale::kDivideByBoth;
  d.scale_encoding = ScaleEncoding::kClamp2m9;
  d.factor = Factor::kDivideByProduct;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect CompressedTensors() {
  Dialect d{.name = "nvfp4.compressed-tensors",
            .source =
                "vllm-project/compressed-tensors 04a58ff, quantization/utils/helpers.py "
                "calculate_qparams; 0d57c7f, lifecycle/forward.py, FP32 input",
            .note =
                "The global scale is stored as a divisor, 2688/amax. Until cast_to_fp4 went "
                "through BF16."};
  d.level_two = LevelTwo::kDivisor;
  d.block_scale = BlockScale::kDivideFirst;
  d.scale_encoding = ScaleEncoding::kZeroToEpsilon;
  d.factor = Factor::kDivideByQuotient;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect VllmEmulation() {
  Dialect d{.name = "nvfp4.vllm.emulation",
            .source =
                "vllm-project/vllm 055e47c, vllm/model_executor/layers/quantization/utils/"
                "nvfp4_emulation_utils.py _nvfp4_quant_dequant_kernel",
            .note =
                "Writes values, not codes. Triton's float division (div.full.f32) is stated as "
                "IEEE division."};
  d.level_two = LevelTwo::kDivisor;
  d.block_scale = BlockScale::kTimesSixth;
  d.factor = Factor::kEncodeOverScaleOpen;
  return d;
}

constexpr Dialect TorchAoTraining() {
  Dialect d{.name = "nvfp4.torchao.training",
            .source =
                "pytorch/ao 12eab7e, torchao/prototype/mx_formats/hadamard_utils.py "
                "_nvfp4_quantize (Triton)",
            .note =
                "Divides first, unlike torchao's reference, and keeps scales at 2^-6 or more. "
                "Triton's float division (div.full.f32) is stated as IEEE division."};
  d.block_scale = BlockScale::kDivideFirst;
  d.scale_encoding = ScaleEncoding::kClamp2m6;
  return d;
}

constexpr Dialect Quartet2() {
  Dialect d{.name = "nvfp4.quartet2",
            .source =
                "IST-DASLab/Quartet-II 1d0c0fb, "
                "src/models/quantization/quantizers/nvfp4_triton.py rtn_1x16s_fp4_kernel",
            .note =
                "An emulator: it writes values, not codes. Ties go away from zero. Triton's float "
                "division (div.full.f32) is stated as IEEE division."};
  d.level_two = LevelTwo::kTwoDivisions;
  d.scale_max = 447.99f;
  d.block_scale = BlockScale::kDivideByLevel;
  d.scale_encoding = ScaleEncoding::kZeroToOne;
  d.factor = Factor::kDivideByProduct;
  d.rounding = ElementRounding::kTiesUp;
  return d;
}

constexpr Dialect Qwix() {
  Dialect d{.name = "nvfp4.qwix",
            .source = "google/qwix 04d2536, qwix/_src/core/qarray.py, numerics.py",
            .note =
                "No level 2. That the scale b/6 is stored as E4M3 is the nvfp4 type of qwix's "
                "snapshot of August 2026; 04d2536 has the rest."};
  d.level_two = LevelTwo::kNone;
  d.block_scale = BlockScale::kNoLevel;
  d.scale_encoding = ScaleEncoding::kOneWhereZero;
  d.factor = Factor::kDivideByScale;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect Ggml() {
  Dialect d{.name = "nvfp4.ggml",
            .source =
                "ggml-org/llama.cpp 0096646, ggml/src/ggml-impl.h ggml_fp32_to_ue4m3; "
                "ggml-quants.c quantize_row_nvfp4_ref",
            .note = "No level 2 in the quantizer; codes are stored in split halves (a layout)."};
  d.level_two = LevelTwo::kNone;
  d.block_scale = BlockScale::kNoLevel;
  d.scale_encoding = ScaleEncoding::kHalfUpGgml;
  d.factor = Factor::kSearch;
  d.rounding = ElementRounding::kTiesToLower;
  d.nan_code = 0;
  return d;
}

constexpr Dialect Universal() {
  Dialect d{.name = "nvfp4.universal",
            .source =
                "stillwater-sc/universal 1e868e4, "
                "include/sw/universal/number/nvblock/nvblock_impl.hpp",
            .note =
                "The tensor scale is the caller's, taken as amax/2688 here. A NaN element is "
                "stored as 0."};
  d.level_two = LevelTwo::kMultiplier;
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
  rows->push_back(Renamed({}, "nvfp4.torchao",
                          "pytorch/ao, torchao/prototype/mx_formats, NVFP4 training (snapshot of "
                          "August 2026)",
                          "Its PyTorch reference: the formulas of nvfp4.te."));
  rows->push_back(TorchAoTraining());
  rows->push_back(TorchAoInference());
  Dialect single = Renamed(TorchAoInference(), "nvfp4.torchao.single-level",
                           "pytorch/ao 02a1bc4, torchao/prototype/mx_formats/nvfp4_tensor.py "
                           "nvfp4_quantize without per_tensor_scale",
                           "No level 2.");
  single.level_two = LevelTwo::kNone;
  single.block_scale = BlockScale::kNoLevel;
  single.factor = Factor::kDivideByScale;
  single.nan = NanRule::kBlock;
  rows->push_back(single);
  Dialect divided = Renamed(TorchAoInference(), "nvfp4.torchao.inference.divide",
                            "pytorch/ao 02a1bc4, torchao/prototype/mx_formats/nvfp4_tensor.py "
                            "nvfp4_quantize with per_tensor_scale",
                            "The older form, which divides.");
  divided.factor = Factor::kDivideByProduct;
  rows->push_back(divided);
  rows->push_back(ModelOpt());
  Dialect fixed = Renamed(ModelOpt(), "nvfp4.modelopt.static", ModelOpt().source,
                          "Weights with calibrated block maxima (NVFP4StaticQuantizer).");
  fixed.block_scale = BlockScale::kOverTensor;
  rows->push_back(fixed);
  rows->push_back(CompressedTensors());
  Dialect bf16 = Renamed(CompressedTensors(), "nvfp4.compressed-tensors.bf16",
                         "vllm-project/compressed-tensors 0d1c655, "
                         "quantization/utils/fp4_utils.py cast_to_fp4 (torch)",
                         "The scaled element is rounded to BF16 before FP4.");
  bf16.rounding = ElementRounding::kBf16First;
  rows->push_back(bf16);
  Dialect triton = Renamed(bf16, "nvfp4.compressed-tensors.triton",
                           "vllm-project/compressed-tensors 0d1c655, "
                           "quantization/utils/fp4_utils.py _cast_to_fp4_kernel (Triton)",
                           "As .bf16, but the sign of -0 is kept.");
  triton.keeps_negative_zero = true;
  rows->push_back(triton);
  rows->push_back(VllmEmulation());
  rows->push_back(Quartet2());
  rows->push_back(Qwix());
  rows->push_back(Ggml());
  rows->push_back(Universal());
}

}  // namespace fp4lab
