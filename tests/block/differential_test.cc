// Every kernel of block/ gives the scalar reference's bytes on every SIMD target.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/base/simd.h"
#include "fp4lab/block/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

// Runs `body` on every SIMD target with every number of threads; puts the defaults back.
template <class Body>
void OnEveryTarget(const std::vector<int>& thread_counts, Body body) {
  const int threads = Threads();
  REQUIRE(SimdTargets().size() >= 2);
  for (const std::string& target : SimdTargets()) {
    PinSimdTarget(target);
    for (const int n : thread_counts) {
      SetThreads(n);
      INFO("target " << target << ", threads " << n);
      body();
    }
  }
  SetThreads(threads);
  PinSimdTarget("best");
}

std::vector<std::pair<std::size_t, std::size_t>> Shapes() {
  return {{1, 1},   {1, 16},   {3, 17},    {16, 16},  {33, 47},
          {5, 200}, {130, 24}, {40, 1100}, {300, 136}};
}

// One quantization: codes, scales and values, for x as it lies and as the transpose of what lies in
// memory, with strides beyond the rows' lengths.
void CheckQuantizers(const Matrix<float>& memory, bool transposed, const QuantizeOptions& options) {
  const auto view_of = [&](auto view) { return transposed ? view.Transposed() : view; };
  const MatrixView<const float> x = view_of(memory.View());
  const QuantizedMatrix want = reference::Quantize(x, options);
  Matrix<float> want_values(memory.rows, memory.cols);
  reference::UnscaledValues(want, view_of(want_values.View()));
  const std::vector<std::uint32_t> want_bits = BitsOf(want_values);
  Matrix<float> wide(memory.rows, memory.cols + 3, -1.0f);
  // Small matrices are one group of units, whatever the number of threads.
  const bool large = memory.values.size() > 10000;
  OnEveryTarget(large ? std::vector{1, 2, 3} : std::vector{2}, [&] {
    const QuantizedMatrix got = Quantize(x, options);
    const bool same_scales = got.scales == want.scales, same_codes = got.codes == want.codes;
    CHECK(same_scales);
    CHECK(same_codes);
    Matrix<float> values = memory;  // in place
    QuantizeToValues(view_of(std::as_const(values).View()), options, view_of(values.View()));
    const bool same_values = BitsOf(values) == want_bits;
    CHECK(same_values);
    const MatrixView<float> inner = wide.View().Block(0, 1, memory.rows, memory.cols);
    QuantizeToValues(x, options, view_of(inner));
    bool same_inner = true;
    for (std::size_t r = 0; r < memory.rows; ++r) {
      for (std::size_t c = 0; c < memory.cols; ++c) {
        same_inner &= std::bit_cast<std::uint32_t>(inner(r, c)) == want_bits[r * memory.cols + c];
      }
      same_inner &= wide(r, 0) == -1.0f && wide(r, memory.cols + 1) == -1.0f;
    }
    CHECK(same_inner);
  });
}

TEST_CASE("Quantizers give the reference's codes, scales and values on every target",
          "[block][differential]") {
  for (const NamedBlockFormat& format : TestFormats()) {
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kStochastic}) {
      for (const auto& [rows, cols] : Shapes()) {
        for (const Kind kind : kKinds) {
          if (rows * cols > 10000 && kind != Kind::kNormal) continue;
          const Matrix<float> x = TestMatrix(kind, rows, cols);
          for (const bool transposed : {false, true}) {
            INFO(format.name << " " << rows << "x" << cols << " kind " << static_cast<int>(kind)
                             << (rounding == Rounding::kStochastic ? " SR" : " RNE")
                             << (transposed ? " transposed" : ""));
            CheckQuantizers(x, transposed,
                            {.format = format.format,
                             .rounding = rounding,
                             .random = {.seed = 0x123456789ABCDEF0u, .step = 3, .tensor = 9},
                             .amax = reference::TensorAmax(x.View())});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
