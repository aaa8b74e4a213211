#include "fp4lab/measure/probes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"

namespace fp4lab::measure {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes

template <class Body>
void ForPieces(std::size_t size, Body&& body) {
  ParallelFor(DivideUp(size, kPiece), [&](std::size_t i) {
    const std::size_t begin = i * kPiece;
    body(begin, std::min(kPiece, size - begin));
  });
}

}  // namespace

void SpendCycles(std::size_t cycles) {
  constexpr std::size_t kUnroll = 16, kLatency = 3;
  std::uint64_t x = 3, factor = 5;
  asm volatile("" : "+r"(factor));  // hides the factor: a known one may be compiled to additions
  for (std::size_t i = 0; i < cycles / (kUnroll * kLatency); ++i) {
    for (std::size_t k = 0; k < kUnroll; ++k) {
      x *= factor;
      asm volatile("" : "+r"(x));  // hides x: the compiler cannot merge multiplications
    }
  }
}

void CopyBytes(std::span<const std::byte> from, std::span<std::byte> to) {
  Expects(from.size() == to.size(), "CopyBytes: equal sizes");
  ForPieces(from.size(), [&](std::size_t begin, std::size_t size) {
    std::memcpy(to.data() + begin, from.data() + begin, size);
  });
}

void WriteBytes(std::span<std::byte> to) {
  ForPieces(to.size(),
            [&](std::size_t begin, std::size_t size) { std::memset(to.data() + begin, 1, size); });
}

void MoveBytes(std::span<const std::byte> from, std::span<std::byte> to) {
  ForPieces(from.size(), [&](std::size_t begin, std::size_t size) {
    std::uint64_t all[8] = {};  // eight chains: one alone would wait for itself
    for (std::size_t at = 0; at + sizeof all <= size; at += sizeof all) {
      std::uint64_t words[8];
      std::memcpy(words, from.data() + begin + at, sizeof words);
      for (std::size_t k = 0; k < 8; ++k) all[k] |= words[k];
    }
    asm volatile("" : : "m"(all));  // the compiler cannot leave the reads out
    const std::size_t first = to.size() * begin / from.size();
    std::memset(to.data() + first, 1, to.size() * (begin + size) / from.size() - first);
  });
}

}  // namespace fp4lab::measure
