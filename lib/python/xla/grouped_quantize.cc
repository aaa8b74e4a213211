// Transformer Engine's grouped quantize calls: each group of rows is a tensor of its own.
//
// Both calls lay out the groups one after the other. An empty group takes part in the order of the
// given scales, and has no place in the results: amaxes, inverse scales and block scales of the
// groups behind it move up (csrc/extensions/quantization.cpp, GroupedQuantizeFFI).
#include <cstring>
#include <vector>

#include "buffers.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/formats/encode.h"
#include "grouped.h"
#include "handlers.h"
#include "operands.h"

namespace fp4lab::handlers {

std::vector<std::size_t> GroupSizesOf(const Buffer& sizes) {
  Demand(sizes.element_type() == ffi::DataType::S32,
         "group sizes are int32, not " + std::string(DtypeName(sizes.element_type())));
  const auto* const from = static_cast<const std::int32_t*>(sizes.untyped_data());
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < sizes.element_count(); ++i) {
    Demand(from[i] >= 0, "group " + std::to_string(i) + " has " + std::to_string(from[i]) +
                             " rows: a size is 0 or more");
    out.push_back(static_cast<std::size_t>(from[i]));
  }
  return out;
}

namespace {

// The operands, results and attributes of te_grouped_quantize_ffi and te_grouped_quantize_v2_ffi.
struct GroupedQuantizeCall {
  std::string_view op;
  Buffer x, scale, group_sizes;
  Buffer rows, columns, row_scales, column_scales, new_amax;  // results
  ScalingMode mode;
  QuantizeLayout layout;
  std::int64_t axis;
  bool may_leave_rows;  // rows behind the last group are allowed

  bool HasRows() const { return layout != QuantizeLayout::kColwise; }
  bool HasColumns() const { return layout != QuantizeLayout::kRowwise; }
};

// The places at which the next group's results begin.
struct Places {
  std::size_t element = 0, group = 0, row_scale = 0, column_scale = 0;
};

// The rows of each group: for x (G, K, N) a group of one has K rows.
std::vector<std::size_t> RowsOfGroups(const GroupedQuantizeCall& call, const Folded& shape) {
  const auto dims = call.x.dimensions();
  const auto rank = static_cast<std::int64_t>(dims.size());
  const std::int64_t axis = call.axis < 0 ? call.axis + rank : call.axis;
  std::size_t rows_each = 1;
  for (std::int64_t i = 1; i < axis; ++i) {
    rows_each *= static_cast<std::size_t>(dims[static_cast<std::size_t>(i)]);
  }
  std::vector<std::size_t> rows = GroupSizesOf(call.group_sizes);
  for (std::size_t& r : rows) r *= rows_each;
  const std::size_t sum = SumOf(rows);
  Demand(call.may_leave_rows ? sum <= shape.rows : sum == shape.rows,
         "groups of " + std::to_string(sum) + " rows do not fit x " + ShapeText(call.x));
  return rows;
}

void Zero(const Buffer& buffer) { std::memset(BytesOf(buffer), 0, DataBytes(buffer)); }

void PutCodes(const Buffer& to, const Places& places, const std::vector<std::uint8_t>& codes) {
  Demand(places.element + codes.size() <= to.element_count(),
         "codes " + ShapeText(to) + " do not fit x");
  std::memcpy(BytesOf(to) + places.element, codes.data(), codes.size());
}

// FP8 of one group with one scale, as QuantizeTensorFp8; columnwise codes are the transposed.
void QuantizeGroupFp8(const GroupedQuantizeCall& call, MatrixView<float> x, float scale,
                      const Places& places) {
  Demand(places.group < call.new_amax.element_count() &&
             places.group < call.row_scales.element_count(),
         "amaxes or inverse scales have too few numbers");
  FloatsOf(call.new_amax)[places.group] = TensorAmax(x);
  std::vector<std::uint8_t> codes(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x.data[i] *= scale;
  Encode(Fp8Of(call.rows), {x.data, x.size()}, codes);
  if (call.HasRows()) PutCodes(call.rows, places, codes);
  if (call.HasColumns()) PutCodes(call.columns, places, TransposedBytes(codes, x.rows, x.cols));
  FloatsOf(call.row_scales)[places.group] = 1.0f / scale;
}

// One direction of one group in MXFP8, its block scales in tiles of 128x4; columnwise codes keep
// the layout of x. Returns the number of scale bytes.
std::size_t QuantizeGroupMxfp8(MatrixView<const float> x, bool columnwise, const Buffer& codes,
                               const Buffer& scales, const Places& places,
                               std::size_t first_scale) {
  const bool e4m3 = Fp8Of(codes) == FormatId::kE4M3;
  const Dialect& dialect = *FindDialect(e4m3 ? "mxfp8_e4m3.rceil" : "mxfp8_e5m2.rceil");
  const Quantized q = Quantize(columnwise ? x.Transposed() : x, {.dialect = dialect});
  PutCodes(codes, places, columnwise ? TransposedBytes(q.codes, x.cols, x.rows) : q.codes);
  const std::size_t blocks = q.cols / 32, bytes = Mxfp8ScaleBytes(q.rows, q.cols);
  Demand(first_scale + bytes <= scales.element_count(),
         "scales " + ShapeText(scales) + " do not fit the groups");
  std::uint8_t* const to = BytesOf(scales) + first_scale;
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t b = 0; b < blocks; ++b) {
      to[Offset128x4(r, b, blocks)] = q.scales[r * blocks + b];
    }
  }
  return bytes;
}

