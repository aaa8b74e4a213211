#include "fp4lab/transform/hadamard_quantize.h"

#include <algorithm>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/block/staged.h"
#include "fp4lab/transform/kernels.h"

namespace fp4lab {
namespace {

// A UnitStage: the transform, with HadamardFactors as its context.
void Transform(const void* context, MatrixView<const float> from, bool transposed,
               MatrixView<float> to) {
  const auto& factors = *static_cast<const HadamardFactors*>(context);
  const std::size_t size = factors.size();
  if (!transposed) {
    for (std::size_t r = 0; r < from.rows; ++r) {
      HadamardRow(&from(r, 0), from.cols / size, factors, &to(r, 0));
    }
    return;
  }
  for (std::size_t r = 0; r < from.rows; r += size) {
    HadamardColumns(&from(r, 0), from.row_stride, from.cols, factors, &to(r, 0), to.row_stride);
  }
}

// A transformed tensor, as HadamardColumnsToWords writes it. x: the rows of the tensor in memory.
struct TransformedWords {
  const float* x;
  std::size_t x_stride;
  const std::uint32_t* words;
  std::size_t stride;
};

// A UnitStage: reads elements that are already transformed, with TransformedWords as its context.
void TakeWords(const void* context, MatrixView<const float> from, bool /*transposed*/,
               MatrixView<float> to) {
  const auto& t = *static_cast<const TransformedWords*>(context);
  const auto at = static_cast<std::size_t>(from.data - t.x);
  FloatsOfWords(t.words + at / t.x_stride / 2 * t.stride + at % t.x_stride, t.stride, to);
}

constexpr std::size_t kPiece = 1024;  // columns of a band

// The largest of piece(r, c, cols) over the pieces of all bands of `size` memory rows of x.
template <class Piece>
float LargestOfBands(MatrixView<const float> x, std::size_t size, const Piece& piece) {
  const std::size_t pieces = DivideUp(x.cols, kPiece);
  std::vector<float> partial(x.rows / size * pieces);
  ParallelFor(partial.size(), [&](std::size_t i) {
    const std::size_t c = i % pieces * kPiece;
    partial[i] = piece(i / pieces * size, c, std::min(kPiece, x.cols - c));
  });
  return *std::max_element(partial.begin(), partial.end());
}

// Whether every unit of work of the quantizer holds whole groups.
bool UnitsHoldGroups(MatrixView<const float> x, int size, const QuantizeOptions& options,
                     bool transposed) {
  const QuantizePlan plan = transposed ? MakePlan(x.cols, x.rows, true, options)
                                       : MakePlan(x.rows, x.cols, false, options);
  const std::size_t along = transposed ? plan.block_rows : plan.chunk;
  return plan.block_rows <= kMaxStagedBlock && along % static_cast<std::size_t>(size) == 0;
}

QuantizeOptions WithHadamardAmax(MatrixView<const float> x, const HadamardTransform& transform,
                                 QuantizeOptions options) {
  if (HasTensorScale(options.dialect) && !options.amax) {
    options.amax = HadamardAmax(x, transform);
  }
  return options;
}

// Calls run(x, stage) with the transform as the stage, or run(y, no stage) on a transformed copy y.
template <class Run>
auto WithTransformed(MatrixView<const float> x, const HadamardTransform& transform,
                     const QuantizeOptions& options, bool transposed, Run run) {
  CheckHadamard(x, transform.size, x);
  if (UnitsHoldGroups(x, transform.size, options, transposed)) {
    const HadamardFactors factors = FactorsOf(transform);
    return run(x, UnitStage{&factors, Transform});
  }
  Matrix<float> y(transposed ? x.cols : x.rows, transposed ? x.rows : x.cols);
  const MatrixView<float> view = transposed ? y.View().Transposed() : y.View();
  RandomHadamard(x, transform, view);
  return run(view, UnitStage{});
}

}  // namespace

float HadamardAmax(MatrixView<const float> x, const HadamardTransform& transform) {
  const IeeeArithmetic ieee;
  CheckHadamard(x, transform.size, x);
  if (x.size() == 0) return 0.0f;
  const Matrix<float> copy = CopyUnlessUnitStride(x);
  if (!copy.values.empty()) x = copy.View();
  const HadamardFactors factors = FactorsOf(transform);
  const std::size_t group = factors.size();
  if (HasUnitRows(x)) {
    std::vector<float> partial(x.rows);
    ParallelFor(x.rows, [&](std::size_t r) {
      constexpr std::size_t kRowPiece = 16 * kMaxHadamardSize;  // at least a vector of groups
      float y[kRowPiece];
      for (std::size_t c = 0; c < x.cols; c += kRowPiece) {
        const std::size_t count = std::min(kRowPiece, x.cols - c);
        HadamardRow(&x(r, c), count / group, factors, y);
        partial[r] = std::max(partial[r], TensorAmax(MatrixView<const float>(y, 1, count)));
      }
    });
    return *std::max_element(partial.begin(), partial.end());
  }
  const MatrixView<const float> memory = x.Transposed();
  return LargestOfBands(memory, group, [&](std::size_t r, std::size_t c, std::size_t cols) {
    return HadamardColumnsAmax(&memory(r, c), memory.row_stride, cols, factors);
  });
}

void HadamardQuantize(MatrixView<const float> x, const HadamardTransform& transform,
                      const QuantizeOptions& given, Quantized* q) {
  const IeeeArithmetic ieee;
  const QuantizeOptions options = WithHadamardAmax(x, transform, given);
  const bool transposed = !HasUnitRows(x) && HasUnitColumns(x);
  WithTransformed(
      x, transform, options, transposed,
      [&](MatrixView<const float> y, const UnitStage& stage) { Quantize(y, options, stage, q); });
}

void HadamardQuantizeToValues(MatrixView<const float> x, const HadamardTransform& transform,
                              const QuantizeOptions& given, MatrixView<float> out) {
  const IeeeArithmetic ieee;
  const QuantizeOptions options = WithHadamardAmax(x, transform, given);
  const bool transposed = !(HasUnitRows(x) && HasUnitRows(out)) && HasUnitColumns(x);
  WithTransformed(x, transform, options, transposed,
                  [&](MatrixView<const float> y, const UnitStage& stage) {
                    QuantizeToValues(y, options, stage, out);
                  });
}

bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, const HadamardTransform& transform,
                                   const QuantizeOptions& given, const Fp4Integers& out) {
  const IeeeArithmetic ieee;
  const QuantizeOptions options = WithHadamardAmax(x, transform, given);
  const bool transposed = out.codes.col_stride != 1 && out.codes.cols > 1;
  return WithTransformed(x, transform, options, transposed,
                         [&](MatrixView<const float> y, const UnitStage& stage) {
                           return QuantizeToFp4Integers(y, options, stage, out);
                         });
}

