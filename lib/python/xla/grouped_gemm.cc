// Transformer Engine's grouped GEMM calls, and its copy of the group sizes.
//
// Forward and data gradient: the rows of lhs are in groups, rhs has a matrix per group, and so has
// the result's rows. Weight gradient: both operands are in groups along the reduction axis, and the
// result has a matrix per group. te_grouped_gemm_ffi walks through inverse scales as
// csrc/extensions/gemm.cpp does (GroupedGemmFFI): a product without elements takes none.
#include <algorithm>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "fp4lab/base/matrix.h"
#include "grouped.h"
#include "handlers.h"
#include "operands.h"

namespace fp4lab::handlers {

// Transformer Engine's attributes; has_bias and use_async_d2h_group_sizes of the first version
// alone.
struct GroupedGemmConfig {
  bool lhs_is_trans, rhs_is_trans;
  std::int64_t scaling_mode;
  bool has_bias, use_async_d2h_group_sizes;
  std::int64_t lhs_axis_boundary, rhs_axis_boundary;
  std::int64_t lhs_left_size, lhs_right_size, rhs_left_size, rhs_right_size;
};
struct GroupedGemmV2Config {
  bool lhs_is_trans, rhs_is_trans;
  std::int64_t scaling_mode;
  std::int64_t lhs_axis_boundary, rhs_axis_boundary;
  std::int64_t lhs_left_size, lhs_right_size, rhs_left_size, rhs_right_size;
};

namespace {

// The buffers of group sizes, of which one has numbers: the axis that is in groups. Those of the
// result repeat lhs_first.
struct GroupBuffers {
  Buffer lhs_first, lhs_last, rhs_first, rhs_last;
};

struct GroupedGemmCall {
  std::string_view op;
  Buffer lhs, lhs_scale, rhs, rhs_scale, bias;
  GroupBuffers groups;
  std::vector<float> alphas;  // of each group, or of all; empty: 1
  Buffer out;                 // the result
  GroupedGemmConfig config;
  bool may_leave_rows;  // rows or depth behind the last group are allowed
};

// The sizes that all products of a call share: lhs (m, k), rhs (n, k) as the GEMM sees them.
struct GroupedShape {
  std::size_t m = 0, n = 0, k = 0;
  bool deep = false;  // the groups cut the reduction axis
  std::vector<std::size_t> sizes;
};

GroupedShape ShapeOfGroups(const GroupedGemmCall& call) {
  const GroupedGemmConfig& c = call.config;
  const GroupBuffers& g = call.groups;
  const auto product_of = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  GroupedShape s;
  s.deep = g.rhs_first.element_count() + g.rhs_last.element_count() > 0;
  for (const Buffer* sizes : {&g.lhs_first, &g.lhs_last, &g.rhs_first, &g.rhs_last}) {
    if (s.sizes.empty()) s.sizes = GroupSizesOf(*sizes);
  }
  Demand(!s.sizes.empty(), "the rows of lhs, or the reduction axis, are to be in groups");
  Demand(s.deep || (!c.lhs_is_trans && g.lhs_last.element_count() == 0),
         "an lhs whose rows are in groups is not transposed");
  s.m = product_of(c.lhs_is_trans ? c.lhs_right_size : c.lhs_left_size);
  s.k = product_of(c.lhs_is_trans ? c.lhs_left_size : c.lhs_right_size);
  s.n = product_of(c.rhs_is_trans ? c.rhs_left_size : c.rhs_right_size);
  if (!s.deep && c.rhs_is_trans) s.n /= s.sizes.size();
  const std::size_t sum = SumOf(s.sizes), axis = s.deep ? s.k : s.m;
  Demand(call.may_leave_rows ? sum <= axis : sum == axis,
         "groups of " + std::to_string(sum) + " do not fit an axis of " + std::to_string(axis));
  Demand(call.lhs.element_count() == s.m * s.k, "lhs is not of the product's shape");
  const std::size_t groups = s.sizes.size();
  Demand(call.alphas.size() <= 1 || call.alphas.size() == groups, "alpha has one number per group");
  Demand(call.rhs.element_count() == s.n * s.k * (s.deep ? 1 : groups),
         "rhs is not of the product's shape");
  Demand(call.out.element_count() == s.m * s.n * (s.deep ? groups : 1),
         "the result is not of the product's shape");
  return s;
}

// A walk through the matrices of an operand, group after group.
class GroupOperand {
 public:
  GroupOperand(const Buffer& data, const Buffer& scale, ScalingMode mode, bool depth_first)
      : data_(data), scale_(scale), mode_(mode), depth_first_(depth_first) {}

