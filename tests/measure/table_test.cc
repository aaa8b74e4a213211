#include "fp4lab/measure/table.h"

#include <limits>
#include <string>

#include "tests/support/catch.h"

namespace fp4lab::measure {
namespace {

Summary One(double x) { return {x, x, x, 1}; }

// Two columns; a row measured in both, a row measured in one, a row measured in none.
Table Example() {
  Table table{.heading = {"a machine"}, .columns = {"avx3_dl", "avx2"}, .rows = {}};
  const Target target{Comparison::kAtLeast, 0.75};
  Row row{.id = "q",
          .topic = "Quantize",
          .what = "nvfp4",
          .unit = "G/s",
          .against = "amax pass",
          .target = target,
          .cells = {}};
  row.cells.push_back({.value = One(5.5),
                       .reference = One(7.1),
                       .ratio = {{0.7746, 0.77, 0.781, 9}},
                       .limit = One(0.9),
                       .limit_of = "moving"});
  row.cells.push_back({.value = One(2), .reference = One(4), .ratio = One(0.5)});
  table.rows.push_back(row);
  row.id = "g";
  row.topic = "Products";
  row.what = "gemm";
  row.target = {Comparison::kAtMost, 60.0 / 256};
  row.cells = {{.value = One(12345), .ratio = One(0.1), .against = "oneDNN"},
               {.missing = "no AVX2 copy"}};
  table.rows.push_back(row);
  row.what = "other";
  row.target = {};
  row.cells = {{.missing = "not found"}, {.missing = "not found"}};
  table.rows.push_back(row);
  return table;
}

TEST_CASE("A target is met by the first column's ratio, or by its value without one", "[measure]") {
  Table table = Example();
  CHECK(IsMet(table.rows[0]) == true);
  CHECK(IsMet(table.rows[1]) == true);
  CHECK(IsMet(table.rows[2]) == std::nullopt);
  Row& row = table.rows[0];
  row.cells[0].ratio->median = 0.74;
  CHECK(IsMet(row) == false);
  row.cells[0].ratio.reset();  // 5.5 >= 0.75
  CHECK(IsMet(row) == true);
  row.target = {Comparison::kAtMost, 5.5};
  CHECK(IsMet(row) == true);
  row.target = {};
  CHECK(IsMet(row) == std::nullopt);
  row.cells.clear();
  CHECK(IsMet(row) == std::nullopt);
}

TEST_CASE("A target that the limit misses, too, is beyond reach", "[measure]") {
  Table table = Example();
  Row& row = table.rows[0];
  CHECK_FALSE(IsOutOfReach(row));
  row.target.bound = 0.95;  // the ratio is 0.77, the limit 0.9
  CHECK(IsMet(row) == false);
  CHECK(IsOutOfReach(row));
  CHECK(AsMarkdown(table).find("| >= 0.95 | no, beyond the limit | 0.900 (moving) |") !=
        std::string::npos);
  row.target = {Comparison::kAtMost, 0.8};  // a ratio of times: 0.9 is the least
  CHECK(IsOutOfReach(row));
  row.target.bound = 0.9;
  CHECK_FALSE(IsOutOfReach(row));
  row.cells[0].limit.reset();
  CHECK_FALSE(IsOutOfReach(row));
}

TEST_CASE("Numbers show three digits", "[measure]") {
  CHECK(NumberText(0) == "0");
  CHECK(NumberText(0.07746) == "0.0775");
  CHECK(NumberText(5.499) == "5.50");
  CHECK(NumberText(18.34) == "18.3");
  CHECK(NumberText(183.4) == "183");
  CHECK(NumberText(71333) == "71300");
  CHECK(NumberText(-2.5) == "-2.50");
  CHECK(NumberText(std::numeric_limits<double>::quiet_NaN()) == "not finite");
}

TEST_CASE("A table as text: columns aligned, topics once, reasons below their row", "[measure]") {
  CHECK(AsText(Example()) ==
        "a machine\n"
        "\n"
        "  workload  avx3_dl    ratio                 avx2      ratio  reference  target    target "
        "met  limit here\n"
        "Quantize\n"
        "  nvfp4     5.50 G/s   0.775 [0.770, 0.781]  2.00 G/s  0.500  amax pass  >= 0.75   yes  "
        "       0.900 (moving)\n"
        "Products\n"
        "  gemm      12300 G/s  0.100                 -         -      oneDNN     <= 0.234  yes  "
        "       -\n"
        "      avx2: no AVX2 copy\n"
        "  other     -          -                     -         -      amax pass  -         -   "
        "        -\n"
        "      not found\n");
}

TEST_CASE("A table as Markdown has the same fields in every line", "[measure]") {
  CHECK(AsMarkdown(Example()) ==
        "a machine  \n"
        "\n"
        "| workload | avx3_dl | ratio | avx2 | ratio | reference | target | target met | limit "
        "here |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| **Quantize** nvfp4 | 5.50 G/s | 0.775 [0.770, 0.781] | 2.00 G/s | 0.500 | amax pass | "
        ">= 0.75 | yes | 0.900 (moving) |\n"
        "| **Products** gemm (avx2: no AVX2 copy) | 12300 G/s | 0.100 | - | - | oneDNN | "
        "<= 0.234 | yes | - |\n"
        "| other (not found) | - | - | - | - | amax pass | - | - | - |\n");
}

}  // namespace
}  // namespace fp4lab::measure
