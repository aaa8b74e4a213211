// Families at the ends of the range: zeros, underflow, huge and tiny numbers, NaN and infinities.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/dialect/factors.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/cases/case_builder.h"

namespace fp4lab {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A block of values of both signs, v * amax / 8 with small integers v; BF16 values if amax is one.
BlockValues Mixed(float amax, std::size_t size) {
  BlockValues values(size);
  for (std::size_t i = 0; i < size; ++i) {
    const int v = static_cast<int>((i * 5 + 8) % 17) - 8;  // -8 ... 8, the first is 0
    const float value = static_cast<float>(v) * 0.125f * amax;
    values[i] = IsBf16(amax) ? RoundToBf16(value) : value;
  }
  values[0] = amax;
  return values;
}

// A matrix filled with `x`, of a shape that most kernels accept.
Matrix<float> Filled(const CaseBuilder& b, float x) {
  return Matrix<float>(std::max<std::size_t>(32, b.block_rows()), 4 * b.block_cols(), x);
}

}  // namespace

void MakeUnderflowedScales(CaseBuilder& b) {
  const float amax = b.tensor_constant();
  std::vector<BlockValues> blocks;
  // Block amaxes from the tie between scale 0 and the least scale (which rounds to even, 0) down to
  // almost 0, and just above the tie.
  const double tie = b.has_exponent_scales()
                         ? 0x1p-127
                         : b.BlockAmaxFor(0.5f * Decode(b.dialect().scale, 1), amax);
  for (const double factor : {1.0, 0.9921875, 0.5, 0x1p-4, 0x1p-10, 0x1p-30, 0x1p-60, 1.0078125,
                              1.5, 2.0, 2.5, 3.0, 5.0, 7.0, 9.0, 17.0}) {
    const float top = RoundToBf16(static_cast<float>(tie * factor));
    blocks.push_back(Mixed(top, b.block_size()));
    blocks.push_back({top});
    blocks.push_back({0.0f, -top});
  }
  b.AddBlocks("", amax, blocks);
}

void MakeZeroBlocks(CaseBuilder& b) {
  const float amax = b.tensor_constant();
  std::vector<BlockValues> blocks;
  for (int i = 0; i < 24; ++i) {
    const float size = std::ldexp(amax, -(i % 9) - 1);
    blocks.push_back(i % 2 == 0 ? BlockValues(b.block_size()) : Mixed(size, b.block_size()));
    if (i % 5 == 0) blocks.push_back(BlockValues(b.block_size()));
  }
  b.AddBlocks("alternating", amax, blocks);
  Matrix<float> rows = b.Normal(64, 4 * b.block_cols(), 1, true);
  for (std::size_t r = 0; r < rows.rows; ++r) {
    if (r / b.block_rows() % 2 == 1) continue;
    for (std::size_t c = 0; c < rows.cols; ++c) rows(r, c) = 0.0f;
  }
  b.Add("zero-rows", std::move(rows));
}

void MakeAllZero(CaseBuilder& b) { b.Add("", Filled(b, 0.0f)); }

void MakeHuge(CaseBuilder& b) {
  b.Add("all-largest", Filled(b, kFloatMax));
  b.Add("all-largest-bf16", Filled(b, -kBf16Max));
  std::vector<BlockValues> blocks;
  for (const float top : {1.0f, 0.75f, 0.5f, 0x1p-3f, 0x1p-7f, 0x1p-12f, 0x1p-20f}) {
    blocks.push_back(Mixed(top * kBf16Max, b.block_size()));
  }
  b.AddBlocks("largest-bf16", kBf16Max, blocks);
  blocks.push_back({kFloatMax, -kFloatMax, MovedUlps(kFloatMax, -1), 0.5f * kFloatMax});
  b.AddBlocks("largest", kFloatMax, blocks);
}

void MakeSubnormal(CaseBuilder& b) {
  constexpr float kLeast = 0x1p-149f, kLargest = 0x1.fffffcp-127f;
  b.Add("all-least", Filled(b, kLeast));
  std::vector<BlockValues> blocks;
  for (int k = 0; k < 23; ++k) {
    const float x = std::ldexp(kLeast, k);
    blocks.push_back({x, -x, 0.5f * x, kLeast, -kLeast});
    blocks.push_back({kLargest, -x, x, 0.75f * kLargest});
  }
  b.AddBlocks("all-subnormal", kLargest, blocks);
  b.AddBlocks("below-a-normal", 0x1p-120f, blocks);
  b.AddBlocks("beside-ones", 1.0f, blocks);
  std::vector<BlockValues> bf16 = {
      Mixed(0x1p-127f, b.block_size()), Mixed(0x1p-130f, b.block_size()), {0x1p-133f}};
  b.AddBlocks("bf16", 0x1p-126f, bf16);
  if (b.dialect().factor == Factor::kPowerOfTwoOrOne) {  // the least scale hides them
    const float top = MaxFinite(b.dialect().element) * 0x1p-126f;
    const std::vector<BlockValues> second = {{top, kLargest, -kLargest, 0.5f * kLargest}};
    b.AddBlocks("under-the-second-scale", top, second);
  }
}

