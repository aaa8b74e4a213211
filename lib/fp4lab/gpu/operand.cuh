// How linear.cu makes a tensor into an operand of a product, or into two.
#pragma once

#include <type_traits>
#include <vector>

#include "fp4lab/dialect/tuned.h"
#include "fp4lab/gpu/delayed_scaling.cuh"
#include "fp4lab/gpu/dialect_operand.cuh"
#include "fp4lab/gpu/hadamard.cuh"
#include "fp4lab/gpu/linear.cuh"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::gpu {

// Whether quantizing the transpose gives the transposed values; nn/linear.cc.
inline bool SharesTranspose(const OperandRecipe& a, const OperandRecipe& b) {
  if (!(a == b) || a.hadamard != 0) return false;
  return !a.format || (!TakesRandomBits(*a.format) && !a.format->row_scaled &&
                       a.format->block_rows == a.format->block_cols);
}

// Whether the operand is its tensor as it is.
inline bool IsPlain(const OperandRecipe& recipe) { return !recipe.format && recipe.hadamard == 0; }

// Whether the kernels of quantize.cuh have the operand's transform, or there is none: 16 or 32 with
// Transformer Engine's signs. hadamard.cuh has the others, as a launch of its own.
inline bool HasTunedTransform(const OperandRecipe& recipe) {
  return recipe.hadamard == 0 || ((recipe.hadamard == 16 || recipe.hadamard == 32) &&
                                  recipe.signs == HadamardSignSource::kTransformerEngine);
}

// The kernel of quantize.cuh that computes an operand's dialect: of blocks of 16 or 32 or one scale
// for the tensor, to nearest or with 16 bits of Philox; integers of 4 bits are none of its
// elements. nullopt: none does, or nothing is quantized.
inline std::optional<TunedQuantizer> KernelFor(const OperandRecipe& recipe) {
  if (!recipe.format || recipe.format->element == FormatId::kE0M3) return std::nullopt;
  const std::optional<TunedQuantizer> tuned = TunedFor(*recipe.format);
  if (!tuned || tuned->rounding == Rounding::kTowardZero || tuned->random_bits != 16) {
    return std::nullopt;
  }
  const bool philox = recipe.random == RandomGenerator::kPhilox;
  if (tuned->rounding == Rounding::kStochastic && !philox) return std::nullopt;
  const int rows = tuned->format.block_rows, cols = tuned->format.block_cols;
  const bool has_blocks = cols == 0 || ((cols == 16 || cols == 32) && (rows == 1 || rows == cols));
  return has_blocks ? tuned : std::nullopt;
}
inline std::optional<BlockFormat> BlockFormatOf(const OperandRecipe& recipe) {
  const std::optional<TunedQuantizer> kernel = KernelFor(recipe);
  if (!kernel) return std::nullopt;
  return kernel->format;
}

// Whether the operand's values are those of cuda/dialect_values.h, by a launch of its own.
inline bool TakesAnyDialect(const OperandRecipe& recipe) {
  return recipe.format && !KernelFor(recipe);
}

// Whether its tensor has a scale, and whether each row has one instead.
inline bool HasTensorAmax(const OperandRecipe& recipe) {
  return recipe.format && HasLevelTwo(*recipe.format) && !recipe.format->row_scaled;
}
inline bool HasRowScales(const OperandRecipe& recipe) {
  return recipe.format && HasLevelTwo(*recipe.format) && recipe.format->row_scaled;
}
// Whether it contributes to alpha: a tensor's scale, a prescale.
inline bool HasAlpha(const OperandRecipe& recipe) {
  return HasTensorAmax(recipe) ||
         (recipe.format && !recipe.format->row_scaled && recipe.format->prescale != 1.0f);
}
// Whether the operand takes the largest magnitude of its tensor, NaN left out, which others may
// leave for it.
inline bool NeedsAmax(const OperandRecipe& recipe) {
  return HasTensorAmax(recipe) && recipe.format->nan != NanRule::kTensor;
}

inline bool HasDelayedScaling(const OperandRecipe& recipe) { return recipe.delayed.length > 0; }

