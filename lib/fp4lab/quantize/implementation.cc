#include "fp4lab/quantize/implementation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/kernels/fp4_kernels.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/staged.h"
#include "fp4lab/block/tuned.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/kernels/outputs.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {
namespace {

using Row = Implementation<QuantizeRequest>;

bool IsCodes(const QuantizeOutputs& out) { return out.codes != nullptr; }
bool IsIntegers(const QuantizeOutputs& out) { return out.integers.data != nullptr; }

bool HasUnitStrideAlongRows(const MatrixView<std::uint8_t>& m) {
  return m.col_stride == 1 || m.cols <= 1;
}

// Copies `from`, row-major, to a view with any strides.
void CopyTo(const Matrix<float>& from, MatrixView<float> to) {
  ParallelFor(from.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < from.cols; ++c) to(r, c) = from(r, c);
  });
}

// The codes of x, one a byte, in the order of the request.
void PutCodes(const QuantizeRequest& request, const std::vector<std::uint8_t>& plain) {
  const QuantizeOutputs& out = request.out;
  const std::vector<std::uint8_t> packed =
      PackCodes(plain, request.x.rows, request.x.cols, out.order, out.split);
  std::copy(packed.begin(), packed.end(), out.codes);
}

// A quantization with memory for all parts but the codes' bytes.
Quantized ShapeOf(const QuantizeRequest& request) {
  Quantized q{.rows = request.x.rows, .cols = request.x.cols, .amax = request.options.amax};
  ShapeQuantized(request.dialect, BlockGrid(request.dialect, q.rows, q.cols), &q);
  return q;
}

// ---------------------------------------------------------------------------------------- tuned

std::string_view WhyNotTunedOutputs(const QuantizeRequest& request) {
  const QuantizeOutputs& out = request.out;
  const bool integers = IsIntegers(out);
  const int kinds = static_cast<int>(IsCodes(out)) + static_cast<int>(out.values.data != nullptr) +
                    static_cast<int>(integers) + static_cast<int>(out.decoded.data != nullptr);
  if (kinds != 1) return "one output for each call";
  if (!IsCodes(out) && out.scale_bytes != nullptr) return "scale bytes stand beside codes";
  if (!integers && out.scales.data != nullptr) return "binary32 scales stand beside integers";
  if (integers && !HasUnitStrideAlongRows(out.integers) && out.integers.row_stride != 1) {
    return "integers with unit stride along rows or down columns";
  }
  if (IsCodes(out) && out.order != TunedOrder(request.dialect) && out.order != CodeOrder::kBytes) {
    return "codes in another order";
  }
  const bool staged = request.stage.fill != nullptr;
  return staged && out.decoded.data != nullptr ? "decoded numbers of staged elements"
                                               : std::string_view();
}

std::string_view WhyNotTunedRow(const QuantizeRequest& request) {
  if (const auto why = WhyNotTuned(request.dialect); !why.empty()) return why;
  const auto& source = request.options.source;
  if (IsStochastic(request.dialect) && !(source && source->generator == RandomGenerator::kPhilox)) {
    return "random bits that are given, or of a generator other than Philox";
  }
  const std::vector<float>& amax = request.options.amax;
  if (!amax.empty() && amax[0] < 0.0f) return "a negative amax";
  return WhyNotTunedOutputs(request);
}

QuantizeOptions TunedCall(const QuantizeRequest& request) {
  QuantizeOptions options{.dialect = request.dialect};
  if (!request.options.amax.empty()) options.amax = request.options.amax[0];
  if (IsStochastic(request.dialect)) options.random = request.options.source->stream;
  return options;
}

// out[r * cols + c] = the code of element (r, c), from two codes a byte.
void UnpackNibbles(const std::vector<std::uint8_t>& packed, std::size_t rows, std::size_t cols,
                   std::uint8_t* out) {
  const std::size_t row_bytes = (cols + 1) / 2;
  ParallelFor(rows, [&](std::size_t r) {
    const std::uint8_t* const from = packed.data() + r * row_bytes;
    std::uint8_t* const to = out + r * cols;
    for (std::size_t i = 0; i < cols / 2; ++i) {
      to[2 * i] = static_cast<std::uint8_t>(from[i] & 0xF);
      to[2 * i + 1] = static_cast<std::uint8_t>(from[i] >> 4);
    }
    if (cols % 2 != 0) to[cols - 1] = from[cols / 2];
  });
}

