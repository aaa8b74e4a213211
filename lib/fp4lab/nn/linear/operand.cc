#include "fp4lab/nn/linear/operand.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/step_parts.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/implementation.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/transform/hadamard_quantize.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

// `memory` as a matrix in x's memory order (row-major, or the transpose of a row-major matrix).
template <class Buffer>
auto Like(View x, std::size_t rows, std::size_t cols, Buffer* memory) {
  using T = typename Buffer::value_type;
  Reserve(memory, rows * cols);
  if (x.col_stride == 1) return MatrixView<T>(memory->data(), rows, cols);
  return MatrixView<T>(memory->data(), cols, rows).Transposed();
}

MatrixView<float> Like(View x, FloatBuffer* memory) { return Like(x, x.rows, x.cols, memory); }

// x in memory order, so that columns have unit stride.
template <class T>
MatrixView<T> Unturned(MatrixView<T> x) {
  return x.col_stride == 1 ? x : x.Transposed();
}

// Room for integers of x in `out`, in x's memory order if an implementation writes them so, else
// row-major.
Fp4Integers RoomFor(View x, const Dialect& d, const DialectOptions& options,
                    LinearOperandValues* out) {
  const std::size_t rows = DivideUp(x.rows, static_cast<std::size_t>(d.block_rows)),
                    cols = DivideUp(x.cols, static_cast<std::size_t>(d.block_cols));
  const View order = WritesColumns(d, options) ? x : View(x.data, x.rows, x.cols);
  const Fp4Integers to{Like(order, x.rows, x.cols, &out->code_memory),
                       Like(order, rows, cols, &out->scale_memory)};
  out->block = static_cast<std::size_t>(d.block_cols);
  out->integers = {to.codes, to.scales, static_cast<std::size_t>(d.block_rows)};
  return to;
}

// Transforms and quantizes x to integers in one kernel; returns false if no implementation
// quantizes behind a stage. out->amax: the amax of the transformed tensor, if the dialect has a
// tensor scale.
bool MakeTransformedIntegers(View x, const HadamardTransform& transform, const Dialect& d,
                             const DialectOptions& given, WordBuffer* transformed,
                             LinearOperandValues* out) {
  if (!TakesStage(d, given)) return false;
  DialectOptions options = given;
  const Fp4Integers to = RoomFor(x, d, options, out);
  const bool turned = to.codes.col_stride != 1 && to.codes.cols > 1;
  out->has_integers = WithHadamardStage(
      x, transform, d, {.turned = turned, .measures = HasTensorScale(d)}, transformed,
      [&](View y, const UnitStage& stage, float amax) {
        out->amax = amax;
        if (HasTensorScale(d)) options.amax = {amax};
        return Make({d, y, options, {.integers = to.codes, .scales = to.scales}, stage});
      });
  return out->has_integers;
}

// Quantizes `from` to `to` and shows both to the observer, which gets a copy of `from`. `from` may
// be `to`.
void QuantizeObserved(LinearOperand operand, const LinearCall& call, const Dialect& dialect,
                      const DialectOptions& options, View from, MatrixView<float> to) {
  FloatBuffer before;
  const MatrixView<float> copy = Like(from, &before);
  for (std::size_t r = 0; r < from.rows; ++r) {
    for (std::size_t c = 0; c < from.cols; ++c) copy(r, c) = from(r, c);
  }
  const Quantized quantized = QuantizeAs(dialect, from, options);
  ToOperandValues(dialect, quantized, to);
  (*call.observer)({operand, copy, to, dialect, options, quantized});
}

// Whether bands of rows of a tensor have the bytes that they have in the tensor, whose amax is that
// without NaN: no random bits, no scale of rows, and no correction across blocks.
bool HasBands(const Dialect& d) {
  return !TakesRandomBits(d) && !d.row_scaled && d.nan != NanRule::kTensor &&
         d.unbias == Unbias::kNone;
}

