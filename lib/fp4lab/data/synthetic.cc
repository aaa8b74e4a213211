#include "fp4lab/data/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/random.h"

namespace fp4lab {
namespace {

constexpr std::uint32_t kSymbols = SyntheticSource::kSymbols;
constexpr std::uint32_t kContexts = SyntheticSource::kContexts;
constexpr std::uint32_t kOne = 1u << 16;
constexpr std::size_t kRunIn = 1024;

// The uses of random bits, as the `tensor` of their streams.
enum class Use : std::uint32_t { kText = 0x74657874, kTable = 0x7461626C };

RandomStream Stream(std::uint64_t seed, Use use, std::uint32_t step = 0) {
  return {.seed = seed, .step = step, .tensor = static_cast<std::uint32_t>(use)};
}

// The exponents for contexts of `order` symbols: (16^order, 16), each 0..3.
std::vector<std::uint8_t> Exponents(std::uint64_t seed, std::uint32_t order) {
  const RandomStream stream = Stream(seed, Use::kTable, order);
  std::vector<std::uint8_t> exponents(std::size_t{kSymbols} << (4 * order));
  for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] = stream.Bits16(i) & 3;
  return exponents;
}

// Scales shares to integer weights of at least 1 with the sum 2^16. The remainder of rounding down
// goes to the largest share (the first of equals).
std::array<std::uint32_t, kSymbols> Normalized(const std::array<std::uint64_t, kSymbols>& shares) {
  std::uint64_t sum = 0;
  for (const std::uint64_t share : shares) sum += share;
  std::array<std::uint32_t, kSymbols> weights;
  std::uint32_t given = 0;
  for (std::uint32_t s = 0; s < kSymbols; ++s) {
    weights[s] = 1 + static_cast<std::uint32_t>(shares[s] * (kOne - kSymbols) / sum);
    given += weights[s];
  }
  weights[std::max_element(shares.begin(), shares.end()) - shares.begin()] += kOne - given;
  return weights;
}

double EntropyOfContext(const SyntheticSource& source, std::uint32_t context) {
  double entropy = 0;
  for (std::uint32_t s = 0; s < kSymbols; ++s) {
    const double p = source.Weight(context, s) * 0x1p-16;
    entropy -= p * std::log(p);
  }
  return entropy;
}

constexpr std::uint32_t Next(std::uint32_t context, std::uint32_t symbol) {
  return (context * kSymbols + symbol) % kContexts;
}

}  // namespace

SyntheticSource::SyntheticSource(std::uint64_t seed)
    : seed_(seed), weights_(std::size_t{kContexts} * kSymbols) {
  const IeeeArithmetic ieee;
  std::array<std::vector<std::uint8_t>, kOrder + 1> exponents;
  for (std::uint32_t order = 0; order <= kOrder; ++order) exponents[order] = Exponents(seed, order);
  for (std::uint32_t context = 0; context < kContexts; ++context) {
    std::array<std::uint64_t, kSymbols> shares;
    for (std::uint32_t s = 0; s < kSymbols; ++s) {
      std::uint32_t exponent = 0, modulus = 1;
      for (int order = 0; order <= kOrder; ++order, modulus *= kSymbols) {
        exponent += exponents[order][(context % modulus) * kSymbols + s];
      }
      shares[s] = std::uint64_t{1} << exponent;
    }
    const auto weights = Normalized(shares);
    std::copy(weights.begin(), weights.end(), weights_.begin() + context * kSymbols);
  }
}

std::string SyntheticSource::Text(std::size_t size) const {
  const IeeeArithmetic ieee;
  const RandomStream stream = Stream(seed_, Use::kText);
  std::string text;
  text.reserve(size);
  std::uint32_t context = 0;
  for (std::size_t i = 0; i < kRunIn + size; ++i) {
    std::uint32_t rest = stream.Bits16(i), symbol = 0;
    while (rest >= Weight(context, symbol)) rest -= Weight(context, symbol++);
    if (i >= kRunIn) text += kAlphabet[symbol];
    context = Next(context, symbol);
  }
  return text;
}

double SyntheticSource::EntropyRate() const {
  const IeeeArithmetic ieee;
  std::vector<double> now(kContexts, 1.0 / kContexts), next(kContexts);
  for (double change = 1; change > 1e-13;) {
    std::fill(next.begin(), next.end(), 0.0);
    for (std::uint32_t c = 0; c < kContexts; ++c) {
      for (std::uint32_t s = 0; s < kSymbols; ++s) {
        next[Next(c, s)] += now[c] * (Weight(c, s) * 0x1p-16);
      }
    }
    change = 0;
    for (std::uint32_t c = 0; c < kContexts; ++c) change += std::abs(next[c] - now[c]);
    now.swap(next);
  }
  double rate = 0;
  for (std::uint32_t c = 0; c < kContexts; ++c) rate += now[c] * EntropyOfContext(*this, c);
  return rate;
}

double SyntheticSource::CrossEntropy(std::string_view text) const {
  const IeeeArithmetic ieee;
  Expects(text.size() > kOrder, "the text is longer than a context");
  std::uint32_t context = 0;
  double sum = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t symbol = kAlphabet.find(text[i]);
    if (symbol == kAlphabet.npos) {
      throw Error("synthetic text", "character " + std::to_string(i) + " is not in the alphabet");
    }
    const auto s = static_cast<std::uint32_t>(symbol);
    if (i >= kOrder) sum -= std::log(Weight(context, s) * 0x1p-16);
    context = Next(context, s);
  }
  return sum / static_cast<double>(text.size() - kOrder);
}

}  // namespace fp4lab
