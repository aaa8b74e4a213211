// Transformer Engine: its kernels, their variants, and its references.
#include "fp4lab/dialect/rows/rows.h"

namespace fp4lab {
namespace {

constexpr std::string_view kReference = "pytorch/custom_recipes/reference_nvfp4.py";

constexpr Dialect kTe = {
    .name = "nvfp4.te",
    .version = kTransformerEngine,
    .source =
        "common/cast/nvfp4/core_nvfp4.cuh; quantize_transpose_nvfp4_tuned_1D.cuh, "
        "quantize_transpose_vector_blockwise_fp4.cu",
    .note =
        "The kernels. A block scale that underflows to 0 leaves the factor FLT_MAX, so nonzero "
        "elements store +-6 under a zero scale."};

constexpr Dialect Reference() {
  Dialect d = Renamed(kTe, "nvfp4.te.reference", kReference,
                      "-0 gives code 0; a NaN element makes all scales 0xFF and all codes 0.");
  d.tensor_scale = TensorScaleRule::kEncodeJax;
  d.block_scale = BlockScale::kFoldedOpen;
  d.factor = Factor::kReciprocalNan;
  d.keeps_negative_zero = false;
  d.nan = NanRule::kTensor;
  d.nan_scale = 0xFF;
  d.nan_code = 0;
  return d;
}

constexpr Dialect FusedHadamard() {
  Dialect d = Renamed(kTe, "nvfp4.te.rht-fused",
                      "common/hadamard_transform/row_cast_col_hadamard_transform_cast_fusion.cu",
                      "The cast alone: x is the transformed matrix already. amax = Inf leaves an "
                      "encode scale of 0: "
                      "all codes 7.");
  d.tensor_scale = TensorScaleRule::kEncodeFused;
  d.block_scale = BlockScale::kFoldedOpen;
  d.factor = Factor::kReciprocalNan;
  d.nan = NanRule::kBlock;
  return d;
}

constexpr Dialect HadamardColumns() {
  Dialect d = Renamed(FusedHadamard(), "nvfp4.te.rht-columns",
                      "common/hadamard_transform/hadamard_transform_cast_fusion.cu",
                      "The cast alone: x is the transformed matrix already. The kernel that "
                      "Transformer Engine's JAX modules call for columns under the transform.");
  d.tensor_scale = TensorScaleRule::kEncodeJax;  // amax = 0 has codes of zeros under either S
  return d;
}

constexpr Dialect FastMath() {
  Dialect d =
      Renamed(kTe, "nvfp4.te.fast-math",
              "common/cast/nvfp4/core_nvfp4.cuh "
              "compute_scaling_coefficient<bf16>; NVTE_USE_FAST_MATH=1 in the tuned 1D kernel",
              "For BF16 input. Only the codes differ from nvfp4.te.");
  d.factor = Factor::kBf16;
  d.keeps_negative_zero = false;
  return d;
}

constexpr Dialect UseFastMath() {
  Dialect d = Renamed(At(kTe, "nvcc -use_fast_math of CUDA 13.0"), "nvfp4.te.use-fast-math",
                      "div.approx.ftz and rcp.approx.ftz in the formulas of nvfp4.te",
                      "Transformer Engine is not built so; kernels that copy its formulas may be. "
                      "For products that are normal numbers: .ftz flushes the others.");
  d.tensor_scale = TensorScaleRule::kEncodeApproximate;
  d.factor = Factor::kReciprocalApproximate;
  return d;
}

constexpr Dialect Jax() {
  Dialect d = Renamed(kTe, "nvfp4.te.jax", "jax/quantize/quantizer.py",
                      "The pure JAX path. Its own stochastic rounding is not stated here.");
  d.tensor_scale = TensorScaleRule::kEncodeJax;
  d.block_scale = BlockScale::kDivideFirst;
  d.nan = NanRule::kTensor;
  return d;
}

constexpr Dialect CppTest2d() {
  Dialect d = Square(
      Renamed(kTe, "nvfp4.te.cpp-test-2d",
              "tests/cpp/operator/test_cast_nvfp4_transpose.cu, its reference for 16x16 blocks",
              "The formula of the test and of the documentation; the 2D kernel computes another "
              "one."));
  d.block_scale = BlockScale::kDivideFirst;
  d.factor = Factor::kEncodeOverScale;
  return d;
}

}  // namespace

void AddTransformerEngine(std::vector<Dialect>* rows) {
  rows->push_back(kTe);
  rows->push_back(
      Square(Renamed(kTe, "nvfp4.te.2d", "common/cast/nvfp4/quantize_transpose_nvfp4.cuh",
                     "16x16 blocks (weights): one scale for a tile and its transpose.")));
  Dialect row_scaled =
      Renamed(kTe, "nvfp4.te.row-scaled", "NVFP4BlockScaling(row_scaled_activation)",
              "One amax per row; the GEMM multiplies the output by it.");
  row_scaled.row_scaled = true;
  rows->push_back(row_scaled);

  const Dialect reference = Reference();
  rows->push_back(reference);
  rows->push_back(Square(Renamed(reference, "nvfp4.te.reference.2d", kReference, reference.note)));

  Dialect zero = Renamed(kTe, "nvfp4.te.cpp-test",
                         "tests/cpp/operator/test_cast_nvfp4_transpose.cu, its reference for 1x16",
                         "Equal to nvfp4.te in value: zero codes where the scale is 0.");
  zero.factor = Factor::kReciprocalOrZero;
  rows->push_back(zero);
  rows->push_back(CppTest2d());
  rows->push_back(FastMath());
  rows->push_back(UseFastMath());
  rows->push_back(FusedHadamard());
  rows->push_back(HadamardColumns());

  Dialect partial =
      Renamed(kTe, "nvfp4.te.partial", "common/recipe/nvfp4.cu",
              "Primary FP4 weights of a distributed optimizer, in 16x16 tiles. amax = "
              "Inf: scales of 0, 448 in the tile that holds it.");
  partial.tensor_scale = TensorScaleRule::kEncodePartial;
  rows->push_back(Square(partial));
  rows->push_back(Jax());

  Dialect random = Renamed(kTe, "nvfp4.te.stochastic",
                           "common/util/ptx.cuh; "
                           "cvt.rs.satfinite.e2m1x4.f32 of sm_100a, 103a, 107a",
                           "Gradients. 16 random bits per element.");
  random.rounding = ElementRounding::kStochastic16;
  rows->push_back(random);
  random = Renamed(random, "nvfp4.te.stochastic.software", "common/util/ptx.cuh",
                   "Where the instruction is missing: 8 random bits per element.");
  random.rounding = ElementRounding::kStochastic8;
  rows->push_back(random);
}

}  // namespace fp4lab
