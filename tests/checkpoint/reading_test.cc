// The reading of codes and scales from dtypes and shapes alone.
#include "fp4lab/exchange/vendors/reading.h"

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Shape = std::vector<std::size_t>;

struct Case {
  const char* codes_dtype;
  Shape codes;
  const char* scales_dtype;
  Shape scales;
  ReadingHints hints;
  const char* formula;
  Shape expected;  // parts, rows, cols
};

TEST_CASE("Shapes and dtypes give formula, parts and layout", "[exchange]") {
  const std::vector<Case> cases = {
      {"U8", {32, 64}, "F8_E4M3", {32, 8}, {}, "NVFP4", {1, 32, 128}},
      {"U8", {32, 64}, "U8", {32, 8}, {.has_number = true}, "NVFP4", {1, 32, 128}},
      {"U8", {32, 64}, "U8", {32, 4}, {}, "MXFP4", {1, 32, 128}},
      {"I8", {3, 32, 64}, "F8_E8M0", {3, 32, 4}, {}, "MXFP4", {3, 32, 128}},
      {"U8", {3, 32, 4, 16}, "U8", {3, 32, 4}, {.grouped_codes = true}, "MXFP4", {3, 32, 128}},
      {"U32", {32, 16}, "U8", {32, 4}, {}, "MXFP4", {1, 32, 128}},
      {"F4", {32, 128}, "F8_E4M3", {32, 8}, {}, "NVFP4", {1, 32, 128}},
      {"U8", {32, 128}, "F8_E4M3", {32, 8}, {.has_number = true}, "NVFP4", {1, 32, 128}},
      {"U8", {32, 128}, "U8", {32, 8}, {.has_number = true}, "NVFP4", {1, 32, 128}},
      {"U8", {32, 128}, "F8_E4M3", {32, 8}, {}, "MXFP4", {1, 32, 256}},  // a wrong dtype
      {"F8_E4M3",
       {300, 200},
       "F32",
       {3, 2},
       {.blocks_first = true},
       "FP8 E4M3, 128x128",
       {1, 300, 200}},
      {"F8_E5M2", {300, 200}, "BF16", {3, 2}, {}, "FP8 E5M2, 128x128", {1, 300, 200}},
      {"F8_E4M3", {300, 200}, "F8_E8M0", {300, 2}, {}, "FP8 E4M3, 1x128", {1, 300, 200}},
      {"F8_E4M3", {300, 200}, "F32", {300, 1}, {}, "FP8 E4M3, a scale a row", {1, 300, 200}},
      {"F8_E4M3", {300, 200}, "F32", {300}, {}, "FP8 E4M3, a scale a row", {1, 300, 200}},
      {"F8_E4M3", {300, 200}, "F32", {}, {}, "FP8 E4M3, a scale a tensor", {1, 300, 200}},
      {"F8_E4M3", {4, 30, 20}, "F32", {4}, {}, "FP8 E4M3, a scale a tensor", {4, 30, 20}},
      {"F8_E4M3", {30, 96}, "U8", {30, 3}, {}, "MXFP8 E4M3", {1, 30, 96}},
      {"F6_E2M3", {30, 96}, "U8", {30, 3}, {}, "MXFP6 E2M3", {1, 30, 96}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.codes_dtype, c.codes, c.scales_dtype, c.scales);
    const ReadingFound found =
        FindReading({c.codes_dtype, c.codes}, {c.scales_dtype, c.scales}, c.hints);
    CHECK(found.problem.empty());
    CHECK(FormulaName(found.reading) == c.formula);
    CHECK(Shape{found.reading.parts, found.reading.rows, found.reading.cols} == c.expected);
  }
}

TEST_CASE("Padded and swizzled scales", "[exchange]") {
  const auto find = [](const Shape& scales, const ReadingHints& hints = {}) {
    return FindReading({"U8", {200, 48}}, {"F8_E4M3", scales}, hints).reading;
  };
  CHECK(find({200, 6}).order == ScaleOrder::kLinear);
  CHECK(find({256, 8}).order == ScaleOrder::k128x4);
  CHECK(find({256, 8}, {.padded = ScaleOrder::kPadded}).order == ScaleOrder::kPadded);
  CHECK(find({200, 8}).stored_cols == 8);
  CHECK(find({200, 8}).stored_rows == 200);
  CHECK(find({256, 6}).stored_rows == 256);
  const Reading tiles =
      FindReading({"U8", {128, 64}}, {"U8", {128, 8}}, {.has_number = true, .swizzled = true})
          .reading;
  CHECK(tiles.order == ScaleOrder::k128x4);
  CHECK(StoredScaleOffset(tiles, 1, 0) == 16);
  CHECK(StoredScaleOffset(find({200, 8}), 1, 0) == 8);
}

TEST_CASE("What does not fit states the grid that does", "[exchange]") {
  const ReadingFound found = FindReading({"U8", {32, 64}}, {"F8_E4M3", {32, 5}}, {});
  CHECK(found.problem == "scales are 32x5; 32x128 in 1x16 blocks has 32x8 (codes are U8 32x64)");
  CHECK_FALSE(FindReading({"I64", {32, 64}}, {"F8_E4M3", {32, 8}}, {}).problem.empty());
  CHECK_FALSE(FindReading({"U8", {32, 64}}, {"F4", {32, 8}}, {}).problem.empty());
  CHECK_FALSE(FindReading({"U8", {32, 64}}, {"F64", {32, 8}}, {}).problem.empty());
}

}  // namespace
}  // namespace fp4lab
