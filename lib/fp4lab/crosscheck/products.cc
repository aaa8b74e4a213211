// Block-scaled products of fp4lab's kernels against the oracle's model of the tensor core, bit for
// bit: the kernels with their instruction in software on every chip, the instruction if the chip
// has it. If the software form is equal and the instruction is not, the instruction does not
// compute what the model says.
#include <array>
#include <bit>
#include <cstdio>
#include <span>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/block/packing.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/cuda/gemm/block_scaled_gemm.h"
#include "fp4lab/judge/products/gemm_probe.h"
#include "fp4lab/tensor/tensor_core_gemm.h"

namespace fp4lab::crosscheck {
namespace {

using cuda::BlockScaling;
using cuda::DeviceMemory;
using cuda::MmaForm;

struct NamedForm {
  MmaForm form;
  std::string_view name;
};
constexpr NamedForm kForms[] = {{MmaForm::kMmaSyncSoftware, "gemm, mma.sync in software"},
                                {MmaForm::kMmaSync, "gemm, mma.sync"},
                                {MmaForm::kTcgen05Software, "gemm, tcgen05 in software"},
                                {MmaForm::kTcgen05, "gemm, tcgen05"}};

enum class Contents { kTypical, kWide, kCancelling, kSparse, kAnyScale };
struct Family {
  Contents contents;
  std::string_view name;
  bool accumulate = false;
  float alpha = 1.0f;
};
constexpr Family kFamilies[] = {
    {Contents::kTypical, "typical"},
    {Contents::kTypical, "typical, alpha", false, 0.37f},
    {Contents::kWide, "wide scales"},
    {Contents::kWide, "wide scales, any accumulator", true},
    {Contents::kCancelling, "cancelling"},
    {Contents::kSparse, "zeros and groups of zeros"},
    {Contents::kAnyScale, "any scale, NaN among them", true, -2.5f},
};
struct Shape {
  std::size_t m, n, k;
};
constexpr Shape kShapes[] = {
    {128, 128, 128}, {1, 1, 1}, {129, 67, 200}, {40, 300, 95}, {257, 130, 416}};

Format ScaleFormat(BlockScaling scaling) {
  return FormatOf(scaling == BlockScaling::kNvfp4 ? FormatId::kE4M3 : FormatId::kE8M0);
}

std::uint8_t RandomScale(Contents contents, BlockScaling scaling, std::uint32_t bits) {
  const bool nvfp4 = scaling == BlockScaling::kNvfp4;
  switch (contents) {
    case Contents::kTypical:
    case Contents::kCancelling:
      return static_cast<std::uint8_t>((nvfp4 ? 0x30u : 0x7Cu) + bits % 8);
    case Contents::kWide:
    case Contents::kSparse:
      return static_cast<std::uint8_t>(bits % (nvfp4 ? 0x7Fu : 0xFFu));
    case Contents::kAnyScale:
      return static_cast<std::uint8_t>(bits % 97 == 0 ? 0xFFu : bits % 0x7Fu);
  }
  return 0;
}

std::uint32_t RandomCode(Contents contents, std::size_t i, const MmaOperand& x,
                         std::uint32_t bits) {
  if (contents == Contents::kSparse && (bits >> 8) % 16 != 0) return bits & 8u;
  if (contents == Contents::kCancelling && i % 2 == 1) return x.codes.back() ^ 8u;
  return bits & 15u;
}

MmaOperand RandomOperand(Contents contents, BlockScaling scaling, std::size_t rows,
                         std::size_t cols, std::uint32_t number) {
  MmaOperand x{.rows = rows,
               .cols = cols,
               .format = FormatOf(FormatId::kE2M1),
               .group = static_cast<int>(GroupOf(scaling)),
               .scale_format = ScaleFormat(scaling)};
  const RandomStream codes{.seed = 21, .tensor = number}, scales{.seed = 22, .tensor = number};
  for (std::size_t i = 0; i < rows * cols; ++i) {
    x.codes.push_back(RandomCode(contents, i, x, codes.Bits32(i)));
  }
  for (std::size_t i = 0; i < rows * x.ScaleCols(); ++i) {
    x.scales.push_back(RandomScale(contents, scaling, scales.Bits32(i)));
  }
  return x;
}

struct OperandMemory {
  DeviceMemory codes, scales;
  cuda::BlockScaledOperand operand;
};

// Uploads an operand in the layout of the kernels. The padding of scales is NaN, which must not
// change a result.
OperandMemory OnDevice(const MmaOperand& x) {
  const std::vector<std::uint8_t> narrow(x.codes.begin(), x.codes.end());
  const std::vector<std::uint8_t> codes = PackCodes(narrow, x.rows, x.cols, CodeOrder::kLowFirst);
  const std::vector<std::uint8_t> scales =
      ReorderScales(x.scales, ScaleOrder::kLinear, ScaleOrder::k128x4, x.rows, x.ScaleCols(), 0xFF);
  OperandMemory m;
  m.codes = cuda::OnDevice(std::span(codes));
  m.scales = cuda::OnDevice(std::span(scales));
  m.operand = {m.codes.As<std::uint8_t>(), m.scales.As<std::uint8_t>()};
  return m;
}

struct Product {
  BlockScaling scaling;
  MmaOperand a, b;
  std::string family;
  ProductOptions options = {};
  std::uint32_t number = 0;  // tensor of the random stream of the accumulators
};

Matrix<float> StartOf(const Product& p) {
  Matrix<float> d(p.a.rows, p.b.rows);
  const RandomStream stream{.seed = 23, .tensor = p.number};
  for (std::size_t i = 0; i < d.values.size(); ++i) {
    d.values[i] = std::bit_cast<float>(p.options.accumulate ? stream.Bits32(i) : 0xA5A5A5A5u);
  }
  return d;
}

Matrix<float> OnChip(const Product& p, MmaForm form) {
  const OperandMemory a = OnDevice(p.a), b = OnDevice(p.b);
  Matrix<float> d = StartOf(p);
  const DeviceMemory out = cuda::OnDevice(std::span<const float>(d.values));
  const DeviceMemory alpha = cuda::OnDevice(std::span<const float>(&p.options.alpha, 1));
  cuda::BlockScaledGemm({.scaling = p.scaling,
                         .m = p.a.rows,
                         .n = p.b.rows,
                         .k = p.a.cols,
                         .a = a.operand,
                         .b = b.operand,
                         .alpha = alpha.As<float>(),
                         .accumulate = p.options.accumulate,
                         .d = out.As<float>()},
                        form);
  out.CopyTo(std::as_writable_bytes(std::span<float>(d.values)));
  return d;
}

Matrix<float> ByModel(const Product& p) {
  Matrix<float> d = StartOf(p);
  TensorCoreGemm(*FindTensorCoreModel("blackwell.mxf4.f32"), p.a, p.b, p.options, d.View());
  return d;
}

std::string DialectsOf(const Product& p) {
  return p.scaling == BlockScaling::kNvfp4 ? "nvfp4 x nvfp4" : "mxfp4 x mxfp4";
}

void Compare(const Product& p, std::string_view kernel, const Matrix<float>& expected,
             const Matrix<float>& got, Crosscheck* result) {
  const std::string name(kernel);
  CheckRow& row = result->rows[{name, DialectsOf(p), "codes and scales", p.family}];
  const bool first = row.different == 0;
  std::string text;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const auto model = std::bit_cast<std::uint32_t>(expected.values[i]);
    const auto bits = std::bit_cast<std::uint32_t>(got.values[i]);
    if (model == bits) continue;
    row.different += sizeof(float);
    if (!text.empty()) continue;
    char line[240];
    std::snprintf(line, sizeof line,
                  "%s, %s, %s: d(%zu, %zu) of %zu x %zu x %zu is 0x%08X (%.9g), the model says "
                  "0x%08X (%.9g)\n",
                  name.c_str(), DialectsOf(p).c_str(), p.family.c_str(), i / got.cols, i % got.cols,
                  p.a.rows, p.b.rows, p.a.cols, bits, static_cast<double>(got.values[i]), model,
                  static_cast<double>(expected.values[i]));
    text = line;
  }
  ++row.calls;
  row.elements += got.values.size();
  row.bytes += got.values.size() * sizeof(float);
  if (!text.empty() && first) result->differences.push_back(text);
}

void CheckProduct(const Product& p, Crosscheck* result) {
  const Matrix<float> expected = ByModel(p);
  for (const NamedForm& f : kForms) {
    if (cuda::HasMmaForm(f.form)) Compare(p, f.name, expected, OnChip(p, f.form), result);
  }
}

}  // namespace

