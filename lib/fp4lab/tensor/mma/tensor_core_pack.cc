#include "fp4lab/tensor/mma/tensor_core_pack.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/mma/mma_number.h"
#include "fp4lab/tensor/tile_loop.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostProducts = 64;

// The index k of the element at place p in the order of a scheme's steps. kFp8InFp16 takes the
// elements of an instruction with k % 4 in {0, 1} first, then those with k % 4 in {2, 3}.
constexpr std::size_t ElementAt(MmaScheme scheme, std::size_t p) {
  if (scheme != MmaScheme::kFp8InFp16) return p;
  const std::size_t in = p % kFp8InFp16Depth, half = in / 16, j = in % 16;
  return p - in + j / 2 * 4 + half * 2 + j % 2;
}

// Reads the codes of a row step by step; for kFp8InFp16, FP8 codes are widened to binary16.
class Reader {
 public:
  Reader(MmaScheme scheme, const Format& format)
      : scheme_(scheme),
        format_(scheme == MmaScheme::kFp8InFp16 ? FormatOf(FormatId::kFP16) : format) {
    if (scheme != MmaScheme::kFp8InFp16) return;
    for (std::uint32_t code = 0; code < 256; ++code) {
      wide_.push_back(
          Encode(format_, Decode(format, code), Rounding::kNearestEven, 0, Overflow::kSpecial));
    }
  }

  // Writes the codes of step s of a row; zeros past the row's end.
  void Codes(std::span<const std::uint32_t> row, std::size_t s, std::size_t step,
             std::uint32_t* out) const {
    if (wide_.empty() && (s + 1) * step <= row.size()) {
      std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(s * step), step, out);
      return;
    }
    for (std::size_t i = 0; i < step; ++i) {
      const std::size_t k = ElementAt(scheme_, s * step + i);
      const std::uint32_t code = k < row.size() ? row[k] : 0;
      out[i] = wide_.empty() ? code : wide_[code];
    }
  }

  const Format& format() const { return format_; }

 private:
  MmaScheme scheme_;
  Format format_;
  std::vector<std::uint32_t> wide_;
};

// The numbers of one step: value * 2^raw, value in (-2, 2).
struct StepNumbers {
  std::array<float, kMostProducts> values;
  std::array<std::int32_t, kMostProducts> raws;  // kNoExponent for zeros
  int most, least, low;  // exponents of non-zero numbers; low: of the lowest one bit
  bool is_special;
};

// The least magnitude code that is NaN or infinite; ~0 if the format has neither.
constexpr std::uint32_t FirstSpecial(const Format& f) {
  return f.specials == Specials::kNone ? ~0u : MaxFiniteCode(f) + 1;
}

void Read(const Format& f, const std::uint32_t* codes, std::size_t step, StepNumbers* x) {
  const std::uint32_t magnitude_mask = MagnitudeMask(f), first_special = FirstSpecial(f);
  const std::uint32_t one = 1u << f.mantissa_bits;
  const int m = f.mantissa_bits, bias = f.bias;
  const float unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 - m) << 23);
  std::uint32_t largest = 0;
  int most = kNoExponent, least = -kNoExponent, low = -kNoExponent;
  for (std::size_t i = 0; i < step; ++i) {
    const std::uint32_t magnitude = codes[i] & magnitude_mask, field = magnitude >> m;
    const std::uint32_t significand = (magnitude & (one - 1)) | (field > 0 ? one : 0);
    const int raw = static_cast<int>(std::max(field, 1u)) - bias;
    const float value = static_cast<float>(static_cast<std::int32_t>(significand)) * unit;
    const int low_bit = raw - m + std::countr_zero(significand);
    largest = std::max(largest, magnitude);
    x->values[i] = codes[i] > magnitude_mask ? -value : value;
    x->raws[i] = significand == 0 ? kNoExponent : raw;
    most = std::max(most, significand == 0 ? kNoExponent : raw);
    least = std::min(least, significand == 0 ? -kNoExponent : raw);
    low = std::min(low, significand == 0 ? -kNoExponent : low_bit);
  }
  x->most = most, x->least = least, x->low = low;
  x->is_special = largest >= first_special;
}