void MakeTunedCodes(const QuantizeRequest& request, const QuantizeOptions& options) {
  const MatrixView<const float>& x = request.x;
  const QuantizeOutputs& out = request.out;
  std::vector<std::uint8_t> scales;  // written in any case
  if (out.scale_bytes == nullptr && request.dialect.block_rows != 0) {
    const BlockGrid grid(request.dialect, x.rows, x.cols);
    scales.resize(grid.rows * grid.cols);
  }
  std::uint8_t* const bytes = request.dialect.block_rows == 0 ? nullptr
                              : out.scale_bytes == nullptr    ? scales.data()
                                                              : out.scale_bytes;
  if (out.order == TunedOrder(request.dialect)) {
    return QuantizeToBytes(x, options, request.stage, {request.dialect, out.codes, bytes});
  }
  std::vector<std::uint8_t> packed(x.rows * ((x.cols + 1) / 2));
  QuantizeToBytes(x, options, request.stage, {request.dialect, packed.data(), bytes});
  UnpackNibbles(packed, x.rows, x.cols, out.codes);
}

// The memory of codes and scales is kept for the thread's next call, unless it is large.
void MakeTunedDecoded(const QuantizeRequest& request, const QuantizeOptions& options) {
  thread_local Quantized q;
  Quantize(request.x, options, &q);
  Dequantize(request.dialect, q, request.out.decoded);
  if (q.codes.size() > std::size_t{64} << 20) q = {};
}

bool MakeTuned(const QuantizeRequest& request) {
  const QuantizeOptions options = TunedCall(request);
  const QuantizeOutputs& out = request.out;
  if (request.x.size() == 0) return true;
  if (IsIntegers(out)) {
    return QuantizeToFp4Integers(request.x, options, request.stage, {out.integers, out.scales});
  }
  if (IsCodes(out)) {
    MakeTunedCodes(request, options);
  } else if (out.values.data != nullptr) {
    QuantizeToValues(request.x, options, request.stage, out.values);
  } else {
    MakeTunedDecoded(request, options);
  }
  return true;
}

// -------------------------------------------------------------------------------------- generic

std::string_view WhyNotGeneric(const QuantizeRequest& request) {
  if (request.stage.fill != nullptr) return "a stage before the quantizer";
  if (IsIntegers(request.out) && !HasUnitStrideAlongRows(request.out.integers)) {
    return "integers with unit stride along rows";
  }
  return {};
}

void DecodeGeneric(const QuantizeRequest& request) {
  const MatrixView<const float>& x = request.x;
  Quantized q = ShapeOf(request);
  QuantizeOutputs parts{.codes = q.codes.data()};
  if (!q.scales.empty()) parts.scale_bytes = q.scales.data();
  if (!q.scale_values.empty()) parts.scales = {q.scale_values.data(), q.scale_rows, q.scale_cols};
  QuantizeInto(request.dialect, x, request.options, request.options.amax, parts);
  CopyTo(DequantizeAs(request.dialect, q), request.out.decoded);
}

bool MakeGeneric(const QuantizeRequest& request) {
  const MatrixView<const float>& x = request.x;
  QuantizeOutputs out = request.out;
  std::vector<std::uint8_t> plain;
  if (IsCodes(out) && out.order != CodeOrder::kBytes) {
    plain.resize(x.size());
    out.codes = plain.data();
  }
  out.decoded = {};
  const bool has_others = IsCodes(out) || out.scale_bytes != nullptr ||
                          out.values.data != nullptr || IsIntegers(out) ||
                          out.scales.data != nullptr;
  if (has_others) QuantizeInto(request.dialect, x, request.options, request.options.amax, out);
  if (!plain.empty()) PutCodes(request, plain);
  if (request.out.decoded.data != nullptr) DecodeGeneric(request);
  if (!IsIntegers(out)) return true;
  return internal::FinishFp4Scales(request.dialect, {out.integers, out.scales});
}

