#include "fp4lab/judge/cases/case_family.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/judge/cases/case_builder.h"

namespace fp4lab {
namespace {

bool Always(const Dialect&) { return true; }
bool HasBlocks(const Dialect& d) { return d.block_rows > 0; }
bool HasMantissaScales(const Dialect& d) { return HasBlocks(d) && d.scale != FormatId::kE8M0; }
bool RoundsStochastically(const Dialect& d) { return IsStochastic(d); }

constexpr CaseFamily kFamilies[] = {
    {"element-ties", "rounding of elements at a tie and one unit beside it", Always,
     MakeElementTies},
    {"scale-ties", "rounding of block scales at a tie and one unit beside it", HasBlocks,
     MakeScaleTies},
    {"scale-hazards", "another order of operations, or a reciprocal, on the way to the scale",
     HasMantissaScales, MakeScaleHazards},
    {"factor-hazards", "another order of operations, or a reciprocal, on the way to the element",
     HasMantissaScales, MakeFactorHazards},
    {"bf16-rounding", "an intermediate, or the input, rounded to BF16", Always, MakeBf16Rounding},
    {"exact-values", "values that are exact in the element format", Always, MakeExactValues},
    {"stochastic-carry", "random bits exactly at, and one below, the carry", RoundsStochastically,
     MakeStochasticCarry},
    {"saturation", "elements beyond the largest code", HasBlocks, MakeSaturation},
    {"underflowed-scales", "blocks whose scale rounds to 0 or to the least scale", HasBlocks,
     MakeUnderflowedScales},
    {"zero-blocks", "zero blocks beside others", HasBlocks, MakeZeroBlocks},
    {"all-zero", "a tensor of zeros", Always, MakeAllZero},
    {"huge", "the largest finite numbers", Always, MakeHuge},
    {"subnormal", "binary32 subnormals, flushed by mistake", Always, MakeSubnormal},
    {"tiny-amax", "a tensor scale that overflows", Always, MakeTinyAmax},
    {"nan-inf", "NaN and infinities", Always, MakeNanInf},
    {"negative-zero", "the sign of zero, given or by underflow", Always, MakeNegativeZero},
    {"signs", "signs of the amax and of elements", Always, MakeSigns},
    {"positions", "elements in wrong places: transposed, shifted, nibbles swapped", Always,
     MakePositions},
    {"distinct-scales", "scales in wrong places: not swizzled, transposed, shifted", HasBlocks,
     MakeDistinctScales},
    {"tails", "rows and columns that fill no block", Always, MakeTails},
    {"scale-padding", "scales that fill no 128x4 tile", HasBlocks, MakeScalePadding},
    {"hadamard", "the signs, order and scale of a Hadamard transform", Always, MakeHadamard},
    {"randn", "none: one plain random tensor, the control", Always, MakeRandn, true},
};

std::vector<const CaseFamily*> ChosenFamilies(const Dialect& dialect, const CaseOptions& options) {
  std::vector<const CaseFamily*> chosen;
  for (const std::string& name : options.families) {
    if (FindCaseFamily(name) != nullptr) continue;
    throw Error("family " + name, "is not known; " + DidYouMean(name, NamesOf(kFamilies)));
  }
  for (const CaseFamily& family : kFamilies) {
    const bool asked = options.families.empty() ||
                       std::find(options.families.begin(), options.families.end(), family.name) !=
                           options.families.end();
    if (asked && family.applies(dialect)) chosen.push_back(&family);
  }
  return chosen;
}

}  // namespace

std::span<const CaseFamily> CaseFamilies() { return kFamilies; }

const CaseFamily* FindCaseFamily(std::string_view name) {
  for (const CaseFamily& family : kFamilies) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

std::vector<Case> MakeCases(const Dialect& dialect, const CaseOptions& options) {
  const IeeeArithmetic ieee;
  std::vector<Case> cases;
  for (const CaseFamily* family : ChosenFamilies(dialect, options)) {
    CaseBuilder builder(dialect, options, family->name, &cases);
    family->make(builder);
  }
  return cases;
}

}  // namespace fp4lab
