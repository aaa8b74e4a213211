#include "fp4lab/nn/linear_operand.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/parallel.h"
#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/nn/round_bf16.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/transform/hadamard_quantize.h"

namespace fp4lab {
namespace {

using View = MatrixView<const float>;

// `memory` seen as a matrix that lies as x does (row-major, or the transpose of a row-major one).
template <class Buffer>
auto Like(View x, std::size_t rows, std::size_t cols, Buffer* memory) {
  using T = typename Buffer::value_type;
  Reserve(memory, rows * cols);
  if (x.col_stride == 1) return MatrixView<T>(memory->data(), rows, cols);
  return MatrixView<T>(memory->data(), cols, rows).Transposed();
}

MatrixView<float> Like(View x, FloatBuffer* memory) { return Like(x, x.rows, x.cols, memory); }

// In memory order, so that columns have unit stride.
template <class T>
MatrixView<T> Unturned(MatrixView<T> x) {
  return x.col_stride == 1 ? x : x.Transposed();
}

std::size_t DivideUp(std::size_t x, int y) {
  return (x + static_cast<std::size_t>(y) - 1) / static_cast<std::size_t>(y);
}

std::uint32_t SignMask(int hadamard) { return hadamard == 16 ? kTeSignMask16 : kTeSignMask32; }

// `out` as room for integers of x, in x's order.
Fp4Integers RoomFor(View x, const BlockFormat& f, LinearOperandValues* out) {
  const Fp4Integers to{
      Like(x, x.rows, x.cols, &out->code_memory),
      Like(x, DivideUp(x.rows, f.block_rows), DivideUp(x.cols, f.block_cols), &out->scale_memory)};
  out->block = static_cast<std::size_t>(f.block_cols);
  out->integers = {to.codes, to.scales, static_cast<std::size_t>(f.block_rows)};
  return to;
}

// `hadamard` 0: no transform. `finds_amax`: of the transformed tensor, into options->amax.
bool MakeIntegers(View x, int hadamard, bool finds_amax, QuantizeOptions* options,
                  WordBuffer* transformed, LinearOperandValues* out) {
  const Fp4Integers to = RoomFor(x, options->format, out);
  if (hadamard == 0) {
    out->has_integers = QuantizeToFp4Integers(x, *options, to);
  } else if (finds_amax) {
    out->has_integers =
        HadamardQuantizeToFp4Integers(x, hadamard, SignMask(hadamard), options, to, transformed);
  } else {
    out->has_integers =
        HadamardQuantizeToFp4Integers(x, hadamard, SignMask(hadamard), *options, to);
  }
  return out->has_integers;
}

// `from` may be `to`. An observer sees `from` as it was.
void QuantizeObserved(LinearOperand operand, const LinearCall& call, const QuantizeOptions& options,
                      View from, MatrixView<float> to) {
  FloatBuffer before;
  const MatrixView<float> copy = Like(from, &before);
  for (std::size_t r = 0; r < from.rows; ++r) {
    for (std::size_t c = 0; c < from.cols; ++c) copy(r, c) = from(r, c);
  }
  QuantizeToValues(from, options, to);
  (*call.observer)(operand, copy, to, options);
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
  ParallelFor((to.rows + kRows - 1) / kRows, [&](std::size_t i) {
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

bool PrepareRounded(const OperandRecipe& recipe, View x, FloatBuffer* band,
                    LinearOperandValues* out) {
  const bool plain = recipe.hadamard == 0 && recipe.rounding == Rounding::kNearestEven;
  if (!plain || x.col_stride != 1 || x.size() == 0) return false;
  const BlockFormat& f = *recipe.format;
  out->ready = true;
  out->values = {};
  out->amax = RoundToBf16(TensorAmax(x));  // rounding keeps the order
  const QuantizeOptions options{.format = f, .amax = out->amax};
  const Fp4Integers to = RoomFor(x, f, out);
  const auto block_rows = static_cast<std::size_t>(f.block_rows);
  constexpr std::size_t kBand = std::size_t{1} << 17;  // elements: 512 KiB
  const std::size_t step = std::max<std::size_t>(kBand / (x.cols * block_rows), 1) * block_rows;
  Reserve(band, std::min(step, x.rows) * x.cols);
  out->has_integers = true;
  for (std::size_t r = 0; r < x.rows && out->has_integers; r += step) {
    const std::size_t rows = std::min(step, x.rows - r), scale_rows = DivideUp(rows, f.block_rows);
    const MatrixView<float> rounded(band->data(), rows, x.cols);
    RoundBf16(x.Block(r, 0, rows, x.cols), rounded);
    out->has_integers =
        QuantizeToFp4Integers(rounded, options,
                              {to.codes.Block(r, 0, rows, x.cols),
                               to.scales.Block(r / block_rows, 0, scale_rows, to.scales.cols)});
  }
  return out->has_integers;
}

void PrepareOperand(const OperandRecipe& recipe, bool bf16, LinearOperand operand,
                    const LinearCall& call, const LinearInput& input, bool integers,
                    WordBuffer* transformed, LinearOperandValues* out) {
  out->ready = true;
  out->has_integers = false;
  out->values = {};
  out->amax = input.amax.value_or(0.0f);
  View x = input.x;
  bool knows_amax = input.rounded && input.amax.has_value();
  const auto to = [&] { return Like(input.x, &out->memory); };
  if (bf16 && !input.rounded) {
    out->amax = RoundBf16(Unturned(x), Unturned(to()));
    x = to();
    knows_amax = true;
  }
  QuantizeOptions options{.format = recipe.format.value_or(BlockFormat{}),
                          .rounding = recipe.rounding,
                          .random = call.random,
                          .amax = out->amax};
  options.random.tensor += static_cast<std::uint32_t>(operand);
  const bool scaled = recipe.format && HasTensorScale(*recipe.format);
  if (integers) {  // with the transform on the way
    if (scaled && recipe.hadamard == 0 && !knows_amax) options.amax = TensorAmax(x);
    const bool made = MakeIntegers(x, recipe.hadamard, scaled, &options, transformed, out);
    out->amax = *options.amax;
    if (made) return;
  }
  if (recipe.hadamard != 0) {
    RandomHadamard(x, recipe.hadamard, SignMask(recipe.hadamard), to());
    x = to();
    knows_amax = false;
  }
  if (recipe.format) {
    if (scaled && !knows_amax) options.amax = TensorAmax(x);
    out->amax = *options.amax;
    if (call.observer != nullptr) {
      QuantizeObserved(operand, call, options, x, to());
    } else {
      QuantizeToValues(x, options, to());
    }
    x = to();
  }
  out->values = x;
}

void MultiplyOperands(OperandUse a, OperandUse b, const GemmOptions& options, MatrixView<float> c) {
  if (a.operand->has_integers && b.operand->has_integers) {
    return Fp4Gemm(Integers(a), Integers(b), options, c);
  }
  Gemm(Values(a), Values(b), options, c);
}

}  // namespace fp4lab
