#include "fp4lab/judge/cases/case_builder.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/elementary.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {
namespace {

constexpr std::size_t kBlocksARow = 8;
constexpr std::size_t kRowsMultiple = 32;  // of rows, as most kernels accept

// The values of codes 1 to the largest finite one.
std::vector<float> Magnitudes(FormatId id) {
  std::vector<float> values;
  for (std::uint32_t code = 1; code <= MaxFiniteCode(FormatOf(id)); ++code) {
    values.push_back(Decode(id, code));
  }
  return values;
}

std::vector<float> Midpoints(const std::vector<float>& values) {
  std::vector<float> midpoints;
  float below = 0.0f;
  for (const float value : values) {
    midpoints.push_back(0.5f * (below + value));
    below = value;
  }
  return midpoints;
}

}  // namespace

CaseBuilder::CaseBuilder(const Dialect& dialect, const CaseOptions& options,
                         std::string_view family, std::vector<Case>* cases)
    : dialect_(dialect),
      options_(options),
      family_(family),
      cases_(cases),
      tensor_constant_(has_blocks() ? dialect.scale_max * MaxFinite(dialect.element)
                                    : MaxFinite(dialect.element)) {}

std::uint16_t CaseBuilder::max_random() const {
  return dialect_.rounding == ElementRounding::kStochastic8 ? 0xFF : 0xFFFF;
}

std::size_t CaseBuilder::block_rows() const {
  return has_blocks() ? static_cast<std::size_t>(dialect_.block_rows) : 1;
}
std::size_t CaseBuilder::block_cols() const {
  return has_blocks() ? static_cast<std::size_t>(dialect_.block_cols) : 16;
}

std::vector<float> CaseBuilder::ElementValues() const { return Magnitudes(dialect_.element); }
std::vector<float> CaseBuilder::ElementMidpoints() const { return Midpoints(ElementValues()); }

std::vector<float> CaseBuilder::Scales() const {
  if (!has_blocks()) return {1.0f};
  std::vector<float> scales;
  if (has_exponent_scales()) {
    for (int k = -12; k <= 12; k += thorough() ? 1 : 4) {
      scales.push_back(static_cast<float>(PowerOfTwo(k)));
    }
    return scales;
  }
  const Format& format = FormatOf(dialect_.scale);
  const std::uint32_t one = static_cast<std::uint32_t>(format.bias) << format.mantissa_bits;
  const std::uint32_t binade = 1u << format.mantissa_bits;
  for (std::uint32_t code = 1; code <= MaxFiniteCode(format); ++code) {
    const bool quick = (code >= one && code < one + binade) || code == 1 || code == 3 ||
                       code == binade - 1 || code == binade || code + 7 == MaxFiniteCode(format) ||
                       code == MaxFiniteCode(format);
    const float value = Decode(format, code);
    if ((quick || thorough()) && value <= dialect_.scale_max) scales.push_back(value);
  }
  return scales;
}

std::vector<float> CaseBuilder::ScaleMidpoints() const {
  std::vector<float> midpoints = Midpoints(Magnitudes(dialect_.scale));
  std::erase_if(midpoints, [&](float m) { return m > dialect_.scale_max; });
  // A 16x16 tile tests only one scale, so the quick level takes the small midpoints and every third
  // of the others.
  if (thorough() || block_rows() == 1) return midpoints;
  std::vector<float> some;
  for (std::size_t i = 0; i < midpoints.size(); ++i) {
    if (i < 9 || i % 3 == 0) some.push_back(midpoints[i]);
  }
  return some;
}

double CaseBuilder::BlockAmaxFor(float s, float amax) const {
  if (has_exponent_scales()) {
    // An amax of 2^emax * s has the scale s under every rule.
    return s * PowerOfTwo(static_cast<int>(
                              std::bit_cast<std::uint32_t>(MaxFinite(dialect_.element)) >> 23) -
                          127);
  }
  return MaxFinite(dialect_.element) * UnitFor(s, amax);
}

double CaseBuilder::UnitFor(float s, float amax) const {
  if (!has_tensor_scale() || has_exponent_scales()) return s;
  return static_cast<double>(s) * amax / tensor_constant();
}

