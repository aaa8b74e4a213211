// The verdict on a matrix product that a device returned.
//
// Let p_k = a_k b_k be the exact products (block scales included), S = sum p_k, A = sum |p_k|. A
// device that computes d = out(alpha * y), y its sum, is judged against the exact alpha * S:
//
// any-order: y is a sum of the p_k in binary32, in any order and any tree, each product and each
//   addition rounded once, to nearest or toward zero. A rounding multiplies by 1 + delta,
//   |delta| <= u = 2^-23; a term passes its own rounding and at most K - 1 additions (additions
//   that underflow are exact, a product that underflows errs by less than 2^-149). So
//     |y - S| <= ((1 + u)^K - 1) A + (1 + u)^K K 2^-149
//   Sums that keep more bits in between, or fuse, round less often and satisfy the bound as well.
//
// a tensor core's bound: chained steps of L terms (L products or 4 groups) and the accumulator,
//   each truncated to a multiple of 2^(E - F), then one output rounding of relative error u' (2^-23
//   for a cut to 24 bits, 2^-13 for 14 bits, 2^-11 for RNE to binary16) or absolute error g on the
//   subnormal grid. With G = max(2^R, 2^-126, 2^floor), R the largest raw exponent of a product
//   (of its scales, for groups) and e the error so far, 2^E <= G + |c| <= G + A + e =: B. A step's
//   truncations err by less than (L + 1) 2^-F B, and the sum before rounding is at most B with that
//   added, so B' <= B (1 + (L + 1) 2^-F) (1 + u') + g, and after J steps
//     |y - S| <= (A + G) (f^J - 1) + J f^J g,   f = (1 + (L + 1) 2^-F) (1 + u')
//   An instruction of kFp8InFp16 counts as three steps, the IEEE addition being the third.
//
// Then alpha and the output type, for every v with |v - S| <= e:
//     |out(alpha v) - alpha S| <= |alpha| e + w (|alpha| (A + e)) + h
//   with w = 2^-24 (0 where alpha is 1) plus 2^-8 for BF16, 2^-11 for FP16 (and their product), h
//   half the subnormal spacings. An infinity or NaN is inside where A with its error, or alpha A
// with its, may overflow the accumulator or the output type.
//
// With C, d = out(fl(fl(alpha y) + fl(beta c))), fused or not: two roundings of 2^-24 more, of
// numbers up to |alpha| (A + e) + |beta c|, to which the output's rounding applies as well. A beta
// of 0 means that C is not read.
//
// Everything is evaluated in binary64 and rounded up: a factor 1 + 2^-40 covers the few hundred
// roundings of an evaluation, 1 + K 2^-52 the sum A. |d - alpha S| is exact (ExactSum).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/tensor/mma/mma_operand.h"

namespace fp4lab {

// The product of a device: d (M, N) from a (M, K) and b (N, K).
struct GemmClaim {
  const MmaOperand& a;
  const MmaOperand& b;
  MatrixView<const float> d;
  float alpha = 1.0f;
  GemmOutput output = GemmOutput::kFp32;
  // For causes of a wrong product only: the operands' factors of alpha (1: unknown), and what D
  // held before the kernel ran (empty: unknown).
  float tensor_scale_a = 1.0f, tensor_scale_b = 1.0f;
  MatrixView<const float> before = {};
  MatrixView<const float> c = {};  // (M, N), added as beta c; empty: none
  float beta = 0.0f;

  bool HasC() const { return beta != 0.0f && c.size() > 0; }
};

enum class GemmVerdict : std::uint8_t {
  kEqual,         // bit for bit the accumulation's result (any NaN equals any NaN)
  kUndetermined,  // equal under some reading of OpenChoices; the readings differ on this input
  kInside,        // not equal, every element within the bound
  kOutside        // an element is outside of the bound
};
std::string_view Name(GemmVerdict verdict);

// One element, with the numbers behind its verdict.
struct GemmElement {
  std::size_t row = 0, col = 0;
  float got = 0, want = 0;      // want: the accumulation's answer
  float exact = 0;              // alpha * S rounded to binary32
  double error = 0, bound = 0;  // |got - alpha S|, rounded up; 0 and 0 where alpha S is special
  // Where alpha S is NaN or infinite: the first operand with a NaN or infinity in its row `row` (A)
  // or `col` (B), and the place along K; 'C' for that element of C; ' ' where all are finite.
  char special_in = ' ';
  std::size_t special_k = 0;
};

struct GemmJudgement {
  GemmVerdict verdict = GemmVerdict::kEqual;
  std::string_view bound = {};             // "any-order", or "tensor-core" for a model's bound
  std::size_t different = 0;               // elements that differ from the accumulation's answer
  std::size_t outside = 0;                 // elements outside of the bound
  Rectangle outside_in = {};               // the smallest rectangle with all of them
  GemmElement first_different = {};        // the first one, where there is one
  GemmElement worst = {};                  // the largest error / bound; the first one outside
  std::vector<OpenChoices> readings = {};  // choices that reproduce d; only for kScaledGroups
  bool readings_differ = false;            // whether the readings differ on this input
};

// Judges a product under an accumulation, which must accept the operands (WhyNot).
GemmJudgement JudgeGemm(const GemmClaim& claim, const Accumulation& under);

// An accumulation, with the number of elements where its result differs from d.
struct AccumulationMatch {
  const Accumulation* accumulation;
  std::size_t different;
};
// Compares d with every accumulation that accepts the operands.
std::vector<AccumulationMatch> IdentifyAccumulation(const GemmClaim& claim);

// The input of the error bounds for one element, |y - S| before alpha.
struct SumFacts {
  std::size_t terms = 0;     // K
  double magnitudes = 0;     // A or more
  double largest_power = 0;  // 2^R or more
};
double AnyOrderBound(const SumFacts& facts);
double TensorCoreBound(const TensorCoreModel& model, const SumFacts& facts);

}  // namespace fp4lab
