// Fuzzes the reader of training checkpoints. The target appends the SHA-256, so that damage behind
// it is reached: an accepted checkpoint is written, and read again as the same checkpoint.
#include "fp4lab/base/hash.h"
#include "fp4lab/train/checkpoint.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  OneLineOrNothing([&] { ReadCheckpoint(Input(data, size), "x"); });
  OneLineOrNothing([&] {
    const Checkpoint read = ReadCheckpoint(WithHash(Input(data, size)), "x");
    const std::span<const float> payload = read.payload;
    const Checkpoint again =
        ReadCheckpoint(WriteCheckpoint(read.header, std::span(&payload, 1)), "again");
    const bool same_bytes =
        std::ranges::equal(std::as_bytes(std::span(again.payload)), std::as_bytes(payload));
    if (!same_bytes || again.header.step != read.header.step ||
        !FirstDifference(again.header.configuration, read.header.configuration).empty()) {
      std::abort();
    }
  });
  return 0;
}
