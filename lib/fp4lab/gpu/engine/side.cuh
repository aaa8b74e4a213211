// nn/side/side_term.h on the device: what linear.cu splits off a GEMM's operand, and adds to the
// product.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/device_call.cuh"
#include "fp4lab/gpu/kernels/side.cuh"
#include "fp4lab/gpu/quantize/operand_plan.h"

namespace fp4lab::gpu {

// A tensor (tokens, channels), split. Arrays grow to the largest need and stay.
template <class T>
struct DeviceSplit {
  DeviceArray<T> rest;  // what is quantized, but under `patch`
  DeviceArray<T> mean;  // (channels)
  DeviceArray<T> side;  // (tokens, padded): x~ or the residual of the hot channels, zeros
  DeviceArray<ColumnPart> parts;
  DeviceArray<double> folds;
  DeviceArray<std::uint32_t> is_hot, hot;
  std::size_t count = 0, padded = 0;

  HotList Hot() const { return {hot.data(), count, padded}; }
};

// Memory of side terms.
template <class T>
struct DeviceSide {
  DeviceSplit<T> a, b;         // of a GEMM's operands
  DeviceArray<T> other;        // the hot rows or columns of the other tensor
  DeviceArray<T> decoded;      // the tensor that fprop's operand decodes to
  DeviceArray<float> product;  // the side term, where the product itself does not contain it
  DeviceArray<ColumnPart> parts;
  DeviceArray<double> sums;
  DeviceArray<float> dx;  // before it is rounded
};

// The tensor from which the operand is made: what the term leaves of x. The side of `patch` is not
// made yet.
template <class T>
const T* Split(const SideTerm& term, bool bf16, cudaStream_t stream, std::size_t tokens,
               std::size_t channels, const T* x, DeviceSplit<T>* out) {
  constexpr std::size_t kWhole = 8;  // elements of BF16 that tensor cores load at once
  double* const folds = Reserve(&out->folds, channels);
  const std::size_t size = tokens * channels;
  if (term.Is(SideTermKind::kMean)) {
    T *const mean = Reserve(&out->mean, channels), *const rest = Reserve(&out->rest, size);
    FoldColumns(ColumnFold::kSum, x, tokens, channels, &out->parts, folds, stream);
    TakeMean(folds, bf16, x, tokens, channels, mean, rest, stream);
    return rest;
  }
  const bool squares = term.by == ChannelStatistic::kNorm;
  out->count = std::min(HotChannelCount(term, channels), channels);
  out->padded = RoundUp(out->count, kWhole);
  std::uint32_t *const is_hot = Reserve(&out->is_hot, channels), *const hot = Reserve(&out->hot,
                                                                                      out->padded);
  FoldColumns(squares ? ColumnFold::kSquares : ColumnFold::kLargest, x, tokens, channels,
              &out->parts, folds, stream);
  ChooseHot(folds, channels, out->count, is_hot, hot, stream);
  T* const side = Reserve(&out->side, tokens * out->padded);
  if (term.Is(SideTermKind::kPatch)) return x;
  GatherColumns(out->Hot(), x, tokens, channels, side, stream);
  T* const rest = Reserve(&out->rest, size);
  ClearColumns(is_hot, x, tokens, channels, rest, stream);
  return rest;
}

// Makes the side of `patch` after the operand has been made of x. `turned`: along tokens.
template <class T>
void TakeResidual(const OperandRecipe& recipe, bool bf16, cudaStream_t stream, std::size_t tokens,
                  std::size_t channels, const T* x, const Operand<T>& made, bool turned,
                  DeviceSplit<T>* split) {
  if (!recipe.side.Is(SideTermKind::kPatch)) return;
  const bool decoded = PlanOf(recipe).has_windows;
  const MadeOperand<T> operand{made.values, decoded ? nullptr : &*recipe.format, made.amax,
                               made.row_decode, turned};
  GatherResidual(split->Hot(), bf16, x, operand, tokens, channels, split->side.data(), stream);
}

// The other tensor of fprop or dgrad, rounded: the weight (out, in).
template <class T>
struct SideWeight {
  const T* w = nullptr;
  std::size_t out = 0, in = 0;
};

// c (tokens, n) += the side term of fprop's input or dgrad's gradient. `dgrad`: channels are rows
// of the weight, else columns.
template <class T>
void AddSideAlongChannels(const SideTerm& term, const DeviceCall& call, std::size_t tokens,
                          const SideWeight<T>& weight, bool dgrad, const DeviceSplit<T>& split,
                          DeviceSide<T>* side, float* c) {
  const std::size_t n = dgrad ? weight.in : weight.out, channels = dgrad ? weight.out : weight.in;
  if (term.Is(SideTermKind::kMean)) {
    GemmProblem<T> product{1, n, channels, split.mean.data(), weight.w};
    product.b_transposed = !dgrad;
    product.d = Reserve(&side->product, n);
    call.gemms->Run(product, call.lane);
    return AddRow(product.d, tokens, n, c, call.stream);
  }
  if (split.count == 0) return;
  T* const other = Reserve(&side->other, n * split.padded);
  if (dgrad) {
    GatherRows(split.Hot(), weight.w, n, other, call.stream);
  } else {
    GatherColumns(split.Hot(), weight.w, n, channels, other, call.stream);
  }
  GemmProblem<T> product{tokens, n, split.padded, split.side.data(), other};
  product.b_transposed = !dgrad;
  product.tokens_vary = call.tokens_vary;
  product.c = product.d = c;
  call.gemms->Run(product, call.lane);
}

// The tensor with which a sided operand of wgrad is multiplied: (tokens, n), rounded. `sums`: of
// its columns, if a split has them already.
template <class T>
struct SideOther {
  const T* x = nullptr;
  std::size_t n = 0;
  const double* sums = nullptr;
};

// dw += the side term of an operand of wgrad with `channels` channels. dw (channels, n) if the
// operand is the gradient, else (n, channels).
template <class T>
void AddSideAlongTokens(const SideTerm& term, const DeviceCall& call, std::size_t tokens,
                        std::size_t channels, const SideOther<T>& other, bool is_gradient,
                        const DeviceSplit<T>& split, DeviceSide<T>* side, float* dw) {
  const std::size_t n = other.n;
  if (term.Is(SideTermKind::kMean)) {
    const double* sums = other.sums;
    if (sums == nullptr) {
      double* const own = Reserve(&side->sums, n);
      FoldColumns(ColumnFold::kSum, other.x, tokens, n, &side->parts, own, call.stream);
      sums = own;
    }
    float* const z = Reserve(&side->product, n);
    RoundSums(sums, n, z, call.stream);
    if (is_gradient) return AddOuter(split.mean.data(), z, channels, n, dw, call.stream);
    return AddOuter(z, split.mean.data(), n, channels, dw, call.stream);
  }
  if (split.count == 0) return;
  GemmProblem<T> product{split.padded, n, tokens, split.side.data(), other.x};
  product.a_transposed = true;
  product.tokens_vary = call.tokens_vary;
  product.d = Reserve(&side->product, split.padded * n);
  call.gemms->Run(product, call.lane);
  AddToHot(split.Hot(), product.d, n, !is_gradient, channels, dw, call.stream);
}

}  // namespace fp4lab::gpu
