// How many SIMD targets a build has at least.
#pragma once

#include <cstddef>

namespace fp4lab {

#ifdef HWY_COMPILE_ONLY_STATIC  // a sanitized build (cmake/simd.cmake)
inline constexpr std::size_t kLeastTargets = 1;
#else
inline constexpr std::size_t kLeastTargets = 2;
#endif

}  // namespace fp4lab
