// Orders of bytes: those of code bases, written here as loops, and those of JSON.
#include "fp4lab/exchange/order/byte_order.h"

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;
using Bytes = std::vector<std::uint8_t>;

Bytes Counted(std::size_t n) {
  Bytes bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::uint8_t>(i * 37 + i / 256);
  return bytes;
}

ByteOrder Parsed(const std::string& text) { return ReadByteOrder(ParseJson(text, "o"), "o.json"); }

TEST_CASE("AITER's scales: rows by 32 as 2x16, columns by 8 as 2x4", "[exchange]") {
  constexpr std::size_t kRows = 300, kCols = 11, kPaddedCols = 16;
  const Bytes grid = Counted(kRows * kCols);
  Bytes shuffled(512 * kPaddedCols, 0);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kCols; ++c) {
      const std::size_t tile = (r / 32 * (kPaddedCols / 8) + c / 8) * 256;
      const std::size_t place = c % 4 * 64 + r % 16 * 4 + c / 4 % 2 * 2 + r / 16 % 2;
      shuffled[tile + place] = grid[r * kCols + c];
    }
  }
  const ByteOrder& aiter = *FindByteOrder(ScaleByteOrders(), "aiter");
  CHECK(FromByteOrder(shuffled, aiter, kRows, kCols, "s") == grid);
  const ByteOrder own = Parsed(
      R"({"pad": [256, 8], "reshape": ["R/32", 2, 16, "C/8", 2, 4], "transpose": [0, 3, 5, 2, 4, 1]})");
  CHECK(FromByteOrder(shuffled, own, kRows, kCols, "s") == grid);
  CHECK(ErrorOf([&] { FromByteOrder(grid, aiter, kRows, kCols, "s.npy"); }) ==
        "s.npy: has 3300 bytes; a grid of 300x11 in the order aiter takes 8192");
}

TEST_CASE("DeepGEMM's scales: four blocks in a word, words column by column", "[exchange]") {
  constexpr std::size_t kRows = 6, kCols = 9, kPaddedRows = 8;
  const Bytes grid = Counted(kRows * kCols);
  Bytes packed(kPaddedRows * 12, 0);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kCols; ++c) {
      packed[(c / 4 * kPaddedRows + r) * 4 + c % 4] = grid[r * kCols + c];
    }
  }
  const ByteOrder& order = *FindByteOrder(ScaleByteOrders(), "deepgemm");
  CHECK(FromByteOrder(packed, order, kRows, kCols, "s") == grid);
}

TEST_CASE("Scales of a cache's V: four tokens in turn", "[exchange]") {
  constexpr std::size_t kTokens = 24, kScales = 8;
  const Bytes grid = Counted(kTokens * kScales);
  Bytes interleaved(grid.size());
  for (std::size_t t = 0; t < kTokens; ++t) {
    for (std::size_t s = 0; s < kScales; ++s) {
      interleaved[t / 4 * 4 * kScales + s * 4 + t % 4] = grid[t * kScales + s];
    }
  }
  const ByteOrder& order = *FindByteOrder(ScaleByteOrders(), "trtllm-v");
  CHECK(FromByteOrder(interleaved, order, kTokens, kScales, "v") == grid);
  // In a page, FlashInfer reshapes to (tokens / 4, 4, 4, scales / 4) and permutes (0, 2, 3, 1).
  const ByteOrder own = Parsed(R"({"reshape": ["R/4", 4, 4, "C/4"], "transpose": [0, 2, 3, 1]})");
  CHECK(FromByteOrder(interleaved, own, kTokens, kScales, "v") == grid);
}

TEST_CASE("Padding of one side, tiles of 16x32 bytes and plain transposition", "[exchange]") {
  const Bytes grid = Counted(6 * 5);
  Bytes padded(6 * 8, 0xEE);
  for (std::size_t i = 0; i < grid.size(); ++i) padded[i / 5 * 8 + i % 5] = grid[i];
  CHECK(FromByteOrder(padded, *FindByteOrder(ScaleByteOrders(), "columns-padded"), 6, 5, "s") ==
        grid);
  const Bytes codes = Counted(std::size_t{32} * 96);
  Bytes tiles(codes.size());
  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t c = 0; c < 96; ++c) {
      const std::size_t tile = (r / 16 * 3 + c / 32) * 512;
      tiles[tile + c % 32 / 16 * 256 + r % 16 * 16 + c % 16] = codes[r * 96 + c];
    }
  }
  CHECK(FromByteOrder(tiles, *FindByteOrder(CodeByteOrders(), "16x16"), 32, 96, "c") == codes);
  const Bytes transposed = {0, 2, 4, 1, 3, 5};
  CHECK(FromByteOrder(transposed, Parsed(R"({"reshape": ["R", "C"], "transpose": [1, 0]})"), 3, 2,
                      "t") == Bytes{0, 1, 2, 3, 4, 5});
  CHECK(FromByteOrder(grid, Parsed("{}"), 6, 5, "g") == grid);
}

TEST_CASE("A wrong order in JSON is refused with its place", "[exchange]") {
  const struct {
    std::string json, error;
  } rows[] = {
      {R"({"pad": [0, 4]})", "o.json#/pad/0: must be 1 to 65536"},
      {R"({"pad": [4]})", "o.json#/pad: must be an array of 2 members"},
      {R"({"reshape": []})", "o.json#/reshape: must be an array of 1 to 8 members"},
      {R"({"reshape": ["R/0"]})", "o.json#/reshape/0: is no axis"},
      {R"({"reshape": ["X"]})", "o.json#/reshape/0: is no axis"},
      {R"({"reshape": ["R/x"]})", "o.json#/reshape/0: is no axis"},
      {R"({"reshape": [2.5]})", "o.json#/reshape/0: must be"},
      {R"({"reshape": [0]})", "o.json#/reshape/0: is no size of an axis"},
      {R"({"transpose": [0]})", "o.json#/transpose: needs the axes"},
      {R"({"reshape": ["R", "C"], "transpose": [0, 0]})",
       "o.json#/transpose/1: must name each of the axes 0 to 1 once"},
      {R"({"reshape": ["R", "C"], "transpose": [0, 2]})", "o.json#/transpose/1: must name"},
      {R"({"reshape": ["R", "C"], "transpose": [0]})", "o.json#/transpose: must be an array of 2"},
      {R"({"padding": [1, 1]})", "padding"},
      {"[]", "o.json: must be an object"},
  };
  for (const auto& [json, error] : rows) {
    CAPTURE(json);
    CHECK_THAT(ErrorOf([&, text = json] { Parsed(text); }), ContainsSubstring(error));
  }
  for (const char* json : {R"({"reshape": ["R/4", "C"]})", R"({"reshape": ["R", "C", 2]})",
                           R"({"reshape": [1099511627776, 1099511627776]})"}) {
    CAPTURE(json);
    const ByteOrder order = Parsed(json);
    CHECK_THAT(ErrorOf([&] { FromByteOrder(Counted(30), order, 6, 5, "g.npy"); }),
               ContainsSubstring("g.npy: its axes do not hold a grid of 6x5 bytes"));
  }
}

}  // namespace
}  // namespace fp4lab