// The amaxes that the dialect needs; `known`: the largest magnitude of x without NaN, or null.
std::vector<float> AmaxFor(const Dialect& d, View x, const float* known) {
  if (!HasTensorScale(d)) return {};
  if (d.row_scaled || d.nan == NanRule::kTensor) return TensorAmaxes(d, x, {});
  return {known != nullptr ? *known : TensorAmax(x)};
}

// Rows of `to` = the elements' values, which are exact: an integer of at most 12, times half a
// scale.
void ValuesOfRows(const LinearOperandValues& x, std::size_t first, MatrixView<float> to) {
  for (std::size_t r = 0; r < to.rows; ++r) {
    for (std::size_t c = 0; c < to.cols; ++c) {
      const float scale = x.integers.scales((first + r) / x.integers.block_rows, c / x.block);
      to(r, c) = static_cast<float>(int{x.integers.codes(first + r, c)} - 12) * (0.5f * scale);
    }
  }
}

View Values(LinearOperandValues* x) {
  if (x->values.data != nullptr) return x->values;
  const auto& codes = x->integers.codes;
  Reserve(&x->memory, codes.size());
  MatrixView<float> to(x->memory.data(), codes.rows, codes.cols);
  if (codes.col_stride != 1) to = MatrixView<float>(to.data, to.cols, to.rows).Transposed();
  constexpr std::size_t kRows = 16;
  ParallelFor(DivideUp(to.rows, kRows), [&](std::size_t i) {
    const std::size_t first = i * kRows, rows = std::min(kRows, to.rows - first);
    ValuesOfRows(*x, first, to.Block(first, 0, rows, to.cols));
  });
  return x->values = to;
}

View Values(const OperandUse& use) {
  const View values = Values(use.operand);
  return use.transposed ? values.Transposed() : values;
}

Fp4Operand Integers(const OperandUse& use) {
  Fp4Operand x = use.operand->integers;
  if (!use.transposed) return x;
  x.codes = x.codes.Transposed();
  x.scales = x.scales.Transposed();
  return x;
}

}  // namespace

bool CanUseIntegers(const GemmRecipe& recipe) {
  const auto &a = recipe.a.format, &b = recipe.b.format;
  return a && b && HasFp4Integers(*a) && HasFp4Integers(*b) && a->block_cols == b->block_cols;
}

DialectOptions OptionsOf(const OperandRecipe& recipe, LinearOperand operand,
                         const LinearCall& call) {
  return {.source = RandomSourceOf(recipe, operand, call)};
}

float DelayedAmax(LinearOperand operand, const LinearCall& call, float amax) {
  const IeeeArithmetic ieee;
  Expects(call.histories.numbers != nullptr, "delayed scaling has a history");
  float* const history = call.histories.Of(operand);
  if ((IsWeight(operand) || call.histories.records) && amax > history[1]) history[1] = amax;
  return history[0];
}

void KeepAmax(const Dialect& dialect, std::span<const float> amax, float* tensor_amax,
              std::vector<float>* row_decode) {
  const IeeeArithmetic ieee;
  if (!dialect.row_scaled) {
    if (!amax.empty()) *tensor_amax = amax[0];
    return;
  }
  row_decode->resize(amax.size());
  std::transform(amax.begin(), amax.end(), row_decode->begin(),
                 [&](float a) { return OperandDecode(dialect, a); });
}

namespace {

// One factor of alpha: amax / C by a division or by a product, over the prescale.
float DecodeOf(const Dialect& dialect, float amax, AlphaOrder order) {
  if (order == AlphaOrder::kDecodeProduct) return OperandDecode(dialect, amax);
  const float decode = amax * (1.0f / TensorScaleConstant(dialect));
  return dialect.prescale == 1.0f ? decode : decode / dialect.prescale;
}

}  // namespace

