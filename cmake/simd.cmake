# FP4LAB_SIMD: the SIMD targets that kernels are compiled for. A kernel returns the same bytes on each
# (tests compile and compare all); which the program runs is chosen when it starts.
#   ALL     all that Highway and the compiler know: tests, packages
#   COMMON  without SSSE3 and SSE4, which machines since 2013 do not need: wheels
#   NATIVE  the best of the machine that builds, and the compiler's baseline for others: tools/run
set(FP4LAB_SIMD ALL CACHE STRING "SIMD targets of the kernels: ALL, COMMON or NATIVE")
set_property(CACHE FP4LAB_SIMD PROPERTY STRINGS ALL COMMON NATIVE)
# The fallback is Highway's scalar target with every compiler. Its emulation of 128-bit vectors, the fallback from GCC 14
# on, has other bits for NaN and in sums.
set(fp4lab_targets HWY_COMPILE_ALL_ATTAINABLE HWY_WANT_AVX3_DL HWY_BROKEN_EMU128=1)
set(fp4lab_target_options)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  # NEON and the scalar target, which every 64-bit Arm has, whatever FP4LAB_SIMD says. Kernels keep vectors in
  # arrays and structs, which SVE's, of a length that is known at run time only, cannot stand in.
  list(APPEND fp4lab_targets "HWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE_256|HWY_SVE2|HWY_SVE2_128)")
elseif(FP4LAB_SANITIZE)
  # One target that the whole file is compiled for (Highway's AVX2 needs AES). Functions with a
  # target of their own cost Clang 100 times as long under the sanitizers: 20 minutes per kernel.
  set(fp4lab_targets HWY_COMPILE_ONLY_STATIC)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
    set(fp4lab_target_options -march=x86-64-v3 -maes -mpclmul)
  endif()
elseif(FP4LAB_SIMD STREQUAL COMMON)
  list(APPEND fp4lab_targets "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")
elseif(FP4LAB_SIMD STREQUAL NATIVE)
  # Highway's own answer to what this machine has. Its number is this version's, hence asked again
  # where the compiler or Highway is another one.
  if(FP4LAB_FETCH_HIGHWAY)
    set(highway_includes ${highway_SOURCE_DIR})
  else()
    get_target_property(highway_includes hwy::hwy INTERFACE_INCLUDE_DIRECTORIES)
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/native_target.cc
    "#include <hwy/detect_targets.h>\n#include <cstdio>\n"
    "int main() { std::printf(\"%lld\", static_cast<long long>(HWY_STATIC_TARGET)); }\n")
  try_run(native_runs native_compiles ${PROJECT_BINARY_DIR}/native_target
    ${PROJECT_BINARY_DIR}/native_target.cc
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${highway_includes}"
    COMPILE_DEFINITIONS -march=native -DHWY_WANT_AVX3_DL
    COMPILE_OUTPUT_VARIABLE native_log RUN_OUTPUT_VARIABLE native_target)
  if(NOT native_compiles OR NOT native_runs EQUAL 0)
    message(FATAL_ERROR "FP4LAB_SIMD=NATIVE: the compiler's -march=native says nothing here; take ALL\n"
                        "${native_log}")
  endif()
  list(APPEND fp4lab_targets "HWY_DISABLED_TARGETS=(~(HWY_BASELINE_TARGETS|${native_target}LL))")
  unset(native_runs CACHE)
  unset(native_compiles CACHE)
elseif(NOT FP4LAB_SIMD STREQUAL ALL)
  message(FATAL_ERROR "FP4LAB_SIMD=${FP4LAB_SIMD}: ALL, COMMON or NATIVE")
endif()
message(STATUS "SIMD targets: ${FP4LAB_SIMD}")
