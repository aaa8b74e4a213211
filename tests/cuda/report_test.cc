// The committed cross-check report of an H200, and the backend README's numbers from it.
#include <map>
#include <set>
#include <string>
#include <string_view>

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

TEST_CASE("The H200's report has no different byte over more than 10^9 elements", "[cuda]") {
  const Json report = Report();
  CHECK(report["device"]["name"] == "NVIDIA H200");
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

TEST_CASE("The H200's report covers every dialect that the GPU serves, and every kernel",
          "[cuda]") {
  const Json report = Report();
  std::set<std::string> kernels, dialects;
  for (const Json& check : report["checks"]) {
    kernels.insert(check["kernel"]);
    if (check["kernel"] == "dialects") dialects.insert(check["dialect"]);
  }
  for (const char* kernel : {"decoding", "dialects", "rows", "tiles", "tiles+rht"}) {
    CAPTURE(kernel);
    CHECK(kernels.count(kernel) == 1);
  }
  // Rows that are younger than the report: no GPU has run them.
  const std::set<std::string_view> younger = {
      "nvfp4.te.rht-columns",
      "nvfp4.flashinfer.te-exact",
      "nvfp4.flashinfer.4over6.mae.448",
      "nvfp4.flashinfer.4over6.mae.448.fast-error",
      "nvfp4.flashinfer.4over6.mae.448.per-token",
      "nvfp4.flashinfer.4over6.mae.256",
      "nvfp4.flashinfer.4over6.mae.256.fast-error",
      "nvfp4.flashinfer.4over6.mae.256.per-token",
      "nvfp4.flashinfer.4over6.mse.448",
      "nvfp4.flashinfer.4over6.mse.448.fast-error",
      "nvfp4.flashinfer.4over6.mse.448.per-token",
      "nvfp4.flashinfer.4over6.mse.256",
      "nvfp4.flashinfer.4over6.mse.256.fast-error",
      "nvfp4.flashinfer.4over6.mse.256.per-token",
      "nvfp4.sageattention3",
      "nvfp4.modelopt.0.44",
      "nvfp4.modelopt.static.0.44",
      "nvfp4.compressed-tensors.bf16-input",
      "mxfp4.compressed-tensors.bf16-input",
      "nvfp4.vllm.emulation.cpu",
      "nvfp4.qwix.bf16-input",
      "mxfp8_e4m3.torchao.ceil",
      "mxfp4.torchao.rceil.0.18",
      "mxfp8_e4m3.torchao.floor.0.18",
      "mxfp8_e4m3.torchao.ceil.0.18",
      "mxfp8_e4m3.torchao.rceil.0.18",
      "mxfp8_e4m3.torchao.even.0.18",
      "mxfp4.compressed-tensors",
      "mxfp8_e4m3.compressed-tensors",
      "mxfp4.modelopt",
      "mxfp4.quark.even",
      "mxfp4.quark.floor",
      "mxfp4.quark.ceil",
      "nvfp4.mlx",
      "nvfp4.mlx.cpu",
      "mxfp4.mlx.cpu",
      "mxfp8_e4m3.mlx.cpu",
      "mxfp4.mlx.cpu.round",
      "mxfp8_e4m3.mlx.cpu.round",
      "nvfp4.comfyui",
      "nvfp4.comfyui.stochastic-centre",
      "nvfp4.fastvideo",
      "nvfp4.auto-round",
      "mxfp4.auto-round",
      "mxfp4.auto-round.rceil",
      "mxfp8_e4m3.auto-round",
      "fp8_e4m3.row",
      "fp8_e5m2.row",
      "fp8_e4m3.1x128.e8m0",
      "fp8_e4m3.128x128.e8m0",
      "fp8_e5m2.1x128.e8m0",
      "fp8_e5m2.128x128.e8m0",
  };
  for (const Dialect& d : Dialects()) {
    if (!cuda::CanQuantizeAs(d)) continue;
    CAPTURE(d.name);
    CHECK(dialects.count(std::string(d.name)) == (younger.count(d.name) == 1 ? 0 : 1));
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
