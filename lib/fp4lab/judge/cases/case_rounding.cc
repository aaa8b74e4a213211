// Families at rounding boundaries: ties of elements and of scales, BF16, exact values, saturation.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "fp4lab/base/elementary.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/cases/case_builder.h"

namespace fp4lab {
namespace {

// A tensor amax under which boundaries are placed.
struct Tensor {
  const char* name;
  float amax;
  bool bf16;  // values are rounded to BF16, neighbours are BF16 neighbours
};

// Tensor amaxes whose S is a power of two (boundaries are exact), and amaxes whose S is not.
std::vector<Tensor> Tensors(const CaseBuilder& b) {
  const float c = b.tensor_constant();
  std::vector<Tensor> tensors = {{"bf16", c, true}, {"fp32", c, false}};
  if (!b.has_tensor_scale()) return tensors;
  tensors.push_back({"fp32-crooked", 0.7f * c, false});
  tensors.push_back({"bf16-crooked", 3.140625f, true});
  if (b.thorough()) {
    tensors.push_back({"bf16-small", c * 0x1p-20f, true});
    tensors.push_back({"fp32-crooked-small", 0x1.9p-13f * 1.1f, false});
  }
  return tensors;
}

// Appends the value nearest to `exact` and its neighbours up to `reach` units away, without values
// above `limit`.
void AppendNeighbours(double exact, const Tensor& tensor, int reach, float limit,
                      std::vector<float>* out) {
  const auto nearest = static_cast<float>(exact);
  for (int ulps = -reach; ulps <= reach; ++ulps) {
    const float x =
        tensor.bf16 ? MovedBf16Ulps(RoundToBf16(nearest), ulps) : MovedUlps(nearest, ulps);
    if (std::isfinite(x) && x > 0.0f && x <= limit) out->push_back(x);
  }
}

}  // namespace

void MakeElementTies(CaseBuilder& b) {
  for (const Tensor& tensor : Tensors(b)) {
    std::vector<BlockValues> blocks;
    for (const float s : b.Scales()) {
      const double unit = b.UnitFor(s, tensor.amax);
      std::vector<float> values;
      for (const float m : b.ElementMidpoints()) {
        const float limit = b.has_tensor_scale() ? tensor.amax : kFloatMax;
        AppendNeighbours(m * unit, tensor, tensor.bf16 ? 1 : 2, limit, &values);
      }
      const auto first = static_cast<float>(b.BlockAmaxFor(s, tensor.amax));
      const float amax = tensor.bf16 ? RoundToBf16(first) : first;
      for (BlockValues& block : CutIntoBlocks(amax, values, b.block_size())) {
        blocks.push_back(std::move(block));
      }
    }
    b.AddBlocks(tensor.name, tensor.amax, blocks);
  }
}

namespace {

// A block with an amax and smaller values, so that codes show a changed scale too. The values are
// BF16 if amax is.
BlockValues Ladder(float amax) {
  return {amax, -0.5f * amax, 0.25f * amax, -0.125f * amax, -amax, 0.5f * amax, 0.0625f * amax};
}

void MakeExponentScaleTies(CaseBuilder& b) {
  // Block amaxes at which one of the E8M0 rules steps: a power of two (floor, ceil), the amax at
  // which the element's own rounding would step (even), the largest element (rceil).
  const Format& element = FormatOf(b.dialect().element);
  const float largest = MaxFinite(b.dialect().element);
  const auto half_ulp = static_cast<float>(PowerOfTwo(-element.mantissa_bits - 1));
  const float significands[] = {
      1.0f,  1.25f,           1.5f,
      1.75f, 2.0f - half_ulp, largest / static_cast<float>(PowerOfTwo(std::ilogb(largest)))};
  for (const Tensor& tensor : Tensors(b)) {
    std::vector<BlockValues> blocks;
    for (int k = -125; k <= 127; k += b.thorough() || k >= 120 || std::abs(k) < 3 ? 1 : 7) {
      for (const float significand : significands) {
        std::vector<float> amaxes;
        AppendNeighbours(significand * PowerOfTwo(k), tensor, 2, kFloatMax, &amaxes);
        for (const float amax : amaxes) blocks.push_back(Ladder(amax));
      }
    }
    b.AddBlocks(tensor.name, 0.0f, blocks);
  }
}

}  // namespace

void MakeScaleTies(CaseBuilder& b) {
  if (b.has_exponent_scales()) return MakeExponentScaleTies(b);
  for (const Tensor& tensor : Tensors(b)) {
    std::vector<BlockValues> blocks;
    for (const float midpoint : b.ScaleMidpoints()) {
      std::vector<float> amaxes;
      const float limit = b.has_tensor_scale() ? tensor.amax : kFloatMax;
      AppendNeighbours(b.BlockAmaxFor(midpoint, tensor.amax), tensor, tensor.bf16 ? 1 : 2, limit,
                       &amaxes);
      for (const float amax : amaxes) blocks.push_back(Ladder(amax));
    }
    b.AddBlocks(tensor.name, tensor.amax, blocks);
  }
}

namespace {

// Blocks that hold, under each scale, the elements that have the scaled values `beside(m)` for the
// midpoints m.
template <class Beside>
std::vector<BlockValues> BesideMidpoints(const CaseBuilder& b, float amax, const Beside& beside) {
  std::vector<BlockValues> blocks;
  for (const float s : b.Scales()) {
    std::vector<float> values;
    for (const float m : b.ElementMidpoints()) {
      for (const double v : beside(m)) values.push_back(static_cast<float>(v * b.UnitFor(s, amax)));
    }
    const auto first = static_cast<float>(b.BlockAmaxFor(s, amax));
    for (BlockValues& block : CutIntoBlocks(first, values, b.block_size())) {
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

}  // namespace

// FP32 values closer to a tie than half a unit of BF16: rounding them, or the scaled element, to
// BF16 turns them into ties. The tensor's amax is not a BF16 value either.
void MakeBf16Rounding(CaseBuilder& b) {
  const float amax = MovedUlps(b.tensor_constant(), -0x3001);
  std::vector<BlockValues> blocks = BesideMidpoints(b, amax, [](float m) {
    return std::array{m * (1.0 - 0x1p-10), m * (1.0 - 0x1p-13), m * (1.0 + 0x1p-13),
                      m * (1.0 + 0x1p-10)};
  });
  b.AddBlocks("elements", amax, blocks);
  if (b.dialect().rounding == ElementRounding::kBf16First) {
    // The codes of kBf16First step half a unit of BF16 beside the midpoints, where a unit is 2^16
    // of binary32: FP16 in between turns these values into ties.
    blocks = BesideMidpoints(b, amax, [](float m) {
      return std::array{double{MovedUlps(m, -0x8001)}, double{MovedUlps(m, -0x7FFF)},
                        double{MovedUlps(m, 0x7FFF)}, double{MovedUlps(m, 0x8001)}};
    });
    b.AddBlocks("elements-of-bf16", amax, blocks);
  }
  if (b.has_exponent_scales() || !b.has_blocks()) return;
  blocks.clear();
  for (const float midpoint : b.ScaleMidpoints()) {
    for (const double offset : {-0x1p-11, 0x1p-11}) {
      const double exact = b.BlockAmaxFor(midpoint, amax) * (1.0 + offset);
      if (exact < amax) blocks.push_back(Ladder(static_cast<float>(exact)));
    }
  }
  b.AddBlocks("scales", amax, blocks);
}

// Every value of the element format, exactly. A stochastic kernel must not move these values under
// any random bits; all random bits are ones here.
void MakeExactValues(CaseBuilder& b) {
  const float amax = b.tensor_constant();
  std::vector<BlockValues> blocks;
  for (const float s : b.Scales()) {
    const bool is_power_of_two = (std::bit_cast<std::uint32_t>(s) & 0x7FFFFFu) == 0;
    if (!is_power_of_two) continue;  // keeps the products exact
    std::vector<float> values;
    for (const float v : b.ElementValues()) {
      values.push_back(static_cast<float>(v * b.UnitFor(s, amax)));
    }
    const auto first = static_cast<float>(b.BlockAmaxFor(s, amax));
    for (BlockValues& block : CutIntoBlocks(first, values, b.block_size())) {
      blocks.push_back(std::move(block));
    }
  }
  b.AddBlocks("", amax, blocks, b.max_random());
}

// Scaled elements a little above a code, and a random field that reaches the next code or is one
// short of it: the element rounds up iff fraction + field >= 1.
void MakeStochasticCarry(CaseBuilder& b) {
  const bool eight = b.dialect().rounding == ElementRounding::kStochastic8;
  const int bits = eight ? 8 : 16;
  const std::uint32_t one = 1u << bits;
  const std::vector<float> codes = b.ElementValues();
  Matrix<float> x(32, 8 * b.block_cols());
  std::vector<std::uint16_t> random(x.values.size());
  const float amax = b.tensor_constant();
  const auto unit = static_cast<float>(b.UnitFor(1.0f, amax));
  std::uint32_t draw = 0;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::uint32_t word = b.Random(1).Bits32(draw++);
    const std::size_t code = word % codes.size();
    const float low = code == 0 ? 0.0f : codes[code - 1], step = codes[code] - low;
    // A fraction of the step with at most `bits` bits, and few enough to be exact beside `low`.
    const std::uint32_t fraction = 1 + (word >> 8) % (one - 1);
    x.values[i] = (low + step * (static_cast<float>(fraction) / static_cast<float>(one))) * unit;
    const std::uint32_t least = one - fraction;  // the least field that carries
    random[i] = static_cast<std::uint16_t>((word >> 31) != 0 ? least : least - 1);
    if ((word >> 30 & 1u) != 0) x.values[i] = -x.values[i];
    const std::size_t col = i % x.cols;
    if (col % b.block_cols() == 0) x.values[i] = static_cast<float>(b.BlockAmaxFor(1.0f, amax));
    if (b.has_tensor_scale() && col == 0) x.values[i] = amax;
  }
  b.Add("thresholds", std::move(x), std::move(random));
}

// Block scales that are rounded down as far as possible, so that the block's largest elements lie
// beyond the largest code.
void MakeSaturation(CaseBuilder& b) {
  const float amax = b.tensor_constant();
  std::vector<BlockValues> blocks;
  for (const float s : b.Scales()) {
    const double largest = b.BlockAmaxFor(s, amax);
    for (const double factor : {1.01, 1.03, 1.06, 1.25, 1.49, 1.76, 1.99}) {
      // Beyond a factor of 1.06 the block's E4M3 scale would follow; only E8M0 scales leave so
      // much.
      const auto x = RoundToBf16(static_cast<float>(largest * factor));
      if (b.has_tensor_scale() && x > amax) continue;
      blocks.push_back({x, -x, RoundToBf16(0.875f * x), RoundToBf16(-0.75f * x),
                        RoundToBf16(0.625f * x), 0.25f * x});
    }
  }
  if (b.has_blocks() && !b.has_exponent_scales()) {
    // Under the least scale, four over six keeps the candidate for 6, which most elements need.
    const auto unit = static_cast<float>(b.UnitFor(Decode(b.dialect().scale, 1), amax));
    BlockValues block(b.block_size(), 1.5f * unit);
    block[0] = 7.0f * unit;
    blocks.push_back(std::move(block));
  }
  b.AddBlocks("", amax, blocks);
}

}  // namespace fp4lab
