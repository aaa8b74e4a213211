// Families found by search: blocks and elements for which mathematically equal formulas give
// different bytes. Each formula ("form") below is used by some public kernel.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "fp4lab/dialect/tensor_scale_stage.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/cases/case_builder.h"

namespace fp4lab {
namespace {

// A bit mask of the pairs of forms whose bytes differ.
using Pairs = std::uint64_t;

template <std::size_t kForms>
Pairs PairsApart(const std::array<std::uint32_t, kForms>& bytes) {
  static_assert(kForms * (kForms - 1) / 2 <= 64);
  Pairs pairs = 0;
  int bit = 0;
  for (std::size_t i = 0; i < kForms; ++i) {
    for (std::size_t j = i + 1; j < kForms; ++j, ++bit) {
      if (bytes[i] != bytes[j]) pairs |= Pairs{1} << bit;
    }
  }
  return pairs;
}

// The blocks found under a tensor amax, and the pairs of forms that they tell apart.
struct Found {
  float amax = 0;
  Pairs pairs = 0;
  std::vector<BlockValues> blocks = {};
};

// Chooses at most `limit` tensors that together tell the most pairs of forms apart; the tensor with
// the most new pairs comes first.
std::vector<Found> Choose(std::vector<Found> found, std::size_t limit) {
  std::vector<Found> chosen;
  Pairs covered = 0;
  while (chosen.size() < limit && !found.empty()) {
    const auto gain = [&](const Found& f) {
      return std::pair(std::popcount(f.pairs & ~covered), f.blocks.size());
    };
    const auto best =
        std::max_element(found.begin(), found.end(),
                         [&](const Found& a, const Found& b) { return gain(a) < gain(b); });
    if (best->blocks.empty()) break;
    covered |= best->pairs;
    chosen.push_back(std::move(*best));
    found.erase(best);
  }
  return chosen;
}

// Amaxes to try: every BF16 significand, or as many amaxes that are not BF16 values.
std::vector<float> Significands(bool bf16) {
  std::vector<float> amaxes;
  for (std::uint32_t i = 0; i < 128; ++i) {
    const float amax = static_cast<float>(128 + i) * 0x1p-6f;
    amaxes.push_back(bf16 ? amax : MovedUlps(amax, 0x1234 + static_cast<int>(i) * 0x155));
  }
  return amaxes;
}

// Tensor amaxes to try.
std::vector<float> Amaxes(const CaseBuilder& b, bool bf16) {
  return b.has_tensor_scale() ? Significands(bf16) : std::vector<float>{b.tensor_constant()};
}

// S of an amax. Of a BF16 tensor (kDivisorBf16), S lies up to 2^-8 beside C / amax.
bool HasBf16Encode(const CaseBuilder& b) {
  return b.dialect().tensor_scale == TensorScaleRule::kDivisorBf16;
}
float EncodeOf(const CaseBuilder& b, float amax) {
  if (!b.has_tensor_scale()) return 1.0f;
  return HasBf16Encode(b) ? TensorScaleOf(b.dialect(), amax).encode : b.tensor_constant() / amax;
}

// ---- From the block's amax to the scale ---------------------------------------------------------

// The scale byte, or the bits of the number, under each form; c = scale_max * largest element, m =
// largest element.
std::array<std::uint32_t, 8> ScaleForms(const CaseBuilder& b, float block_amax, float amax) {
  const float c = b.tensor_constant(), m = MaxFinite(b.dialect().element), r = 1.0f / m;
  const bool level = b.has_tensor_scale();
  const float s = level ? c / amax : 1.0f, d = level ? amax / c : 1.0f;
  const float forms[] = {
      block_amax * (s * r),                        // folded into the tensor's factor
      block_amax / m * s,                          // division first
      block_amax / m / d,                          // by the decode scale
      block_amax / (m * d),                        // by both at once
      block_amax / d / m,                          // by one after the other
      block_amax * r * s,                          // reciprocal first
      block_amax * s * r,                          // reciprocal last
      block_amax * (b.dialect().scale_max / amax)  // the ratio to the tensor's amax
  };
  std::array<std::uint32_t, 8> bytes{};
  const bool numbers = b.dialect().scale_encoding == ScaleEncoding::kBinary32;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        numbers ? std::bit_cast<std::uint32_t>(forms[i]) : Encode(b.dialect().scale, forms[i]);
  }
  return bytes;
}

Found SearchScales(const CaseBuilder& b, const std::vector<float>& midpoints, float amax,
                   bool bf16) {
  Found found{.amax = amax};
  for (const float midpoint : midpoints) {
    const auto near = static_cast<float>(b.BlockAmaxFor(midpoint, amax));
    for (int ulps = bf16 ? 0 : -3; ulps <= (bf16 ? 0 : 3); ++ulps) {
      const float x = bf16 ? RoundToBf16(near) : MovedUlps(near, ulps);
      if (b.has_tensor_scale() && x > amax) continue;
      const Pairs pairs = PairsApart(ScaleForms(b, x, amax));
      if (pairs == 0) continue;
      found.pairs |= pairs;
      found.blocks.push_back({x, -0.5f * x, 0.25f * x, -0.125f * x, -x});
    }
  }
  return found;
}

// ---- From the element to its code ---------------------------------------------------------------

std::array<std::uint32_t, 10> ElementForms(const CaseBuilder& b, float x, float s, float amax) {
  const float c = b.tensor_constant();
  const bool level = b.has_tensor_scale();
  const float encode = EncodeOf(b, amax), decode = 1.0f / encode;
  const float multiplier = level ? amax / c : 1.0f;
  const float usual = x * (1.0f / (s * decode));
  const float forms[] = {
      usual,                        // Transformer Engine
      x * (encode / s),             // one division
      x * (encode * (1.0f / s)),    // CUTLASS
      x * (1.0f / multiplier / s),  // torchao's inference path
      x / (s * multiplier),         // ModelOpt
      x / (s * decode),             //
      x / (s / encode),             // compressed-tensors
      x / multiplier * (1.0f / s),  // universal
      x * RoundToBf16(encode / s),  // Transformer Engine's fast math
      RoundToBf16(usual)            // vLLM's Triton path
  };
  std::array<std::uint32_t, 10> codes{};
  const bool bf16 = b.dialect().rounding == ElementRounding::kBf16First;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = Encode(b.dialect().element, bf16 ? RoundToBf16(forms[i]) : forms[i]);
  }
  return codes;
}