void PackChainStep(const MmaOperand& x, const Reader& reader, std::size_t row, std::size_t s,
                   ChainSide* side) {
  std::array<std::uint32_t, kMostProducts> codes;
  StepNumbers numbers;
  reader.Codes(x.Row(row), s, side->step, codes.data());
  Read(reader.format(), codes.data(), side->step, &numbers);
  const bool empty = numbers.most == kNoExponent;
  bool is_slow =
      numbers.is_special || (!empty && numbers.most - numbers.least > kMostExponentsApart);
  int shift = empty ? 0 : numbers.most;
  const std::size_t at = side->bundles.At(row, side->steps, s);
  side->lows[at] = empty ? 0 : numbers.low - shift;
  std::size_t to = side->bundles.At(row, side->steps * side->step, s * side->step);
  for (std::size_t i = 0; i < side->step; ++i, to += side->bundles.width) {
    // A slow row may have lower exponents; the kernels' results for its values are not used.
    const int exponent = std::max(numbers.raws[i] - shift, -126);
    const auto power = std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
    side->values[to] = numbers.values[i] * power;
    side->exponents[to] =
        numbers.raws[i] == kNoExponent ? kZeroExponent : static_cast<std::int16_t>(exponent);
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

double Power(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

// Twice the value of every E2M1 code.
constexpr std::array<std::int8_t, 16> kHalves = [] {
  std::array<std::int8_t, 16> halves{};
  for (std::uint32_t code = 0; code < 16; ++code) {
    halves[code] = static_cast<std::int8_t>(2 * Decode(FormatId::kE2M1, code));
  }
  return halves;
}();

// The elements of a group: twice their values, a mask of the non-zero elements, and the sum of
// `halves`.
struct GroupElements {
  std::array<std::int8_t, kMmaGroup> halves{};
  std::uint64_t mask = 0;
  int sum = 0;

  explicit GroupElements(std::span<const std::uint32_t> codes) {
    for (std::size_t k = 0; k < codes.size(); ++k) {
      halves[k] = kHalves[codes[k] & 15];
      mask |= std::uint64_t{(codes[k] & 7) != 0} << k;
      sum += halves[k];
    }
  }
};

void PackGroup(const MmaOperand& x, GroupRole role, std::size_t row, std::size_t g,
               GroupSide* side) {
  const std::size_t begin = g * kMmaGroup, end = std::min(begin + kMmaGroup, x.cols);
  if (begin >= end) return;
  const std::uint8_t byte = x.ScaleRow(row)[begin / static_cast<std::size_t>(x.group)];
  const MmaNumber scale = ReadMmaScale(x.scale_format, byte);
  if (scale.is_nan) side->is_slow[row] = 1;
  const GroupElements elements(x.Row(row).subspan(begin, end - begin));
  const std::size_t groups = side->steps * kGroupsAStep, width = side->bundles.width;
  const int offset = role == GroupRole::kA ? 12 : 0;
  std::uint8_t* to =
      side->codes.data() + 4 * side->bundles.At(row, groups * kMmaGroup / 4, begin / 4);
  for (std::size_t k = 0; k < kMmaGroup; k += 4, to += 4 * width) {
    for (std::size_t i = 0; i < 4; ++i) {
      to[i] = static_cast<std::uint8_t>(elements.halves[k + i] + offset);
    }
  }
  const std::size_t at = side->bundles.At(row, groups, g);
  side->starts[at] = -12 * elements.sum;
  side->factors[at] =
      0.5 * static_cast<double>(scale.significand) * Power(scale.raw - scale.fraction_bits);
  side->masks[at] = elements.mask;
  if (scale.significand == 0) return;
  side->powers[at] = Power(scale.raw);
  const std::size_t step = side->bundles.At(row, side->steps, g / kGroupsAStep);
  side->highs[step] = std::max(side->highs[step], scale.raw);
  side->lows[step] = std::min(side->lows[step], scale.raw - scale.fraction_bits - 1);
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
  const Reader reader(model.scheme, x.format);
  ParallelFor(x.rows, [&](std::size_t row) {
    for (std::size_t s = 0; s < steps; ++s) PackChainStep(x, reader, row, s, &side);
  });
  return side;
}

GroupSide PackGroups(const MmaOperand& x, GroupRole role) {
  const std::size_t steps = DivideUp(x.cols, kGroupsAStep * kMmaGroup);
  const std::size_t groups = steps * kGroupsAStep;
  GroupSide side{.bundles = {x.rows, role == GroupRole::kA ? 1 : kMmaPanel}, .steps = steps};
  side.codes.resize(side.bundles.Size(groups * kMmaGroup), 0);
  side.starts.resize(side.bundles.Size(groups), 0);
  side.factors.resize(side.starts.size(), 0.0);
  side.powers.resize(side.starts.size(), 0.0);
  side.masks.resize(side.starts.size(), 0);
  side.highs.resize(side.bundles.Size(steps), -kNoGroup);
  side.lows.resize(side.highs.size(), kNoGroup);
  side.is_slow.resize(x.rows, 0);
  ParallelFor(x.rows, [&](std::size_t row) {
    for (std::size_t g = 0; g < groups; ++g) PackGroup(x, role, row, g, &side);
  });
  return side;
}

}  // namespace fp4lab