bool WithHadamardStage(MatrixView<const float> x, const HadamardTransform& transform,
                       const Dialect& dialect, const HadamardUse& use, WordBuffer* memory,
                       const StagedQuantizer& quantize) {
  const IeeeArithmetic ieee;
  CheckHadamard(x, transform.size, x);
  const QuantizeOptions options{.dialect = dialect};  // of the plan, which needs no amax
  const bool columns = use.measures && use.turned && !HasUnitRows(x) && HasUnitColumns(x);
  if (x.size() == 0 || !columns || !UnitsHoldGroups(x, transform.size, options, true)) {
    const float amax = use.measures ? HadamardAmax(x, transform) : 0.0f;
    return WithTransformed(x, transform, options, use.turned,
                           [&](MatrixView<const float> y, const UnitStage& stage) {
                             return quantize(y, stage, amax);
                           });
  }
  const MatrixView<const float> from = x.Transposed();
  const std::size_t stride = RoundUp(from.cols, 16);
  Reserve(memory, from.rows / 2 * stride);
  const HadamardFactors factors = FactorsOf(transform);
  const float amax =
      LargestOfBands(from, factors.size(), [&](std::size_t r, std::size_t c, std::size_t cols) {
        return HadamardColumnsToWords(&from(r, c), from.row_stride, cols, factors,
                                      memory->data() + r / 2 * stride + c, stride);
      });
  const TransformedWords words{from.data, from.row_stride, memory->data(), stride};
  return quantize(x, UnitStage{&words, TakeWords}, amax);
}

bool HadamardQuantizeToFp4Integers(MatrixView<const float> x, const HadamardTransform& transform,
                                   QuantizeOptions* options, const Fp4Integers& out,
                                   WordBuffer* memory) {
  const IeeeArithmetic ieee;
  const bool turned = out.codes.col_stride != 1 && out.codes.cols > 1;
  return WithHadamardStage(x, transform, options->dialect, {.turned = turned, .measures = true},
                           memory,
                           [&](MatrixView<const float> y, const UnitStage& stage, float amax) {
                             options->amax = amax;
                             return QuantizeToFp4Integers(y, *options, stage, out);
                           });
}

}  // namespace fp4lab