  // The next (rows, depth) matrix, with the block scales of MXFP8.
  MatrixView<const float> Next(std::size_t rows, std::size_t depth) {
    memory_ = ValuesOf(data_, element_, rows * depth);
    element_ += memory_.size();
    const MatrixView<float> view = depth_first_
                                       ? MatrixView<float>(memory_.data(), depth, rows).Transposed()
                                       : MatrixView<float>(memory_.data(), rows, depth);
    if (mode_ != ScalingMode::kMxfp8) return view;
    const std::size_t bytes = Mxfp8ScaleBytes(rows, depth);
    Demand(depth % 32 == 0 && place_ + bytes <= scale_.element_count(),
           "MXFP8 scales " + ShapeText(scale_) + " do not fit the groups");
    ScaleMxfp8(view, BytesOf(scale_) + place_);
    place_ += bytes;
    return view;
  }
  // The next inverse scale of FP8 with one scale per tensor, else 1.
  float NextScale() {
    if (mode_ != ScalingMode::kDelayed && mode_ != ScalingMode::kCurrent) return 1.0f;
    Demand(scale_.element_type() == ffi::DataType::F32 && place_ < scale_.element_count(),
           "inverse scales are one float32 per group, not " + ShapeText(scale_));
    return FloatsOf(scale_)[place_++];
  }

 private:
  const Buffer& data_;
  const Buffer& scale_;
  ScalingMode mode_;
  bool depth_first_;
  std::size_t element_ = 0, place_ = 0;
  std::vector<float> memory_;
};

void MultiplyGroups(const GroupedGemmCall& call, const GroupedShape& s) {
  const auto mode = static_cast<ScalingMode>(call.config.scaling_mode);
  GroupOperand lhs(call.lhs, call.lhs_scale, mode, call.config.lhs_is_trans);
  GroupOperand rhs(call.rhs, call.rhs_scale, mode, !call.config.rhs_is_trans);
  std::vector<float> bias;
  if (call.config.has_bias) bias = ValuesOf(call.bias, 0, s.sizes.size() * s.n);
  std::size_t first = 0;
  for (std::size_t i = 0; i < s.sizes.size(); ++i) {
    const std::size_t m = s.deep ? s.m : s.sizes[i], k = s.deep ? s.sizes[i] : s.k;
    const MatrixView<const float> a = lhs.Next(m, k), b = rhs.Next(s.n, k);
    if (m * k > 0 && s.n > 0) {  // else the result is 0, without a bias
      float alpha = lhs.NextScale() * rhs.NextScale();
      if (!call.alphas.empty()) alpha *= call.alphas[call.alphas.size() == 1 ? 0 : i];
      MultiplyInto(a, b, mode == ScalingMode::kMxfp8 ? 32 : 0, alpha,
                   {.fp32 = bias.empty() ? nullptr : bias.data() + i * s.n}, call.out, first);
    }
    first += m * s.n;
  }
}

void RunGroupedGemm(const GroupedGemmCall& call) {
  const auto mode = static_cast<ScalingMode>(call.config.scaling_mode);
  Demand(mode != ScalingMode::kNvfp4 && mode != ScalingMode::kNvfp4Square,
         "NVFP4 has no grouped GEMM in Transformer Engine's JAX package");
  const GroupedShape shape = ShapeOfGroups(call);
  std::memset(BytesOf(call.out), 0, DataBytes(call.out));
  MultiplyGroups(call, shape);
  Count(std::string(call.op) + " scaling=" + std::string(NameOf(mode)) +
        " groups=" + std::to_string(shape.sizes.size()) + (shape.deep ? " along the depth " : " ") +
        ShapeText(call.lhs) + " x " + ShapeText(call.rhs));
  if (!IsRecording()) return;
  Record({.op = std::string(call.op),
          .attributes = {{"scaling_mode", call.config.scaling_mode},
                         {"lhs_is_trans", call.config.lhs_is_trans},
                         {"rhs_is_trans", call.config.rhs_is_trans},
                         {"lhs_left_size", call.config.lhs_left_size},
                         {"lhs_right_size", call.config.lhs_right_size},
                         {"rhs_left_size", call.config.rhs_left_size},
                         {"rhs_right_size", call.config.rhs_right_size}},
          .buffers = {Copy("lhs", call.lhs), Copy("lhs_scale_inv", call.lhs_scale),
                      Copy("rhs", call.rhs), Copy("rhs_scale_inv", call.rhs_scale),
                      Copy("bias", call.bias), Copy("lhs_first_dims", call.groups.lhs_first),
                      Copy("lhs_last_dims", call.groups.lhs_last),
                      Copy("rhs_first_dims", call.groups.rhs_first),
                      Copy("rhs_last_dims", call.groups.rhs_last), Copy("out", call.out)}});
}

ffi::Error GroupedGemmHandler(Buffer lhs, Buffer lhs_scale, Buffer rhs, Buffer rhs_scale,
                              Buffer bias, Buffer lhs_first, Buffer lhs_last, Buffer rhs_first,
                              Buffer rhs_last, Buffer /*out_first*/, Buffer /*out_last*/,
                              Buffer /*group_offset*/, Result out, Result /*workspace*/,
                              GroupedGemmConfig config) {
  return Guard("te_grouped_gemm_ffi", [&] {
    RunGroupedGemm({.op = "te_grouped_gemm_ffi",
                    .lhs = lhs,
                    .lhs_scale = lhs_scale,
                    .rhs = rhs,
                    .rhs_scale = rhs_scale,
                    .bias = bias,
                    .groups = {lhs_first, lhs_last, rhs_first, rhs_last},
                    .alphas = {},
                    .out = *out,
                    .config = config,
                    .may_leave_rows = false});
  });
}

// The alphas of the groups; betas must be 0.
std::vector<float> AlphasOf(const Buffer& alpha, const Buffer& beta) {
  const std::vector<float> betas = ValuesOf(beta, 0, beta.element_count());
  Demand(std::all_of(betas.begin(), betas.end(), [](float b) { return b == 0.0f; }),
         "beta other than 0 is not served");
  return ValuesOf(alpha, 0, alpha.element_count());
}

ffi::Error GroupedGemmV2Handler(Buffer lhs, Buffer lhs_scale, Buffer rhs, Buffer rhs_scale,
                                Buffer bias, Buffer lhs_first, Buffer lhs_last, Buffer rhs_first,
                                Buffer rhs_last, Buffer /*out_first*/, Buffer /*out_last*/,
                                Buffer alpha, Buffer beta, Result out, Result /*workspace*/,
                                Result /*setup*/, Result /*sizes*/, GroupedGemmV2Config c) {
  return Guard("te_grouped_gemm_v2_ffi", [&] {
    RunGroupedGemm({.op = "te_grouped_gemm_v2_ffi",
                    .lhs = lhs,
                    .lhs_scale = lhs_scale,
                    .rhs = rhs,
                    .rhs_scale = rhs_scale,
                    .bias = bias,
                    .groups = {lhs_first, lhs_last, rhs_first, rhs_last},
                    .alphas = AlphasOf(alpha, beta),
                    .out = *out,
                    .config = {.lhs_is_trans = c.lhs_is_trans,
                               .rhs_is_trans = c.rhs_is_trans,
                               .scaling_mode = c.scaling_mode,
                               .has_bias = false,
                               .use_async_d2h_group_sizes = false,
                               .lhs_axis_boundary = c.lhs_axis_boundary,
                               .rhs_axis_boundary = c.rhs_axis_boundary,
                               .lhs_left_size = c.lhs_left_size,
                               .lhs_right_size = c.lhs_right_size,
                               .rhs_left_size = c.rhs_left_size,
                               .rhs_right_size = c.rhs_right_size},
                    .may_leave_rows = true});
  });
}

// The sizes are in the host's memory already: the handlers of products read them there.
ffi::Error GroupSizesHandler(Buffer sizes, Result out, std::int64_t /*num_gemms*/) {
  return Guard("te_grouped_gemm_d2h_group_sizes_ffi", [&] {
    Demand(sizes.element_count() == out->element_count(), "the result has the shape of the sizes");
    if (BytesOf(*out) != BytesOf(sizes)) {
      std::memcpy(BytesOf(*out), BytesOf(sizes), DataBytes(sizes));
    }
  });
}

}  // namespace
}  // namespace fp4lab::handlers

