#include "fp4lab/crosscheck/kernel_call.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <span>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/formats/replay.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::crosscheck {
namespace {

using cuda::DeviceMatrix;
using cuda::DeviceMemory;
using cuda::ElementType;
using cuda::QuantizedSide;
using cuda::RandomBits;

StorageLayout LayoutOf(const Dialect& d, const SideCall& side) {
  return {.codes = DefaultCodeOrder(d.element),
          .scales = side.order,
          .expanded_scales = side.order != ScaleOrder::kLinear && d.block_rows > 1,
          .tensor_scale =
              HasTensorScale(d) ? TensorScaleConvention::kAmax : TensorScaleConvention::kNone};
}

StoredMatrix ShapeOf(const Dialect& d, const SideCall& side, std::size_t rows, std::size_t cols) {
  return {.rows = rows,
          .cols = cols,
          .element = d.element,
          .scale = d.scale,
          .block_rows = d.block_rows,
          .block_cols = d.block_cols,
          .layout = LayoutOf(d, side)};
}

// ---- The device ----

// The device memory of one side of a call.
struct SideMemory {
  DeviceMemory codes, scales, values, amax, given;
  QuantizedSide side;
};

// Device memory filled with 0xA5, so that bytes that a kernel does not write show as differences.
DeviceMemory Poisoned(std::size_t bytes) {
  DeviceMemory memory(bytes);
  if (bytes > 0) memory.Fill(0xA5);
  return memory;
}

SideMemory MemoryOf(const KernelCall& call, const SideCall& side, std::size_t rows,
                    std::size_t cols) {
  const Dialect& d = call.dialect;
  const StoredSizes sizes = SizesOf(ShapeOf(d, side, rows, cols), "the device");
  SideMemory m;
  m.codes = Poisoned(sizes.codes);
  m.scales = Poisoned(sizes.scales);
  m.values = Poisoned(side.values ? rows * cols * sizeof(std::uint16_t) : 0);
  m.amax = Poisoned((d.row_scaled ? std::max<std::size_t>(rows, 1) : 1) * sizeof(float));
  m.given = cuda::OnDevice(std::span<const std::uint16_t>(side.given));
  m.side = {.codes = m.codes.As<std::uint8_t>(),
            .scales = m.scales.As<std::uint8_t>(),
            .scale_order = side.order,
            .values = m.values.As<std::uint16_t>(),
            .amax = m.amax.As<float>(),
            .random_bits = side.bits,
            .random = side.random,
            .given = m.given.As<std::uint16_t>(),
            .hadamard = side.hadamard,
            .sign_mask = side.hadamard == 16 ? kTeSignMask16 : kTeSignMask32};
  return m;
}

void FindAmax(const Dialect& d, const SideCall& side, const DeviceMatrix& x, const SideMemory& m) {
  if (!HasTensorScale(d)) return;
  const bool keeps_nan = d.nan == NanRule::kTensor;
  if (side.hadamard != 0) {
    cuda::AmaxWithHadamard(x, side.hadamard, m.side.sign_mask, nullptr, m.amax.As<float>());
  } else if (d.row_scaled) {
    cuda::RowAmax(x, m.amax.As<float>(), keeps_nan);
  } else {
    cuda::Amax(x, m.amax.As<float>(), keeps_nan);
  }
}

template <class T>
std::vector<T> Downloaded(const DeviceMemory& memory, std::size_t count) {
  std::vector<T> host(count);
  memory.CopyTo(std::as_writable_bytes(std::span<T>(host)));
  return host;
}

SideBytes BytesOf(const Dialect& d, const SideMemory& m, std::size_t rows, std::size_t cols,
                  bool transposed) {
  SideBytes out;
  out.codes = Downloaded<std::uint8_t>(m.codes, m.codes.bytes());
  out.scales = Downloaded<std::uint8_t>(m.scales, m.scales.bytes());
  out.values = Downloaded<std::uint16_t>(m.values, m.values.bytes() / sizeof(std::uint16_t));
  if (transposed && !out.values.empty()) {  // values are laid out as x: (cols, rows)
    const std::vector<std::uint16_t> as_x = out.values;
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < cols; ++c) out.values[r * cols + c] = as_x[c * rows + r];
    }
  }
  if (HasTensorScale(d)) out.amax = Downloaded<float>(m.amax, d.row_scaled ? rows : 1);
  return out;
}

// ---- The oracle ----

Matrix<float> Transformed(const SideCall& side, MatrixView<const float> x) {
  Matrix<float> y(x.rows, x.cols);
  RandomHadamard(x, side.hadamard, side.hadamard == 16 ? kTeSignMask16 : kTeSignMask32, y.View());
  return y;
}

// The BF16 bits of v, RNE if v is no BF16 number; 0x7FC0 for every NaN, so that NaNs compare equal.
std::uint16_t Bf16Of(float v) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(RoundToBf16(v)) >> 16);
}

