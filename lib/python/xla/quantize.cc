// Transformer Engine's quantize and amax calls, and the random Hadamard transform.
#include "fp4lab/block/quantize.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "buffers.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/te/quantize.h"
#include "fp4lab/transform/hadamard.h"
#include "handlers.h"
#include "operands.h"

namespace fp4lab::handlers {
namespace {

// The operands, results and attributes of te_dbias_quantize_ffi.
struct QuantizeCall {
  Buffer x, scale, amax, rng_state, transformed_amax, hadamard;
  Buffer rows, columns, row_scales, column_scales, new_amax, dbias;  // results
  ScalingMode mode;
  QuantizeLayout layout;
  bool is_dbias;
  std::int64_t axis;
  bool stochastic, use_rht;

  bool HasRows() const { return layout != QuantizeLayout::kColwise; }
  bool HasColumns() const { return layout != QuantizeLayout::kRowwise; }
};

// The signs of Transformer Engine's matrix diag(s) H / 4: bit i is set where s_i = -1.
std::uint32_t SignMaskOf(const Buffer& matrix) {
  Demand(matrix.element_type() == ffi::DataType::BF16 && matrix.element_count() == 256,
         "the Hadamard matrix is 16x16 bfloat16, not " + ShapeText(matrix));
  const std::uint16_t* const m = WordsOf(matrix);
  std::uint32_t mask = 0;
  for (std::uint32_t i = 0; i < 16; ++i) mask |= static_cast<std::uint32_t>(m[16 * i] >> 15) << i;
  for (std::uint32_t i = 0; i < 256; ++i) {
    const auto odd = static_cast<std::uint32_t>(std::popcount(i / 16 & i % 16)) & 1u;
    const std::uint32_t sign = odd ^ (mask >> (i / 16) & 1u);
    Demand(m[i] == (0x3E80u | sign << 15),
           "the Hadamard matrix is not diag(signs) H_16 / 4: only Transformer Engine's is served");
  }
  return mask;
}

std::uint64_t WordPair(const std::uint32_t* words) {
  return words[0] | std::uint64_t{words[1]} << 32;
}

// x as BF16 or binary32; other types are widened into `memory`.
TeMatrix MatrixOf(const Buffer& x, const Folded& shape, std::vector<float>* memory) {
  TeMatrix matrix{.rows = shape.rows, .cols = shape.cols};
  switch (x.element_type()) {
    case ffi::DataType::BF16:
      matrix.bf16 = WordsOf(x);
      return matrix;
    case ffi::DataType::F32:
      matrix.fp32 = FloatsOf(x);
      return matrix;
    case ffi::DataType::F16:
      memory->resize(shape.rows * shape.cols);
      for (std::size_t i = 0; i < memory->size(); ++i) {
        (*memory)[i] = Decode(FormatId::kFP16, WordsOf(x)[i]);
      }
      matrix.fp32 = memory->data();
      return matrix;
    default:
      throw CallError("x is bfloat16, float16 or float32, not " +
                      std::string(DtypeName(x.element_type())));
  }
}

std::vector<float> FloatsOfMatrix(const TeMatrix& x) {
  if (x.fp32 != nullptr) return {x.fp32, x.fp32 + x.rows * x.cols};
  std::vector<float> values(x.rows * x.cols);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>(std::uint32_t{x.bf16[i]} << 16);
  }
  return values;
}

// An output with its padded scales, whose padding becomes 0.
TeOutput OutputOf(const Buffer& codes, const Buffer& scales, std::int64_t axis, float amax,
                  std::size_t lines, std::size_t length) {
  const Folded shape = Fold(scales, axis);
  Demand(shape.rows >= lines && shape.cols >= length / 16 &&
             codes.element_count() == lines * length &&
             codes.element_type() == ffi::DataType::F4E2M1FN,
         "codes " + ShapeText(codes) + " and scales " + ShapeText(scales) + " do not fit x");
  std::memset(BytesOf(scales), 0, DataBytes(scales));
  return {
      .codes = BytesOf(codes), .scales = BytesOf(scales), .scale_stride = shape.cols, .amax = amax};
}

void QuantizeNvfp4(const QuantizeCall& call, const TeMatrix& x) {
  Demand(x.rows % 16 == 0 && x.cols % 16 == 0,
         "NVFP4 takes rows and columns in multiples of 16, not " + ShapeText(call.x));
  Demand(!call.is_dbias, "NVFP4 has no fused bias gradient");
  TeQuantization q{.square = call.mode == ScalingMode::kNvfp4Square,
                   .hadamard = call.use_rht,
                   .stochastic = call.stochastic};
  Demand(!q.square || !q.hadamard, "16x16 blocks take no Hadamard transform");
  if (call.stochastic) {
    Demand(
        call.rng_state.element_type() == ffi::DataType::U32 && call.rng_state.element_count() >= 4,
        "sr_rng_state has four uint32, not " + ShapeText(call.rng_state));
    const auto* const words = static_cast<const std::uint32_t*>(call.rng_state.untyped_data());
    q.seed = WordPair(words);
    q.offset = WordPair(words + 2);
  }
  if (q.hadamard) {
    Demand(x.bf16 != nullptr, "the Hadamard transform takes bfloat16");
    q.sign_mask = SignMaskOf(call.hadamard);
  }
  const float amax = ScalarOf(call.amax, "amax");
  const auto rank = static_cast<std::int64_t>(call.x.dimensions().size());
  const std::int64_t axis = call.axis < 0 ? call.axis + rank : call.axis;
  if (call.HasRows()) {
    q.rows = OutputOf(call.rows, call.row_scales, axis, amax, x.rows, x.cols);
  }
  if (call.HasColumns()) {
    q.columns = OutputOf(call.columns, call.column_scales, rank - axis,
                         q.hadamard ? ScalarOf(call.transformed_amax, "post_rht_amax") : amax,
                         x.cols, x.rows);
  }
  TeQuantize(x, q);
  *FloatsOf(call.new_amax) = amax;
}

// codes = FP8(fl(x * scale)), saturating; scale_inv = fl(1 / scale); the amax grows by that of x.
void QuantizeTensorFp8(const QuantizeCall& call, const TeMatrix& x) {
  std::vector<float> values = FloatsOfMatrix(x);
  float* const amax = FloatsOf(call.new_amax);
  *amax = std::max(ScalarOf(call.amax, "amax"),
                   TensorAmax(MatrixView<const float>(values.data(), x.rows, x.cols)));
  const float scale = ScalarOf(call.scale, "scale");
  for (float& v : values) v *= scale;
  const Buffer& first = call.HasRows() ? call.rows : call.columns;
  const FormatId format = Fp8Of(first);
  std::vector<std::uint8_t> codes(values.size());
  Encode(format, values, codes);
  if (call.HasRows()) std::memcpy(BytesOf(call.rows), codes.data(), codes.size());
  if (call.HasColumns()) {
    const std::vector<std::uint8_t> turned = TransposedBytes(codes, x.rows, x.cols);
    std::memcpy(BytesOf(call.columns), turned.data(), turned.size());
  }
  *FloatsOf(call.row_scales) = 1.0f / scale;
}

// One direction of MXFP8; columnwise codes keep the layout of x.
void QuantizeMxfp8Way(const TeMatrix& x, MatrixView<const float> values, bool columnwise,
                      const Buffer& codes, const Buffer& scales, std::int64_t axis) {
  const FormatId format = Fp8Of(codes);
  const Dialect& dialect =
      *FindDialect(format == FormatId::kE4M3 ? "mxfp8_e4m3.rceil" : "mxfp8_e5m2.rceil");
  const Quantized q = Quantize(columnwise ? values.Transposed() : values, {.dialect = dialect});
  const Folded shape = Fold(scales, axis);
  const std::size_t blocks = (columnwise ? x.rows : x.cols) / 32;
  const std::size_t lines = columnwise ? x.cols : x.rows;
  Demand(columnwise ? shape.rows >= blocks && shape.cols >= lines
                    : shape.rows >= lines && shape.cols >= blocks,
         "scales " + ShapeText(scales) + " do not fit x");
  std::uint8_t* const to = BytesOf(scales);
  std::memset(to, 0, DataBytes(scales));
  for (std::size_t r = 0; r < lines; ++r) {
    for (std::size_t b = 0; b < blocks; ++b) {
      to[columnwise ? b * shape.cols + r : r * shape.cols + b] = q.scales[r * blocks + b];
    }
  }
  if (columnwise) {
    const std::vector<std::uint8_t> turned = TransposedBytes(q.codes, x.cols, x.rows);
    std::memcpy(BytesOf(codes), turned.data(), turned.size());
  } else {
    std::memcpy(BytesOf(codes), q.codes.data(), q.codes.size());
  }
}

void QuantizeMxfp8(const QuantizeCall& call, const TeMatrix& x) {
  Demand(x.rows % 32 == 0 && x.cols % 32 == 0,
         "MXFP8 takes rows and columns in multiples of 32, not " + ShapeText(call.x));
  const std::vector<float> values = FloatsOfMatrix(x);
  const MatrixView<const float> view(values.data(), x.rows, x.cols);
  if (call.HasRows()) {
    QuantizeMxfp8Way(x, view, false, call.rows, call.row_scales, call.axis);
  }
  if (call.HasColumns()) {
    QuantizeMxfp8Way(x, view, true, call.columns, call.column_scales, call.axis);
  }
  *FloatsOf(call.new_amax) = ScalarOf(call.amax, "amax");
}

// The sum of the rows of x in ascending order, in binary32, rounded to the type of x.
void SumRows(const TeMatrix& x, const Buffer& dbias) {
  const std::vector<float> values = FloatsOfMatrix(x);
  std::vector<float> sum(x.cols, 0.0f);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) sum[c] += values[r * x.cols + c];
  }
  for (std::size_t c = 0; c < x.cols; ++c) {
    if (dbias.element_type() == ffi::DataType::F32) {
      FloatsOf(dbias)[c] = sum[c];
    } else {
      const bool bf16 = dbias.element_type() == ffi::DataType::BF16;
      WordsOf(dbias)[c] =
          static_cast<std::uint16_t>(Encode(bf16 ? FormatId::kBF16 : FormatId::kFP16, sum[c]));
    }
  }
}

