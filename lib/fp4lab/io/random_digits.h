// Names of files that no other process makes.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string>

namespace fp4lab {

inline constexpr std::size_t kRandomDigits = 16;

// So many unpredictable hexadecimal digits.
inline std::string RandomDigits() {
  std::array<unsigned char, kRandomDigits / 2> random{};
  while (::getrandom(random.data(), random.size(), 0) < 0 && errno == EINTR) {
  }
  std::string digits;
  for (const unsigned char byte : random) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

}  // namespace fp4lab
