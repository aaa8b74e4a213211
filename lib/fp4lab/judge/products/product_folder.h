// Directed cases as files in a folder, and a kernel's answers beside them.
//
// NAME.safetensors of a product holds operands a and b (quantized matrices in fp4lab's convention,
// scales linear, or plain numbers), d (M, N) F32, what D holds before the kernel runs, and alpha,
// F32; c and beta, F32, where C is added; its metadata name the output's type. A grouped product
// has operands a (rows, K) and b.0, b.1, ... (N, K), and ends, sizes and alphas, F32, a number a
// group: whole numbers of rows. A kernel answers with NAME.d.npy, or tensor d of
// NAME.d.safetensors, in any type that holds its output.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/products/grouped/grouped_gemm.h"
#include "fp4lab/judge/products/product_case.h"

namespace fp4lab {

void WriteDirectedCases(std::span<const ProductCase> cases, const std::filesystem::path& folder);
void WriteDirectedCases(std::span<const GroupedCase> cases, const std::filesystem::path& folder);

// Writes NAME.d.npy.
void WriteDirectedAnswer(std::string_view name, const Matrix<float>& d,
                         const std::filesystem::path& folder);

// The answer to a case of this name; nullopt if there is none. Throws Error for one whose shape is
// not that of `right`.
std::optional<Matrix<float>> ReadDirectedAnswer(std::string_view name, const Matrix<float>& right,
                                                const std::filesystem::path& folder);

// A tensor of binary32 numbers.
SafetensorsTensor FloatTensor(const std::vector<std::size_t>& shape,
                              const std::vector<float>& values);

}  // namespace fp4lab
