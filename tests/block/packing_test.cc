// Packing: where each code lies, and that unpacking inverts it.
#include "fp4lab/block/packing.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Bytes = std::vector<std::uint8_t>;

TEST_CASE("PackCodes places nibbles in each code order", "[block]") {
  const Bytes codes = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(PackCodes(codes, 1, 8, CodeOrder::kLowFirst) == Bytes{0x21, 0x43, 0x65, 0x87});
  CHECK(PackCodes(codes, 1, 8, CodeOrder::kHighFirst) == Bytes{0x12, 0x34, 0x56, 0x78});
  CHECK(PackCodes(codes, 1, 8, CodeOrder::kSplitHalves, 8) == Bytes{0x51, 0x62, 0x73, 0x84});
  CHECK(PackCodes(codes, 1, 8, CodeOrder::kSplitHalves, 4) == Bytes{0x31, 0x42, 0x75, 0x86});
  CHECK(PackCodes(codes, 1, 8, CodeOrder::kBytes) == codes);
}

TEST_CASE("Four 6-bit codes take three bytes, the first lowest", "[block]") {
  CHECK(PackCodes(Bytes{0x01, 0x02, 0x03, 0x3F}, 1, 4, CodeOrder::kDense6) ==
        Bytes{0x81, 0x30, 0xFC});
}

TEST_CASE("Unpacking inverts packing, tails included", "[block][property]") {
  for (const NamedCodeOrder& order : kCodeOrders) {
    for (std::size_t cols = 1; cols <= 40; ++cols) {
      const std::size_t rows = 3;
      Bytes codes(rows * cols);
      std::iota(codes.begin(), codes.end(), std::uint8_t{3});
      for (std::uint8_t& code : codes) {
        code = static_cast<std::uint8_t>(code & (order.order == CodeOrder::kDense6  ? 0x3F
                                                 : order.order == CodeOrder::kBytes ? 0xFF
                                                                                    : 0x0F));
      }
      CAPTURE(order.name, cols);
      const Bytes packed = PackCodes(codes, rows, cols, order.order);
      REQUIRE(packed.size() == rows * PackedRowBytes(order.order, cols));
      CHECK(UnpackCodes(packed, rows, cols, order.order) == codes);
    }
  }
}

TEST_CASE("Transposing packed codes is unpacking, transposing and packing", "[block][property]") {
  for (const NamedCodeOrder& order : kCodeOrders) {
    for (const auto& [rows, cols] :
         {std::pair<std::size_t, std::size_t>{1, 7}, {5, 19}, {16, 32}}) {
      Bytes codes(rows * cols);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        codes[i] = static_cast<std::uint8_t>(i * 7 % (order.order == CodeOrder::kDense6 ? 64 : 16));
      }
      CAPTURE(order.name, rows, cols);
      const Bytes packed = PackCodes(codes, rows, cols, order.order);
      const Bytes transposed = TransposedCodes(packed, rows, cols, order.order);
      CHECK(UnpackCodes(transposed, cols, rows, order.order) == TransposedBytes(codes, rows, cols));
      CHECK(TransposedCodes(transposed, cols, rows, order.order) == packed);
    }
  }
}

TEST_CASE("Transposing bytes twice gives them back", "[block]") {
  const Bytes bytes = {1, 2, 3, 4, 5, 6};
  CHECK(TransposedBytes(bytes, 2, 3) == Bytes{1, 4, 2, 5, 3, 6});
  CHECK(TransposedBytes(TransposedBytes(bytes, 2, 3), 3, 2) == bytes);
}

}  // namespace
}  // namespace fp4lab