void QuantizeGroup(const GroupedQuantizeCall& call, MatrixView<float> x, float scale,
                   Places* places) {
  if (call.mode == ScalingMode::kMxfp8) {
    Demand(x.rows % 32 == 0 && x.cols % 32 == 0,
           "MXFP8 takes groups with rows and columns in multiples of 32, not (" +
               std::to_string(x.rows) + ", " + std::to_string(x.cols) + ")");
    if (call.HasRows()) {
      places->row_scale +=
          QuantizeGroupMxfp8(x, false, call.rows, call.row_scales, *places, places->row_scale);
    }
    if (call.HasColumns()) {
      places->column_scale += QuantizeGroupMxfp8(x, true, call.columns, call.column_scales, *places,
                                                 places->column_scale);
    }
  } else {
    QuantizeGroupFp8(call, x, scale, *places);
  }
  places->element += x.size();
  ++places->group;
}

void RecordGroupedQuantize(const GroupedQuantizeCall& call) {
  RecordedCall record{
      .op = std::string(call.op),
      .attributes = {{"scaling_mode", static_cast<std::int64_t>(call.mode)},
                     {"q_layout", static_cast<std::int64_t>(call.layout)},
                     {"flatten_axis", call.axis}},
      .buffers = {Copy("x", call.x), Copy("scale", call.scale),
                  Copy("group_sizes", call.group_sizes), Copy("amax", call.new_amax)}};
  if (call.HasRows()) record.buffers.push_back(Copy("rowwise", call.rows));
  if (call.HasRows() || call.mode != ScalingMode::kMxfp8) {
    record.buffers.push_back(Copy("scale_inv", call.row_scales));
  }
  if (call.HasColumns()) {
    record.buffers.push_back(Copy("colwise", call.columns));
    record.buffers.push_back(Copy("colwise_scale_inv", call.column_scales));
  }
  Record(std::move(record));
}

void RunGroupedQuantize(const GroupedQuantizeCall& call) {
  Demand(call.mode == ScalingMode::kMxfp8 || call.mode == ScalingMode::kDelayed ||
             call.mode == ScalingMode::kCurrent,
         "scaling mode " + std::string(NameOf(call.mode)) +
             " has no grouped quantization in Transformer Engine");
  const Folded shape = Fold(call.x, call.axis);
  const std::vector<std::size_t> rows = RowsOfGroups(call, shape);
  const bool tensor_scales = call.mode != ScalingMode::kMxfp8;
  Demand(!tensor_scales || (call.scale.element_type() == ffi::DataType::F32 &&
                            call.scale.element_count() == rows.size()),
         "there is one float32 scale per group, not " + ShapeText(call.scale));
  for (const Buffer& result :
       {call.rows, call.columns, call.row_scales, call.column_scales, call.new_amax}) {
    Zero(result);
  }
  std::size_t first = 0;
  Places places;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] == 0) continue;
    std::vector<float> values = ValuesOf(call.x, first, rows[i] * shape.cols);
    QuantizeGroup(call, {values.data(), rows[i], shape.cols},
                  tensor_scales ? FloatsOf(call.scale)[i] : 1.0f, &places);
    first += values.size();
  }
  if (IsRecording()) RecordGroupedQuantize(call);
  Count(std::string(call.op) + " scaling=" + std::string(NameOf(call.mode)) +
        (call.HasRows() ? " rows" : "") + (call.HasColumns() ? " columns" : "") +
        " groups=" + std::to_string(rows.size()) + " " + ShapeText(call.x));
}

ffi::Error GroupedQuantizeHandler(Buffer x, Buffer scale, Buffer group_sizes, Result rows,
                                  Result columns, Result row_scales, Result column_scales,
                                  Result new_amax, Result /*workspace*/, std::int64_t mode,
                                  std::int64_t layout, std::int64_t axis) {
  return Guard("te_grouped_quantize_ffi", [&] {
    RunGroupedQuantize({.op = "te_grouped_quantize_ffi",
                        .x = x,
                        .scale = scale,
                        .group_sizes = group_sizes,
                        .rows = *rows,
                        .columns = *columns,
                        .row_scales = *row_scales,
                        .column_scales = *column_scales,
                        .new_amax = *new_amax,
                        .mode = static_cast<ScalingMode>(mode),
                        .layout = static_cast<QuantizeLayout>(layout),
                        .axis = axis,
                        .may_leave_rows = false});
  });
}

ffi::Error GroupedQuantizeV2Handler(Buffer x, Buffer scale, Buffer group_sizes, Result rows,
                                    Result columns, Result row_scales, Result column_scales,
                                    Result new_amax, Result /*workspace*/, std::int64_t layout,
                                    std::int64_t axis) {
  return Guard("te_grouped_quantize_v2_ffi", [&] {
    RunGroupedQuantize({.op = "te_grouped_quantize_v2_ffi",
                        .x = x,
                        .scale = scale,
                        .group_sizes = group_sizes,
                        .rows = *rows,
                        .columns = *columns,
                        .row_scales = *row_scales,
                        .column_scales = *column_scales,
                        .new_amax = *new_amax,
                        .mode = ScalingMode::kMxfp8,
                        .layout = static_cast<QuantizeLayout>(layout),
                        .axis = axis,
                        .may_leave_rows = true});
  });
}

}  // namespace
}  // namespace fp4lab::handlers

namespace ffi = ::xla::ffi;
using ffi::AnyBuffer;

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeGroupedQuantize, fp4lab::handlers::GroupedQuantizeHandler,
                              ffi::Ffi::Bind()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attr<std::int64_t>("scaling_mode")
                                  .Attr<std::int64_t>("q_layout")
                                  .Attr<std::int64_t>("flatten_axis"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeGroupedQuantizeV2, fp4lab::handlers::GroupedQuantizeV2Handler,
                              ffi::Ffi::Bind()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Arg<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attr<std::int64_t>("q_layout")
                                  .Attr<std::int64_t>("flatten_axis"));