// S = fl(C / amax) overflows below C / FLT_MAX, which is 7.9e-36 for NVFP4: S is then FLT_MAX.
void MakeTinyAmax(CaseBuilder& b) {
  const float edge = b.tensor_constant() / kFloatMax;
  const struct {
    const char* name;
    float amax;
  } tensors[] = {
      {"edge-above", MovedUlps(edge, 1)},
      {"edge", edge},
      {"edge-below", MovedUlps(edge, -1)},
      {"half-edge", 0.5f * edge},
      {"small-decode-scale", b.tensor_constant() * 0x1p-124f},
      {"subnormal-decode-scale", static_cast<float>(1.40625 * 0x1p-149 * b.tensor_constant())},
      {"2^-120", 0x1p-120f},
      {"least-normal", std::numeric_limits<float>::min()},
      {"2^-130", 0x1p-130f},
      {"1.5*2^-140", 0x1.8p-140f}};
  for (const auto& [name, amax] : tensors) {
    std::vector<BlockValues> blocks;
    for (int k = 0; k < 14; ++k) {
      blocks.push_back(Mixed(std::ldexp(amax, -(k % 12)), b.block_size()));
    }
    b.AddBlocks(name, amax, blocks);
  }
}

void MakeNanInf(CaseBuilder& b) {
  const float payload = std::bit_cast<float>(0xFFC10000u);  // another sign, another payload
  const auto with = [&](std::size_t at, float special) {
    BlockValues values = Mixed(1.0f, b.block_size());
    values[at % b.block_size()] = special;
    return values;
  };
  const BlockValues plain = Mixed(1.0f, b.block_size());
  const std::vector<BlockValues> nans = {
      with(0, kNan), plain,        with(5, kNan),    with(b.block_size() - 1, -kNan),
      plain,         {kNan, 0.0f}, with(3, payload), BlockValues(b.block_size(), kNan)};
  b.AddBlocks("nan", 2.0f, nans);
  const std::vector<BlockValues> infs = {with(0, kInf),
                                         plain,
                                         with(7, -kInf),
                                         {0.0f, kInf},
                                         Mixed(0x1p-30f, b.block_size()),
                                         Mixed(0x1p20f, b.block_size()),
                                         BlockValues(b.block_size(), -kInf)};
  b.AddBlocks("inf", 2.0f, infs);
  std::vector<BlockValues> both = infs;
  both.push_back(with(1, kNan));
  both.push_back({kInf, kNan, -kInf, 1.0f});
  b.AddBlocks("nan-and-inf", 2.0f, both);
}

void MakeNegativeZero(CaseBuilder& b) {
  b.Add("all", Filled(b, -0.0f));
  const float amax = b.tensor_constant();
  std::vector<BlockValues> blocks;
  for (const float s : {1.0f, 0.5f}) {
    const auto unit = static_cast<float>(b.UnitFor(s, amax));
    const auto top = static_cast<float>(b.BlockAmaxFor(s, amax));
    BlockValues given = {top}, rounded = {top};
    const float least = b.ElementValues().front();
    for (std::size_t i = 1; i < b.block_size(); ++i) {
      given.push_back(i % 3 == 0 ? 0.0f : -0.0f);
      const float part = i % 2 == 0 ? 0.375f : 0.0078125f;  // of the least element: rounds to 0
      rounded.push_back((i % 3 == 0 ? part : -part) * least * unit);
    }
    blocks.push_back(given);
    blocks.push_back(rounded);
    blocks.push_back(BlockValues(b.block_size(), -0.0f));
  }
  b.AddBlocks("given-and-underflow", amax, blocks);
  const std::vector<BlockValues> products = {{kBf16Max, -0x1p-133f, 0x1p-133f}};
  b.AddBlocks("underflowed-products", kBf16Max, products);
}

}  // namespace fp4lab
