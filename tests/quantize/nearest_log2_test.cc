// The worked example of a new scale rule (lib/fp4lab/README.md): its numbers by hand, and its use
// by every part of the library.
#include <cmath>
#include <string>
#include <vector>

#include "fp4lab/dialect/describe.h"
#include "fp4lab/dialect/labels.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

const Dialect& Rule() { return *FindDialect("mxfp4.nearest-log2"); }

TEST_CASE("mxfp4.nearest-log2 takes the power of two whose logarithm is nearest", "[quantize]") {
  const auto byte = [](float amax) {
    Matrix<float> x(1, 32);
    x(0, 3) = amax;
    return int{QuantizeAs(Rule(), x.View()).scales[0]};
  };
  CHECK(byte(6.0f) == 127);
  CHECK(byte(6.0f * 1.41f) == 127);  // below sqrt 2: down
  CHECK(byte(6.0f * 1.42f) == 128);
  CHECK(byte(6.0f / 1.41f) == 127);
  CHECK(byte(6.0f / 1.42f) == 126);
  CHECK(byte(0.0f) == 0);
  CHECK(byte(INFINITY) == 0xFF);
  for (int i = 1; i < 4000; ++i) {  // against binary64, away from the boundary
    const float amax = static_cast<float>(i) * 0.01f;
    const double log = std::log2(amax / 6.0), rounded = std::floor(log + 0.5);
    if (std::fabs(log + 0.5 - rounded) < 1e-6) continue;
    CHECK(byte(amax) == 127 + static_cast<int>(rounded));
  }
}

TEST_CASE("The kernels of nearest-log2 give the definition's bytes; its text and label exist",
          "[quantize]") {
  for (const Kind kind : kKinds) {
    const Matrix<float> x = TestMatrix(kind, 17, 100);
    CHECK(QuantizeAs(Rule(), x.View()) == reference::QuantizeAs(Rule(), x.View()));
  }
  CHECK(FindLabel<BlockScale>("nearest_log2") == BlockScale::kNearestLog2);
  CHECK(FormulaOf(BlockScale::kNearestLog2).find("sqrt 2") != std::string_view::npos);
}

}  // namespace
}  // namespace fp4lab
