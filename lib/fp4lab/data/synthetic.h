// A built-in text source of known entropy: tests and demonstrations need no file and no network.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// A Markov chain of order 3 over 16 symbols (space and 'a'..'o'). The probability of symbol s after
// the symbols c3 c2 c1 (c1 the latest) is weight / 2^16, where the weights of a context are
// integers of at least 1 that add up to 2^16, in proportion to
//   2^(a(s) + b(c1, s) + c(c2 c1, s) + d(c3 c2 c1, s))
// with a, b, c, d in 0..3 drawn from Philox with the seed. Longer contexts therefore predict the
// next symbol better, as in real text. The arithmetic is integer only: a seed gives the same text
// on every machine.
class SyntheticSource {
 public:
  static constexpr int kOrder = 3;
  static constexpr std::uint32_t kSymbols = 16;
  static constexpr std::uint32_t kContexts = kSymbols * kSymbols * kSymbols;
  static constexpr std::string_view kAlphabet = " abcdefghijklmno";

  explicit SyntheticSource(std::uint64_t seed);

  // The first `size` symbols after a run-in of 1,024 symbols. A shorter text is a prefix of a
  // longer one.
  std::string Text(std::size_t size) const;

  // The probability, times 2^16, of symbol index `symbol` after context (c3 * 16 + c2) * 16 + c1.
  std::uint32_t Weight(std::uint32_t context, std::uint32_t symbol) const {
    return weights_[context * kSymbols + symbol];
  }

  // Nats a symbol: sum over contexts of stationary probability x entropy of the next symbol. The
  // stationary distribution comes from power iteration to an L1 change below 1e-13. No predictor
  // has a smaller expected loss on this text.
  double EntropyRate() const;

  // Mean of -ln p over the symbols of `text` after the first three, in nats, with p the probability
  // under this source. Throws Error for a character outside kAlphabet.
  double CrossEntropy(std::string_view text) const;

 private:
  std::uint64_t seed_;
  std::vector<std::uint32_t> weights_;  // (kContexts, kSymbols)
};

}  // namespace fp4lab
