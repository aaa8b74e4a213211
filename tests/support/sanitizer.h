// Whether AddressSanitizer is in this build. It reserves more address space than any `ulimit -v`
// leaves.
#pragma once

#include "tests/support/catch.h"

#include <hwy/base.h>

namespace fp4lab {

inline constexpr bool kSanitized = HWY_IS_ASAN;

// Says so in the test's output where memory cannot be limited, and the test checks nothing.
inline bool MemoryHasNoLimit() {
  if (kSanitized) WARN("AddressSanitizer leaves no memory to limit: nothing is checked");
  return kSanitized;
}

}  // namespace fp4lab