// Where an operand lies: (rows, cols), the reduction axis along rows or along cols.
struct Place {
  std::size_t rows = 0, cols = 0;
  bool along_rows = false;
  std::size_t QuantizedRows() const { return along_rows ? cols : rows; }
};

// Copies the operand and its values to the host, for diagnostics. `amax`: that of the tensor, or of
// each row of the quantized matrix, as floats.
template <class T>
void Observe(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
             const Place& place, const T* x, const T* values, const void* amax) {
  const auto fetch = [&](const T* from) {
    std::vector<T> raw(place.rows * place.cols);
    Check(cudaMemcpyAsync(raw.data(), from, raw.size() * sizeof(T), cudaMemcpyDeviceToHost,
                          call.stream),
          "copy from the GPU");
    Check(cudaStreamSynchronize(call.stream), "training");
    Matrix<float> matrix(place.rows, place.cols);
    for (std::size_t i = 0; i < raw.size(); ++i) matrix.values[i] = ToFloat(raw[i]);
    return matrix;
  };
  Matrix<float> before = fetch(x), after = fetch(values);
  const auto oriented = [&](Matrix<float>& m) {
    return place.along_rows ? m.View().Transposed() : m.View();
  };
  if (recipe.hadamard != 0) {
    RandomHadamard(oriented(before), TransformOf(recipe, {call.random}), oriented(before));
  }
  DialectOptions options{.source = RandomSource{call.random, recipe.random}};
  options.source->stream.tensor += static_cast<std::uint32_t>(operand);
  if (HasLevelTwo(*recipe.format)) {
    options.amax.resize(HasRowScales(recipe) ? place.QuantizedRows() : 1);
    Check(cudaMemcpy(options.amax.data(), amax, options.amax.size() * sizeof(float),
                     cudaMemcpyDeviceToHost),
          "copy from the GPU");
  }
  (*call.observer)(operand, oriented(before), oriented(after), *recipe.format, options);
}

inline QuantizeJob JobOf(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         const Place& place) {
  const std::optional<TunedQuantizer> kernel = KernelFor(recipe);
  QuantizeJob job{.rows = place.rows,
                  .cols = place.cols,
                  .along_rows = place.along_rows,
                  .format = BlockFormatOf(recipe),
                  .rounding = kernel ? kernel->rounding : Rounding::kNearestEven,
                  .random = call.random,
                  .hadamard = HasTunedTransform(recipe) ? recipe.hadamard : 0};
  job.random.tensor += static_cast<std::uint32_t>(operand);
  return job;
}

// *amax, that of the tensor, for delayed scaling: DelayedAmax of nn/linear_operand.h.
inline void DelayAmax(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                      std::uint32_t* amax) {
  if (!HasDelayedScaling(recipe)) return;
  const bool is_weight = operand == kFpropWeight || operand == kDgradWeight;
  TakeDelayedAmax(call.histories.Of(operand), is_weight || call.histories.records, amax,
                  call.stream);
}

// Prepare for a dialect that no kernel of quantize.cuh computes, any other transform being done.
template <class T>
Operand<T> PrepareAnyDialect(const OperandRecipe& recipe, LinearOperand operand,
                             const DeviceCall& call, const Place& place, const T* x,
                             std::uint32_t* amax, T* out, bool measured, RowScales* rows) {
  const Dialect& d = *recipe.format;
  const QuantizeJob job = JobOf(recipe, operand, call, place);  // of the transform
  const T* from = x;
  if (job.hadamard != 0) {
    QuantizeToValues(job, x, nullptr, out, call.stream);
    from = out;
  }
  Operand<T> made{out, amax};
  float* numbers = reinterpret_cast<float*>(amax);
  if (HasRowScales(recipe)) numbers = rows->Amax(place.QuantizedRows());
  if (HasLevelTwo(d) && !(measured && NeedsAmax(recipe))) {
    MeasureLevelTwo(d, from, place.rows, place.cols, place.along_rows, numbers, call.stream);
  }
  DelayAmax(recipe, operand, call, amax);
  cuda::QuantizeToValues(d,
                         {.x = MatrixOf(from, place.rows, place.cols),
                          .transposed = place.along_rows,
                          .amax = numbers,
                          .source = {job.random, recipe.random},
                          .values = out},
                         call.stream);
  if (HasRowScales(recipe)) {
    float* const decode = rows->Decode(place.QuantizedRows());
    DecodeRows(d, numbers, place.QuantizedRows(), decode, call.stream);
    made.row_decode = decode;
  }
  return made;
}

