#include "fp4lab/tensor/tensor_core_gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/tensor/mma/tensor_core_gemm.cc"
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/mma/tensor_core_element.h"
#include "fp4lab/tensor/mma/tensor_core_pack.h"

#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/tensor/mma/mma_chain-inl.h"
#include "fp4lab/tensor/mma/mma_groups-inl.h"

#ifndef FP4LAB_TENSOR_TENSOR_CORE_GEMM_CC_ONCE_
#define FP4LAB_TENSOR_TENSOR_CORE_GEMM_CC_ONCE_
namespace fp4lab {
namespace {

// Rows of c that one unit of work computes: their accumulators, a step of a's rows and a step of
// b's panel fit a first-level cache together.
constexpr std::size_t kTileRows = 32;

// kTileRows x kMmaPanel accumulators.
struct alignas(64) Accumulators {
  std::array<float, kTileRows * kMmaPanel> values;
  float* Row(std::size_t i) { return values.data() + i * kMmaPanel; }
};

// Rows [row, row + rows) of a times a panel of b.
struct ChainTile {
  const TensorCoreModel* model;
  const ChainSide *a, *b;
  std::size_t row, rows, panel;
};
struct GroupTile {
  const TensorCoreModel* model;
  const GroupSide *a, *b;
  OpenChoices open;
  std::size_t row, rows, panel;
};

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_TENSOR_TENSOR_CORE_GEMM_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

HWY_INLINE ChainStep MakeChainStep(const ChainTile& t, std::size_t row, std::size_t s) {
  const ChainSide &a = *t.a, &b = *t.b;
  const std::size_t at = a.bundles.At(row, a.steps * a.step, s * a.step);
  const std::size_t b_at = b.bundles.At(t.panel * kMmaPanel, b.steps * b.step, s * b.step);
  const std::size_t a_step = a.bundles.At(row, a.steps, s);
  const std::size_t b_step = b.bundles.At(t.panel * kMmaPanel, b.steps, s);
  return {.a = a.values.data() + at,
          .a_exponents = a.exponents.data() + at,
          .a_shift = a.shifts[a_step],
          .a_low = a.lows[a_step],
          .b = b.values.data() + b_at,
          .b_exponents = b.exponents.data() + b_at,
          .b_shifts = b.shifts.data() + b_step,
          .b_lows = b.lows.data() + b_step,
          .step = static_cast<int>(a.step),
          .fraction_bits = t.model->fraction_bits,
          .floor = t.model->floor};
}

template <MmaOutput kOutput>
void ChainSteps(const ChainTile& t, Accumulators* c) {
  for (std::size_t s = 0; s < t.a->steps; ++s) {
    for (std::size_t i = 0; i < t.rows; ++i) {
      ComputeChainStep<kOutput>(MakeChainStep(t, t.row + i, s), c->Row(i));
    }
  }
}

// c = c + h by IEEE 754 addition in the accumulator's format.
template <MmaOutput kOutput>
void AddInstruction(const float* h, float* c) {
  const Format& half = FormatOf(FormatId::kFP16);
  for (std::size_t j = 0; j < kMmaPanel; ++j) {
    float sum = h[j] + c[j];
    if (kOutput == MmaOutput::kNearest16) {
      sum = Decode(half, Encode(half, sum, Rounding::kNearestEven, 0, Overflow::kSpecial));
    }
    c[j] = sum != sum ? std::bit_cast<float>(0x7FFFFFFFu) : sum;
  }
}

// Each instruction is two steps from +0, whose result is then added to c.
template <MmaOutput kOutput>
void Fp8InFp16Steps(const ChainTile& t, Accumulators* c) {
  for (std::size_t s = 0; s < t.a->steps; s += 2) {
    for (std::size_t i = 0; i < t.rows; ++i) {
      alignas(64) float h[kMmaPanel] = {};
      ComputeChainStep<kOutput>(MakeChainStep(t, t.row + i, s), h);
      ComputeChainStep<kOutput>(MakeChainStep(t, t.row + i, s + 1), h);
      AddInstruction<kOutput>(h, c->Row(i));
    }
  }
}

template <MmaOutput kOutput>
void ChainOrInstructions(const ChainTile& t, Accumulators* c) {
  if (t.model->scheme == MmaScheme::kFp8InFp16) return Fp8InFp16Steps<kOutput>(t, c);
  ChainSteps<kOutput>(t, c);
}

void ChainKernel(const ChainTile& t, Accumulators* c) {
  switch (t.model->output) {
    case MmaOutput::kTruncate32:
      return ChainOrInstructions<MmaOutput::kTruncate32>(t, c);
    case MmaOutput::kTruncate32E8M13:
      return ChainOrInstructions<MmaOutput::kTruncate32E8M13>(t, c);
    case MmaOutput::kNearest16:
      return ChainOrInstructions<MmaOutput::kNearest16>(t, c);
  }
}

HWY_INLINE GroupStep MakeGroupStep(const GroupTile& t, std::size_t row, std::size_t s) {
  const GroupSide &a = *t.a, &b = *t.b;
  const std::size_t groups = a.steps * kGroupsAStep, column = t.panel * kMmaPanel;
  const std::size_t quads = groups * kMmaGroup / 4, g = s * kGroupsAStep;
  const std::size_t a_at = a.bundles.At(row, groups, g), b_at = b.bundles.At(column, groups, g);
  const std::size_t a_step = a.bundles.At(row, a.steps, s);
  const std::size_t b_step = b.bundles.At(column, b.steps, s);
  return {.a = a.codes.data() + 4 * a.bundles.At(row, quads, g * kMmaGroup / 4),
          .a_factors = a.factors.data() + a_at,
          .a_powers = a.powers.data() + a_at,
          .a_masks = a.masks.data() + a_at,
          .a_high = a.highs[a_step],
          .a_low = a.lows[a_step],
          .b = b.codes.data() + 4 * b.bundles.At(column, quads, g * kMmaGroup / 4),
          .b_starts = b.starts.data() + b_at,
          .b_factors = b.factors.data() + b_at,
          .b_powers = b.powers.data() + b_at,
          .b_masks = b.masks.data() + b_at,
          .b_highs = b.highs.data() + b_step,
          .b_lows = b.lows.data() + b_step,
          .floor = t.model->floor,
          .fraction_bits = t.model->fraction_bits,
          .open = t.open};
}

void GroupKernel(const GroupTile& t, Accumulators* c) {
  for (std::size_t s = 0; s < t.a->steps; ++s) {
    for (std::size_t i = 0; i < t.rows; ++i) {
      ComputeGroupStep(MakeGroupStep(t, t.row + i, s), c->Row(i));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(ChainKernel);
HWY_EXPORT(GroupKernel);

// The start value of an accumulator: c, rounded to binary16 for a binary16 accumulator.
float Start(const TensorCoreModel& model, float c) {
  if (model.output == MmaOutput::kNearest16) {
    const Format& half = FormatOf(FormatId::kFP16);
    c = Decode(half, Encode(half, c, Rounding::kNearestEven, 0, Overflow::kSpecial));
  }
  return c != c ? std::bit_cast<float>(0x7FFFFFFFu) : c;
}

// Calls compute(row, rows, panel, accumulators) for every tile of c and writes the accumulators to
// c. Outputs of slow rows of a or b come from TensorCoreElement.
template <class Side, class Compute>
void ForEachTile(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                 const Side& side_a, const Side& side_b, const ProductOptions& options,
                 MatrixView<float> c, const Compute& compute) {
  const std::size_t panels = DivideUp(c.cols, kMmaPanel);
  const std::size_t tiles = DivideUp(c.rows, kTileRows) * panels;
  ParallelFor(tiles, [&](std::size_t index) {
    CheckInterrupt();
    const std::size_t row = index / panels * kTileRows, panel = index % panels;
    const std::size_t rows = std::min(kTileRows, c.rows - row);
    const std::size_t col = panel * kMmaPanel, cols = std::min(kMmaPanel, c.cols - col);
    Accumulators accumulators = {};
    for (std::size_t i = 0; options.accumulate && i < rows; ++i) {
      for (std::size_t j = 0; j < cols; ++j) {
        accumulators.Row(i)[j] = Start(model, c(row + i, col + j));
      }
    }
    compute(row, rows, panel, &accumulators);
    const bool is_final = options.alpha == 1.0f && options.output == GemmOutput::kFp32;
    const std::uint8_t* const slow_cols = side_b.is_slow.data() + col;
    const bool has_slow_col =
        std::count(slow_cols, slow_cols + cols, 0) < static_cast<std::ptrdiff_t>(cols);
    for (std::size_t i = 0; i < rows; ++i) {
      if (is_final && !has_slow_col && side_a.is_slow[row + i] == 0 && c.col_stride == 1) {
        std::copy_n(accumulators.Row(i), cols, &c(row + i, col));
        continue;
      }
      for (std::size_t j = 0; j < cols; ++j) {
        float& out = c(row + i, col + j);
        float y = accumulators.Row(i)[j];
        if (side_a.is_slow[row + i] | side_b.is_slow[col + j]) {
          y = TensorCoreElement(model, a, row + i, b, col + j, options.open,
                                options.accumulate ? out : 0.0f);
        }
        out = is_final ? y : FinishProduct(y, options);
      }
    }
  });
}

// TensorCoreGemm by TensorCoreElement alone, for operands without a kernel.
void WithoutKernel(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                   const ProductOptions& options, MatrixView<float> c) {
  ParallelFor(c.rows, [&](std::size_t m) {
    CheckInterrupt();
    for (std::size_t n = 0; n < c.cols; ++n) {
      const float start = options.accumulate ? c(m, n) : 0.0f;
      c(m, n) = FinishProduct(TensorCoreElement(model, a, m, b, n, options.open, start), options);
    }
  });
}

}  // namespace

void TensorCoreGemm(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b,
                    const ProductOptions& options, MatrixView<float> c) {
  const IeeeArithmetic ieee;
  ExpectProduct(model, a, b, c);
  if (c.size() == 0) return;
  if (!HasKernel(model, a, b)) return WithoutKernel(model, a, b, options, c);
  if (model.scheme == MmaScheme::kScaledGroups) {
    const GroupSide side_a = PackGroups(a, GroupRole::kA), side_b = PackGroups(b, GroupRole::kB);
    const auto compute = [&](std::size_t row, std::size_t rows, std::size_t panel,
                             Accumulators* tile) {
      HWY_DYNAMIC_DISPATCH(GroupKernel)
      ({&model, &side_a, &side_b, options.open, row, rows, panel}, tile);
    };
    return ForEachTile(model, a, b, side_a, side_b, options, c, compute);
  }
  const ChainSide side_a = PackChain(model, a, 1), side_b = PackChain(model, b, kMmaPanel);
  const auto compute = [&](std::size_t row, std::size_t rows, std::size_t panel,
                           Accumulators* tile) {
    HWY_DYNAMIC_DISPATCH(ChainKernel)({&model, &side_a, &side_b, row, rows, panel}, tile);
  };
  ForEachTile(model, a, b, side_a, side_b, options, c, compute);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