// ------------------------------------------------------------------------------------ reference

void PutIntegers(const Dialect& d, const Quantized& q, MatrixView<std::uint8_t> to) {
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const float twice = 2.0f * Decode(d.element, q.codes[r * q.cols + c]);
      to(r, c) = static_cast<std::uint8_t>(12 + static_cast<int>(twice));
    }
  }
}

void PutScales(const Dialect& d, const Quantized& q, MatrixView<float> to) {
  for (std::size_t i = 0; i < to.rows; ++i) {
    for (std::size_t j = 0; j < to.cols; ++j) {
      const std::size_t at = i * to.cols + j;
      to(i, j) = q.scale_values.empty() ? ScaleValueOf(d, q.scales[at]) : q.scale_values[at];
    }
  }
}

bool MakeReference(const QuantizeRequest& request) {
  const Dialect& d = request.dialect;
  const QuantizeOutputs& out = request.out;
  const Quantized q = reference::QuantizeAs(d, request.x, request.options);
  if (IsCodes(out)) PutCodes(request, q.codes);
  if (out.scale_bytes != nullptr) std::copy(q.scales.begin(), q.scales.end(), out.scale_bytes);
  if (out.values.data != nullptr) ToOperandValues(d, q, out.values);
  if (out.decoded.data != nullptr) CopyTo(DequantizeAs(d, q), out.decoded);
  if (out.scales.data != nullptr) PutScales(d, q, out.scales);
  if (!IsIntegers(out)) return true;
  PutIntegers(d, q, out.integers);
  return internal::FinishFp4Scales(d, {out.integers, out.scales});
}

constexpr std::array kRows = {
    Row{"tuned", WhyNotTunedRow, MakeTuned},
    Row{"generic", WhyNotGeneric, MakeGeneric},
    Row{"reference", WhyNotGeneric, MakeReference},
};

}  // namespace

std::span<const Row> QuantizeImplementations() { return kRows; }

bool Make(const QuantizeRequest& request) {
  const IeeeArithmetic ieee;
  CheckOptions(request.dialect, request.x, request.options);
  const Row* const row = FirstThatCan(QuantizeImplementations(), request);
  Expects(row != nullptr, "an implementation that can make the request");
  return row->make(request);
}

Quantized QuantizeBy(const Row& row, const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options) {
  const IeeeArithmetic ieee;
  CheckOptions(dialect, x, options);
  DialectOptions known{.random = options.random, .source = options.source};
  known.amax = TensorAmaxes(dialect, x, options);
  QuantizeRequest request{.dialect = dialect, .x = x, .options = known, .out = {}};
  Quantized q = ShapeOf(request);
  request.out.codes = q.codes.data();
  if (!q.scales.empty()) request.out.scale_bytes = q.scales.data();
  if (!q.scale_values.empty()) {
    request.out.scales = {q.scale_values.data(), q.scale_rows, q.scale_cols};
  }
  if (x.size() == 0) return q;
  Expects(row.why_not(request).empty(), "an implementation that can make the request");
  row.make(request);
  return q;
}

const Row& ImplementationOf(const Dialect& dialect, const DialectOptions& options) {
  const IeeeArithmetic ieee;
  std::uint8_t code = 0;
  const float zero = 0.0f;
  const Row* const row = FirstThatCan(
      QuantizeImplementations(),
      QuantizeRequest{dialect, MatrixView<const float>(&zero, 1, 1), options, {.codes = &code}});
  return *row;  // the reference makes codes in every dialect
}

Quantized QuantizeAs(const Dialect& dialect, MatrixView<const float> x,
                     const DialectOptions& options) {
  const IeeeArithmetic ieee;
  return QuantizeBy(ImplementationOf(dialect, options), dialect, x, options);
}

}  // namespace fp4lab
