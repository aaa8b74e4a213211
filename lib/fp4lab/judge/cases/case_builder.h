// Shared by the generators of the families (case_*.cc): the dialect's boundaries as numbers, and
// blocks of values laid out in a matrix under a chosen tensor amax.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/dialect/tensor_scale.h"  // kFloatMax
#include "fp4lab/judge/cases/case.h"

namespace fp4lab {

using BlockValues = std::vector<float>;  // of one block, row-major; missing values are 0

// x moved by `ulps` units in the last place away from zero (toward it if negative).
constexpr float MovedUlps(float x, int ulps) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(ulps));
}
// The same in units of BF16, for a BF16 value.
constexpr float MovedBf16Ulps(float x, int ulps) { return MovedUlps(x, ulps * 0x10000); }
constexpr bool IsBf16(float x) { return (std::bit_cast<std::uint32_t>(x) & 0xFFFFu) == 0; }

class CaseBuilder {
 public:
  // Appends to *cases, which must outlive the builder.
  CaseBuilder(const Dialect& dialect, const CaseOptions& options, std::string_view family,
              std::vector<Case>* cases);

  // ---- the dialect
  const Dialect& dialect() const { return dialect_; }
  bool thorough() const { return options_.level == CaseLevel::kThorough; }
  bool has_tensor_scale() const { return HasTensorScale(dialect_); }
  bool has_blocks() const { return dialect_.block_rows > 0; }
  bool has_exponent_scales() const { return has_blocks() && dialect_.scale == FormatId::kE8M0; }
  bool is_stochastic() const { return IsStochastic(dialect_); }
  // The largest field of random bits.
  std::uint16_t max_random() const;
  // The shape of a block; 1 x 16 for a dialect without blocks.
  std::size_t block_rows() const;
  std::size_t block_cols() const;
  std::size_t block_size() const { return block_rows() * block_cols(); }
  // C = scale_max * largest element (FP8 with one scale: the largest element): S = C / amax.
  float tensor_constant() const { return tensor_constant_; }
  // Magnitudes of the element format without 0, ascending, and the midpoints between neighbours,
  // the first between 0 and the least.
  std::vector<float> ElementValues() const;
  std::vector<float> ElementMidpoints() const;
  // Values of scales under which to test elements: some in the quick level, all in the thorough.
  std::vector<float> Scales() const;
  // The midpoints between neighbouring scales; the first lies between 0 and the least scale. Not
  // for E8M0.
  std::vector<float> ScaleMidpoints() const;
  // The block amax that gives the scale s where the tensor's amax is `amax`.
  double BlockAmaxFor(float s, float amax) const;
  // s / S, the factor from a scaled element v back to x under the scale s and the tensor's amax.
  double UnitFor(float s, float amax) const;

  // ---- numbers
  RandomStream Random(std::uint32_t tensor) const;
  // Standard normal values times `deviation`, rounded to BF16 if asked. `tensor` selects a stream.
  Matrix<float> Normal(std::size_t rows, std::size_t cols, std::uint32_t tensor, bool bf16,
                       float deviation = 1.0f) const;

  // ---- cases
  // A case of the family, named "family/name" ("family" alone if the name is empty).
  void Add(std::string_view name, Matrix<float> x, std::vector<std::uint16_t> random = {});
  // A case of blocks side by side, eight per row. The first block of every row holds `amax`, the
  // tensor's (omitted if the dialect has no tensor scale or amax is 0). The blocks are repeated
  // with other signs until the rows are a multiple of 32. `random`: the value of all random fields
  // of a stochastic dialect; drawn if absent.
  void AddBlocks(std::string_view name, float amax, std::span<const BlockValues> blocks,
                 std::optional<std::uint16_t> random = {});

 private:
  const Dialect& dialect_;
  const CaseOptions& options_;
  std::string_view family_;
  std::vector<Case>* cases_;
  float tensor_constant_;
};

// Cuts values into blocks of `size` elements, each with `first` in front; signs alternate.
std::vector<BlockValues> CutIntoBlocks(float first, std::span<const float> values,
                                       std::size_t size);

// The generators, by file. case_rounding.cc:
void MakeElementTies(CaseBuilder& b);
void MakeScaleTies(CaseBuilder& b);
void MakeBf16Rounding(CaseBuilder& b);
void MakeExactValues(CaseBuilder& b);
void MakeStochasticCarry(CaseBuilder& b);
void MakeSaturation(CaseBuilder& b);
// case_hazards.cc:
void MakeScaleHazards(CaseBuilder& b);
void MakeFactorHazards(CaseBuilder& b);
// case_range.cc:
void MakeUnderflowedScales(CaseBuilder& b);
void MakeZeroBlocks(CaseBuilder& b);
void MakeAllZero(CaseBuilder& b);
void MakeHuge(CaseBuilder& b);
void MakeSubnormal(CaseBuilder& b);
void MakeTinyAmax(CaseBuilder& b);
void MakeNanInf(CaseBuilder& b);
void MakeNegativeZero(CaseBuilder& b);
// case_places.cc:
void MakePositions(CaseBuilder& b);
void MakeDistinctScales(CaseBuilder& b);
void MakeSigns(CaseBuilder& b);
void MakeTails(CaseBuilder& b);
void MakeScalePadding(CaseBuilder& b);
void MakeHadamard(CaseBuilder& b);
void MakeRandn(CaseBuilder& b);

}  // namespace fp4lab