float AlphaOf(const GemmRecipe& recipe, float amax_a, float amax_b) {
  const IeeeArithmetic ieee;
  const std::optional<Dialect>&a = recipe.a.format, &b = recipe.b.format;
  const auto has = [](const OperandRecipe& operand) {
    return operand.format && !operand.format->row_scaled && operand.scale_window == 0;
  };
  const bool has_a = has(recipe.a), has_b = has(recipe.b);
  if (has_a && has_b) {
    const bool encode = HasEncodeScale(*a) && HasEncodeScale(*b);
    if (recipe.alpha == AlphaOrder::kReference || !encode) return GemmAlpha(*a, amax_a, *b, amax_b);
    return DecodeOf(*a, amax_a, recipe.alpha) * DecodeOf(*b, amax_b, recipe.alpha);
  }
  if (has_a) return OperandDecode(*a, amax_a);
  return has_b ? OperandDecode(*b, amax_b) : 1.0f;
}

void ScaleRows(View product, std::span<const float> rows, std::span<const float> cols,
               bool accumulates, MatrixView<float> c) {
  const IeeeArithmetic ieee;
  ParallelFor(c.rows, [&](std::size_t i) {
    for (std::size_t j = 0; j < c.cols; ++j) {
      float y = product(i, j);
      if (!rows.empty()) y *= rows[i];
      if (!cols.empty()) y *= cols[j];
      c(i, j) = accumulates ? c(i, j) + y : y;
    }
  });
}

bool PrepareRounded(const OperandRecipe& recipe, View x, FloatBuffer* band,
                    LinearOperandValues* out) {
  const IeeeArithmetic ieee;
  const Dialect& d = *recipe.format;
  if (recipe.hadamard != 0 || recipe.delayed.length != 0 || recipe.scale_window != 0) return false;
  if (!HasBands(d) || x.col_stride != 1 || x.size() == 0) return false;
  out->Begin();
  out->amax = RoundToBf16(TensorAmax(x));  // rounding is monotonic
  DialectOptions options;
  if (HasTensorScale(d)) options.amax = {out->amax};
  const Fp4Integers to = RoomFor(x, d, options, out);
  const auto block_rows = static_cast<std::size_t>(d.block_rows);
  constexpr std::size_t kBand = std::size_t{1} << 17;  // elements: 512 KiB
  const std::size_t step = std::max<std::size_t>(kBand / (x.cols * block_rows), 1) * block_rows;
  Reserve(band, std::min(step, x.rows) * x.cols);
  out->has_integers = true;
  for (std::size_t r = 0; r < x.rows && out->has_integers; r += step) {
    const std::size_t rows = std::min(step, x.rows - r), scale_rows = DivideUp(rows, block_rows);
    const MatrixView<float> rounded(band->data(), rows, x.cols);
    RoundBf16(x.Block(r, 0, rows, x.cols), rounded);
    out->has_integers =
        QuantizeToFp4Integers(d, rounded, options,
                              {to.codes.Block(r, 0, rows, x.cols),
                               to.scales.Block(r / block_rows, 0, scale_rows, to.scales.cols)});
  }
  return out->has_integers;
}

namespace {

// `to` = x, row-major, rounded to BF16 if `rounds`, with zeros in the columns that x lacks.
void CopyPadded(View x, bool rounds, MatrixView<float> to) {
  constexpr std::size_t kRows = 16;
  ParallelFor(DivideUp(x.rows, kRows), [&](std::size_t piece) {
    const std::size_t first = piece * kRows, rows = std::min(kRows, x.rows - first);
    const MatrixView<float> own = to.Block(first, 0, rows, to.cols);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) own(r, c) = x(first + r, c);
      std::fill_n(&own(r, 0) + x.cols, to.cols - x.cols, 0.0f);
    }
  });
  if (rounds) RoundBf16(to, to);
}

