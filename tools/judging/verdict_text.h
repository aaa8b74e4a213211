// Words and JSON that the verdicts on products and attention share.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/judge/products/gemm.h"
#include "fp4lab/judge/products/gemm_cause.h"

namespace fp4lab::tools {

// "0x3F800000 (1)".
std::string Hex(float x);
// A finite number; the text of any other.
Json NumberJson(double x);
Json ElementJson(const GemmElement& e);
Json CausesJson(const std::vector<GemmCause>& causes);
Json RectangleJson(const Rectangle& r);
// "  outside in rows 0..31, columns 64..95 only: all 1024 elements there\n".
std::string OutsideText(const Rectangle& in, std::size_t outside, std::size_t rows,
                        std::size_t cols);
// Prints a product's causes; `it` is "product" or what else they explain.
void PrintCauses(const std::vector<GemmCause>& causes, const char* it = "product");

}  // namespace fp4lab::tools
