#include "fp4lab/tensor/accumulation.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/tensor/exact_sum.h"
#include "fp4lab/tensor/gemm.h"

namespace fp4lab {
namespace {

constexpr std::array kArithmetic = {
    Accumulation{"fp32-blocks", "binary32, block after block; a block's sum is exact for FP4",
                 "Transformer Engine's reference GEMM, golden vectors", SumOrder::kFp32Blocks},
    Accumulation{"fp32-sequential", "binary32, fused multiply-adds, k ascending", "IEEE 754",
                 SumOrder::kFp32Sequential},
    Accumulation{"fp32-pairwise", "binary32, a balanced tree over k", "IEEE 754",
                 SumOrder::kFp32Pairwise},
    Accumulation{"fp64", "binary64, k ascending, rounded to binary32 at the end", "IEEE 754",
                 SumOrder::kFp64},
    Accumulation{"exact", "the exact sum, rounded once to binary32", "IEEE 754", SumOrder::kExact},
};

constexpr auto kAccumulations = [] {
  std::array<Accumulation, kArithmetic.size() + kTensorCoreModels.size()> all{};
  for (std::size_t i = 0; i < kArithmetic.size(); ++i) all[i] = kArithmetic[i];
  for (std::size_t i = 0; i < kTensorCoreModels.size(); ++i) {
    const TensorCoreModel& model = kTensorCoreModels[i];
    all[kArithmetic.size() + i] = {model.name, model.what, model.evidence, SumOrder::kTensorCore,
                                   &model};
  }
  return all;
}();

// Both operands as unscaled codes of a format that the model takes; nullopt if no such format holds
// all values exactly.
std::optional<MmaOperands> Emulated(const TensorCoreModel& model, const MmaOperand& a,
                                    const MmaOperand& b) {
  for (const FormatId id : {FormatId::kBF16, FormatId::kTF32, FormatId::kFP16}) {
    if (!Takes(model, FormatOf(id))) continue;
    MmaOperands operands{Unscaled(a, FormatOf(id)), Unscaled(b, FormatOf(id))};
    if (operands.a.codes.size() == a.codes.size() && operands.b.codes.size() == b.codes.size()) {
      return operands;
    }
  }
  return std::nullopt;
}

// Whether every value (element times scale) is a binary32 number, so that Gemm multiplies the exact
// values.
bool AreFloats(const MmaOperand& x) {
  const Matrix<double> values = ExactValues(x);
  return std::all_of(values.values.begin(), values.values.end(), [](double v) {
    return v != v || static_cast<double>(static_cast<float>(v)) == v;
  });
}

bool NeedsEmulation(const TensorCoreModel& model, const MmaOperand& a, const MmaOperand& b) {
  return !TakesScales(model) && (a.IsScaled() || b.IsScaled());
}

float Pairwise(std::span<const double> a, std::span<const double> b) {
  if (a.empty()) return 0.0f;
  if (a.size() == 1) return static_cast<float>(a[0] * b[0]);
  const std::size_t half = (a.size() + 1) / 2;
  return Pairwise(a.first(half), b.first(half)) + Pairwise(a.subspan(half), b.subspan(half));
}

float Sequential64(std::span<const double> a, std::span<const double> b) {
  double y = 0;
  for (std::size_t k = 0; k < a.size(); ++k) y += a[k] * b[k];
  return static_cast<float>(y);
}

float Exact(std::span<const double> a, std::span<const double> b) {
  // A sum with NaN or Inf needs no exact arithmetic. Products of finite values are finite in
  // binary64.
  const float rounded = Sequential64(a, b);
  double special = 0;
  for (std::size_t k = 0; k < a.size(); ++k) special += a[k] * b[k] * 0.0;
  if (special != 0.0) return rounded;
  ExactSum sum;
  for (std::size_t k = 0; k < a.size(); ++k) sum.Add(a[k] * b[k]);
  return sum.ToFloat();
}

template <class Dot>
void ForEachOutput(const MmaOperand& a, const MmaOperand& b, const ProductOptions& options,
                   MatrixView<float> c, Dot dot) {
  const Matrix<double> va = ExactValues(a), vb = ExactValues(b);
  const auto row = [](const Matrix<double>& x, std::size_t r) {
    return std::span<const double>(x.values).subspan(r * x.cols, x.cols);
  };
  ParallelFor(c.rows, [&](std::size_t m) {
    CheckInterrupt();
    for (std::size_t n = 0; n < c.cols; ++n) {
      c(m, n) = FinishProduct(dot(row(va, m), row(vb, n)), options);
    }
  });
}

// Multiplies the binary32 values by Gemm. FinishProduct applies alpha, as for the other orders.
void Fp32(const MmaOperand& a, const MmaOperand& b, int block, const ProductOptions& options,
          MatrixView<float> c) {
  const Matrix<float> va = FloatValues(a), vb = FloatValues(b);
  Matrix<float> y(c.rows, c.cols);
  Gemm(va.View(), vb.View(), {.block = block}, y.View());
  for (std::size_t m = 0; m < c.rows; ++m) {
    for (std::size_t n = 0; n < c.cols; ++n) c(m, n) = FinishProduct(y(m, n), options);
  }
}

}  // namespace

std::span<const Accumulation> Accumulations() { return kAccumulations; }

const Accumulation* FindAccumulation(std::string_view name) {
  for (const Accumulation& a : kAccumulations) {
    if (a.name == name) return &a;
  }
  return nullptr;
}

std::string WhyNot(const Accumulation& accumulation, const MmaOperand& a, const MmaOperand& b) {
  const IeeeArithmetic ieee;
  if (a.cols != b.cols) return "the operands differ in K";
  if (accumulation.order == SumOrder::kFp32Blocks ||
      accumulation.order == SumOrder::kFp32Sequential) {
    return AreFloats(a) && AreFloats(b)
               ? ""
               : "an element times its scale is not representable in binary32";
  }
  if (accumulation.model == nullptr) return "";
  const TensorCoreModel& model = *accumulation.model;
  if (!NeedsEmulation(model, a, b)) return std::string(WhyNot(model, a, b));
  return Emulated(model, a, b)
             ? ""
             : "an element times its scale is not representable in the operand format";
}

std::optional<MmaOperands> OperandsFor(const Accumulation& accumulation, const MmaOperand& a,
                                       const MmaOperand& b) {
  const IeeeArithmetic ieee;
  if (accumulation.model != nullptr && a.cols == b.cols &&
      NeedsEmulation(*accumulation.model, a, b)) {
    return Emulated(*accumulation.model, a, b);
  }
  if (!WhyNot(accumulation, a, b).empty()) return std::nullopt;
  return MmaOperands{a, b};
}

void GemmAs(const Accumulation& accumulation, const MmaOperand& a, const MmaOperand& b,
            const ProductOptions& options, MatrixView<float> c) {
  const IeeeArithmetic ieee;
  Expects(a.cols == b.cols && c.rows == a.rows && c.cols == b.rows, "a (M, K), b (N, K), c (M, N)");
  Expects(!options.accumulate || accumulation.model != nullptr,
          "options.accumulate needs a tensor-core accumulation");
  switch (accumulation.order) {
    case SumOrder::kFp32Blocks:
      return Fp32(a, b, std::max(a.group, b.group), options, c);
    case SumOrder::kFp32Sequential:
      return Fp32(a, b, 0, options, c);
    case SumOrder::kFp32Pairwise:
      return ForEachOutput(a, b, options, c, Pairwise);
    case SumOrder::kFp64:
      return ForEachOutput(a, b, options, c, Sequential64);
    case SumOrder::kExact:
      return ForEachOutput(a, b, options, c, Exact);
    case SumOrder::kTensorCore:
      break;
  }
  if (!NeedsEmulation(*accumulation.model, a, b)) {
    return TensorCoreGemm(*accumulation.model, a, b, options, c);
  }
  const std::optional<MmaOperands> plain = Emulated(*accumulation.model, a, b);
  Expects(plain.has_value(), "operands that the tensor core takes");
  TensorCoreGemm(*accumulation.model, plain->a, plain->b, options, c);
}

}  // namespace fp4lab
