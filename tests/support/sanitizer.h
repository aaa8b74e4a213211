// Whether AddressSanitizer is in this build. It reserves more address space than any `ulimit -v`
// leaves.
#pragma once

#include "tests/support/catch.h"

namespace fp4lab {

#if defined(__SANITIZE_ADDRESS__)  // GCC
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)  // Clang
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// Says so in the test's output where memory cannot be limited, and the test checks nothing.
inline bool MemoryHasNoLimit() {
  if (kSanitized) WARN("AddressSanitizer leaves no memory to limit: nothing is checked");
  return kSanitized;
}

}  // namespace fp4lab