void CheckProducts(const CrosscheckOptions& options, Crosscheck* result) {
  const IeeeArithmetic ieee;
  std::uint32_t number = 0;
  for (const BlockScaling scaling : {BlockScaling::kNvfp4, BlockScaling::kMxfp4}) {
    const ProbeSet probes = MakeProbes(scaling == BlockScaling::kNvfp4 ? "nvfp4" : "mxfp4");
    CheckProduct({.scaling = scaling, .a = probes.a, .b = probes.b, .family = "probes"}, result);
    std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
    if (options.random) {
      const std::size_t side = std::min<std::size_t>(options.side, 1024);
      shapes.push_back({side, side, side});
    }
    for (const Shape& s : shapes) {
      for (const Family& f : kFamilies) {
        // The model computes rows with a NaN one output at a time, which is slow for large k.
        if (f.contents == Contents::kAnyScale && s.k > 512) continue;
        number += 2;
        CheckProduct({.scaling = scaling,
                      .a = RandomOperand(f.contents, scaling, s.m, s.k, number),
                      .b = RandomOperand(f.contents, scaling, s.n, s.k, number + 1),
                      .family = std::string(f.name),
                      .options = {.alpha = f.alpha, .accumulate = f.accumulate},
                      .number = number},
                     result);
      }
    }
  }
}

}  // namespace fp4lab::crosscheck