void RunQuantize(const QuantizeCall& call) {
  std::vector<float> memory;
  const TeMatrix x = MatrixOf(call.x, Fold(call.x, call.axis), &memory);
  std::string key = "te_dbias_quantize_ffi scaling=" + std::string(NameOf(call.mode)) +
                    (call.HasRows() ? " rows" : "") + (call.HasColumns() ? " columns" : "") +
                    (call.use_rht ? " rht" : "") + (call.stochastic ? " sr" : "") + " (" +
                    std::to_string(x.rows) + ", " + std::to_string(x.cols) + ")";
  RecordedCall record{.op = "te_dbias_quantize_ffi",
                      .attributes = {{"scaling_mode", static_cast<std::int64_t>(call.mode)},
                                     {"q_layout", static_cast<std::int64_t>(call.layout)},
                                     {"flatten_axis", call.axis},
                                     {"stochastic_rounding", call.stochastic},
                                     {"use_rht", call.use_rht}},
                      .buffers = {}};
  if (IsRecording()) {  // amax may share its memory with a result
    record.buffers = {Copy("x", call.x), Copy("scale", call.scale), Copy("amax", call.amax),
                      Copy("sr_rng_state", call.rng_state),
                      Copy("post_rht_amax", call.transformed_amax)};
  }
  switch (call.mode) {
    case ScalingMode::kNvfp4:
    case ScalingMode::kNvfp4Square:
      QuantizeNvfp4(call, x);
      break;
    case ScalingMode::kDelayed:
    case ScalingMode::kCurrent:
      QuantizeTensorFp8(call, x);
      break;
    case ScalingMode::kMxfp8:
      QuantizeMxfp8(call, x);
      break;
    case ScalingMode::kNone:
      throw CallError("a quantize call without a scaling mode");
  }
  if (call.is_dbias) SumRows(x, call.dbias);
  if (IsRecording()) {
    if (call.HasRows()) {
      record.buffers.push_back(Copy("rowwise", call.rows));
      record.buffers.push_back(Copy("scale_inv", call.row_scales));
    }
    if (call.HasColumns()) {
      record.buffers.push_back(Copy("colwise", call.columns));
      record.buffers.push_back(Copy("colwise_scale_inv", call.column_scales));
    }
    Record(std::move(record));
  }
  Count(key);
}

