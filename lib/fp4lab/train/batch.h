// The tokens of a step as a function of (seed, step, sequence), with no state to save.
#pragma once

#include <cstdint>
#include <span>

namespace fp4lab {

// The training tokens are cut into windows of `sequence` + 1 tokens (the last token is only a
// target) that start `sequence` apart. Sequence number i = step * batch + b belongs to epoch e = i
// / W, W = WindowCount. An epoch shifts all windows by the same random offset in [0, sequence) and
// visits each window once, in an order that is a pseudo-random permutation keyed by (seed, e): a
// Feistel network of four rounds on the smallest even number of bits that holds W, applied until
// the result is below W (Black & Rogaway 2002), with Philox as its round function.
struct DataOrder {
  std::uint64_t seed = 0;
  std::uint64_t tokens = 0;  // of the training part
  std::uint64_t sequence = 0;
};

// The number of windows: tokens / sequence - 1, at least 0.
std::uint64_t WindowCount(const DataOrder& order);

// The first token of sequence number `index`. WindowCount must not be 0.
std::uint64_t WindowStart(const DataOrder& order, std::uint64_t index);

// inputs and targets (sequence each): the tokens from `start` and from `start` + 1.
void CopyWindow(std::span<const std::uint16_t> tokens, std::uint64_t start,
                std::span<std::uint16_t> inputs, std::span<std::uint16_t> targets);

// inputs and targets (the same number of whole sequences each): the sequences from number `first`
// on.
void CopySequences(const DataOrder& order, std::span<const std::uint16_t> tokens,
                   std::uint64_t first, std::span<std::uint16_t> inputs,
                   std::span<std::uint16_t> targets);

}  // namespace fp4lab
