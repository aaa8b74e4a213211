// The instructions of the chip for which this code is compiled. Only architecture-specific targets
// (sm_100a, not sm_100) have the narrow conversions; other targets compute the same results in
// software.
#pragma once

namespace fp4lab::cuda {

// cvt.rn.satfinite.e2m1x2.f32, cvt.rp.satfinite.ue8m0x2.f32 and related conversions.
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH__ >= 1000
inline constexpr bool kHasFp4Conversions = true;
#else
inline constexpr bool kHasFp4Conversions = false;
#endif

// cvt.rs.satfinite.e2m1x4.f32: only sm_100a and sm_103a have it (CUDA 13.0).
#if defined(__CUDA_ARCH_SPECIFIC__) && (__CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030)
inline constexpr bool kHasStochasticConversions = true;
#else
inline constexpr bool kHasStochasticConversions = false;
#endif

// mma.sync with block scales: only the sm_120 family has it (CUDA 13.0).
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH__ >= 1200 && __CUDA_ARCH__ < 1300
inline constexpr bool kHasBlockScaledMmaSync = true;
#else
inline constexpr bool kHasBlockScaledMmaSync = false;
#endif

// tcgen05, tensor memory and its matrix instructions: sm_100a and sm_103a have them.
#if (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)) && \
    (__CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030)
inline constexpr bool kHasTcgen05 = true;
#else
inline constexpr bool kHasTcgen05 = false;
#endif

}  // namespace fp4lab::cuda
