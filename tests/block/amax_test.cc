// If the options state no amax, every quantizer computes the tensor's amax, and all agree.
#include <utility>

#include "fp4lab/block/fp4_integers.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/quantize/replay.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

constexpr std::size_t kRows = 48, kCols = 96;

struct Integers {
  Matrix<std::uint8_t> codes;
  Matrix<float> scales;
  explicit Integers(const Dialect& f)
      : codes(kRows, kCols),
        scales(kRows / static_cast<std::size_t>(f.block_rows),
               kCols / static_cast<std::size_t>(f.block_cols)) {}
  Fp4Integers View() { return {codes.View(), scales.View()}; }
};

TEST_CASE("Quantizers compute the tensor's amax if the options give none", "[block]") {
  for (const char* name : {"nvfp4", "nvfp4.2d", "fp8_e4m3", "fp8_e5m2", "mxfp4.rceil"}) {
    for (const Kind kind : {Kind::kNormal, Kind::kAnyBits}) {
      CAPTURE(name, static_cast<int>(kind));
      const Matrix<float> x = TestMatrix(kind, kRows, kCols);
      const QuantizeOptions silent{.dialect = *FindDialect(name)};
      QuantizeOptions told = silent;
      told.amax = TensorAmax(x.View());

      const Quantized want = Quantize(x.View(), told);
      CHECK((Quantize(x.View(), silent) == want));
      CHECK((reference::Quantize(x.View(), silent) == want));

      Quantized rows, columns;
      QuantizeBothWays(x.View(), silent, silent, &rows, &columns);
      CHECK((rows == want));
      CHECK((columns == Quantize(x.View().Transposed(), told)));

      Matrix<float> want_values(kRows, kCols), values(kRows, kCols);
      QuantizeToValues(x.View(), told, want_values.View());
      QuantizeToValues(x.View(), silent, values.View());
      CHECK(BitsOf(values) == BitsOf(want_values));

      if (!HasFp4Integers(silent.dialect)) continue;
      Integers want_integers(silent.dialect), integers(silent.dialect);
      CHECK(QuantizeToFp4Integers(x.View(), told, want_integers.View()) ==
            QuantizeToFp4Integers(x.View(), silent, integers.View()));
      CHECK((integers.codes == want_integers.codes));
      CHECK(BitsOf(integers.scales) == BitsOf(want_integers.scales));
    }
  }
}

TEST_CASE("An amax of 0 is an amax, not a missing one", "[block]") {
  Matrix<float> x(1, 16, 1.0f);
  const Dialect nvfp4 = *FindDialect("nvfp4");
  CHECK(Quantize(x.View(), {.dialect = nvfp4, .amax = 0.0f}).scales[0] == 0x23);  // of 1/6; S = 1
  CHECK(Quantize(x.View(), {.dialect = nvfp4}).scales[0] == 0x7E);
}

}  // namespace
}  // namespace fp4lab
