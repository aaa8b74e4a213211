// Statistics and errors of stored matrices whose figures are known.
#include "fp4lab/exchange/inspect.h"

#include <algorithm>
#include <cmath>

#include "fp4lab/base/error.h"
#include "tests/exchange/matrices.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

// 2x32: blocks with scales 1, 2, 0 and NaN (E4M3), no tensor scale.
const Dialect kDialect{.name = "plain", .tensor_scale = TensorScaleRule::kNone};
StoredMatrix Known() {
  Quantized q{.rows = 2, .cols = 32, .scale_rows = 2, .scale_cols = 2};
  q.codes.assign(64, 0);
  q.codes[0] = 0x7;   // 6 * 1
  q.codes[1] = 0xF;   // -6 * 1
  q.codes[16] = 0x1;  // 0.5 * 2
  q.codes[32] = 0x7;  // 6 * 0
  q.codes[48] = 0x2;  // NaN
  q.scales = {0x38, 0x40, 0x00, 0x7F};
  return Store(kDialect, q, {.transposed = true, .tensor_scale = TensorScaleConvention::kNone});
}

TEST_CASE("Scales and codes are counted whatever the layout", "[exchange]") {
  const StoredMatrix m = Known();
  const StoredStatistics s = MeasureStored(m, StoredValues(m, 448.0f, "x"), "x");
  CHECK((s.blocks == 4 && s.zero_scales == 1 && s.nan_scales == 1 && s.largest_scales == 0));
  CHECK((s.scales[0x38] == 1 && s.scales[0x40] == 1 && s.scales[0x7F] == 1));
  CHECK((s.elements == 64 && s.zeros == 59 && s.largest == 3));
  CHECK((s.largest_value == 6.0f && s.smallest_scale == 1.0f && s.largest_scale == 2.0f));
}

TEST_CASE("Errors beside the input are those that the definitions give", "[exchange]") {
  const StoredMatrix m = Known();
  const Matrix<float> values = StoredValues(m, 448.0f, "x");
  Matrix<float> x = values;
  x(0, 0) = 7;       // clipped: beyond 6, code 6
  x(0, 1) = -5.75f;  // rounded outwards: no clip
  x(0, 2) = 0.125f;  // underflow
  x(0, 17) = INFINITY;
  const StoredError e = MeasureError(m, x.View(), values, "x");
  CHECK(e.not_finite == 17);  // the NaN block's 16 values, and the Inf
  CHECK(e.amax == 7.0f);
  CHECK(e.largest_error == 1.0f);
  CHECK(e.underflow_percent == Approx(100.0 / 4));  // 1 of x's 7, -5.75, 0.125 and 1
  CHECK(e.clip_percent == Approx(100.0 / 47));
  const double noise = 1.0 + 0.0625 + 0.015625;
  const double signal = 49 + 5.75 * 5.75 + 0.015625 + 1;
  CHECK(e.mse == Approx(noise / 47));
  CHECK(e.sqnr_db == Approx(10 * std::log10(signal / noise)));
  REQUIRE(e.blocks.relative.size() == 4);
  CHECK(e.blocks.relative[0] == Approx(std::sqrt(noise / (signal - 1))));
  CHECK((e.blocks.relative[1] == 0 && e.blocks.relative[2] == 0 && e.blocks.relative[3] == 0));
  CHECK_THAT(ErrorOf([&] { MeasureError(m, x.View().Transposed(), values, "q"); }),
             ContainsSubstring("q: is 2x32, the input 32x2"));
}

TEST_CASE("A perfect quantization has infinite SQNR", "[exchange]") {
  StoredMatrix m = Known();
  Matrix<float> values = StoredValues(m, 448.0f, "x");
  CHECK(std::isinf(MeasureError(m, values.View(), values, "x").sqnr_db));
}

TEST_CASE("ScaleCandidates lists all layouts of a size and counts nonzero padding in each",
          "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  const StoredMatrix m = Store(d, AnyQuantized(d, 40, 64), {.scales = ScaleOrder::k128x4});
  const std::vector<ScaleCandidate> candidates = ScaleCandidates(m);
  const auto find = [&](ScaleOrder order, bool transposed) {
    return std::find_if(candidates.begin(), candidates.end(), [&](const ScaleCandidate& c) {
      return c.order == order && c.transposed == transposed && !c.expanded;
    });
  };
  const auto tiled = find(ScaleOrder::k128x4, false), padded = find(ScaleOrder::kPadded, false);
  REQUIRE((tiled != candidates.end() && padded != candidates.end()));
  CHECK((tiled->stated && !padded->stated));
  CHECK((tiled->padding == 512 - 160 && tiled->padding_not_zero == 0));
  CHECK(padded->padding_not_zero > 50);
  CHECK(find(ScaleOrder::kLinear, false) == candidates.end());
  CHECK(find(ScaleOrder::k8x4, false) == candidates.end());
}

TEST_CASE("ScaleCandidates recognizes expanded scales by repeated bytes", "[exchange]") {
  const Dialect d{.name = "nvfp4.2d", .block_rows = 16};
  const StoredMatrix m = Store(d, AnyQuantized(d, 32, 32), {.expanded_scales = true});
  const std::vector<ScaleCandidate> candidates = ScaleCandidates(m);
  REQUIRE(candidates.size() == 2);  // this one and its transpose
  CHECK((candidates[0].expanded && candidates[0].stated && candidates[0].not_repeated == 0));
  CHECK((candidates[1].transposed && !candidates[1].stated));
}

TEST_CASE("The error map is an SVG with a cell for each block, few for large grids", "[exchange]") {
  BlockErrors e{.rows = 2, .cols = 3, .relative = {0, 0.25, 0.5, 0, 0, 0.125}};
  const std::string svg = ErrorMapSvg(e, "a<b & c");
  CHECK_THAT(svg, ContainsSubstring("a&lt;b &amp; c") && ContainsSubstring("dark 50.00%") &&
                      ContainsSubstring("<title>12.50%</title>") &&
                      ContainsSubstring("fill=\"#08306b\""));
  const auto cells = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t at = text.find("<title>"); at != text.npos;
         at = text.find("<title>", at + 1)) {
      ++count;
    }
    return count;
  };
  CHECK(cells(svg) == 6);
  e = {.rows = 300, .cols = 5, .relative = std::vector<double>(1500, 0.1)};
  CHECK(cells(ErrorMapSvg(e, "x")) == 100 * 5);
}

}  // namespace
}  // namespace fp4lab