Found SearchElements(const CaseBuilder& b, const std::vector<float>& scales,
                     const std::vector<float>& midpoints, float amax, bool bf16) {
  Found found{.amax = amax};
  for (const float s : scales) {
    std::vector<float> values;
    const double unit = HasBf16Encode(b) ? double{s} / EncodeOf(b, amax) : b.UnitFor(s, amax);
    for (const float midpoint : midpoints) {
      const auto near = static_cast<float>(midpoint * unit);
      for (int ulps = bf16 ? 0 : -2; ulps <= (bf16 ? 0 : 2); ++ulps) {
        const float x = bf16 ? RoundToBf16(near) : MovedUlps(near, ulps);
        const Pairs pairs = PairsApart(ElementForms(b, x, s, amax));
        if (pairs == 0) continue;
        found.pairs |= pairs;
        values.push_back(x);
      }
    }
    const auto exact = static_cast<float>(b.BlockAmaxFor(s, amax));
    const float first = bf16 ? RoundToBf16(exact) : exact;
    for (BlockValues& block : CutIntoBlocks(first, values, b.block_size())) {
      found.blocks.push_back(std::move(block));
    }
  }
  return found;
}

// ---- From the element to its code, by a factor of the block's amax ------------------------------

// The codes by q/b (Factor::kEncodeOfBlock), and by what a kernel makes of the stored scale.
std::array<std::uint32_t, 5> BlockFactorForms(const CaseBuilder& b, float x, float block_amax) {
  const float q = MaxFinite(b.dialect().element), encode = q / block_amax;
  const float s = 1.0f / encode, quotient = block_amax / q;
  const float forms[] = {x * encode, x * (1.0f / s), x / s, x * (1.0f / quotient), x / quotient};
  std::array<std::uint32_t, 5> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = Encode(b.dialect().element, forms[i]);
  return codes;
}

Found SearchBlockFactors(const CaseBuilder& b, const std::vector<float>& midpoints,
                         float block_amax, bool bf16) {
  Found found;  // of no tensor amax: these dialects have no tensor scale
  std::vector<float> values;
  for (const float midpoint : midpoints) {
    const float near = midpoint * (block_amax / MaxFinite(b.dialect().element));
    for (int ulps = bf16 ? 0 : -2; ulps <= (bf16 ? 0 : 2); ++ulps) {
      const float x = bf16 ? RoundToBf16(near) : MovedUlps(near, ulps);
      const Pairs pairs = PairsApart(BlockFactorForms(b, x, block_amax));
      if (pairs == 0 || x > block_amax) continue;
      found.pairs |= pairs;
      values.push_back(x);
    }
  }
  found.blocks = CutIntoBlocks(block_amax, values, b.block_size());
  return found;
}

// The tensors that `search(amax, bf16)` finds for each amax of amaxes(bf16).
template <class Amaxes, class Search>
void AddFound(CaseBuilder& b, const std::string& prefix, const Amaxes& amaxes,
              const Search& search) {
  const std::size_t limit = b.thorough() ? 12 : 3;
  for (const bool bf16 : {true, false}) {
    std::vector<Found> found;
    for (const float amax : amaxes(bf16)) found.push_back(search(amax, bf16));
    int number = 0;
    for (const Found& f : Choose(std::move(found), limit)) {
      b.AddBlocks(prefix + (bf16 ? "bf16-" : "fp32-") + std::to_string(++number), f.amax, f.blocks);
    }
  }
}

}  // namespace

void MakeScaleHazards(CaseBuilder& b) {
  const std::vector<float> midpoints = b.ScaleMidpoints();
  const auto amaxes = [&](bool bf16) { return Amaxes(b, bf16); };
  AddFound(b, "", amaxes,
           [&](float amax, bool bf16) { return SearchScales(b, midpoints, amax, bf16); });
}

void MakeFactorHazards(CaseBuilder& b) {
  const std::vector<float> scales = b.Scales();
  std::vector<float> midpoints = b.ElementMidpoints();
  if (b.dialect().rounding == ElementRounding::kBf16First) {
    // The codes of kBf16First step half a unit of BF16 beside the midpoints.
    for (const float m : b.ElementMidpoints()) {
      for (const int side : {-0x8000, 0x8000}) midpoints.push_back(MovedUlps(m, side));
    }
  }
  const auto amaxes = [&](bool bf16) { return Amaxes(b, bf16); };
  AddFound(b, "", amaxes,
           [&](float amax, bool bf16) { return SearchElements(b, scales, midpoints, amax, bf16); });
  if (b.dialect().factor == Factor::kEncodeOfBlock) {
    AddFound(b, "of-the-block-", Significands, [&](float block_amax, bool bf16) {
      return SearchBlockFactors(b, midpoints, block_amax, bf16);
    });
  }
}

}  // namespace fp4lab
