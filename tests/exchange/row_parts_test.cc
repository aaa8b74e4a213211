// Parts of rows of a stored matrix.
#include "fp4lab/exchange/order/row_parts.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

const Dialect& Te() { return *FindDialect("nvfp4.te"); }

StoredMatrix Quantized(MatrixView<const float> x, ScaleOrder scales) {
  return Store(Te(), QuantizeAs(Te(), x), {.scales = scales});
}

void Append(const StoredMatrix& part, StoredMatrix* joined) {
  joined->codes.insert(joined->codes.end(), part.codes.begin(), part.codes.end());
  joined->scales.insert(joined->scales.end(), part.scales.begin(), part.scales.end());
  joined->tensor_scale.push_back(part.tensor_scale[0]);
}

TEST_CASE("Parts that follow each other are split into the matrices that they were", "[exchange]") {
  const Matrix<float> x = NormalMatrix(1, 160, 80);
  for (const ScaleOrder order : {ScaleOrder::kLinear, ScaleOrder::k128x4, ScaleOrder::k8x4}) {
    for (const char* text : {"4", "40,40,40,40", "16,100,44", "1,159"}) {
      CAPTURE(text, Named(order).name);
      const std::vector<RowPart> rows = ParseRowParts(text, 160, "--parts");
      StoredMatrix joined = ShapeOf(Te(), 160, 80, {.scales = order});
      std::vector<StoredMatrix> parts;
      for (const RowPart& part : rows) {
        parts.push_back(Quantized(x.View().Block(part.row, 0, part.rows, 80), order));
        Append(parts.back(), &joined);
      }
      CHECK(SplitRows(joined, rows, "j") == parts);
      joined.tensor_scale.resize(1);
      CHECK(SplitRows(joined, rows, "j").back().tensor_scale == parts[0].tensor_scale);
    }
  }
}

TEST_CASE("Scales in the layout of the joined matrix become linear", "[exchange]") {
  const Matrix<float> x = NormalMatrix(2, 160, 80);
  const StoredMatrix joined = Quantized(x.View(), ScaleOrder::k128x4);
  const StoredMatrix linear = Quantized(x.View(), ScaleOrder::kLinear);
  const std::vector<RowPart> rows = ParseRowParts("40,60,60", 160, "--parts");
  std::vector<StoredMatrix> parts = SplitRows(joined, rows, "j");
  REQUIRE(parts.size() == 3);
  parts.erase(parts.begin());
  CHECK(parts[1].layout.scales == ScaleOrder::kLinear);
  CHECK(std::vector(linear.scales.begin() + 500, linear.scales.end()) == parts[1].scales);
  // Where both take equally many bytes, the parts follow each other.
  CHECK(SplitRows(joined, ParseRowParts("100,60", 160, "--parts"), "j")[1].layout.scales ==
        ScaleOrder::k128x4);
  CHECK(std::vector(linear.codes.begin() + 4000, linear.codes.end()) == parts[1].codes);
  CHECK(parts[1].tensor_scale == joined.tensor_scale);
}

TEST_CASE("What are no parts is refused in one line", "[exchange]") {
  const Matrix<float> x = NormalMatrix(3, 32, 64);
  StoredMatrix joined = Quantized(x.View(), ScaleOrder::kLinear);
  const auto parse = [&](const char* text) {
    return ErrorOf([&] { ParseRowParts(text, 32, "--parts"); });
  };
  CHECK_THAT(parse("3"), ContainsSubstring("--parts: 32 rows are not 3 equal parts"));
  CHECK_THAT(parse("64"), ContainsSubstring("32 rows are not 64 equal parts"));
  for (const char* text : {"16,15", "16,17", "32,1", "18446744073709551615,33"}) {
    CHECK_THAT(parse(text), ContainsSubstring("do not add up to the 32 of the matrix"));
  }
  for (const char* text : {"", "0", "a", "4,", ",4", "16;16", "-4", "99999999999999999999"}) {
    CHECK_THAT(parse(text), ContainsSubstring("is no number of parts"));
  }
  const std::vector<RowPart> halves = ParseRowParts("2", 32, "--parts");
  const auto split = [&] { return ErrorOf([&] { SplitRows(joined, halves, "q.npz"); }); };
  joined.tensor_scale.resize(3, 1.0f);
  CHECK_THAT(split(), ContainsSubstring("q.npz: 3 tensor scales; 2 parts have one each"));
  joined.tensor_scale.assign(32, 1.0f);
  CHECK(SplitRows(joined, halves, "q")[1].tensor_scale == std::vector<float>{1.0f});
  joined.tensor_scale[20] = 2.0f;
  CHECK_THAT(split(), ContainsSubstring("the tensor scales of rows 16..31, one part, differ"));
  joined.scales.pop_back();
  CHECK_THAT(split(), ContainsSubstring("127 bytes of scales; in the order linear, 2 parts"));
  joined.codes.pop_back();
  CHECK_THAT(split(), ContainsSubstring("1023 bytes of codes; the parts take 1024"));
  joined.layout.transposed = true;
  CHECK_THAT(split(), ContainsSubstring("transposed"));
  const StoredMatrix tiles = ShapeOf(*FindDialect("nvfp4.te.2d"), 32, 64, {});
  CHECK_THAT(ErrorOf([&] { SplitRows(tiles, ParseRowParts("8,24", 32, "p"), "t"); }),
             ContainsSubstring("a block of 16 rows spans the part that ends before row 8"));
}

}  // namespace
}  // namespace fp4lab
