#include "fp4lab/tensor/tensor_core_pack.h"

#include <algorithm>
#include <array>
#include <bit>

#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/mma_number.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostProducts = 64;

constexpr std::size_t DivideUp(std::size_t x, std::size_t y) { return (x + y - 1) / y; }

// Place p of the order in which kFp8InFp16 takes its elements: those with k % 4 in {0, 1} of an
// instruction, then those with k % 4 in {2, 3}.
constexpr std::size_t ElementAt(MmaScheme scheme, std::size_t p) {
  if (scheme != MmaScheme::kFp8InFp16) return p;
  const std::size_t in = p % kFp8InFp16Depth, half = in / 16, j = in % 16;
  return p - in + j / 2 * 4 + half * 2 + j % 2;
}

MmaNumber ReadElement(MmaScheme scheme, const Format& format, std::uint32_t code) {
  if (scheme != MmaScheme::kFp8InFp16) return ReadMmaNumber(format, code);
  const Format& half = FormatOf(FormatId::kFP16);
  return ReadMmaNumber(
      half, Encode(half, Decode(format, code), Rounding::kNearestEven, 0, Overflow::kSpecial));
}

// Numbers of a narrow format, by code; wide formats are read element by element.
class NumberTable {
 public:
  NumberTable(MmaScheme scheme, const Format& format) : scheme_(scheme), format_(format) {
    if (format.bits > 8) return;
    for (std::uint32_t code = 0; code < 1u << format.bits; ++code) {
      numbers_.push_back(ReadElement(scheme, format, code));
    }
  }
  MmaNumber operator[](std::uint32_t code) const {
    return numbers_.empty() ? ReadElement(scheme_, format_, code) : numbers_[code];
  }

 private:
  MmaScheme scheme_;
  Format format_;
  std::vector<MmaNumber> numbers_;
};

// significand * 2^exponent. Rows that are slow may leave the range; nobody looks at their values.
float TimesPower(std::int64_t significand, int exponent) {
  const auto field = static_cast<std::uint32_t>(127 + std::max(exponent, -126));
  return static_cast<float>(significand) * std::bit_cast<float>(field << 23);
}
double TimesPower64(std::int64_t significand, int exponent) {
  return static_cast<double>(significand) *
         std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

struct StepRange {
  int most = kNoExponent, least = -kNoExponent, low = -kNoExponent;
  bool is_special = false;
  void Add(const MmaNumber& x) {
    is_special |= x.is_nan || x.infinity != 0;
    if (x.significand == 0) return;
    const auto magnitude =
        static_cast<std::uint64_t>(x.significand < 0 ? -x.significand : x.significand);
    most = std::max(most, x.raw);
    least = std::min(least, x.raw);
    low = std::min(low, x.raw - x.fraction_bits + std::countr_zero(magnitude));
  }
};

void PackChainStep(const TensorCoreModel& model, const MmaOperand& x, const NumberTable& table,
                   std::size_t row, std::size_t s, ChainSide* side) {
  std::array<MmaNumber, kMostProducts> numbers{};  // zeros
  StepRange range;
  for (std::size_t i = 0; i < side->step; ++i) {
    const std::size_t k = ElementAt(model.scheme, s * side->step + i);
    if (k < x.cols) numbers[i] = table[x.codes[row * x.cols + k]];
    range.Add(numbers[i]);
  }
  const bool empty = range.most == kNoExponent;
  bool is_slow = range.is_special || (!empty && range.most - range.least > kMostExponentsApart);
  int shift = empty ? 0 : range.most;
  const std::size_t at = side->bundles.At(row, side->steps, s);
  side->lows[at] = empty ? 0 : range.low - shift;
  const std::size_t items = side->steps * side->step;
  for (std::size_t i = 0; i < side->step; ++i) {
    const MmaNumber& n = numbers[i];
    if (n.significand == 0) continue;
    const std::size_t to = side->bundles.At(row, items, s * side->step + i);
    side->exponents[to] =
        static_cast<std::int16_t>(std::max(n.raw - shift, static_cast<int>(kZeroExponent)));
    side->values[to] = TimesPower(n.significand, n.raw - n.fraction_bits - shift);
  }
  if (x.IsScaled() && s * side->step < x.cols) {
    const std::size_t group = s * side->step / static_cast<std::size_t>(x.group);
    const MmaNumber scale = ReadMmaScale(x.scale_format, x.ScaleRow(row)[group]);
    is_slow |= scale.is_nan;
    shift += scale.raw;
  }
  side->shifts[at] = shift;
  if (is_slow) side->is_slow[row] = 1;
}

void PackGroup(const MmaOperand& x, const NumberTable& table, std::size_t row, std::size_t g,
               GroupSide* side) {
  const std::size_t begin = g * kMmaGroup, end = std::min(begin + kMmaGroup, x.cols);
  if (begin >= end) return;
  const std::uint8_t byte = x.ScaleRow(row)[begin / static_cast<std::size_t>(x.group)];
  const MmaNumber scale = ReadMmaScale(x.scale_format, byte);
  if (scale.is_nan) side->is_slow[row] = 1;
  const std::size_t groups = side->steps * kGroupsAStep;
  std::uint64_t mask = 0;
  for (std::size_t k = begin; k < end; ++k) {
    const MmaNumber n = table[x.codes[row * x.cols + k]];
    if (n.significand != 0) mask |= std::uint64_t{1} << (k - begin);
    side->values[side->bundles.At(row, groups * kMmaGroup, k)] =
        TimesPower64(n.significand * scale.significand,
                     n.raw - n.fraction_bits + scale.raw - scale.fraction_bits);
  }
  const std::size_t at = side->bundles.At(row, groups, g);
  side->masks[at] = mask;
  side->powers[at] = scale.significand == 0 ? 0.0 : TimesPower64(1, scale.raw);
}

}  // namespace