// Prepare without an observer, any transform that no kernel of quantize.cuh has being done.
template <class T>
Operand<T> PrepareUnseen(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                         const Place& place, const T* x, std::uint32_t* amax, T* out,
                         RowScales* rows, bool measured, AlphaJob* alpha) {
  if (TakesAnyDialect(recipe)) {
    return PrepareAnyDialect(recipe, operand, call, place, x, amax, out, measured, rows);
  }
  const QuantizeJob job = JobOf(recipe, operand, call, place);
  if (!job.format && job.hadamard == 0) return {x, nullptr};
  if (NeedsAmax(recipe) && !measured) {
    if (HasDelayedScaling(recipe)) {  // what the operand was quantized with last may be there
      Check(cudaMemsetAsync(amax, 0, sizeof *amax, call.stream), "memset");
    }
    MeasureAmax(job, x, amax, call.stream);
  }
  DelayAmax(recipe, operand, call, amax);
  QuantizeToValues(job, x, amax, out, call.stream, alpha != nullptr ? *alpha : AlphaJob{});
  if (alpha != nullptr) alpha->to = nullptr;
  return {out, amax};
}

// x holds rounded values. Nothing is copied that can be used as it is; out may be x where nobody
// looks. `measured`: *amax is there, if the operand NeedsAmax. `rows` has room for scales of rows.
// `alpha` is done where a tuned kernel runs, and is then no longer wanted.
template <class T>
Operand<T> Prepare(const OperandRecipe& recipe, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* out, RowScales* rows,
                   bool measured = false, AlphaJob* alpha = nullptr) {
  if (IsPlain(recipe)) return {x, nullptr};
  const T* from = x;
  if (!HasTunedTransform(recipe)) {
    TransformGroups(TransformOf(recipe, {call.random}), HadamardWay::kForth, place.rows, place.cols,
                    place.along_rows, x, out, call.stream);
    from = out;
    measured = false;
  }
  const Operand<T> made =
      PrepareUnseen(recipe, operand, call, place, from, amax, out, rows, measured, alpha);
  if (call.observer != nullptr && recipe.format) {
    const void* const numbers =
        HasRowScales(recipe) ? static_cast<const void*>(rows->Amax(place.QuantizedRows())) : amax;
    Observe(recipe, operand, call, place, x, out, numbers);
  }
  return made;
}

// What an operand of the backward pass that is made of fprop's values starts from: x (`place`, its
// reduction axis in fprop along cols) as fprop's operand of it decodes, in `memory`, or x itself
// where that is the same. The random bits of that operand are the call's; *amax, zeroed or that
// operand's, and `rows` hold its numbers meanwhile.
template <class T>
const T* DecodedOf(const OperandRecipe& fprop, LinearOperand operand, const DeviceCall& call,
                   const Place& place, const T* x, std::uint32_t* amax, T* memory,
                   RowScales* rows) {
  if (IsPlain(fprop)) return x;
  DeviceCall unseen = call;
  unseen.observer = nullptr;
  const Operand<T> made = Prepare(fprop, operand, unseen, place, x, amax, memory, rows);
  DecodeValues(fprop.format, made.amax, made.row_decode, place.rows, place.cols, memory,
               call.stream);
  if (fprop.hadamard != 0) {
    TransformGroups(TransformOf(fprop, {call.random}), HadamardWay::kBack, place.rows, place.cols,
                    false, memory, memory, call.stream);
  }
  return memory;
}

