// The output of verify, explain and identify for right codes and scales under a wrong tensor scale
// or amax, and of all commands for files that lack this number.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A folder with x.npy and its codes.npy and scales.npy under nvfp4.te.
struct Files {
  TemporaryFolder folder;
  Matrix<float> x = NormalMatrix(1, 48, 96);
  float amax = 0.0f;

  Files() {
    const Dialect& te = *FindDialect("nvfp4.te");
    const Quantized q = QuantizeAs(te, x.View());
    const StoredMatrix m = Store(te, q, {});
    amax = q.amax[0];
    WriteNpy(folder / "x.npy", MakeNpyArray<float>({x.rows, x.cols}, x.values));
    WriteNpy(folder / "codes.npy", MakeNpyArray<std::uint8_t>({m.codes.size()}, m.codes));
    WriteNpy(folder / "scales.npy", MakeNpyArray<std::uint8_t>({m.scales.size()}, m.scales));
  }
  // Runs verify, explain or identify with this tensor scale.
  ProcessResult Run(const std::string& command, float number,
                    std::vector<std::string> more = {}) const {
    WriteNpy(folder / "number.npy", MakeNpyArray<float>({1}, std::vector<float>{number}));
    std::vector<std::string> arguments{command,      "--input",        "x.npy",
                                       "--codes",    "codes.npy",      "--scales",
                                       "scales.npy", "--tensor-scale", "number.npy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments, {.folder = folder.path()});
  }
};

struct WrongNumber {
  const char* what;
  float number;
  const char* looks;
  const char* kind;
};

TEST_CASE("With right codes and scales only the wrong tensor scale is reported", "[e2e]") {
  const Files files;
  const float up = std::nextafter(files.amax, 2.0f * files.amax);
  const auto bf16 = [](float v) { return Decode(FormatId::kBF16, Encode(FormatId::kBF16, v)); };
  const std::vector<WrongNumber> numbers = {
      {"multiplier", files.amax / 2688.0f, "it is the multiplier amax / 2688", "multiplier"},
      {"divisor", 2688.0f / files.amax, "it is the divisor 2688 / amax", "divisor"},
      {"reciprocal", 1.0f / files.amax, "it is the reciprocal of the number", "reciprocal"},
      {"neighbour", up, "it is one unit in the last place off", "one-ulp"},
      {"BF16", bf16(files.amax), "it is the amax itself, rounded to bfloat16", "bf16"},
      {"without the largest scale", files.amax / 6.0f, "it is amax / 6", "other-constant"},
      {"unwritten", 0.0f, "it is 0, as memory that nothing was written to", "constant"},
      {"NaN", std::numeric_limits<float>::quiet_NaN(), "it is not a number of this amax",
       "unknown"},
      {"another tensor's", 1.5f * files.amax, "it corresponds to an amax of", "unknown"},
  };
  for (const WrongNumber& wrong : numbers) {
    CAPTURE(wrong.what);
    const ProcessResult verify = files.Run("verify", wrong.number);
    CAPTURE(verify.output, verify.error);
    CHECK(verify.exit_code == 1);
    CHECK_THAT(verify.output, ContainsSubstring("nvfp4.te: DIFFERENT, in the tensor scale only\n"
                                                "codes   equal (4608)\nscales  equal (288)\n"));
    CHECK_THAT(verify.output, ContainsSubstring(wrong.looks) && ContainsSubstring("\n  do: "));
    const Json json = ParseJson(files.Run("verify", wrong.number, {"--json"}).output, "verify");
    CHECK(json["verdict"] == "different");
    CHECK(json["only_tensor_scale"] == true);
    CHECK(json["tensor_scale"]["reading"]["kind"] == wrong.kind);

    const ProcessResult explain = files.Run("explain", wrong.number);
    CAPTURE(explain.output);
    CHECK(explain.exit_code == 1);
    CHECK_THAT(explain.output, ContainsSubstring("Cause: Only the tensor scale differs: ") &&
                                   ContainsSubstring(wrong.looks) &&
                                   !ContainsSubstring("approximate") &&
                                   !ContainsSubstring("The first difference"));
    const Json causes = ParseJson(files.Run("explain", wrong.number, {"--json"}).output, "explain");
    CHECK(causes["sets"].empty());
    CHECK(causes["tensor_scale"]["kind"] == wrong.kind);
    CHECK(causes["first"].is_null());
  }
}

TEST_CASE("identify names no exact dialect if only the tensor scale is wrong", "[e2e]") {
  const Files files;
  const float multiplier = files.amax / 2688.0f;
  const ProcessResult run = files.Run("identify", std::nextafter(multiplier, 1.0f));
  CAPTURE(run.output, run.error);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output,
             ContainsSubstring("Codes and scales are those of\n  codes low-first, scales linear:\n"
                               "    nvfp4.modelopt, ") &&
                 ContainsSubstring("tensor scale as multiplier: expected ") &&
                 ContainsSubstring("it is one unit in the last place off") &&
                 !ContainsSubstring("exactly those") && !ContainsSubstring("inside the allowed"));
  const Json json = ParseJson(files.Run("identify", 1.5f, {"--json"}).output, "identify");
  CHECK(json["fits"] == false);
  CHECK(json["exact"].empty());
  CHECK(json["allowed"].empty());
  CHECK(json["other_number"].size() > 3);
  CHECK(json["number"]["kind"] == "unknown");
  CHECK(files.Run("identify", multiplier).exit_code == 0);
}

