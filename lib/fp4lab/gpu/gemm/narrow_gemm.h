// Products of narrow operands by the chip's own matrix instructions, through cuBLASLt: FP8 with one
// scale (Hopper and later), block-scaled MXFP8, NVFP4 and MXFP4 (Blackwell).
//
// Accumulation is the tensor core's, binary32 without the fast mode
// (CUBLASLT_MATMUL_DESC_FAST_ACCUM = 0); its order and inner width are not specified.
// tensor/tensor_core.h models the behaviour that was measured. The block-scaled kinds are compiled
// only: no Blackwell chip has run them yet.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/cuda/device/device.h"
#include "fp4lab/formats/format.h"

namespace fp4lab::gpu {

enum class NarrowKind : std::uint8_t {
  kFp8,    // E4M3 or E5M2, at most one operand of E5M2; no block scales
  kMxfp8,  // the elements of kFp8 with E8M0 scales of 32
  kNvfp4,  // E2M1 with E4M3 scales of 16
  kMxfp4   // E2M1 with E8M0 scales of 32
};

// One operand: (rows, k) codes, row-major, as cuda::Quantize writes them, E2M1 two codes per byte.
// Scales lie in tiles of 128x4 (ScaleOrder::k128x4), or are nullptr. Device pointers, 16-byte
// aligned.
struct NarrowOperand {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
  FormatId element = FormatId::kE4M3;
};

// d = *alpha * a b^T: a (m, k), b (n, k), d (m, n) floats. k and n multiples of 16, for E2M1 of 32.
struct NarrowProblem {
  NarrowKind kind = NarrowKind::kFp8;
  std::size_t m = 0, n = 0, k = 0;
  NarrowOperand a, b;
  const float* alpha = nullptr;  // on the device: the product of both decode tensor scales
  float* d = nullptr;
};

// Throws a one-line Error if the chip or the library has no such product. Does not wait for the
// GPU.
void NarrowGemm(const NarrowProblem& problem, cuda::StreamHandle stream = nullptr);

}  // namespace fp4lab::gpu
