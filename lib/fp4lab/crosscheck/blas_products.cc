// cuBLASLt's products of narrow operands against exact sums. cuBLASLt does not specify its order of
// summation, so the check is a bound on the error, not equality of bits; a note counts the outputs
// that have the model's bits.
#include <bit>
#include <cmath>
#include <span>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/cuda/quantize/generate.h"
#include "fp4lab/gpu/gemm/narrow_gemm.h"
#include "fp4lab/tensor/tensor_core_gemm.h"

namespace fp4lab::crosscheck {
namespace {

using cuda::DeviceMemory;
using gpu::NarrowKind;

constexpr std::size_t kM = 192, kN = 256, kK = 512;

struct BlasProduct {
  NarrowKind kind;
  std::string_view format, model;
  int least_major, most_major;  // compute capability
  double unit;                  // error bound of a step of 32, relative to the sum of magnitudes
};
constexpr BlasProduct kProducts[] = {
    {NarrowKind::kFp8, "fp8_e4m3", "hopper.wgmma.f8.f32", 9, 9, 0x1p-13},
    {NarrowKind::kFp8, "fp8_e4m3", "blackwell.f8f6f4.f32", 10, 12, 0x1p-22},
    {NarrowKind::kMxfp8, "mxfp8_e4m3.rceil", "blackwell.mxf8f6f4.f32", 10, 12, 0x1p-22},
    {NarrowKind::kNvfp4, "nvfp4", "blackwell.mxf4.f32", 10, 12, 0x1p-22},
    {NarrowKind::kMxfp4, "mxfp4.rceil", "blackwell.mxf4.f32", 10, 12, 0x1p-22},
};

struct BlasOperand {
  MmaOperand values;
  DeviceMemory codes, scales;
  gpu::NarrowOperand operand;
};

BlasOperand MakeOperand(const Dialect& dialect, std::size_t rows, std::uint32_t tensor) {
  const RandomStream stream{.seed = 31, .tensor = tensor};
  Matrix<float> x(rows, kK);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = std::bit_cast<float>(cuda::GeneratedBits(cuda::Distribution::kNormal, stream, i));
  }
  QuantizeOptions options{.dialect = dialect};
  if (HasTensorScale(dialect)) options.amax = TensorAmax(x.View());
  const Quantized q = Quantize(x.View(), options);
  BlasOperand o{.values = MakeMmaOperand(dialect, q), .codes = {}, .scales = {}, .operand = {}};
  o.codes = cuda::OnDevice(std::span<const std::uint8_t>(q.codes));
  o.operand = {o.codes.As<std::uint8_t>(), nullptr, dialect.element};
  if (!o.values.IsScaled()) return o;
  const std::vector<std::uint8_t> scales =
      ReorderScales(q.scales, ScaleOrder::kLinear, ScaleOrder::k128x4, rows, o.values.ScaleCols());
  o.scales = cuda::OnDevice(std::span<const std::uint8_t>(scales));
  o.operand.scales = o.scales.As<std::uint8_t>();
  return o;
}

Matrix<float> ByLibrary(NarrowKind kind, const BlasOperand& a, const BlasOperand& b) {
  Matrix<float> d(kM, kN);
  const float one = 1.0f;
  const DeviceMemory alpha = cuda::OnDevice(std::span<const float>(&one, 1));
  const DeviceMemory out(d.values.size() * sizeof(float));
  out.Fill(0xA5);
  gpu::NarrowGemm({kind, kM, kN, kK, a.operand, b.operand, alpha.As<float>(), out.As<float>()});
  cuda::Synchronize();
  out.CopyTo(std::as_writable_bytes(std::span<float>(d.values)));
  return d;
}

// Counts the outputs whose distance from the exact sum is more than the error that the steps may
// have.
std::size_t FarFromExact(const BlasProduct& p, const BlasOperand& a, const BlasOperand& b,
                         const Matrix<float>& d) {
  const Matrix<double> x = ExactValues(a.values), y = ExactValues(b.values);
  const double steps = static_cast<double>(kK) / 32 + 4;
  std::size_t far = 0;
  for (std::size_t i = 0; i < kM; ++i) {
    for (std::size_t j = 0; j < kN; ++j) {
      double sum = 0, magnitude = 0;
      for (std::size_t k = 0; k < kK; ++k) {
        sum += x(i, k) * y(j, k);
        magnitude += std::fabs(x(i, k) * y(j, k));
      }
      far += std::fabs(d(i, j) - sum) <= steps * p.unit * magnitude ? 0 : 1;  // a NaN counts as far
    }
  }
  return far;
}

void CheckProduct(const BlasProduct& p, Crosscheck* result) {
  const Dialect& dialect = *FindDialect(p.format);
  const BlasOperand a = MakeOperand(dialect, kM, 1), b = MakeOperand(dialect, kN, 2);
  const std::string name(p.format), what = "gemm, cuBLASLt, " + name + " x " + name + ": ";
  Matrix<float> got, model(kM, kN);
  try {
    got = ByLibrary(p.kind, a, b);
  } catch (const Error& e) {  // a library that lacks the product computes no wrong product
    result->notes.push_back(what + e.what());
    return;
  }
  TensorCoreGemm(*FindTensorCoreModel(p.model), a.values, b.values, {}, model.View());
  std::size_t same = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    same +=
        std::bit_cast<std::uint32_t>(got.values[i]) == std::bit_cast<std::uint32_t>(model.values[i])
            ? 1
            : 0;
  }
  result->notes.push_back(what + std::to_string(same) + " of " + std::to_string(got.values.size()) +
                          " outputs are the bits of " + std::string(p.model) + " in one chain");
  CheckRow& row =
      result->rows[{"gemm, cuBLASLt", name + " x " + name, "within a bound of exact", "normal"}];
  const std::size_t far = FarFromExact(p, a, b, got);
  ++row.calls;
  row.elements += got.values.size();
  row.bytes += got.values.size() * sizeof(float);
  row.different += far * sizeof(float);
  if (far > 0) {
    result->differences.push_back(what + std::to_string(far) + " outputs are far from exact\n");
  }
}

}  // namespace

void CheckBlasProducts(Crosscheck* result) {
  const IeeeArithmetic ieee;
  for (const BlasProduct& p : kProducts) {
    const int major = result->device.major;
    if (major >= p.least_major && major <= p.most_major) CheckProduct(p, result);
  }
}

}  // namespace fp4lab::crosscheck