RandomStream CaseBuilder::Random(std::uint32_t tensor) const {
  std::uint32_t family = 0;  // FNV-1a of the family's name, so that families draw independently
  for (const char c : family_) family = (family ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return {.seed = options_.seed, .step = family, .tensor = tensor};
}

Matrix<float> CaseBuilder::Normal(std::size_t rows, std::size_t cols, std::uint32_t tensor,
                                  bool bf16, float deviation) const {
  const RandomStream stream = Random(tensor);
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {  // the Box-Muller transform
    const PhiloxBlock bits = stream.Block(i);
    const double radius = std::sqrt(-2.0 * Log(UniformOpen(bits[0])));
    const double angle = 2.0 * std::numbers::pi * UniformOpen(bits[1]);
    const auto value = static_cast<float>(radius * SineCosine(angle).cos) * deviation;
    x.values[i] = bf16 ? Decode(FormatId::kBF16, Encode(FormatId::kBF16, value)) : value;
  }
  return x;
}

void CaseBuilder::Add(std::string_view name, Matrix<float> x, std::vector<std::uint16_t> random) {
  Case added{.family = family_, .name = std::string(family_), .x = std::move(x)};
  if (!name.empty()) added.name += "/" + std::string(name);
  added.is_bf16 = std::all_of(added.x.values.begin(), added.x.values.end(), IsBf16);
  if (options_.bf16_only && !added.is_bf16) return;
  if (is_stochastic()) {
    added.random = std::move(random);
    if (added.random.empty()) {
      const RandomStream stream = Random(0xF1E1D000u + static_cast<std::uint32_t>(cases_->size()));
      added.random.resize(added.x.values.size());
      for (std::size_t i = 0; i < added.random.size(); ++i) {
        added.random[i] = static_cast<std::uint16_t>(stream.Bits16(i) & max_random());
      }
    }
  }
  cases_->push_back(std::move(added));
}

void CaseBuilder::AddBlocks(std::string_view name, float amax, std::span<const BlockValues> blocks,
                            std::optional<std::uint16_t> random) {
  if (blocks.empty()) return;
  const bool carries = has_tensor_scale() && amax != 0.0f;
  const std::size_t a_row = kBlocksARow - (carries ? 1 : 0);
  std::size_t rows = DivideUp(blocks.size(), a_row) * block_rows();
  const std::size_t multiple = std::max(kRowsMultiple, block_rows());
  rows = RoundUp(rows, multiple);
  Matrix<float> x(rows, kBlocksARow * block_cols());
  for (std::size_t tile = 0; tile < rows / block_rows() * kBlocksARow; ++tile) {
    const std::size_t top = tile / kBlocksARow * block_rows();
    const std::size_t left = tile % kBlocksARow * block_cols();
    if (carries && tile % kBlocksARow == 0) {
      for (std::size_t r = 0; r < block_rows(); ++r) x(top + r, 0) = amax;
      continue;
    }
    const std::size_t at = tile / kBlocksARow * a_row + tile % kBlocksARow - (carries ? 1 : 0);
    const BlockValues& values = blocks[at % blocks.size()];
    const float sign = at / blocks.size() % 2 == 0 ? 1.0f : -1.0f;
    for (std::size_t i = 0; i < std::min(values.size(), block_size()); ++i) {
      const float value = values[i] == 0.0f ? values[i] : sign * values[i];  // zeros keep signs
      x(top + i / block_cols(), left + i % block_cols()) = value;
    }
  }
  std::vector<std::uint16_t> fields(random ? x.values.size() : 0, random.value_or(0));
  Add(name, std::move(x), std::move(fields));
}

std::vector<BlockValues> CutIntoBlocks(float first, std::span<const float> values,
                                       std::size_t size) {
  std::vector<BlockValues> blocks;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % (size - 1) == 0) blocks.push_back({first});
    blocks.back().push_back(i % 2 == 0 ? values[i] : -values[i]);
  }
  return blocks;
}

}  // namespace fp4lab
