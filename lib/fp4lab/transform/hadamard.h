// The random Hadamard transform (RHT) along the reduction axis of a GEMM.
#pragma once

#include <cstdint>

#include "fp4lab/base/matrix.h"

namespace fp4lab {

// Transformer Engine's fixed sign vector + + + - + - - - - - - + - + - -, as a mask: bit i set
// means that element i of every group of 16 is negated (get_wgrad_sign_vector; also JAX).
inline constexpr std::uint32_t kTeSignMask16 = 0xD7E8;
// For groups of 32: the same vector twice.
inline constexpr std::uint32_t kTeSignMask32 = 0xD7E8D7E8;
inline constexpr float kInverseSqrt32 = 0x1.6a09e6p-3f;  // fl(1/sqrt(32))

// For every group of `size` (16 or 32) consecutive elements of a row, cols a multiple of size:
//   y_j = bf16( fp32( size^(-1/2) * sum_k s_k * (-1)^popcount(j & k) * x_k ) )
// The sum is exact before the two roundings (RNE). x must hold BF16 values. For size 32 the factor
// is the binary32 number fl(1/sqrt(32)), multiplied after the rounding of the sum to binary32.
// A sum of zero is +0. NaN and Inf propagate as in any sum, NaN as 0x7FC00000. out may be x.
// Columns: pass Transposed() views (fastest where x and out lie in memory the same way).
void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out);

// The preconditions above, as Expects.
void CheckHadamard(MatrixView<const float> x, int size, MatrixView<const float> out);

namespace reference {
void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out);
}

}  // namespace fp4lab