namespace ffi = ::xla::ffi;
using ffi::AnyBuffer;

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(fp4lab::handlers::GroupedGemmConfig,
                                      ffi::StructMember<bool>("lhs_is_trans"),
                                      ffi::StructMember<bool>("rhs_is_trans"),
                                      ffi::StructMember<std::int64_t>("scaling_mode"),
                                      ffi::StructMember<bool>("has_bias"),
                                      ffi::StructMember<bool>("use_async_d2h_group_sizes"),
                                      ffi::StructMember<std::int64_t>("lhs_axis_boundary"),
                                      ffi::StructMember<std::int64_t>("rhs_axis_boundary"),
                                      ffi::StructMember<std::int64_t>("lhs_left_size"),
                                      ffi::StructMember<std::int64_t>("lhs_right_size"),
                                      ffi::StructMember<std::int64_t>("rhs_left_size"),
                                      ffi::StructMember<std::int64_t>("rhs_right_size"));
XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(fp4lab::handlers::GroupedGemmV2Config,
                                      ffi::StructMember<bool>("lhs_is_trans"),
                                      ffi::StructMember<bool>("rhs_is_trans"),
                                      ffi::StructMember<std::int64_t>("scaling_mode"),
                                      ffi::StructMember<std::int64_t>("lhs_axis_boundary"),
                                      ffi::StructMember<std::int64_t>("rhs_axis_boundary"),
                                      ffi::StructMember<std::int64_t>("lhs_left_size"),
                                      ffi::StructMember<std::int64_t>("lhs_right_size"),
                                      ffi::StructMember<std::int64_t>("rhs_left_size"),
                                      ffi::StructMember<std::int64_t>("rhs_right_size"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeGroupedGemm, fp4lab::handlers::GroupedGemmHandler,
                              ffi::Ffi::Bind()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attrs<fp4lab::handlers::GroupedGemmConfig>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeGroupedGemmV2, fp4lab::handlers::GroupedGemmV2Handler,
                              ffi::Ffi::Bind()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attrs<fp4lab::handlers::GroupedGemmV2Config>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Fp4labTeGroupSizes, fp4lab::handlers::GroupSizesHandler,
    ffi::Ffi::Bind().Arg<AnyBuffer>().Ret<AnyBuffer>().Attr<std::int64_t>("num_gemms"));