ffi::Error QuantizeHandler(Buffer x, Buffer scale, Buffer amax, Buffer rng_state,
                           Buffer transformed_amax, Buffer hadamard, Result rows, Result columns,
                           Result row_scales, Result column_scales, Result new_amax, Result dbias,
                           Result /*workspace*/, std::int64_t mode, std::int64_t layout,
                           bool is_dbias, std::int64_t axis, bool stochastic, bool use_rht) {
  return Guard("te_dbias_quantize_ffi", [&] {
    RunQuantize({.x = x,
                 .scale = scale,
                 .amax = amax,
                 .rng_state = rng_state,
                 .transformed_amax = transformed_amax,
                 .hadamard = hadamard,
                 .rows = *rows,
                 .columns = *columns,
                 .row_scales = *row_scales,
                 .column_scales = *column_scales,
                 .new_amax = *new_amax,
                 .dbias = *dbias,
                 .mode = static_cast<ScalingMode>(mode),
                 .layout = static_cast<QuantizeLayout>(layout),
                 .is_dbias = is_dbias,
                 .axis = axis,
                 .stochastic = stochastic,
                 .use_rht = use_rht});
  });
}

ffi::Error RhtAmaxHandler(Buffer x, Result amax, Result transformed, std::int64_t sign_mask,
                          bool produce_regular_amax, std::int64_t axis) {
  return Guard("te_rht_amax_ffi", [&] {
    const Folded shape = Fold(x, axis);
    Demand(x.element_type() == ffi::DataType::BF16 && shape.rows % 16 == 0,
           "x is bfloat16 with rows in multiples of 16, not " +
               std::string(DtypeName(x.element_type())) + ShapeText(x));
    const TeMatrix matrix{.bf16 = WordsOf(x), .rows = shape.rows, .cols = shape.cols};
    *FloatsOf(*amax) = 0.0f;
    TeAmaxes(matrix, static_cast<std::uint32_t>(sign_mask),
             produce_regular_amax ? FloatsOf(*amax) : nullptr, FloatsOf(*transformed));
    Count("te_rht_amax_ffi (" + std::to_string(shape.rows) + ", " + std::to_string(shape.cols) +
          ")");
  });
}

