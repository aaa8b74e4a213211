#include "fp4lab/judge/attention/attention_scheme.h"

#include <algorithm>
#include <array>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"

namespace fp4lab {
namespace {

constexpr PRule kTwoLevelP{
    .element = FormatId::kE2M1, .group = 16, .top = 2688.0, .by_exact_scale = true};
constexpr PRule kRowP{
    .element = FormatId::kE2M1, .group = 16, .level = PLevel::kRow, .decoded_to_bf16 = true};
constexpr PRule kPlainP{.element = FormatId::kE2M1, .group = 16, .decoded_to_bf16 = true};

constexpr auto kAttentionSchemes = std::to_array<AttentionScheme>({
    {.name = "bf16",
     .what = "Q, K, V and P in BF16, under the maximum of any tiles of keys",
     .source = "Dao-AILab/flash-attention, flash_attn_func",
     .any_tile = true},
    {.name = "bf16.flashinfer",
     .what = "as bf16; the sum takes P",
     .source = "flashinfer-ai/flashinfer fb28d72 include/flashinfer/attention/prefill.cuh "
               "compute_sfm_v",
     .sums_rounded = true,
     .any_tile = true},
    {.name = "fp8",
     .what = "Q, K and V in E4M3 with a scale per head of K; P in E4M3, at most 256. The kernel's "
             "tile is 160, 224 or 160 keys at 64, 128 or 192 channels: state it",
     .source = "Dao-AILab/flash-attention 0251105 hopper: softmax.h (Max_offset 8), "
               "flash_fwd_kernel_sm90.h (descale), tile_size.h",
     .q = "fp8_e4m3",
     .k = "fp8_e4m3",
     .v = "fp8_e4m3",
     .q_scale_of_group = true,
     .p = {.element = FormatId::kE4M3, .top = 256.0},
     .last_first = true},
    {.name = "sageattention3",
     .what = "NVFP4 of Q minus the mean of 128 rows, K minus its mean, V along the keys; P in two "
             "levels, at most 2688",
     .source = "thu-ml/SageAttention d1a57a5 sageattention3_blackwell/sageattn3: api.py, "
               "blackwell/softmax_fused.h, mainloop_tma_ws.h",
     .q = "nvfp4.sageattention3",
     .k = "nvfp4.sageattention3",
     .v = "nvfp4.sageattention3",
     .v_along_keys = true,
     .q_mean_rows = 128,
     .k_mean = true,
     .correction_in_bf16 = true,
     .p = kTwoLevelP,
     .last_first = true},
    {.name = "flashinfer.sm120",
     .what = "SageAttention3's, the mean's part of the logits in FP32",
     .source = "flashinfer-ai/flashinfer 0.7.2 flashinfer/nvfp4_attention_sm120.py "
               "_preprocess_qkv; the kernel of SageAttention3",
     .q = "nvfp4.sageattention3",
     .k = "nvfp4.sageattention3",
     .v = "nvfp4.sageattention3",
     .v_along_keys = true,
     .q_mean_rows = 128,
     .k_mean = true,
     .p = kTwoLevelP,
     .last_first = true},
    {.name = "attn-qat",
     .what = "NVFP4 of Q, K minus its mean, and V, all along the channels, a tensor scale for 32 "
             "rows; P with a level a row of a tile of 32 keys",
     .source = "hao-ai-lab/FastVideo 2f3d407 fastvideo_kernel/triton_kernels/attn_qat_train.py, "
               "defaults",
     .q = "nvfp4.fastvideo",
     .k = "nvfp4.fastvideo",
     .v = "nvfp4.fastvideo",
     .scale_rows = 32,
     .k_mean = true,
     .k_mean_of_all = true,
     .decoded_to_bf16 = true,
     .p = kRowP,
     .tile = 32},
    {.name = "attn-qat.one-level",
     .what = "as attn-qat, P without a second level, K as it is",
     .source = "the same, smooth_k, two_level_quant_P and use_global_sf_P off",
     .q = "nvfp4.fastvideo",
     .k = "nvfp4.fastvideo",
     .v = "nvfp4.fastvideo",
     .scale_rows = 32,
     .decoded_to_bf16 = true,
     .p = kPlainP,
     .tile = 32},
    {.name = "nvfp4-kv",
     .what = "an NVFP4 cache: K and V along the channels, Q and P in BF16, the sum takes P. "
             "TensorRT-LLM's kernels multiply such a cache in FP8: not this scheme",
     .source =
         "flashinfer-ai/flashinfer fb28d72 include/flashinfer/attention/prefill.cuh "
         "load_fp4_k_frag_scaled, compute_sfm_v; plain K and V by Transformer Engine's formula",
     .k = "nvfp4.te",
     .v = "nvfp4.te",
     .sums_rounded = true,
     .any_tile = true},
    {.name = "mxfp4",
     .what = "MXFP4 of Q and K along the channels, of V and P along the keys",
     .source = "OCP MX 1.0, scales 2^(floor(log2 b) - 2)",
     .q = "mxfp4.floor",
     .k = "mxfp4.floor",
     .v = "mxfp4.floor",
     .v_along_keys = true,
     .p = {.element = FormatId::kE2M1, .group = 32, .scale = FormatId::kE8M0}},
});

}  // namespace

std::span<const AttentionScheme> AttentionSchemes() { return kAttentionSchemes; }

const AttentionScheme& RequireAttentionScheme(std::string_view name, std::string_view where) {
  const auto at = std::find_if(kAttentionSchemes.begin(), kAttentionSchemes.end(),
                               [&](const AttentionScheme& s) { return s.name == name; });
  if (at != kAttentionSchemes.end()) return *at;
  throw Error(where, "\"" + std::string(name) + "\" is not an order of attention; " +
                         DidYouMean(name, NamesOf(kAttentionSchemes)));
}

}  // namespace fp4lab