// Whether both operands start from one tensor and take its largest magnitude in this call.
inline bool NeedAmaxOfOne(const OperandRecipe& row, const OperandRecipe& column) {
  if (HasDelayedScaling(row) || HasDelayedScaling(column)) return false;
  return NeedsAmax(row) && NeedsAmax(column) && row.hadamard == 0 && !column.from_fprop;
}
// Whether the amax of both operands of one tensor, along its rows and down its columns, come from
// one pass over it.
inline bool MeasuresBoth(const OperandRecipe& row, const OperandRecipe& column) {
  return NeedAmaxOfOne(row, column) && column.hadamard != 0 && HasTunedTransform(column);
}
// Whether both have one amax.
inline bool SharesAmax(const OperandRecipe& row, const OperandRecipe& column) {
  return NeedAmaxOfOne(row, column) && column.hadamard == 0;
}

template <class T>
AmaxPlaces PlacesOf(const OperandRecipe& row, const OperandRecipe& column, std::size_t tokens,
                    std::size_t cols, std::uint32_t* plain, std::uint32_t* transformed) {
  if (!std::is_same_v<T, Bf16> || tokens % kAmaxRows != 0 || cols % 2 != 0) return {};
  if (!NeedsAmax(row) || row.hadamard != 0 || HasDelayedScaling(row)) return {};
  const bool both = MeasuresBoth(row, column) && column.hadamard == static_cast<int>(kAmaxRows);
  return {plain, both ? transformed : nullptr};
}

// One tensor (tokens, cols) as two operands: along its rows, and down its columns.
struct Pair {
  const OperandRecipe &row, &column;
  LinearOperand row_operand, column_operand;
  std::size_t tokens, cols;
};

// The largest magnitudes of x for both operands, those that are not there yet.
template <class T>
void MeasureBothOf(const Pair& pair, const DeviceCall& call, const T* x,
                   const AmaxPlaces& measured) {
  if (measured.transformed != nullptr) return;
  const QuantizeJob job =
      JobOf(pair.column, pair.column_operand, call, {pair.tokens, pair.cols, true});
  MeasureBoth(job, x, call.amax + pair.row_operand, call.amax + pair.column_operand, call.stream);
}

// Whether one kernel makes both operands: the largest magnitudes are known, and nobody looks.
template <class T>
bool QuantizesTogether(const Pair& pair, const DeviceCall& call) {
  if (TakesAnyDialect(pair.row) || TakesAnyDialect(pair.column)) return false;
  if (!HasTunedTransform(pair.row) || !HasTunedTransform(pair.column)) return false;
  if (pair.column.from_fprop) return false;
  const bool known =
      MeasuresBoth(pair.row, pair.column) || (!NeedsAmax(pair.row) && !NeedsAmax(pair.column));
  return std::is_same_v<T, Bf16> && known && call.observer == nullptr &&
         QuantizesBoth(JobOf(pair.row, pair.row_operand, call, {}),
                       JobOf(pair.column, pair.column_operand, call, {}));
}

// The two alphas are done, and then no longer wanted.
template <class T>
void QuantizeTogether(const Pair& pair, const DeviceCall& call, const T* x, AlphaJob* row_alpha,
                      T* row_out, AlphaJob* column_alpha, T* column_out) {
  if constexpr (std::is_same_v<T, Bf16>) {
    QuantizeBoth(JobOf(pair.row, pair.row_operand, call, {pair.tokens, pair.cols, false}),
                 call.amax + pair.row_operand, *row_alpha, row_out,
                 JobOf(pair.column, pair.column_operand, call, {pair.tokens, pair.cols, true}),
                 call.amax + pair.column_operand,
                 column_alpha != nullptr ? *column_alpha : AlphaJob{}, column_out, x, call.stream);
    row_alpha->to = nullptr;
    if (column_alpha != nullptr) column_alpha->to = nullptr;
  }
}

// Where the largest magnitude of wgrad's input is, and whether the forward pass has left it there.
inline bool KnowsWgradInputAmax(const LinearRecipe& recipe) {
  return !NeedsAmax(recipe.wgrad.b) || SharesAmax(recipe.fprop.a, recipe.wgrad.b) ||
         MeasuresBoth(recipe.fprop.a, recipe.wgrad.b);
}
inline std::uint32_t* WgradInputAmax(const LinearRecipe& recipe, const DeviceCall& call) {
  const bool shares = SharesAmax(recipe.fprop.a, recipe.wgrad.b);
  return call.amax + (shares ? kFpropInput : kWgradInput);
}

}  // namespace fp4lab::gpu
