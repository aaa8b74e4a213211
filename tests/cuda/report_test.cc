// The committed cross-check reports of an H200 and an H100, and the backend README's numbers.
#include <map>
#include <set>
#include <string>

#include "fp4lab/cuda/quantize/quantize.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

Json Report(const char* name = "h200_crosscheck.json") {
  const auto path = SourceDirectory() / "tests" / "cuda" / name;
  return ParseJson(ReadFile(path), path.string());
}

// The reports of all kernels, and the GPU that wrote each.
const std::map<const char*, const char*> kReports = {
    {"h200_crosscheck.json", "NVIDIA H200"}, {"h100_crosscheck.json", "NVIDIA H100 80GB HBM3"}};

TEST_CASE("The reports have no different byte over more than 10^9 elements each", "[cuda]") {
  for (const auto& [name, device] : kReports) {
    CAPTURE(name);
    const Json report = Report(name);
    CHECK(report["device"]["name"] == device);
    CHECK(report["different_bytes"] == 0);
    CHECK(report["differences"].empty());
    std::size_t elements = 0;
    for (const Json& check : report["checks"]) {
      CHECK(check["different"] == 0);
      elements += check["elements"].get<std::size_t>();
    }
    CHECK(report["elements"] == elements);
    CHECK(elements > 1000000000);
  }
}

TEST_CASE("Each report covers every kernel", "[cuda]") {
  for (const auto& [name, device] : kReports) {
    CAPTURE(name, device);
    const Json report = Report(name);
    std::set<std::string> kernels;
    for (const Json& check : report["checks"]) kernels.insert(check["kernel"]);
    for (const char* kernel : {"decoding", "dialects", "rows", "tiles", "tiles+rht"}) {
      CAPTURE(kernel);
      CHECK(kernels.count(kernel) == 1);
    }
  }
}

TEST_CASE("The H100's report covers every dialect that the GPU serves", "[cuda]") {
  const Json report = Report("h100_crosscheck.json");
  std::set<std::string> dialects;
  for (const Json& check : report["checks"]) {
    if (check["kernel"] == "dialects") dialects.insert(check["dialect"]);
  }
  for (const Dialect& d : Dialects()) {
    if (!cuda::CanQuantizeAs(d)) continue;
    CAPTURE(d.name);
    CHECK(dialects.count(std::string(d.name)) == 1);
  }
}

TEST_CASE("The H200 GEMM report covers both kernels in their software forms", "[cuda]") {
  const Json report = Report("h200_products.json");
  CHECK(report["device"]["name"] == "NVIDIA H200");
  CHECK(report["different_bytes"] == 0);
  std::map<std::string, std::size_t> outputs;
  for (const Json& check : report["checks"]) {
    CHECK(check["different"] == 0);
    outputs[check["kernel"]] += check["elements"].get<std::size_t>();
  }
  for (const char* kernel : {"gemm, mma.sync in software", "gemm, tcgen05 in software"}) {
    CAPTURE(kernel);
    CHECK(outputs[kernel] > 10000000);
  }
  // No Blackwell chip has run these two kernels; a report that has them requires a change of the
  // README.
  CHECK(outputs.count("gemm, mma.sync") == 0);
  CHECK(outputs.count("gemm, tcgen05") == 0);
}

TEST_CASE("The README's speeds are the report's", "[cuda]") {
  const std::string readme = ReadFile(SourceDirectory() / "lib" / "fp4lab" / "cuda" / "README.md");
  const Json report = Report();
  REQUIRE(report["speed"].size() >= 10);
  for (const Json& speed : report["speed"]) {
    char row[200];
    std::snprintf(row, sizeof row, "| %s | %.0f | %.2f |", speed["what"].get<std::string>().c_str(),
                  speed["bytes"].get<double>() / speed["seconds"].get<double>() / 1e9,
                  speed["of_copy"].get<double>());
    CHECK_THAT(readme, ContainsSubstring(row));
  }
}

}  // namespace
}  // namespace fp4lab