ffi::Error RhtHandler(Buffer x, Result y, std::int64_t sign_mask) {
  return Guard("rht_ffi", [&] {
    const Folded shape = Fold(x, -1);
    Demand(x.element_type() == ffi::DataType::BF16 && shape.cols % 16 == 0,
           "x is bfloat16 with rows in multiples of 16 elements, not " +
               std::string(DtypeName(x.element_type())) + ShapeText(x));
    std::vector<float> values =
        FloatsOfMatrix({.bf16 = WordsOf(x), .rows = shape.rows, .cols = shape.cols});
    const MatrixView<float> view(values.data(), shape.rows, shape.cols);
    RandomHadamard(view, 16, static_cast<std::uint32_t>(sign_mask), view);
    for (std::size_t i = 0; i < values.size(); ++i) {  // BF16 numbers already
      WordsOf(*y)[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
    }
    Count("rht_ffi (" + std::to_string(shape.rows) + ", " + std::to_string(shape.cols) + ")");
  });
}

}  // namespace
}  // namespace fp4lab::handlers

namespace ffi = ::xla::ffi;
using ffi::AnyBuffer;

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeQuantize, fp4lab::handlers::QuantizeHandler,
                              ffi::Ffi::Bind()
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
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attr<std::int64_t>("scaling_mode")
                                  .Attr<std::int64_t>("q_layout")
                                  .Attr<bool>("is_dbias")
                                  .Attr<std::int64_t>("flatten_axis")
                                  .Attr<bool>("stochastic_rounding")
                                  .Attr<bool>("use_rht"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(Fp4labTeRhtAmax, fp4lab::handlers::RhtAmaxHandler,
                              ffi::Ffi::Bind()
                                  .Arg<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Ret<AnyBuffer>()
                                  .Attr<std::int64_t>("rht_matrix_random_sign_mask_t")
                                  .Attr<bool>("produce_regular_amax")
                                  .Attr<std::int64_t>("flatten_axis"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Fp4labRht, fp4lab::handlers::RhtHandler,
    ffi::Ffi::Bind().Arg<AnyBuffer>().Ret<AnyBuffer>().Attr<std::int64_t>("sign_mask"));
