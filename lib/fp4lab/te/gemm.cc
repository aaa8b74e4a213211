#include "fp4lab/te/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/tensor/fp4_gemm.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {
namespace {

constexpr std::size_t kBlock = 16;
constexpr std::size_t kRowsAPiece = 32;

// The integers (12 + twice the value) of both codes of a byte, the low nibble's in the low byte.
constexpr std::array<std::uint16_t, 256> kIntegersOfByte = [] {
  constexpr auto integer = [](std::uint32_t code) {
    return static_cast<std::uint32_t>(12.0f + 2.0f * Decode(FormatId::kE2M1, code));
  };
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    table[i] = static_cast<std::uint16_t>(integer(i & 15) | integer(i >> 4) << 8);
  }
  return table;
}();
constexpr std::array<float, 256> kScaleOfByte = [] {
  std::array<float, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) table[i] = Decode(FormatId::kE4M3, i);
  return table;
}();

std::uint16_t Bf16Of(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 31 << 15) | 0x7FC0u;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}
float FloatOf(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

std::vector<float> BiasOf(const GemmBias& bias, std::size_t cols) {
  std::vector<float> values;
  if (bias.fp32 != nullptr) values.assign(bias.fp32, bias.fp32 + cols);
  for (std::size_t c = 0; bias.bf16 != nullptr && c < cols; ++c) {
    values.push_back(FloatOf(bias.bf16[c]));
  }
  return values;
}

// The memory of products before they are rounded, and of operands as integers, which later calls of
// the thread reuse.
thread_local FloatBuffer product_memory;
struct IntegerMemory {
  ByteBuffer codes;
  FloatBuffer scales;
};
thread_local IntegerMemory memory_of_a, memory_of_b;

// The matrix in which a product is to be made: `out` itself where it is binary32.
MatrixView<float> ProductOf(const GemmResult& out) {
  Expects((out.bf16 != nullptr) != (out.fp32 != nullptr), "one result");
  if (out.fp32 != nullptr) return {out.fp32, out.rows, out.cols};
  Reserve(&product_memory, out.rows * out.cols);
  return {product_memory.data(), out.rows, out.cols};
}

// Adds the bias and rounds.
void Finish(MatrixView<const float> product, const GemmBias& given, const GemmResult& out) {
  const std::vector<float> bias = BiasOf(given, out.cols);
  if (out.fp32 != nullptr && bias.empty()) return;
  ParallelFor(DivideUp(out.rows, kRowsAPiece), [&](std::size_t piece) {
    const std::size_t end = std::min(out.rows, (piece + 1) * kRowsAPiece);
    for (std::size_t r = piece * kRowsAPiece; r < end; ++r) {
      const float* const from = &product(r, 0);
      if (out.fp32 != nullptr) {
        for (std::size_t c = 0; c < out.cols; ++c) out.fp32[r * out.cols + c] = from[c] + bias[c];
      } else if (bias.empty()) {
        for (std::size_t c = 0; c < out.cols; ++c) out.bf16[r * out.cols + c] = Bf16Of(from[c]);
      } else {
        for (std::size_t c = 0; c < out.cols; ++c) {
          out.bf16[r * out.cols + c] = Bf16Of(from[c] + bias[c]);
        }
      }
    }
  });
}

Fp4Operand IntegersOf(const PackedFp4& x, IntegerMemory* memory) {
  const std::size_t blocks = x.depth / kBlock;
  Reserve(&memory->codes, x.rows * x.depth);
  Reserve(&memory->scales, x.rows * blocks);
  std::uint8_t* const codes = memory->codes.data();
  float* const scales = memory->scales.data();
  ParallelFor(DivideUp(x.rows, kRowsAPiece), [&](std::size_t piece) {
    const std::size_t end = std::min(x.rows, (piece + 1) * kRowsAPiece);
    for (std::size_t r = piece * kRowsAPiece; r < end; ++r) {
      const std::uint8_t* const from = x.codes + r * x.depth / 2;
      std::uint8_t* const to = codes + r * x.depth;
      for (std::size_t i = 0; i < x.depth / 2; ++i) {
        std::memcpy(to + 2 * i, &kIntegersOfByte[from[i]], 2);
      }
      for (std::size_t j = 0; j < blocks; ++j) {
        scales[r * blocks + j] = kScaleOfByte[x.scales[r * x.scale_stride + j]];
      }
    }
  });
  return {.codes = {codes, x.rows, x.depth}, .scales = {scales, x.rows, blocks}};
}

void CheckProduct(const PackedFp4& a, const PackedFp4& b, const GemmResult& out) {
  Expects(a.depth == b.depth && a.depth % kBlock == 0, "operands with a depth of whole blocks");
  Expects(out.rows == a.rows && out.cols == b.rows, "a result of the product's shape");
}

void ZeroDepth(MatrixView<float> product) {
  std::fill(product.data, product.data + product.size(), 0.0f);
}

}  // namespace

