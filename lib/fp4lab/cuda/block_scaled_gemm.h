// Products of E2M1 matrices with block scales by kernels of our own: the chip's matrix instruction,
// or its arithmetic in software.
//
//   d(m, n) = alpha * acc,  acc = the chain of instructions of 64 elements over k, ascending, from
//   +0 or from d(m, n);  one chain for each output, so there is no other order of summation
//
// What an instruction computes is the model "blackwell.mxf4.f32" of tensor/tensor_core.h (exact
// sums of 16 products, aligned to 35 bits below the largest, truncated once to binary32). The
// software forms compute that by definition. The two instructions were compiled and their machine
// code inspected, never run: `fp4lab crosscheck` on a Blackwell chip says whether they do as the
// model says. README.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp4lab/cuda/device.h"

namespace fp4lab::cuda {

enum class BlockScaling : std::uint8_t {
  kNvfp4,  // E4M3 scales of 16 elements, sign bit ignored: kind::mxf4nvf4, scale_vec::4X
  kMxfp4   // E8M0 scales of 32 elements: kind::mxf4, scale_vec::2X
};
constexpr std::size_t GroupOf(BlockScaling scaling) {
  return scaling == BlockScaling::kNvfp4 ? 16 : 32;
}

// Each instruction, and the same kernel with it in software: the same registers or descriptors,
// its arithmetic in integers.
enum class MmaForm : std::uint8_t {
  kMmaSyncSoftware,  // every chip
  kMmaSync,          // mma.sync.m16n8k64: machine code for sm_120a
  kTcgen05Software,  // chips with 117 KiB of shared memory for a thread block (sm_80, sm_90,
                     // sm_10x)
  kTcgen05           // tcgen05.mma, 128 x 128 x 64: machine code for sm_100a and sm_103a
};
inline constexpr MmaForm kMmaForms[] = {MmaForm::kMmaSyncSoftware, MmaForm::kMmaSync,
                                        MmaForm::kTcgen05Software, MmaForm::kTcgen05};

// (rows, k) codes, row-major, two a byte, even column in the low nibble, rows of ceil(k / 2) bytes.
// Scales (rows, ceil(k / group)) in tiles of 128x4 (ScaleOrder::k128x4, 16-byte aligned); the
// padding may hold anything.
struct BlockScaledOperand {
  const std::uint8_t* codes = nullptr;
  const std::uint8_t* scales = nullptr;
};

// Device pointers. Any m, n and k; fast where k is a multiple of 32 and codes are 16-byte aligned.
struct BlockScaledProblem {
  BlockScaling scaling = BlockScaling::kNvfp4;
  std::size_t m = 0, n = 0, k = 0;
  BlockScaledOperand a = {}, b = {};  // (m, k) and (n, k)
  const float* alpha = nullptr;       // one float; nullptr: 1
  bool accumulate = false;            // start from what d holds
  float* d = nullptr;                 // (m, n), row-major; every NaN is 0x7FFFFFFF
};

// Whether this build has machine code of the form for the current device.
bool HasMmaForm(MmaForm form);

// In order with the stream's other work, not waited for. Error, one line, without the form.
void BlockScaledGemm(const BlockScaledProblem& problem, MmaForm form,
                     StreamHandle stream = nullptr);

}  // namespace fp4lab::cuda
