// Directed products as files in a folder, and a kernel's answers beside them.
//
// NAME.safetensors holds operands a and b (quantized matrices in fp4lab's convention, scales
// linear, or plain numbers), d (M, N) F32, what D holds before the kernel runs, and alpha, F32; its
// metadata name the output's type. A kernel answers with NAME.d.npy, or tensor d of
// NAME.d.safetensors, (M, N), in any type that holds its output.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/products/product_case.h"

namespace fp4lab {

void WriteProductCases(std::span<const ProductCase> cases, const std::filesystem::path& folder);

// Writes NAME.d.npy.
void WriteProductAnswer(const ProductCase& c, const Matrix<float>& d,
                        const std::filesystem::path& folder);

// The answer to a case; nullopt if there is none. Throws Error for one of another shape.
std::optional<Matrix<float>> ReadProductAnswer(const ProductCase& c,
                                               const std::filesystem::path& folder);

}  // namespace fp4lab