std::vector<std::uint16_t> ValuesOf(const Dialect& d, const Quantized& q) {
  std::vector<std::uint16_t> values(q.codes.size());
  const std::size_t block_rows = static_cast<std::size_t>(std::max(d.block_rows, 1));
  const std::size_t block_cols = static_cast<std::size_t>(std::max(d.block_cols, 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t r = i / q.cols, c = i % q.cols;
    const float scale =
        q.scales.empty()
            ? 1.0f
            : Decode(d.scale, q.scales[r / block_rows * q.scale_cols + c / block_cols]);
    values[i] = Bf16Of(Decode(d.element, q.codes[i]) * scale);
  }
  return values;
}

// The random bits of `count` elements from number `first` on; all given bits for kGiven.
std::vector<std::uint16_t> FieldsOf(FormatId element, const SideCall& side, std::size_t first,
                                    std::size_t count) {
  if (side.bits == RandomBits::kGiven) return side.given;
  std::vector<std::uint16_t> fields(side.bits == RandomBits::kNone ? 0 : count);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::uint64_t number = first + i;
    fields[i] = static_cast<std::uint16_t>(
        side.bits == RandomBits::kCounter
            ? side.random.Bits16(number)
            : RandomField(element, RandomForm::kCvtRs, side.random.Bits32(number / 4), number % 4));
  }
  return fields;
}

SideBytes Stored(const Dialect& d, const SideCall& side, const Quantized& q) {
  StoredMatrix stored = Store(d, q, LayoutOf(d, side));
  SideBytes out{.codes = std::move(stored.codes), .scales = std::move(stored.scales)};
  if (side.values) out.values = ValuesOf(d, q);
  out.amax = q.amax;
  return out;
}

template <class T>
std::size_t Differing(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return std::max(a.size(), b.size()) * sizeof(T);
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    count += std::memcmp(&a[i], &b[i], sizeof(T)) != 0 ? sizeof(T) : 0;
  }
  return count;
}

}  // namespace

DeviceMemory Upload(MatrixView<const float> x, bool bf16) {
  std::vector<float> values(x.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = x(i / x.cols, i % x.cols);
  if (!bf16) return cuda::OnDevice(std::span<const float>(values));
  std::vector<std::uint16_t> bits(values.size());
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16);
  }
  return cuda::OnDevice(std::span<const std::uint16_t>(bits));
}

CallBytes RunCall(const KernelCall& call, const DeviceMatrix& x) {
  const IeeeArithmetic ieee;
  SideMemory row, column;
  if (call.row.on) {
    row = MemoryOf(call, call.row, x.rows, x.cols);
    FindAmax(call.dialect, call.row, x, row);
  }
  if (call.column.on) {
    column = MemoryOf(call, call.column, x.cols, x.rows);
    FindAmax(call.dialect, call.column, x, column);
  }
  const QuantizedSide* const row_side = call.row.on ? &row.side : nullptr;
  const QuantizedSide* const column_side = call.column.on ? &column.side : nullptr;
  if (call.fast) {
    cuda::Quantize(x, call.dialect, row_side, column_side);
  } else {
    cuda::QuantizeAs(x, call.dialect, row_side, column_side);
  }
  cuda::Synchronize();
  CallBytes out;
  if (call.row.on) out.row = BytesOf(call.dialect, row, x.rows, x.cols, false);
  if (call.column.on) out.column = BytesOf(call.dialect, column, x.cols, x.rows, true);
  for (SideBytes* side : {&out.row, &out.column}) {
    for (std::uint16_t& v : side->values) {
      if ((v & 0x7FFFu) > 0x7F80u) v = 0x7FC0;
    }
  }
  return out;
}

SideBytes ExpectedSide(const Dialect& dialect, const SideCall& side, MatrixView<const float> x) {
  const IeeeArithmetic ieee;
  Matrix<float> transformed;
  if (side.hadamard != 0) {
    transformed = Transformed(side, x);
    x = std::as_const(transformed).View();
  }
  const std::vector<std::uint16_t> fields = FieldsOf(dialect.element, side, 0, x.size());
  return Stored(dialect, side, QuantizeAs(dialect, x, {.random = fields}));
}

