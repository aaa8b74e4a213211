// GEMMs of FP4 and FP8 operands against binary64. Needs a GPU.
#include "fp4lab/gpu/gemm/narrow_gemm.h"

#include <cmath>
#include <cstdio>
#include <span>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/cuda/quantize/generate.h"
#include "fp4lab/cuda/quantize/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using cuda::DeviceMatrix;
using cuda::DeviceMemory;
using cuda::ElementType;
using gpu::NarrowKind;

constexpr std::size_t kM = 256, kN = 192, kK = 512;

bool HasDevice() {
  if (cuda::DeviceCount() > 0) return true;
  std::puts("SKIPPED: no GPU answers");
  return false;
}

struct Operand {
  DeviceMemory x, codes, scales, amax;
  Matrix<float> values;  // decoded, without the tensor scale
  gpu::NarrowOperand operand;
};

template <class T>
std::vector<T> ToHost(const DeviceMemory& memory, std::size_t count) {
  std::vector<T> host(count);
  memory.CopyTo(std::as_writable_bytes(std::span<T>(host)));
  return host;
}

// Quantizes a matrix of normal numbers on the device; `values` are its decoded codes and scales.
Operand MakeOperand(const Dialect& dialect, std::size_t rows, std::uint32_t tensor) {
  Operand o;
  o.x = DeviceMemory(rows * kK * 2);
  const DeviceMatrix x{o.x.data(), ElementType::kBf16, rows, kK};
  Generate(cuda::Distribution::kNormal, {.seed = 5, .tensor = tensor}, x);
  const std::size_t scale_cols =
      dialect.block_cols == 0 ? 0 : kK / static_cast<std::size_t>(dialect.block_cols);
  o.codes = DeviceMemory(rows * kK);
  o.scales = DeviceMemory(ScaleBytes(ScaleOrder::k128x4, rows, scale_cols) + 16);
  o.amax = DeviceMemory(sizeof(float));
  const DeviceMemory values(rows * kK * 2);
  cuda::Amax(x, o.amax.As<float>());
  const cuda::QuantizedSide side{.codes = o.codes.As<std::uint8_t>(),
                                 .scales = o.scales.As<std::uint8_t>(),
                                 .scale_order = ScaleOrder::k128x4,
                                 .values = values.As<std::uint16_t>(),
                                 .amax = o.amax.As<float>()};
  cuda::Quantize(x, dialect, &side, nullptr);
  cuda::Synchronize();
  o.values = Matrix<float>(rows, kK);
  const std::vector<std::uint16_t> bits = ToHost<std::uint16_t>(values, rows * kK);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    o.values.values[i] = Decode(FormatId::kBF16, bits[i]);
  }
  o.operand = {o.codes.As<std::uint8_t>(),
               dialect.block_cols == 0 ? nullptr : o.scales.As<std::uint8_t>(), dialect.element};
  return o;
}

std::vector<float> Product(NarrowKind kind, const Operand& a, const Operand& b) {
  const float one = 1.0f;
  const DeviceMemory alpha = cuda::OnDevice(std::span<const float>(&one, 1));
  const DeviceMemory d(kM * kN * sizeof(float));
  gpu::NarrowGemm({kind, kM, kN, kK, a.operand, b.operand, alpha.As<float>(), d.As<float>()});
  cuda::Synchronize();
  return ToHost<float>(d, kM * kN);
}

// ||d - a b^T|| / ||a b^T||
double Distance(const std::vector<float>& d, const Matrix<float>& a, const Matrix<float>& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kN; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < kK; ++k) sum += static_cast<double>(a(i, k)) * b(j, k);
      error += (d[i * kN + j] - sum) * (d[i * kN + j] - sum);
      size += sum * sum;
    }
  }
  return std::sqrt(error / size);
}

struct Product8 {
  const char* a;
  const char* b;
};

TEST_CASE("FP8 products are those of the decoded operands", "[cuda][gpu]") {
  if (!HasDevice()) return;
  for (const Product8 p : {Product8{"fp8_e4m3", "fp8_e4m3"}, Product8{"fp8_e5m2", "fp8_e4m3"}}) {
    CAPTURE(p.a, p.b);
    const Operand a = MakeOperand(*FindDialect(p.a), kM, 1);
    const Operand b = MakeOperand(*FindDialect(p.b), kN, 2);
    const double distance = Distance(Product(NarrowKind::kFp8, a, b), a.values, b.values);
    std::printf("FP8 %s x %s: relative distance from binary64 %.2e\n", p.a, p.b, distance);
    CHECK(distance < 1e-3);
    CHECK(distance > 0.0);
  }
}

TEST_CASE("Block-scaled products are those of the decoded operands, or say what they need",
          "[cuda][gpu]") {
  if (!HasDevice()) return;
  const struct {
    NarrowKind kind;
    const char* format;
  } kProducts[] = {{NarrowKind::kNvfp4, "nvfp4"},
                   {NarrowKind::kMxfp4, "mxfp4.rceil"},
                   {NarrowKind::kMxfp8, "mxfp8_e4m3.rceil"}};
  const bool blackwell = cuda::UseDevice().major >= 10;
  for (const auto& p : kProducts) {
    CAPTURE(p.format);
    const Operand a = MakeOperand(*FindDialect(p.format), kM, 3);
    const Operand b = MakeOperand(*FindDialect(p.format), kN, 4);
    if (blackwell) {
      CHECK(Distance(Product(p.kind, a, b), a.values, b.values) < 1e-5);
      continue;
    }
    const std::string error = ErrorOf([&] { Product(p.kind, a, b); });
    CHECK(error.find("need a Blackwell chip") != std::string::npos);
  }
}

}  // namespace
}  // namespace fp4lab
