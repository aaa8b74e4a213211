// The operands and results of products: XLA's memory as binary32 matrices, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffers.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/te/gemm.h"

namespace fp4lab::handlers {

// The format of FP8 codes; an error for other types.
FormatId Fp8Of(const Buffer& codes);

// The numbers [first, first + count) of a buffer of FP8, BF16, FP16 or binary32.
std::vector<float> ValuesOf(const Buffer& data, std::size_t first, std::size_t count);

// Numbers as MXFP8 stores them: values(r, k) times the E8M0 scale of its block of 32 along k. The
// scales are in tiles of 128x4 (ScaleOrder::k128x4), Mxfp8ScaleBytes of them.
void ScaleMxfp8(MatrixView<float> values, const std::uint8_t* scales);
std::size_t Mxfp8ScaleBytes(std::size_t rows, std::size_t depth);

// Writes PlainGemm(a, b, block, alpha, bias) to the numbers from `first` on of `out`, which is
// binary32, BF16 or FP16; the last is rounded from binary32, RNE.
void MultiplyInto(MatrixView<const float> a, MatrixView<const float> b, int block, float alpha,
                  const GemmBias& bias, const Buffer& out, std::size_t first);

}  // namespace fp4lab::handlers
