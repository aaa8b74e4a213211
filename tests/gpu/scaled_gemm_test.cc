// Products of BF16 operands with scales of blocks in binary32, against sums in binary64.
#include "fp4lab/gpu/gemm/scaled_gemm.cuh"

#include <cmath>
#include <cstddef>
#include <vector>

#include "fp4lab/base/divide_up.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

// An operand (count, k): integers of a few bits, as FP8 and FP4 elements are, and scales of blocks
// of `rows` x `block`, block 0 for none.
struct OperandCase {
  std::size_t count, block, rows;
};
struct Case {
  OperandCase a, b;
  std::size_t k;
  bool adds = false, has_alpha = false;
};

class HostOperand {
 public:
  HostOperand(std::uint64_t seed, const OperandCase& operand, std::size_t k, bool turned)
      : operand_(operand), k_(k), turned_(turned), values_(Normal(seed, operand.count * k, 4.0)) {
    for (float& value : values_) value = std::round(value);
    if (operand.block == 0) return;
    scales_ = Normal(seed + 1, DivideUp(k, operand.block) * Groups());
    for (float& scale : scales_) scale = std::exp2(3.0f * scale);
  }

  // The element times its scale.
  double At(std::size_t row, std::size_t k) const {
    const double value = values_[turned_ ? k * operand_.count + row : row * k_ + k];
    if (scales_.empty()) return value;
    return value * double{scales_[k / operand_.block * Groups() + row / operand_.rows]};
  }
  std::size_t Groups() const { return DivideUp(operand_.count, operand_.rows); }
  const std::vector<float>& Values() const { return values_; }
  const std::vector<float>& Scales() const { return scales_; }
  BlockScales On(const DeviceArray<float>& scales) const {
    if (scales_.empty()) return {};
    return {scales.data(), operand_.rows, operand_.block, 1, Groups()};
  }

 private:
  OperandCase operand_;
  std::size_t k_;
  bool turned_;
  std::vector<float> values_, scales_;
};

// The largest error of the product in shares of the sum of magnitudes, after a check that a second
// run gives the same bits.
template <class D>
double ErrorOf(const Case& test, bool a_turned, bool b_turned) {
  const std::size_t m = test.a.count, n = test.b.count;
  const HostOperand a(1, test.a, test.k, a_turned), b(3, test.b, test.k, b_turned);
  const std::vector<float> c = Normal(5, m * n);
  const auto a_values = ToDeviceAs<Bf16>(a.Values()), b_values = ToDeviceAs<Bf16>(b.Values());
  const auto a_scales = ToDevice(a.Scales()), b_scales = ToDevice(b.Scales()),
             on_device = ToDevice(c), alpha = ToDevice(std::vector<float>{0.75f});
  constexpr std::size_t kWorkspace = std::size_t{1} << 22;
  const auto workspace = Poisoned<float>(kWorkspace);
  GemmProblem<Bf16, D> problem{m, n, test.k, a_values.data(), b_values.data(), a_turned, !b_turned};
  problem.a_scales = a.On(a_scales);
  problem.b_scales = b.On(b_scales);
  if (test.adds) problem.c = on_device.data();
  if (test.has_alpha) problem.alpha = alpha.data();
  std::vector<float> results[2];
  for (std::vector<float>& result : results) {
    const auto d = Poisoned<D>(m * n);
    problem.d = d.data();
    MultiplyScaled(problem, workspace.data(), kWorkspace, nullptr);
    result = FloatsOf(d);
  }
  CHECK(Different(results[1], results[0]) == 0);
  double worst = 0.0;
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0.0, size = 0.0;
      for (std::size_t k = 0; k < test.k; ++k) {
        const double product = a.At(i, k) * b.At(j, k);
        sum += product;
        size += std::fabs(product);
      }
      if (test.has_alpha) sum *= 0.75;
      if (test.adds) sum += double{c[i * n + j]};
      const double rounding = std::is_same_v<D, Bf16> ? std::fabs(sum) * 0x1p-8 : 0.0;
      const double error = std::fabs(double{results[0][i * n + j]} - sum) - rounding;
      worst = std::isnan(error) ? INFINITY : std::max(worst, error / (size + 1.0));
    }
  }
  return worst;
}

TEST_CASE("Products with scales of blocks on the GPU are those of binary64", "[gpu]") {
  if (NoGpu()) return;
  for (const bool a_turned : {false, true}) {
    for (const bool b_turned : {false, true}) {
      for (const Case& test :
           {Case{{64, 128, 1}, {64, 128, 1}, 128}, Case{{200, 128, 1}, {136, 128, 128}, 328, true},
            Case{{136, 64, 1}, {264, 128, 1}, 1000},
            Case{{72, 0, 1}, {128, 64, 64}, 640, true, true},
            Case{{128, 128, 128}, {128, 64, 1}, 4096, true, true},  // splits of the reduction
            Case{{8, 192, 1}, {8, 64, 1}, 8}}) {
        CAPTURE(a_turned, b_turned, test.a.count, test.b.count, test.k);
        CHECK(ErrorOf<float>(test, a_turned, b_turned) < 1e-6);
      }
      const Case rounded{{136, 128, 1}, {72, 0, 1}, 520, false, true};
      CHECK(ErrorOf<Bf16>(rounded, a_turned, b_turned) < 1e-6);
    }
  }
}

TEST_CASE("Which scales of blocks a product takes", "[gpu]") {
  CHECK(TakesScales(128, 128, 512, 512));
  CHECK(TakesScales(64, 128, 512, 512));
  CHECK(TakesScales(0, 128, 512, 512));
  CHECK_FALSE(TakesScales(32, 128, 512, 512));
  CHECK_FALSE(TakesScales(192, 128, 512, 512));
  CHECK_FALSE(TakesScales(128, 128, 513, 512));
}

}  // namespace
}  // namespace fp4lab::gpu
