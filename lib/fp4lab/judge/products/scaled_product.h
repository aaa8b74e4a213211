// The verdict on a product of FP8 or FP4 operands whose scales are binary32 numbers: one per
// tensor, per row, or per block along K, with a promotion of each block's sum to binary32.
//
// With a(m, k), b(n, k) the elements, sa(m, g), sb(n, g) the scales of group g, and y = +0:
//   for groups ascending:  dot = sum over the group of a b, as an accumulation sums
//                          y = fl(y + fl(fl(dot * sa) * sb)); with one group without the addition
//   d = out(fl(fl(alpha * y) * output_scale)), factors of 1 left out
// DeepSeek-V3 inference/kernel.py fp8_gemm_kernel computes 1x128 by 128x128 scales so, torchao and
// torch._scaled_mm rows' and tensors' scales. Blocks of FP4 have exact dots: this is binary32 in
// the order of blocks. Their tensor scale is no part of the operand and goes to alpha.
//
// The bound: a group's dot errs by e_g, the bound of judge/products/gemm.h for its terms. A_g is
// the sum of its magnitudes. Every later operation multiplies by 1 + delta, |delta| <= u = 2^-23:
//   |y - S| <= sum |sa sb| e_g + ((1 + u)^(G + 3) - 1) sum |sa sb| (A_g + e_g) + underflows
// for G groups. An element is inside if out rounds some number of that interval, scaled, to it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/judge/products/gemm.h"

namespace fp4lab {

struct StoredMatrix;  // exchange/stored.h

// An operand (rows, K): elements without scales, and the scales of each row.
struct ScaledOperand {
  MmaOperand elements;
  std::size_t group = 0;   // columns that share a scale: K for one a row or a tensor
  std::size_t height = 1;  // rows that share a scale: 128 for blocks of 128x128
  Matrix<float> scales;    // (ceil(rows / height), ceil(K / group))
};

// Whether a quantized matrix is an operand of this kind: FP8 with a scale a row, or in blocks whose
// scales are numbers or span several rows.
bool IsScaledFp8(const StoredMatrix& stored);
// The operand of an FP8 matrix, its scales of any kind, or of a matrix of narrower elements with
// block scales. Throws Error(where, ...) for others.
ScaledOperand MakeScaledOperand(const StoredMatrix& stored, std::string_view where);
// Elements without scales as an operand with the scale 1.
ScaledOperand WithScaleOne(const MmaOperand& elements);

// The type that a product is rounded to, by its name: f32 (nullopt), bf16, f16 or fp16, e4m3, e5m2.
// Throws Error(where, ...) for others.
std::optional<FormatId> ScaledOutputNamed(std::string_view name, std::string_view where);

struct ScaledClaim {
  const ScaledOperand& a;
  const ScaledOperand& b;
  MatrixView<const float> d;  // (M, N)
  float alpha = 1.0f;
  std::optional<FormatId> output = {};  // binary32 if absent; BF16, FP16, E4M3 or E5M2
  float output_scale = 1.0f;            // multiplies before the rounding to `output`
};

struct ScaledJudgement {
  GemmVerdict verdict = GemmVerdict::kEqual;
  std::size_t different = 0, outside = 0;
  Rectangle outside_in = {};
  GemmElement first_different = {};
  // The first element outside; bound: the half width of the interval before `output` rounds.
  GemmElement first_outside = {};
  struct Cause {
    std::string_view name, what;
    bool equal = false;  // it gives all elements bit for bit
  };
  std::vector<Cause> causes = {};  // readings of the scales under which all elements are inside
  // Without causes: another scale of the output under which at most half as many are outside.
  struct OtherScale {
    float output_scale = 1.0f;
    std::size_t outside = 0;
  };
  std::optional<OtherScale> better = {};
};

// Judges a product whose groups are summed as `under` does, which must accept the elements. Throws
// Error if the operands' K or groups do not go together.
ScaledJudgement JudgeScaled(const ScaledClaim& claim, const Accumulation& under);

// The product as defined above.
Matrix<float> ScaledProduct(const ScaledClaim& claim, const Accumulation& under);

// The wrong readings of scales that JudgeScaled tries: names for tables and tests.
std::vector<std::string_view> ScaledReadingNames();
// The claim's operands under a reading; nullopt if it changes nothing. *output_scale: as read.
struct ScaledReading {
  ScaledOperand a, b;
  float output_scale = 1.0f;
};
std::optional<ScaledReading> ReadScaled(const ScaledClaim& claim, std::string_view name);

}  // namespace fp4lab
