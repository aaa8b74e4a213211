#include "fp4lab/train/batch.h"

#include <algorithm>
#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"
#include "fp4lab/train/model/streams.h"

namespace fp4lab {
namespace {

// A permutation of [0, 2^(2 half_bits)).
std::uint64_t Feistel(const RandomStream& stream, int half_bits, std::uint64_t x) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = x >> half_bits, right = x & mask;
  for (std::uint64_t round = 0; round < 4; ++round) {
    const std::uint64_t hash = stream.Block(round << 32 | right)[0];
    const std::uint64_t next = left ^ (hash & mask);
    left = right;
    right = next;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t WindowCount(const DataOrder& order) {
  const std::uint64_t whole = order.tokens / order.sequence;
  return whole > 0 ? whole - 1 : 0;
}

std::uint64_t WindowStart(const DataOrder& order, std::uint64_t index) {
  const std::uint64_t windows = WindowCount(order);
  Expects(windows > 0 && windows < std::uint64_t{1} << 62, "WindowStart: a window fits");
  const auto epoch = static_cast<std::uint32_t>(index / windows);
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(windows - 1)) + 1) / 2);
  const RandomStream stream{order.seed, epoch, kWindowOrder};
  std::uint64_t window = index % windows;
  do {
    window = Feistel(stream, half_bits, window);
  } while (window >= windows);
  const std::uint64_t bits = RandomStream{order.seed, epoch, kWindowOffset}.Bits32(0);
  return window * order.sequence + (bits * order.sequence >> 32);
}

void CopyWindow(std::span<const std::uint16_t> tokens, std::uint64_t start,
                std::span<std::uint16_t> inputs, std::span<std::uint16_t> targets) {
  Expects(inputs.size() == targets.size() && start + inputs.size() < tokens.size(),
          "CopyWindow: the window and its last target lie inside the tokens");
  std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(start), inputs.size(), inputs.begin());
  std::copy_n(tokens.begin() + static_cast<std::ptrdiff_t>(start) + 1, targets.size(),
              targets.begin());
}

void CopySequences(const DataOrder& order, std::span<const std::uint16_t> tokens,
                   std::uint64_t first, std::span<std::uint16_t> inputs,
                   std::span<std::uint16_t> targets) {
  const std::size_t t = order.sequence;
  Expects(tokens.size() == order.tokens && inputs.size() % t == 0,
          "CopySequences: the tokens of the order, and whole sequences");
  for (std::size_t b = 0; b * t < inputs.size(); ++b) {
    CopyWindow(tokens, WindowStart(order, first + b), inputs.subspan(b * t, t),
               targets.subspan(b * t, t));
  }
}

}  // namespace fp4lab
