// Transformer Engine's GEMM call.
#include "fp4lab/te/gemm.h"

#include <vector>

#include "buffers.h"
#include "fp4lab/base/matrix.h"
#include "handlers.h"
#include "operands.h"

namespace fp4lab::handlers {

// Transformer Engine's struct attribute "config".
struct GemmConfig {
  std::int64_t scaling_mode, collective_op, lhs_axis_boundary, rhs_axis_boundary;
  bool lhs_transposed, rhs_transposed, use_split_accumulator;
};

namespace {

struct GemmCall {
  Buffer lhs, lhs_scale, rhs, rhs_scale, bias, alpha, beta;
  Buffer out;  // the result
  GemmConfig config;
};

void CheckResult(const Buffer& out, std::size_t rows, std::size_t cols) {
  Demand(out.element_count() == rows * cols, "the result " + ShapeText(out) + " is not (" +
                                                 std::to_string(rows) + ", " +
                                                 std::to_string(cols) + ")");
}

GemmResult ResultOf(const Buffer& out, std::size_t rows, std::size_t cols) {
  CheckResult(out, rows, cols);
  GemmResult result{.rows = rows, .cols = cols};
  if (out.element_type() == ffi::DataType::F32) {
    result.fp32 = FloatsOf(out);
  } else {
    Demand(out.element_type() == ffi::DataType::BF16,
           "the result is bfloat16 or float32, not " + std::string(DtypeName(out.element_type())));
    result.bf16 = WordsOf(out);
  }
  return result;
}

GemmBias BiasOf(const Buffer& bias, std::size_t cols) {
  if (bias.element_count() == 0) return {};
  Demand(bias.element_count() == cols, "the bias " + ShapeText(bias) + " has no number a column");
  if (bias.element_type() == ffi::DataType::F32) return {.fp32 = FloatsOf(bias)};
  Demand(bias.element_type() == ffi::DataType::BF16, "the bias is bfloat16 or float32");
  return {.bf16 = WordsOf(bias)};
}

PackedFp4 Fp4Of(const Buffer& data, const Buffer& scale, std::int64_t axis, const char* name) {
  Demand(data.element_type() == ffi::DataType::F4E2M1FN &&
             scale.element_type() == ffi::DataType::F8E4M3FN,
         std::string(name) + " has float4_e2m1fn codes and float8_e4m3fn scales");
  const Folded shape = Fold(data, axis), of_scales = Fold(scale, axis);
  Demand(
      shape.cols % 16 == 0 && of_scales.rows >= shape.rows && of_scales.cols >= shape.cols / 16,
      std::string(name) + ": scales " + ShapeText(scale) + " do not fit codes " + ShapeText(data));
  return {.codes = BytesOf(data),
          .scales = BytesOf(scale),
          .scale_stride = of_scales.cols,
          .rows = shape.rows,
          .depth = shape.cols};
}

struct Operand {
  std::vector<float> memory;
  MatrixView<float> view;  // (rows, depth)
};
Operand OperandOf(const Buffer& data, std::int64_t axis, bool depth_first) {
  const Folded shape = Fold(data, axis);
  Operand operand{.memory = ValuesOf(data, 0, data.element_count()), .view = {}};
  const MatrixView<float> stored(operand.memory.data(), shape.rows, shape.cols);
  operand.view = depth_first ? stored.Transposed() : stored;
  return operand;
}

// The E8M0 scales of an operand, in tiles of 128x4.
const std::uint8_t* TilesOf(const Buffer& scale, MatrixView<const float> operand) {
  Demand(operand.cols % 32 == 0 &&
             scale.element_count() >= Mxfp8ScaleBytes(operand.rows, operand.cols),
         "MXFP8 scales " + ShapeText(scale) + " do not fit the operand");
  return BytesOf(scale);
}

void MultiplyNvfp4(const GemmCall& call) {
  const GemmConfig& config = call.config;
  Demand(!config.lhs_transposed && config.rhs_transposed,
         "NVFP4 operands have the reduction axis along their lines");
  const PackedFp4 a = Fp4Of(call.lhs, call.lhs_scale, config.lhs_axis_boundary, "lhs");
  const PackedFp4 b = Fp4Of(call.rhs, call.rhs_scale, config.rhs_axis_boundary, "rhs");
  Demand(a.depth == b.depth, "operands of different depth");
  PackedFp4Gemm(a, b, ScalarOf(call.alpha, "alpha"), BiasOf(call.bias, b.rows),
                ResultOf(call.out, a.rows, b.rows));
}

void MultiplyOther(const GemmCall& call, ScalingMode mode) {
  const GemmConfig& config = call.config;
  const Operand a = OperandOf(call.lhs, config.lhs_axis_boundary, config.lhs_transposed);
  const Operand b = OperandOf(call.rhs, config.rhs_axis_boundary, !config.rhs_transposed);
  Demand(a.view.cols == b.view.cols, "operands of different depth");
  float alpha = 1.0f;
  if (mode == ScalingMode::kDelayed || mode == ScalingMode::kCurrent) {
    alpha = ScalarOf(call.lhs_scale, "lhs_scale_inv") * ScalarOf(call.rhs_scale, "rhs_scale_inv");
  } else if (mode == ScalingMode::kMxfp8) {
    ScaleMxfp8(a.view, TilesOf(call.lhs_scale, a.view));
    ScaleMxfp8(b.view, TilesOf(call.rhs_scale, b.view));
  }
  CheckResult(call.out, a.view.rows, b.view.rows);
  MultiplyInto(a.view, b.view, mode == ScalingMode::kMxfp8 ? 32 : 0, alpha,
               BiasOf(call.bias, b.view.rows), call.out, 0);
}

void RunGemm(const GemmCall& call) {
  const auto mode = static_cast<ScalingMode>(call.config.scaling_mode);
  Demand(call.config.collective_op == 0,
         "collective GEMMs are not served: use one without overlap");
  Demand(ScalarOf(call.beta, "beta") == 0.0f, "beta other than 0 is not served");
  if (mode == ScalingMode::kNvfp4 || mode == ScalingMode::kNvfp4Square) {
    MultiplyNvfp4(call);
  } else {
    MultiplyOther(call, mode);
  }
  Count("te_gemm_v2_ffi scaling=" + std::string(NameOf(mode)) + " " + ShapeText(call.lhs) + " x " +
        ShapeText(call.rhs));
  if (!IsRecording()) return;
  Record({.op = "te_gemm_v2_ffi",
          .attributes = {{"scaling_mode", call.config.scaling_mode},
                         {"lhs_axis_boundary", call.config.lhs_axis_boundary},
                         {"rhs_axis_boundary", call.config.rhs_axis_boundary},
                         {"lhs_transposed", call.config.lhs_transposed},
                         {"rhs_transposed", call.config.rhs_transposed}},
          .buffers = {Copy("lhs", call.lhs), Copy("lhs_scale_inv", call.lhs_scale),
                      Copy("rhs", call.rhs), Copy("rhs_scale_inv", call.rhs_scale),
                      Copy("bias", call.bias), Copy("alpha", call.alpha), Copy("out", call.out)}});
}

ffi::Error GemmHandler(Buffer lhs, Buffer lhs_scale, Buffer rhs, Buffer rhs_scale, Buffer bias,
                       Buffer alpha, Buffer beta, Result out, Result /*workspace*/,
                       GemmConfig config) {
  return Guard("te_gemm_v2_ffi", [&] {
    RunGemm({.lhs = lhs,
             .lhs_scale = lhs_scale,
             .rhs = rhs,
             .rhs_scale = rhs_scale,
             .bias = bias,
             .alpha = alpha,
             .beta = beta,
             .out = *out,
             .config = config});
  });
}

}  // namespace
}  // namespace fp4lab::handlers

namespace ffi = ::xla::ffi;
using ffi::AnyBuffer;

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(fp4lab::handlers::GemmConfig,
                                      ffi::StructMember<std::int64_t>("scaling_mode"),
                                      ffi::StructMember<std::int64_t>("collective_op"),
                                      ffi::StructMember<std::int64_t>("lhs_axis_boundary"),
                                      ffi::StructMember<std::int64_t>("rhs_axis_boundary"),
                                      ffi::StructMember<bool>("lhs_transposed"),
                                      ffi::StructMember<bool>("rhs_transposed"),
                                      ffi::StructMember<bool>("use_split_accumulator"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeGemm, fp4lab::handlers::GemmHandler,
                              ffi::Ffi::Bind()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attr<fp4lab::handlers::GemmConfig>("config"));