TEST_CASE("Bytes of an approximate dialect are refused under a wrong tensor scale", "[e2e]") {
  const Files files;
  const std::vector<std::string> set{"--dialect", "nvfp4.te.use-fast-math"};
  CHECK(files.Run("verify", files.amax, set).exit_code == 0);
  const ProcessResult run = files.Run("verify", files.amax / 2688.0f, set);
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output,
             ContainsSubstring("use-fast-math: DIFFERENT, in the tensor scale only\n") &&
                 ContainsSubstring("codes and scales lie within the allowed set") &&
                 ContainsSubstring("pass --tensor-scale-is multiplier"));
}

// ---- Files without the number -------------------------------------------------------------------

// Copies a file of one matrix without the tensor `tensor`.
void WriteWithout(const std::filesystem::path& from, const std::string& tensor,
                  const std::filesystem::path& to) {
  SafetensorsFile file = ReadSafetensors(from);
  REQUIRE(file.tensors.erase(tensor) == 1);
  WriteTensors(to, file);
}

TEST_CASE("A file that lacks its tensor scale is refused by the tensor's name", "[e2e][exchange]") {
  const Files files;
  const auto run = [&](const std::vector<std::string>& arguments) {
    return RunProgram(arguments, {.folder = files.folder.path()});
  };
  struct Naming {
    const char *convention, *dialect, *tensor;
  };
  for (const Naming& n :
       {Naming{"fp4lab", "nvfp4.te", "w.tensor_scale"},
        Naming{"modelopt", "nvfp4.modelopt", "w.weight_scale_2"},
        Naming{"compressed-tensors", "nvfp4.compressed-tensors", "w.weight_global_scale"},
        Naming{"te", "nvfp4.te", "w_amax_rowwise"}}) {
    CAPTURE(n.convention);
    REQUIRE(run({"quantize", "x.npy", "--dialect", n.dialect, "--convention", n.convention, "--out",
                 "full.safetensors#w"})
                .exit_code == 0);
    WriteWithout(files.folder / "full.safetensors", n.tensor, files.folder / "lacks.safetensors");
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"dequantize", "lacks.safetensors", "--out", "y.npy"},
             {"dequantize", "lacks.safetensors", "--dialect", n.dialect, "--out", "y.npy"},
             {"convert", "lacks.safetensors", "--out", "y.npz"},
             {"inspect", "lacks.safetensors"},
             {"verify", "--input", "x.npy", "--stored", "lacks.safetensors"},
             {"explain", "--input", "x.npy", "--stored", "lacks.safetensors"},
             {"identify", "--input", "x.npy", "--stored", "lacks.safetensors"}}) {
      CAPTURE(command);
      const ProcessResult refused = run(command);
      CHECK(refused.exit_code != 0);
      CHECK(refused.output.empty());
      CHECK(IsOneLine(refused.error));
      CHECK_THAT(refused.error, ContainsSubstring("lacks.safetensors: has no number in " +
                                                  std::string(n.tensor) + ", the tensor scale of"));
      CHECK_FALSE(std::filesystem::exists(files.folder / "y.npy"));
      CHECK_FALSE(std::filesystem::exists(files.folder / "y.npz"));
    }
    const ProcessResult stated = run(
        {"dequantize", "lacks.safetensors", "--read-tensor-scale-is", "none", "--out", "z.npy"});
    INFO(stated.error);
    CHECK(stated.exit_code == 0);
    CHECK_THAT(stated.output, ContainsSubstring("float32, without a tensor scale\n"));
    const ProcessResult verified =
        run({"verify", "--input", "x.npy", "--stored", "lacks.safetensors", "--tensor-scale-is",
             "none", "--dialect", n.dialect});
    CHECK(verified.exit_code == 0);
    CHECK_THAT(verified.output,
               ContainsSubstring("tensor scale not compared: the answer stores none"));
  }
}

TEST_CASE("Formats without a tensor scale need none in their files", "[e2e][exchange]") {
  const Files files;
  const auto run = [&](const std::vector<std::string>& arguments) {
    const ProcessResult result = RunProgram(arguments, {.folder = files.folder.path()});
    CAPTURE(arguments, result.error);
    CHECK(result.exit_code == 0);
    return result;
  };
  for (const std::string dialect : {"mxfp4.floor", "nvfp4.torchao.single-level"}) {
    run({"quantize", "x.npy", "--dialect", dialect, "--out", "q.npz"});
    run({"dequantize", "q.npz", "--out", "y.npy"});
    run({"convert", "q.npz", "--convention", "modelopt", "--out", "m.safetensors"});
    run({"dequantize", "m.safetensors", "--dialect", dialect, "--out", "z.npy"});
    CHECK(ReadMatrix((files.folder / "y.npy").string()).values ==
          ReadMatrix((files.folder / "z.npy").string()).values);
    run({"verify", "--input", "x.npy", "--stored", "q.npz"});
  }
  // A file written with --tensor-scale-is none states itself that it has no tensor scale.
  run({"quantize", "x.npy", "--tensor-scale-is", "none", "--out", "none.npz"});
  CHECK_THAT(run({"dequantize", "none.npz", "--out", "y.npy"}).output,
             ContainsSubstring("without a tensor scale"));
  const ProcessResult invented = RunProgram(
      {"convert", "none.npz", "--tensor-scale-is", "multiplier", "--out", "invented.npz"},
      {.folder = files.folder.path()});
  CHECK(invented.exit_code != 0);
  CHECK_THAT(invented.error, ContainsSubstring("--tensor-scale-is multiplier: none.npz stores no "
                                               "tensor scale that could become one"));
}

}  // namespace
}  // namespace fp4lab
