// Shared by all fuzz targets: a reader may throw an Error of one line; any other failure is a
// finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fp4lab {

template <class Action>
void OneLineOrNothing(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
}

inline std::span<const std::byte> Input(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

// The input followed by the SHA-256 of it, 64 hexadecimal digits, as checkpoints end.
inline std::vector<std::byte> WithHash(std::span<const std::byte> input) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  const std::string digits = Sha256(input);
  const auto hash = std::as_bytes(std::span(digits));
  bytes.insert(bytes.end(), hash.begin(), hash.end());
  return bytes;
}

}  // namespace fp4lab
