#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/child.h"
#include "tests/support/examples.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::Equals;

TEST_CASE("fp4lab bench --list names every row once, with every topic of the table", "[tools]") {
  const ProcessResult run = RunProgram({"bench", "--list"});
  REQUIRE(run.exit_code == 0);
  CHECK(run.error.empty());
  std::set<std::string> ids;
  std::istringstream lines(run.output);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ids.insert(line.substr(0, line.find(' ')));
  }
  CHECK(count > 40);
  CHECK(ids.size() == count);
  for (const char* id :
       {"quantize.nvfp4.dram", "quantize.nvfp4.l2.cycles", "dialect.nvfp4.modelopt",
        "train.dialect.nvfp4.modelopt", "quoted.ggml", "dequantize.nvfp4.fp32", "gemm.nvfp4.d256",
        "gemm.blackwell", "linear.nvfp4.d512", "linear.quantization.d128", "train.step.d256",
        "train.threads.fp32", "memory.te_nvfp4.d256", "file.quantize", "file.verify.memory"}) {
    CHECK(ids.count(id) == 1);
  }
}

void CheckSummary(const Json& summary) {
  for (const char* key : {"median", "low", "high"}) {
    CHECK(std::isfinite(summary.at(key).get<double>()));
    CHECK(summary.at(key).get<double>() > 0);
  }
  CHECK(summary.at("low") <= summary.at("median"));
  CHECK(summary.at("median") <= summary.at("high"));
  CHECK(summary.at("count").get<int>() >= 3);
}

TEST_CASE("A row of fp4lab bench has finite numbers in every column, in text and in JSON",
          "[tools]") {
  const TemporaryFolder folder;
  const std::string path = (folder / "bench.json").string();
  const ProcessResult run = RunProgram({"bench", "--quick", "--filter", "quantize.nvfp4.l2.memcpy",
                                        "--threads", "1", "--json", path});
  INFO(run.error);
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("Highway "));
  CHECK_THAT(run.output, ContainsSubstring("memcpy of the input"));
  const Json json = ReadJsonFile(path);
  const Json& machine = json.at("machine");
  for (const char* key : {"version", "date", "cpu", "compiler", "highway", "fp32_libraries"}) {
    CHECK(!machine.at(key).get<std::string>().empty());
  }
  CHECK(machine.at("threads") == 1);
  CHECK(machine.at("quick") == true);
  REQUIRE(json.at("rows").size() == 1);
  const Json& row = json.at("rows")[0];
  CHECK(row.at("id") == "quantize.nvfp4.l2.memcpy");
  CHECK(row.at("target") == Json({{"at_least", 0.4}}));
  CHECK(row.at("met").is_boolean());
  REQUIRE(row.at("columns").size() == machine.at("simd").size());
  for (const Json& name : machine.at("simd")) {
    const Json& cell = row.at("columns").at(name.get<std::string>());
    CheckSummary(cell.at("value"));
    CheckSummary(cell.at("reference"));
    CheckSummary(cell.at("ratio"));
    CheckSummary(cell.at("limit"));
    CHECK_THAT(
        cell.at("limit_of").get<std::string>(),
        ContainsSubstring("vector instructions / 16 elements") || Equals("reading the input"));
  }
}

TEST_CASE("A product of FP4 has the limit of its own vector instructions", "[tools]") {
  const TemporaryFolder folder;
  const std::string path = (folder / "bench.json").string();
  const ProcessResult run =
      RunProgram({"bench", "--quick", "--filter", "gemm.mxfp4.d256", "--json", path});
  INFO(run.error);
  REQUIRE(run.exit_code == 0);
  const Json columns = ReadJsonFile(path).at("rows").at(0).at("columns");
  for (const auto& [target, cell] : columns.items()) {
    CAPTURE(target);
    CheckSummary(cell.at("ratio"));
    if (target.rfind("avx", 0) != 0) continue;  // instructions are counted from AVX2 on
    CheckSummary(cell.at("limit"));
    CHECK_THAT(cell.at("limit_of").get<std::string>(),
               ContainsSubstring("vector instructions / 1024 products"));
  }
}

TEST_CASE("FP4LAB_TARGET chooses the first column of fp4lab bench", "[tools]") {
  const std::string target = SimdTargets().back();
  const ProcessResult run =
      RunProgram({"bench", "--quick", "--filter", "quantize.nvfp4.l2.memcpy", "--markdown"},
                 {.environment = {{"FP4LAB_TARGET", target}}});
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("\n| workload | " + target + " | ratio | reference |"));
}

TEST_CASE("fp4lab bench refuses with one line what it cannot do, before it measures", "[tools]") {
  const TemporaryFolder folder;
  const auto error = [](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"bench", "--quick", "--filter", "quantize.nvfp4.l2.memcpy"};
    all.insert(all.end(), more.begin(), more.end());
    const ProcessResult run = RunProgram(all);
    CHECK(run.exit_code == 1);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
    return run.error;
  };
  const ProcessResult unknown = RunProgram({"bench", "--filter", "nonsense"});
  CHECK(unknown.exit_code == 1);
  CHECK(unknown.error ==
        "error: --filter nonsense: matches no row; fp4lab bench --list prints all rows\n");
  WriteFileAtomically(folder / "file", "");
  CHECK_THAT(error({"--json", (folder / "file" / "out.json").string()}), ContainsSubstring("file"));
  CHECK_THAT(error({"--peer-json", (folder / "none.json").string()}),
             ContainsSubstring("none.json"));
  const std::string peers = (folder / "peers.json").string();
  WriteFileAtomically(peers,
                      R"({"torch": {"tokens_per_second": -1, "version": "2", "threads": 2}})");
  CHECK_THAT(error({"--peer-json", peers}),
             ContainsSubstring("#/torch/tokens_per_second: must be positive"));
  WriteFileAtomically(peers, R"({"tensorflow": {}})");
  CHECK_THAT(error({"--peer-json", peers}), ContainsSubstring("tensorflow"));
}

TEST_CASE("A row whose peer was not measured says how to measure it", "[tools]") {
  const ProcessResult run = RunProgram({"bench", "--quick", "--filter", "train.fp32.torch"});
  REQUIRE(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("torch_peer.py"));
}

TEST_CASE("Interrupted, fp4lab bench prints what it has and exits with 130", "[tools]") {
  const TemporaryFolder folder;
  const std::filesystem::path json = folder / "bench.json";
  Child child({"bench", "--filter", "quantize.nvfp4.l2", "--json", json.string()},
              folder / "output");
  while (child.IsRunning() && !std::filesystem::exists(json)) {  // is written before measuring
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  child.Signal(SIGINT);
  CHECK(child.Wait() == 130);
  CHECK_THAT(child.Output(), ContainsSubstring("interrupted: "));
  CHECK_THAT(child.Output(), ContainsSubstring("Highway "));
  CHECK(ReadJsonFile(json).at("rows").size() < 2);
}

TEST_CASE("The example in the help of fp4lab bench prints what it says", "[tools]") {
  CheckHelpExamples({"bench"});
}

}  // namespace
}  // namespace fp4lab