bool HasKernel(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b) {
  const Format& e2m1 = FormatOf(FormatId::kE2M1);
  switch (model.scheme) {
    case MmaScheme::kChain:
    case MmaScheme::kFp8InFp16:
      return true;
    case MmaScheme::kScaledChain:
      return a.group % model.products == 0;
    case MmaScheme::kScaledGroups:
      return a.format == e2m1 && b.format == e2m1 && a.group % static_cast<int>(kMmaGroup) == 0;
  }
  return false;
}

ChainSide PackChain(const TensorCoreModel& model, const MmaOperand& x, std::size_t width) {
  const auto step = static_cast<std::size_t>(model.products);
  const std::size_t instruction = model.scheme == MmaScheme::kFp8InFp16 ? kFp8InFp16Depth : step;
  const std::size_t steps = DivideUp(x.cols, instruction) * (instruction / step);
  ChainSide side{.bundles = {x.rows, width}, .step = step, .steps = steps};
  side.values.resize(side.bundles.Size(steps * step), 0.0f);
  side.exponents.resize(side.values.size(), kZeroExponent);
  side.shifts.resize(side.bundles.Size(steps), 0);
  side.lows.resize(side.shifts.size(), 0);
  side.is_slow.resize(x.rows, 0);
  const NumberTable table(model.scheme, x.format);
  ParallelFor(x.rows, [&](std::size_t row) {
    for (std::size_t s = 0; s < steps; ++s) PackChainStep(model, x, table, row, s, &side);
  });
  return side;
}

GroupSide PackGroups(const MmaOperand& x, std::size_t width) {
  const std::size_t steps = DivideUp(x.cols, kGroupsAStep * kMmaGroup);
  const std::size_t groups = steps * kGroupsAStep;
  GroupSide side{.bundles = {x.rows, width}, .steps = steps};
  side.values.resize(side.bundles.Size(groups * kMmaGroup), 0.0);
  side.powers.resize(side.bundles.Size(groups), 0.0);
  side.masks.resize(side.powers.size(), 0);
  side.is_slow.resize(x.rows, 0);
  const NumberTable table(MmaScheme::kScaledGroups, x.format);
  ParallelFor(x.rows, [&](std::size_t row) {
    for (std::size_t g = 0; g < groups; ++g) PackGroup(x, table, row, g, &side);
  });
  return side;
}

}  // namespace fp4lab
