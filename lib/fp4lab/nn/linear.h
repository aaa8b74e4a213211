// A linear layer without bias, y = x w^T, whose three GEMMs each take their operands in a stated
// number format: what a training recipe says about one linear.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "fp4lab/base/aligned.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/quantize.h"
#include "fp4lab/nn/delayed_scaling.h"
#include "fp4lab/nn/rmsnorm.h"
#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {

// Whose signs a Hadamard transform has. Both operands of a GEMM have the same.
enum class HadamardSignSource : std::uint8_t {
  kTransformerEngine,  // its fixed vector of 16, again and again
  kNone,
  kSeeded,  // one vector, drawn from the seed of the run
  kFresh    // one vector for each step, drawn from the seed and the step
};

struct NamedSignSource {
  HadamardSignSource source;
  std::string_view name;
};
inline constexpr std::array kHadamardSignSources = {
    NamedSignSource{HadamardSignSource::kTransformerEngine, "te"},
    NamedSignSource{HadamardSignSource::kNone, "none"},
    NamedSignSource{HadamardSignSource::kSeeded, "seeded"},
    NamedSignSource{HadamardSignSource::kFresh, "fresh"},
};

// One operand of one GEMM. Its blocks and its Hadamard groups lie along the GEMM's reduction axis.
struct OperandRecipe {
  std::optional<Dialect> format;  // nullopt: not quantized; any dialect, its rounding included
  int hadamard = 0;               // 0: none; else RandomHadamard of that size
  HadamardSignSource signs = HadamardSignSource::kTransformerEngine;
  RandomGenerator random = RandomGenerator::kPhilox;  // of stochastic rounding
  // dgrad's weight and wgrad's input: made of what fprop's operand decodes to, rounded to BF16
  // where operands are, instead of the tensor itself.
  bool from_fprop = false;
  DelayedScaling delayed = {};  // of a format whose tensor has a scale

  friend constexpr bool operator==(const OperandRecipe&, const OperandRecipe&) = default;
};

struct GemmRecipe {
  OperandRecipe a, b;
  // How the product adds; null: Gemm's order, by the blocks of the operands.
  const Accumulation* accumulation = nullptr;
  friend constexpr bool operator==(const GemmRecipe&, const GemmRecipe&) = default;
};

// x (tokens, in), w (out, in), y and dy (tokens, out).
struct LinearRecipe {
  // Operands are rounded to BF16 (RNE) first, the dtype in which Transformer Engine's modules see
  // them; false: they stay binary32.
  bool bf16 = true;
  GemmRecipe fprop;  // y  = x w^T     a = input, b = weight, along in
  GemmRecipe dgrad;  // dx = dy w      a = grad,  b = weight, along out
  GemmRecipe wgrad;  // dw = dy^T x    a = grad,  b = input,  along tokens

  friend constexpr bool operator==(const LinearRecipe&, const LinearRecipe&) = default;
};

// The six operands, in the order in which RandomStream::tensor counts them.
enum LinearOperand { kFpropInput, kFpropWeight, kDgradGrad, kDgradWeight, kWgradGrad, kWgradInput };
inline constexpr std::uint32_t kLinearOperands = 6;
// "fprop.input", ..., "wgrad.input".
std::string_view OperandName(LinearOperand operand);

// Sees an operand before and after its quantization (without the tensor's scale): for diagnostics.
using OperandObserver = std::function<void(LinearOperand, MatrixView<const float> before,
                                           MatrixView<const float> values, const Dialect& dialect,
                                           const DialectOptions& options)>;

// One use of a linear: stochastic rounding of operand k takes `random` with tensor + k.
struct LinearCall {
  RandomStream random;
  const OperandObserver* observer = nullptr;
  AmaxHistories histories = {};  // read and written where an operand has delayed scaling
};

// An operand as a GEMM takes it: values, or FP4 integers with their scales. Both lie in memory as
// what they were made from.
struct LinearOperandValues {
  FloatBuffer memory;
  MatrixView<const float> values;  // no data: only integers were made
  ByteBuffer code_memory;
  FloatBuffer scale_memory;
  Fp4Operand integers;
  std::size_t block = 0;  // columns of integers.codes to a scale
  bool has_integers = false;
  float amax = 0.0f;              // of the tensor, where the format has a tensor scale
  std::vector<float> row_decode;  // D of each row, where the format has one a row
  bool ready = false;
};

// The transform of an operand for one call; its `hadamard` is not 0.
HadamardTransform TransformOf(const OperandRecipe& recipe, const LinearCall& call);

// A weight (out, in) and its operands as integers, kept until the weight changes: micro-batches
// share them. Values, four times as large, are kept of small weights and where they are random.
struct LinearWeight {
  MatrixView<const float> w;
  LinearRecipe made_for;
  LinearOperandValues fprop, dgrad;

  void Changed() { fprop.ready = dgrad.ready = false; }
};

// Memory that linears share; it grows to the largest need and stays.
struct LinearScratch {
  LinearOperandValues a, b, weight;
  FloatBuffer grad;
  WordBuffer transformed;  // an operand between its transform and its integers
  FloatBuffer decoded;     // what fprop's operand stands for, where the backward pass starts there
};

// x (tokens, in), row-major. Where it is known to hold BF16 values already, `rounded` says so, and
// `amax` may be TensorAmax(x): then it is not rounded again, nor its amax found out.
struct LinearInput {
  MatrixView<const float> x;
  bool rounded = false;
  std::optional<float> amax = {};
};

// An operand becomes, in this order: BF16 (if the recipe says so); transformed (`hadamard`); values
// of `format`, under the amax of its tensor or, with delayed scaling, of the steps before. A GEMM
// with two block formats adds its blocks in order (GemmOptions::block = the smaller block_cols);
// any other is one sum over the whole axis. Where both operands are FP4 in blocks of the same
// length the GEMM runs on integers (Fp4Gemm), except with an observer or with scales beyond its
// range: the same bits. alpha undoes the tensors' scales; those of rows are undone after it, y =
// fl(fl(y * D_a(row)) * D_b(column)). The dgrad weight is the transposed fprop weight where that is
// the same thing (equal recipes, nearest rounding, and square blocks, one scale, or no format). A
// GEMM with an accumulation of its own is GemmAs of the operands' codes and scales instead, several
// times slower.

// y = x w^T, or y = y + x w^T.
void LinearForward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                   LinearWeight* weight, LinearScratch* scratch, Write write, MatrixView<float> y);

// dx = dy w (overwritten), dw = dw + dy^T x. dy (tokens, out) may be rounded already, as x may.
void LinearBackward(const LinearRecipe& recipe, const LinearCall& call, const LinearInput& input,
                    LinearWeight* weight, const LinearInput& dy, LinearScratch* scratch,
                    MatrixView<float> dx, MatrixView<float> dw);

}  // namespace fp4lab
