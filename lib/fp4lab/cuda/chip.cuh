// What the chip that is compiled for can do. Only architecture-specific targets (sm_100a, not
// sm_100) have the narrow conversions; everything else takes the same arithmetic in software.
#pragma once

namespace fp4lab::cuda {

// cvt.rn.satfinite.e2m1x2.f32, cvt.rp.satfinite.ue8m0x2.f32 and their kin.
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH__ >= 1000
inline constexpr bool kHasFp4Conversions = true;
#else
inline constexpr bool kHasFp4Conversions = false;
#endif

// cvt.rs.satfinite.e2m1x4.f32: of sm_100a and sm_103a alone (CUDA 13.0).
#if defined(__CUDA_ARCH_SPECIFIC__) && (__CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030)
inline constexpr bool kHasStochasticConversions = true;
#else
inline constexpr bool kHasStochasticConversions = false;
#endif

// mma.sync with block scales: of the sm_120 family alone (CUDA 13.0).
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH__ >= 1200 && __CUDA_ARCH__ < 1300
inline constexpr bool kHasBlockScaledMmaSync = true;
#else
inline constexpr bool kHasBlockScaledMmaSync = false;
#endif

// tcgen05: tensor memory and its matrix instructions, of sm_100a and sm_103a.
#if (defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)) && \
    (__CUDA_ARCH__ == 1000 || __CUDA_ARCH__ == 1030)
inline constexpr bool kHasTcgen05 = true;
#else
inline constexpr bool kHasTcgen05 = false;
#endif

}  // namespace fp4lab::cuda
