// The random Hadamard transform (RHT) along the reduction axis of a GEMM.
#pragma once

#include <cstdint>

#include "fp4lab/base/matrix.h"
#include "fp4lab/transform/hadamard_transform.h"

namespace fp4lab {

// For every group of n = `transform.size` consecutive elements of a row, cols a multiple of n:
//   y_j = bf16( fp32( n^(-1/2) * sum_k s_k * (-1)^popcount(j & k) * x_k ) )
// The sum is exact before the two roundings (RNE). x must hold BF16 values. For sizes 2, 8, 32 and
// 128 the factor is the binary32 number fl(1/sqrt(n)); the sum is first rounded to binary32, and
// the multiplication rounds once more. A sum of zero is +0. NaN and Inf propagate as in any sum,
// NaN as 0x7FC00000. out may be x.
// For columns pass Transposed() views (fastest if x and out have unit stride in the same
// direction).
void RandomHadamard(MatrixView<const float> x, const HadamardTransform& transform,
                    MatrixView<float> out);

// RandomHadamard with the signs as a mask (bit k set: element k is negated); size 16 or 32.
void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out);
// The transform of a sign mask. Throws std::logic_error unless size is 16 or 32.
HadamardTransform MaskTransform(int size, std::uint32_t sign_mask);

// Throws std::logic_error unless `size` is one of kHadamardSizes and divides x.cols, and out has
// the shape of x.
void CheckHadamard(MatrixView<const float> x, int size, MatrixView<const float> out);

namespace reference {
void RandomHadamard(MatrixView<const float> x, const HadamardTransform& transform,
                    MatrixView<float> out);
void RandomHadamard(MatrixView<const float> x, int size, std::uint32_t sign_mask,
                    MatrixView<float> out);
}  // namespace reference

}  // namespace fp4lab