// PrepareOperand for a recipe with windows of scales. The operand lies row-major, each row as long
// as its windows.
void PrepareWindows(const OperandRecipe& recipe, bool bf16, LinearOperand operand,
                    const LinearCall& call, const LinearInput& input, bool integers,
                    FloatBuffer* spare, LinearOperandValues* out) {
  const View x = input.x;
  const auto window = static_cast<std::size_t>(recipe.scale_window);
  out->scale_window = window;
  const std::size_t windows = DivideUp(x.cols, window), cols = windows * window;
  FloatBuffer& memory = integers && spare != nullptr ? *spare : out->memory;
  Reserve(&memory, x.rows * cols);
  const MatrixView<float> padded(memory.data(), x.rows, cols),
      own = padded.Block(0, 0, x.rows, x.cols), lines(memory.data(), x.rows * windows, window);
  CopyPadded(x, bf16 && !input.rounded, padded);
  if (recipe.hadamard != 0) RandomHadamard(own, TransformOf(recipe, call), own);
  const Dialect d = DialectOfWindows(*recipe.format);
  DialectOptions options = OptionsOf(recipe, operand, call);
  options.amax = TensorAmaxes(d, lines, {});
  KeepAmax(d, options.amax, &out->amax, &out->row_decode);
  out->values = own;
  if (lines.size() == 0) return;
  if (integers) {
    const Fp4Integers to = RoomFor(View(lines), d, options, out);
    out->has_integers = QuantizeToFp4Integers(d, lines, options, to);
    const std::size_t blocks = cols / out->block;
    const MatrixView<std::uint8_t> codes(to.codes.data, x.rows, cols);
    const MatrixView<float> scales(to.scales.data, x.rows, blocks);
    out->integers = {codes.Block(0, 0, x.rows, x.cols),
                     scales.Block(0, 0, x.rows, DivideUp(x.cols, out->block)), 1};
    if (out->has_integers) {
      out->values = {};
      return;
    }
    if (&memory != &out->memory) memory.swap(out->memory);  // the views stay where they are
  }
  if (call.observer != nullptr) {
    QuantizeObserved(operand, call, d, options, lines, lines);
  } else {
    QuantizeToValues(d, lines, options, lines);
  }
}

}  // namespace

void PrepareOperand(const OperandRecipe& recipe, bool bf16, LinearOperand operand,
                    const LinearCall& call, const LinearInput& input, bool integers,
                    WordBuffer* transformed, LinearOperandValues* out, FloatBuffer* spare) {
  const IeeeArithmetic ieee;
  out->Begin();
  if (recipe.scale_window != 0) {
    return PrepareWindows(recipe, bf16, operand, call, input, integers, spare, out);
  }
  View x = input.x;
  float amax = input.amax.value_or(0.0f);  // the amax of x, if known
  bool knows_amax = input.rounded && input.amax.has_value();
  const auto to = [&] { return Like(input.x, &out->memory); };
  if (bf16 && !input.rounded) {
    amax = RoundBf16(Unturned(x), Unturned(to()));
    x = to();
    knows_amax = true;
  }
  DialectOptions options = OptionsOf(recipe, operand, call);
  if (recipe.hadamard != 0) {
    const HadamardTransform transform = TransformOf(recipe, call);
    if (integers && recipe.delayed.length == 0 &&
        MakeTransformedIntegers(x, transform, *recipe.format, options, transformed, out)) {
      return;
    }
    RandomHadamard(x, transform, to());
    x = to();
    knows_amax = false;
  }
  if (recipe.format) {
    const Dialect& d = *recipe.format;
    options.amax = AmaxFor(d, x, knows_amax ? &amax : nullptr);
    if (recipe.delayed.length > 0) {
      options.amax = {DelayedAmax(operand, call, options.amax[0])};
    }
    KeepAmax(d, options.amax, &out->amax, &out->row_decode);
    if (integers) {
      out->has_integers = QuantizeToFp4Integers(d, x, options, RoomFor(x, d, options, out));
      if (out->has_integers) return;
    }
    if (call.observer != nullptr) {
      QuantizeObserved(operand, call, d, options, x, to());
    } else {
      QuantizeToValues(d, x, options, to());
    }
    x = to();
  }
  out->values = x;
}

