// The scalar dialects and the fast kernels of the layer `block` state the same formulas.
#include <string>
#include <vector>

#include "fp4lab/block/packing.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/quantize.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

std::string DialectName(std::string_view format) {
  if (format == "nvfp4") return "nvfp4.te";
  if (format == "nvfp4.2d") return "nvfp4.te.2d";
  return std::string(format);
}

// The codes of a kernel, one a byte.
std::vector<std::uint8_t> Unpacked(const QuantizedMatrix& q) {
  if (FormatOf(q.format.element).bits != 4) return q.codes;
  std::vector<std::uint8_t> codes(q.rows * q.cols);
  const std::size_t row_bytes = (q.cols + 1) / 2;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::size_t r = i / q.cols, c = i % q.cols;
    codes[i] = q.codes[r * row_bytes + c / 2] >> (c % 2 * 4) & 0xF;
  }
  return codes;
}

struct Shape {
  std::size_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 1}, {3, 31}, {16, 64}, {33, 80}, {64, 96}};

TEST_CASE("Every block format is the dialect of its name", "[dialect][differential]") {
  for (const NamedBlockFormat& named : kBlockFormats) {
    const Dialect* dialect = FindDialect(DialectName(named.name));
    CAPTURE(named.name);
    REQUIRE(dialect != nullptr);
    for (const Kind kind : kKinds) {
      for (const Shape& shape : kShapes) {
        CAPTURE(static_cast<int>(kind), shape.rows, shape.cols);
        const Matrix<float> x = TestMatrix(kind, shape.rows, shape.cols);
        const QuantizedMatrix fast =
            Quantize(x.View(), {.format = named.format, .amax = TensorAmax(x.View())});
        const Quantized slow = QuantizeAs(*dialect, x.View());
        CHECK(slow.codes == Unpacked(fast));
        CHECK(slow.scales == fast.scales);
        if (!slow.amax.empty()) CHECK(slow.amax == std::vector<float>{fast.amax});
        Matrix<float> values(shape.rows, shape.cols);
        Dequantize(fast, values.View());
        CHECK(BitsOf(DequantizeAs(*dialect, slow)) == BitsOf(values));
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab
