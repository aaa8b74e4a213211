#include "fp4lab/block/scale_swizzle.h"

#include <numeric>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

TEST_CASE("128x4 swizzling gives Transformer Engine's bytes", "[block][golden]") {
  const NpzFile file = OpenGolden("te_gemm_misc.npz");
  for (const std::string shape : {"128x4", "256x12"}) {
    const NpyArray in = file.Read("swz." + shape + ".in"), out = file.Read("swz." + shape + ".out");
    const auto linear = in.As<std::uint8_t>(), swizzled = out.As<std::uint8_t>();
    const std::size_t rows = in.shape.at(0), cols = in.shape.at(1);
    const auto ours = ReorderScales(linear, ScaleOrder::kLinear, ScaleOrder::k128x4, rows, cols);
    CHECK(ours == std::vector<std::uint8_t>(swizzled.begin(), swizzled.end()));
  }
}

TEST_CASE("Padded scales keep their rows, 4-column aligned", "[block]") {
  CHECK(ScaleBytes(ScaleOrder::kPadded, 3, 5) == 128 * 8);
  CHECK(ScaleOffset(ScaleOrder::kPadded, 2, 4, 5) == 2 * 8 + 4);
  CHECK(ScaleOffset(ScaleOrder::kPadded, 200, 3, 4) == 200 * 4 + 3);
}

TEST_CASE("Every scale order is a bijection that every other order undoes", "[block][property]") {
  for (const auto& [rows, cols] :
       {std::pair<std::size_t, std::size_t>{1, 1}, {7, 3}, {8, 4}, {130, 5}, {128, 4}, {257, 13}}) {
    std::vector<std::uint8_t> linear(rows * cols);
    std::iota(linear.begin(), linear.end(), std::uint8_t{1});
    for (const NamedScaleOrder& from : kScaleOrders) {
      const auto there = ReorderScales(linear, ScaleOrder::kLinear, from.order, rows, cols);
      CHECK(there.size() == ScaleBytes(from.order, rows, cols));
      std::set<std::size_t> offsets;
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < cols; ++c) offsets.insert(ScaleOffset(from.order, r, c, cols));
      }
      CHECK(offsets.size() == rows * cols);
      CHECK(*offsets.rbegin() < there.size());
      for (const NamedScaleOrder& to : kScaleOrders) {
        const auto on = ReorderScales(there, from.order, to.order, rows, cols);
        CHECK(ReorderScales(on, to.order, ScaleOrder::kLinear, rows, cols) == linear);
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