void DecodeOperand(const OperandRecipe& fprop, bool bf16, LinearOperand operand,
                   const LinearCall& call, const LinearInput& input, LinearOperandValues* memory,
                   MatrixView<float> out) {
  const IeeeArithmetic ieee;
  LinearCall unseen = call;
  unseen.observer = nullptr;
  PrepareOperand(fprop, bf16, operand, unseen, input, false, nullptr, memory);
  const View values = memory->values;
  const bool has_one = fprop.format && memory->row_decode.empty();
  const float decode = has_one ? OperandDecode(*fprop.format, memory->amax) : 1.0f;
  ParallelFor(out.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < out.cols; ++c) {
      out(r, c) = values(r, c) * memory->DecodeAt(r, c, out.cols, decode);
    }
  });
  if (bf16) RoundBf16(out, out);
  if (fprop.hadamard == 0) return;
  const HadamardTransform transform = TransformOf(fprop, call);  // y = H S x, so x = S H y
  RandomHadamard(out, {transform.size, NoHadamardSigns()}, out);
  ParallelFor(out.rows, [&](std::size_t r) {
    for (std::size_t c = 0; c < out.cols; ++c) {
      const bool negates = transform.signs.Negates(static_cast<int>(c) % transform.size);
      out(r, c) = negates ? -out(r, c) : out(r, c);
    }
  });
}