void PackedFp4Gemm(const PackedFp4& a, const PackedFp4& b, float alpha, const GemmBias& bias,
                   const GemmResult& out) {
  const IeeeArithmetic ieee;
  CheckProduct(a, b, out);
  if (out.rows * out.cols == 0) return;
  const MatrixView<float> product = ProductOf(out);
  if (a.depth == 0) {
    ZeroDepth(product);
  } else {
    Fp4Gemm(IntegersOf(a, &memory_of_a), IntegersOf(b, &memory_of_b), {.block = 16, .alpha = alpha},
            product);
  }
  Finish(product, bias, out);
}

void PlainGemm(MatrixView<const float> a, MatrixView<const float> b, int block, float alpha,
               const GemmBias& bias, const GemmResult& out) {
  const IeeeArithmetic ieee;
  Expects(a.cols == b.cols && out.rows == a.rows && out.cols == b.rows,
          "operands and a result of the product's shape");
  if (out.rows * out.cols == 0) return;
  const MatrixView<float> product = ProductOf(out);
  if (a.cols == 0) {
    ZeroDepth(product);
  } else {
    Gemm(a, b, {.block = block, .alpha = alpha}, product);
  }
  Finish(product, bias, out);
}

namespace reference {

void PackedFp4Gemm(const PackedFp4& a, const PackedFp4& b, float alpha, const GemmBias& given,
                   const GemmResult& out) {
  const IeeeArithmetic ieee;
  CheckProduct(a, b, out);
  const std::vector<float> bias = BiasOf(given, out.cols);
  const auto value = [](const PackedFp4& x, std::size_t r, std::size_t k) {
    const std::uint32_t byte = x.codes[(r * x.depth + k) / 2];
    return Decode(FormatId::kE2M1, k % 2 == 0 ? byte & 15 : byte >> 4);
  };
  const auto scale = [](const PackedFp4& x, std::size_t r, std::size_t block) {
    return Decode(FormatId::kE4M3, x.scales[r * x.scale_stride + block]);
  };
  for (std::size_t m = 0; m < out.rows; ++m) {
    for (std::size_t n = 0; n < out.cols; ++n) {
      float y = 0.0f;
      for (std::size_t j = 0; j < a.depth / kBlock; ++j) {
        float dot = 0.0f;  // exact: a multiple of 1/4 below 2^10
        for (std::size_t k = j * kBlock; k < (j + 1) * kBlock; ++k) {
          dot += value(a, m, k) * value(b, n, k);
        }
        y += scale(a, m, j) * scale(b, n, j) * dot;  // the products are exact
      }
      y *= alpha;
      if (!bias.empty()) y += bias[n];
      if (out.fp32 != nullptr) {
        out.fp32[m * out.cols + n] = y;
      } else {
        out.bf16[m * out.cols + n] = static_cast<std::uint16_t>(Encode(FormatId::kBF16, y));
      }
    }
  }
}

}  // namespace reference
}  // namespace fp4lab