SideBytes ExpectedSideFast(const Dialect& dialect, const SideCall& side,
                           MatrixView<const float> x) {
  const IeeeArithmetic ieee;
  const Dialect rounded = side.bits == RandomBits::kNone
                              ? dialect
                              : WithRounding(dialect, ElementRounding::kStochastic16);
  if (side.bits == RandomBits::kInstruction) return ExpectedSide(rounded, side, x);
  Matrix<float> transformed;
  if (side.hadamard != 0) {
    transformed = Transformed(side, x);
    x = std::as_const(transformed).View();
  }
  QuantizeOptions options{.dialect = rounded, .random = side.random};
  if (HasTensorScale(dialect)) options.amax = TensorAmax(x);
  Quantized q = Quantize(x, options);
  SideBytes out;
  if (side.order == ScaleOrder::kLinear) {
    out.scales = std::move(q.scales);
  } else {
    const std::size_t cols = (x.cols + static_cast<std::size_t>(dialect.block_cols) - 1) /
                             static_cast<std::size_t>(dialect.block_cols);
    std::vector<std::uint8_t> expanded(x.rows * cols);
    for (std::size_t i = 0; i < expanded.size(); ++i) {
      expanded[i] =
          q.scales[i / cols / static_cast<std::size_t>(dialect.block_rows) * cols + i % cols];
    }
    out.scales = ReorderScales(expanded, ScaleOrder::kLinear, side.order, x.rows, cols);
  }
  if (side.values) {
    Matrix<float> values(x.rows, x.cols);
    Quantized copy = q;
    if (side.order == ScaleOrder::kLinear) copy.scales = out.scales;
    BlockScaledValues(rounded, copy, values.View());
    out.values.resize(x.size());
    for (std::size_t i = 0; i < out.values.size(); ++i) out.values[i] = Bf16Of(values.values[i]);
  }
  out.codes = std::move(q.codes);
  if (HasTensorScale(dialect)) out.amax = {options.amax.value_or(0.0f)};
  return out;
}

std::size_t DifferingBytes(const SideBytes& expected, const SideBytes& got) {
  return Differing(expected.codes, got.codes) + Differing(expected.scales, got.scales) +
         Differing(expected.values, got.values) + Differing(expected.amax, got.amax);
}

namespace {

constexpr std::size_t kExplainedRows = 32;  // a multiple of the rows of a block

// The part of `bytes`, lines of `line` bytes, that belongs to `rows` lines from line `first` on.
std::vector<std::uint8_t> Slice(const std::vector<std::uint8_t>& bytes, std::size_t line,
                                std::size_t first, std::size_t rows) {
  const std::size_t from = std::min(bytes.size(), first * line);
  const std::size_t to = std::min(bytes.size(), (first + rows) * line);
  return {bytes.begin() + static_cast<std::ptrdiff_t>(from),
          bytes.begin() + static_cast<std::ptrdiff_t>(to)};
}

// The first row with differing codes or scales, rounded down to a multiple of kExplainedRows; past
// the last row if there is none.
std::size_t FirstRow(const SideBytes& expected, const SideBytes& got, std::size_t code_line,
                     std::size_t scale_line, std::size_t block_rows) {
  const auto line_of = [](const auto& a, const auto& b, std::size_t line) {
    const std::size_t at = static_cast<std::size_t>(
        std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
    return at == a.size() || line == 0 ? std::numeric_limits<std::size_t>::max() / 64 : at / line;
  };
  const std::size_t row = std::min(line_of(expected.codes, got.codes, code_line),
                                   line_of(expected.scales, got.scales, scale_line) * block_rows);
  return row / kExplainedRows * kExplainedRows;
}

}  // namespace

std::string ExplainSide(const Dialect& dialect, const SideCall& side, MatrixView<const float> x,
                        const SideBytes& expected, const SideBytes& got) {
  Matrix<float> transformed;
  if (side.hadamard != 0) {
    transformed = Transformed(side, x);
    x = std::as_const(transformed).View();
  }
  StoredMatrix stored = ShapeOf(dialect, side, x.rows, x.cols);
  stored.codes = got.codes;
  stored.scales = got.scales;
  stored.tensor_scale = got.amax;
  std::size_t first = 0;
  const std::size_t block_rows = static_cast<std::size_t>(std::max(dialect.block_rows, 1));
  if (side.order == ScaleOrder::kLinear && x.rows > kExplainedRows && !dialect.row_scaled) {
    const StoredSizes sizes = SizesOf(stored, "the device");
    first = FirstRow(expected, got, sizes.code_row_bytes, sizes.scale_cols, block_rows);
    if (first >= x.rows) return "  (codes and scales are equal: other numbers differ)\n";
    const std::size_t rows = std::min(kExplainedRows, x.rows - first);
    stored.rows = rows;
    stored.codes = Slice(got.codes, sizes.code_row_bytes, first, rows);
    stored.scales =
        Slice(got.scales, sizes.scale_cols, first / block_rows, DivideUp(rows, block_rows));
    x = x.Block(first, 0, rows, x.cols);
  }
  const Kernel kernel{.dialect = dialect, .layout = stored.layout};
  const std::vector<std::uint16_t> fields =
      FieldsOf(dialect.element, side, first * x.cols, x.size());
  return "  (rows from " + std::to_string(first) + " on)\n" +
         Text(kernel,
              Explain(kernel, x, stored, {.dialect = {.amax = expected.amax, .random = fields}}));
}

}  // namespace fp4lab::crosscheck