namespace {

void Multiply(const OperandUse& a, const OperandUse& b, const GemmOptions& options,
              MatrixView<float> c) {
  if (a.operand->has_integers && b.operand->has_integers) {
    return Fp4Gemm(Integers(a), Integers(b), options, c);
  }
  Gemm(Values(a), Values(b), options, c);
}

// c = [c +] the product, with its rows multiplied by the scales of a's rows and its columns by the
// scales of b's rows.
void MultiplyScaledRows(const OperandUse& a, const OperandUse& b, GemmOptions options,
                        MatrixView<float> c) {
  const bool accumulates = options.accumulate;
  options.accumulate = false;
  Matrix<float> product(c.rows, c.cols);
  Multiply(a, b, options, product.View());
  ScaleRows(product.View(), a.operand->row_decode, b.operand->row_decode, accumulates, c);
}

// Some rows of an operand, and a piece of its columns.
Fp4Operand BlockOf(const Fp4Operand& x, std::size_t block, std::size_t row, std::size_t col,
                   std::size_t rows, std::size_t cols) {
  return {x.codes.Block(row, col, rows, cols),
          x.scales.Block(row / x.block_rows, col / block, DivideUp(rows, x.block_rows),
                         DivideUp(cols, block)),
          x.block_rows};
}

// The decode scales of an operand's windows that hold column `col`, of rows from `first` on; empty
// without windows.
std::vector<float> DecodeOfPiece(const LinearOperandValues& x, std::size_t first, std::size_t rows,
                                 std::size_t col, std::size_t cols) {
  std::vector<float> decode(x.scale_window == 0 ? 0 : rows);
  for (std::size_t r = 0; r < decode.size(); ++r) {
    decode[r] = x.DecodeAt(first + r, col, cols, 1.0f);
  }
  return decode;
}

// sum = q, or fl(sum + q), q = fl(fl(product * rows[i]) * cols[j]); both row-major. An empty vector
// leaves its factor out.
void AddPiece(View product, std::span<const float> rows, std::span<const float> cols, bool is_first,
              MatrixView<float> sum) {
  ParallelFor(sum.rows, [&](std::size_t i) {
    const float* const from = product.data + i * product.row_stride;
    float* const to = sum.data + i * sum.row_stride;
    const auto add = [&](auto&& factor) {
      if (is_first) {
        for (std::size_t j = 0; j < sum.cols; ++j) to[j] = factor(from[j], j);
      } else {
        for (std::size_t j = 0; j < sum.cols; ++j) to[j] += factor(from[j], j);
      }
    };
    const float row = rows.empty() ? 1.0f : rows[i];  // a product with 1 changes no bit
    const float* const col = cols.data();
    if (cols.empty()) {
      add([&](float x, std::size_t) { return x * row; });
    } else {
      add([&](float x, std::size_t j) { return x * row * col[j]; });
    }
  });
}

// MultiplyOperands where an operand has windows: bands of a's rows, so that the sum of a band stays
// in the cache.
void MultiplyWindows(const OperandUse& a, const OperandUse& b, GemmOptions options,
                     MatrixView<float> c) {
  const float alpha = options.alpha;
  const bool accumulates = options.accumulate;
  options.alpha = 1.0f;
  options.accumulate = false;
  const bool integers = a.operand->has_integers && b.operand->has_integers;
  const View a_values = integers ? View() : Values(a), b_values = integers ? View() : Values(b);
  const Fp4Operand a_integers = integers ? Integers(a) : Fp4Operand(),
                   b_integers = integers ? Integers(b) : Fp4Operand();
  const std::size_t length = integers ? a_integers.codes.cols : a_values.cols;
  std::size_t step = std::numeric_limits<std::size_t>::max();
  for (const OperandUse* use : {&a, &b}) {
    if (use->operand->scale_window != 0) step = std::min(step, use->operand->scale_window);
  }
  // Scales of rows, of an operand without windows.
  const auto of_rows = [](const LinearOperandValues& x) {
    return x.scale_window == 0 ? std::span<const float>(x.row_decode) : std::span<const float>();
  };
  const std::span<const float> a_rows = of_rows(*a.operand), b_rows = of_rows(*b.operand);
  constexpr std::size_t kBand = std::size_t{1} << 18, kRows = 32;  // elements; rows: whole blocks
  const std::size_t band =
      std::max(kBand / std::max<std::size_t>(c.cols, 1) / kRows, std::size_t{1}) * kRows;
  Matrix<float> product(std::min(band, c.rows), c.cols), sum(product.rows, c.cols);
  for (std::size_t first = 0; first < c.rows; first += band) {
    const std::size_t rows = std::min(band, c.rows - first);
    const MatrixView<float> piece = product.View().Block(0, 0, rows, c.cols),
                            total = sum.View().Block(0, 0, rows, c.cols);
    for (std::size_t k = 0; k < length; k += step) {
      const std::size_t width = std::min(step, length - k);
      if (integers) {
        Fp4Gemm(BlockOf(a_integers, options.block, first, k, rows, width),
                BlockOf(b_integers, options.block, 0, k, c.cols, width), options, piece);
      } else {
        Gemm(a_values.Block(first, k, rows, width), b_values.Block(0, k, c.cols, width), options,
             piece);
      }
      AddPiece(piece, DecodeOfPiece(*a.operand, first, rows, k, length),
               DecodeOfPiece(*b.operand, 0, c.cols, k, length), k == 0, total);
    }
    if (length == 0) std::fill(sum.values.begin(), sum.values.end(), 0.0f);
    if (alpha != 1.0f) {
      ParallelFor(rows, [&](std::size_t i) {
        for (std::size_t j = 0; j < c.cols; ++j) total(i, j) *= alpha;
      });
    }
    ScaleRows(total, a_rows.empty() ? a_rows : a_rows.subspan(first, rows), b_rows, accumulates,
              c.Block(first, 0, rows, c.cols));
  }
}

}  // namespace

void MultiplyOperands(OperandUse a, OperandUse b, const GemmOptions& options, MatrixView<float> c) {
  const IeeeArithmetic ieee;
  const StepScope part(StepPart::kGemm);
  if (a.operand->scale_window != 0 || b.operand->scale_window != 0) {
    return MultiplyWindows(a, b, options, c);
  }
  if (!a.operand->row_decode.empty() || !b.operand->row_decode.empty()) {
    return MultiplyScaledRows(a, b, options, c);
  }
  Multiply(a, b, options, c);
}

}  // namespace fp4lab
