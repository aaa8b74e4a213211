// Kernels of a training step: the functions of nn/ on device memory, enqueued on a stream.
//
// T is the type of a linear's operands: Bf16 if the recipe rounds them to BF16, else float. All
// matrices are row-major. "exact" below: the CPU's bits for the same inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/nn/activation.h"
#include "fp4lab/nn/loss.h"

namespace fp4lab::gpu {

// ---- The amax of a result, measured by the kernel that computes the result

// Places for the amax of a BF16 matrix, and for the amax of its columns after the Hadamard
// transform of 16 rows, as MeasureBoth of quantize.cuh computes them. A null place is not wanted;
// `transformed` is not wanted without `plain`. The matrix must have whole groups of 16 rows and an
// even number of columns.
struct AmaxPlaces {
  std::uint32_t *plain = nullptr, *transformed = nullptr;
};
inline constexpr std::size_t kAmaxRows = 16;

// ---- RMSNorm (nn/rmsnorm.h), exact but for the gain's gradient

// x (rows, cols); y is rounded to T, and `amax` is measured of it; inverse_rms (rows).
template <class T>
void RmsNorm(const float* x, const float* gain, float epsilon, std::size_t rows, std::size_t cols,
             T* y, float* inverse_rms, cudaStream_t stream, const AmaxPlaces& amax = {});

inline constexpr std::size_t kGainChunk = 32;  // rows of one partial sum of the gain's gradient
inline constexpr std::size_t GainChunks(std::size_t rows) { return DivideUp(rows, kGainChunk); }

// dx is overwritten or, if `accumulate`, added to. dx_rounded is dx rounded to T, and `amax` is
// measured of it; dx_rounded may be null if T is float. gain_partials (GainChunks(rows), cols) is
// for SumGains.
template <class T>
void RmsNormBackward(const float* x, const float* gain, const float* inverse_rms, const float* dy,
                     bool accumulate, std::size_t rows, std::size_t cols, float* dx, T* dx_rounded,
                     float* gain_partials, cudaStream_t stream, const AmaxPlaces& amax = {});

// Where the gain of a norm lies in the gradients, and its size.
struct GainPlace {
  std::size_t offset = 0;
  std::uint32_t cols = 0;
};
// gradients(places[n].offset + c) += the sum over chunks of norm n's partials(chunk, c), in a fixed
// order: all norms at once. Norm n's partials begin at partials + n * stride. `places` (norms) is
// on the device, with at most `widest` columns.
void SumGains(const float* partials, std::size_t stride, std::size_t norms, std::size_t chunks,
              const GainPlace* places, std::size_t widest, float* gradients, cudaStream_t stream);

// ---- Embedding (nn/embedding.h)

void Embedding(const float* table, const std::uint16_t* tokens, std::size_t rows, std::size_t cols,
               float* y, cudaStream_t stream);

// The rows of a micro-batch sorted by token, for sums without atomics (SortTokens of
// engine/tokens.h).
inline constexpr std::size_t kSegmentRows = 64;
struct TokenSegments {
  const std::uint32_t* rows;      // all rows, by token, ascending for each
  const std::uint32_t* first;     // (segments + 1): where a segment of one token begins in `rows`
  const std::uint32_t* of_token;  // (vocabulary + 1): a token's first segment
  std::size_t segments, vocabulary;
};

// dtable(token, c) += the sum of dy over the token's rows: segments of at most 64 rows, each
// ascending from +0, then the segments in order. `partials` (segments, cols).
void EmbeddingBackward(const TokenSegments& tokens, const float* dy, std::size_t cols,
                       float* partials, float* dtable, cudaStream_t stream);

// ---- Rotary positions (nn/attention/rope.h), exact for A = float

struct RopeShape {
  std::size_t rows, positions, heads, kv_heads, head_dim;
  constexpr std::size_t Width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// out = qkv with queries and keys rotated (values copied), rounded to A. out may be qkv. Null cos
// and sin rotate nothing.
template <class A>
void Rope(const RopeShape& shape, const float* cos, const float* sin, const float* qkv, A* out,
          cudaStream_t stream);
// The gradient of Rope, rounded to T. out may be d_qkv.
template <class T>
void RopeBackward(const RopeShape& shape, const float* cos, const float* sin, const float* d_qkv,
                  T* out, cudaStream_t stream);

// ---- RMSNorm of each head's queries and keys, exact but for the gains' gradients

struct HeadGains {
  const float *queries, *keys;  // (head_dim), of all heads
};

// out = qkv with each head's queries and keys normalized over head_dim (values copied). inverse_rms
// (rows, heads + kv_heads). out must not be qkv. head_dim at most kMostHeadDim.
inline constexpr std::size_t kMostHeadDim = 256;
void NormHeads(const RopeShape& shape, const float* qkv, const HeadGains& gains, float epsilon,
               float* out, float* inverse_rms, cudaStream_t stream);
// The gradient of qkv from that of NormHeads' result, rounded to T. out may be d. `partials`
// (GainChunks(rows), head_dim) of the gain of queries and of keys are for SumGains. (From, To):
// (float, float), (float, Bf16), (Bf16, Bf16).
template <class From, class To>
void NormHeadsBackward(const RopeShape& shape, const float* qkv, const HeadGains& gains,
                       const float* inverse_rms, const From* d, To* out, float* query_partials,
                       float* key_partials, cudaStream_t stream);

// ---- Activations (nn/activation.h), exact

// up (rows, ffn), SwiGLU: (rows, 2 ffn), gate first; out (rows, ffn). SwiGLU measures no amax.
template <class T>
void Activate(Activation activation, const float* up, std::size_t rows, std::size_t ffn, T* out,
              cudaStream_t stream, const AmaxPlaces& amax = {});
template <class T>
void ActivateBackward(Activation activation, const float* up, const float* dy, std::size_t rows,
                      std::size_t ffn, T* d_up, cudaStream_t stream, const AmaxPlaces& amax = {});
// The amax places that Activate and ActivateBackward fill, of `places`.
inline AmaxPlaces MeasuredBy(Activation activation, const AmaxPlaces& places) {
  return activation == Activation::kSwiglu ? AmaxPlaces{} : places;
}

// ---- Loss (nn/loss.h), exact

// logits = cap tanh(logits / cap), in place.
void SoftCap(float cap, std::size_t size, float* logits, cudaStream_t stream);
// logits = factor * logits, in place.
void MultiplyLogits(float factor, std::size_t size, float* logits, cudaStream_t stream);
void CrossEntropy(const float* logits, const std::uint16_t* targets, std::size_t rows,
                  std::size_t vocabulary, double* row_loss, cudaStream_t stream);
// TeacherLoss (nn/loss.h) in device memory.
struct DeviceTeacherLoss {
  const float* logits = nullptr;  // (R, V); null: no teacher
  float temperature = 1.0f, share = 1.0f;
  double* row_kl = nullptr;  // (R), a result
};
// The gradient is multiplied by `multiplier` before it is rounded to T.
template <class T>
void CrossEntropyGradient(const float* logits, const std::uint16_t* targets, float scale,
                          const LossOptions& options, std::size_t rows, std::size_t vocabulary,
                          double* row_loss, T* dlogits, cudaStream_t stream,
                          float multiplier = 1.0f, const DeviceTeacherLoss& teacher = {});

// sums(i) = the sum of row_loss over chunk i of 1024 rows, by a fixed tree.
inline constexpr std::size_t kLossChunk = 1024;
void SumLosses(const double* row_loss, std::size_t rows, double* sums, cudaStream_t stream);

// ---- The gradient's norm (nn/optimizer/optimizer.h), exact

// partial(i) = the sum of squares of chunk i; the partials, added in order, are nn's SumOfSquares.
// x (batch, size), partial (batch, chunks).
inline constexpr std::size_t kSquaresChunk = 4096;
void SumSquares(const float* x, std::size_t size, double* partial, cudaStream_t stream,
                std::size_t batch = 1);

// ---- Rounding

// out = x rounded to BF16, to nearest even, also where To is float. (From, To): (float, Bf16),
// (float, float), (Bf16, float).
template <class From, class To>
void RoundTo(const From* x, std::size_t size, To* out, cudaStream_t stream);

}  // namespace fp4lab::gpu
