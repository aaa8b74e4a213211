// Integer quotients and multiples rounded up, for sizes: pieces that cover a length. constexpr and
// free of macros: host and device share them.
#pragma once

namespace fp4lab {

// ceil(x / y) for x >= 0 and y > 0, where x + y - 1 does not overflow.
template <class T, class U>
constexpr auto DivideUp(T x, U y) {
  return (x + y - 1) / y;
}

// The least multiple of y that is not below x.
template <class T, class U>
constexpr auto RoundUp(T x, U y) {
  return DivideUp(x, y) * y;
}

}  // namespace fp4lab
