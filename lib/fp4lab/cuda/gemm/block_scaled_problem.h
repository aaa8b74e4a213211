// A product of E2M1 matrices with block scales, and the forms of kernels that compute it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fp4lab::cuda {

enum class BlockScaling : std::uint8_t {
  kNvfp4,  // one E4M3 scale for 16 elements, sign bit ignored: kind::mxf4nvf4, scale_vec::4X
  kMxfp4   // one E8M0 scale for 32 elements: kind::mxf4, scale_vec::2X
};
constexpr std::size_t GroupOf(BlockScaling scaling) {
  return scaling == BlockScaling::kNvfp4 ? 16 : 32;
}

// The two instructions, and for each of them the same kernel with the instruction in software: the
// same registers or descriptors, with the arithmetic in integers.
enum class MmaForm : std::uint8_t {
  kMmaSyncSoftware,  // runs on every chip
  kMmaSync,          // mma.sync.m16n8k64: machine code for sm_120a
  kTcgen05Software,  // chips with 117 KiB of shared memory for a thread block (sm_80, sm_90,
                     // sm_10x)
  kTcgen05           // tcgen05.mma, 128 x 128 x 64: machine code for sm_100a and sm_103a
};
inline constexpr MmaForm kMmaForms[] = {MmaForm::kMmaSyncSoftware, MmaForm::kMmaSync,
                                        MmaForm::kTcgen05Software, MmaForm::kTcgen05};

// Device pointers of one operand. codes: (rows, k), row-major, two in a byte, even column in the
// low nibble, rows of ceil(k / 2) bytes. scales: (rows, ceil(k / group)) in tiles of 128x4
// (ScaleOrder::k128x4), 16-byte aligned; the padding may hold anything.
struct BlockScaledOperand {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
};

// d = alpha * (a b^T), or with `accumulate` alpha * (d + a b^T); all pointers are device pointers.
// Any m, n and k; loads are fastest if k is a multiple of 32 and codes are 16-byte aligned.
struct BlockScaledProblem {
  BlockScaling scaling = BlockScaling::kNvfp4;
  std::size_t m = 0, n = 0, k = 0;
  BlockScaledOperand a = {}, b = {};  // (m, k) and (n, k)
  const float* alpha = nullptr;       // one float; nullptr means 1
  bool accumulate = false;            // the accumulators start from d
  float* d = nullptr;                 // (m, n), row-major; every NaN is 0x7FFFFFFF
};

}  // namespace fp4lab::cuda
