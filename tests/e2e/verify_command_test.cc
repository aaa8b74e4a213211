#include <filesystem>
#include <string>

#include "fp4lab/base/random.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/gguf.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/judge/cases/hazards.h"
#include "fp4lab/judge/packs/pack.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// An input and a kernel's answer as .npy files.
struct Files {
  TemporaryFolder folder;
  Matrix<float> x = NormalMatrix(1, 33, 48);

  Files() {
    for (float& v : x.values) v = Decode(FormatId::kBF16, Encode(FormatId::kBF16, v));
    WriteNpy(folder / "x.npy", MakeNpyArray<float>({x.rows, x.cols}, x.values));
  }
  void Answer(const char* dialect, const DialectOptions& options = {}, StorageLayout layout = {},
              int hadamard = 0) {
    const Dialect& d = *FindDialect(dialect);
    const Matrix<float> input = QuantizerInput(x.View(), hadamard, kTeSignMask16);
    Write(Store(d, QuantizeAs(d, input.View(), options), layout));
  }
  void Write(const StoredMatrix& m) {
    WriteNpy(folder / "codes.npy", MakeNpyArray<std::uint8_t>({m.codes.size()}, m.codes));
    WriteNpy(folder / "scales.npy", MakeNpyArray<std::uint8_t>({m.scales.size()}, m.scales));
    WriteNpy(folder / "amax.npy", MakeNpyArray<float>({m.tensor_scale.size()}, m.tensor_scale));
  }
  ProcessResult Verify(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"verify",
                                       "--input",
                                       folder / "x.npy",
                                       "--codes",
                                       folder / "codes.npy",
                                       "--scales",
                                       folder / "scales.npy"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram(arguments);
  }
};

TEST_CASE("fp4lab verify says equal with 0 and different with 1", "[e2e]") {
  Files files;
  files.Answer("nvfp4.te");
  const ProcessResult equal = files.Verify({"--tensor-scale", files.folder / "amax.npy"});
  CHECK(equal.exit_code == 0);
  CHECK(equal.output ==
        "nvfp4.te: equal\ncodes   equal (1584)\nscales  equal (99)\n"
        "tensor scale equal (1)\n"
        "One input is little evidence; the directed cases decide:\n"
        "  fp4lab cases --dialect nvfp4.te | KERNEL | fp4lab verify --dialect nvfp4.te\n");
  CHECK(files.Verify({"--level-two", files.folder / "amax.npy"}).output == equal.output);
  const ProcessResult different = files.Verify({"--dialect", "nvfp4.torchao.inference"});
  CHECK(different.exit_code == 0);  // the two dialects agree on these values
  const ProcessResult wrong = files.Verify({"--codes-order", "high-first"});
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.output, ContainsSubstring("nvfp4.te: DIFFERENT\ncodes   "));
  CHECK_THAT(wrong.output, ContainsSubstring("scales  equal (99)\ntensor scale not compared"));
  const ProcessResult json = files.Verify({"--codes-order", "high-first", "--json"});
  CHECK(json.exit_code == 1);
  const Json verdict = ParseJson(json.output, "verify");
  CHECK(verdict["equal"] == false);
  CHECK(verdict["scales"]["different"] == 0);
  CHECK(verdict["tensor_scale"].is_null());
}

TEST_CASE("The judging commands read every kind of input", "[e2e]") {
  const Files files;
  const auto path = [&](const char* name) { return (files.folder / name).string(); };
  const NumberType bf16 = RequireNumberType("bf16", "test");
  WriteMatrix(path("x.safetensors"), files.x.View(), bf16);
  WriteMatrix(path("u2.npz"), files.x.View(), bf16);  // as uint16
  WriteMatrix(path("x.raw"), files.x.View(), bf16);
  GgufFile gguf;
  const auto values = std::as_bytes(std::span(files.x.values));
  gguf.tensors["w"] = {kGgmlF32, {33, 48}, {values.begin(), values.end()}};
  WriteGguf(path("x.gguf"), gguf);
  REQUIRE(RunProgram({"quantize", path("x.npy"), "--out", path("q.npz")}).exit_code == 0);
  const std::vector<std::vector<std::string>> inputs = {
      {path("x.npy")},
      {path("x.safetensors")},
      {path("u2.npz#x")},
      {path("x.gguf#w")},
      {path("x.raw"), "--shape", "33x48", "--dtype", "bf16"}};
  for (const std::vector<std::string>& input : inputs) {
    CAPTURE(input);
    for (const char* command : {"verify", "explain", "identify", "pack"}) {
      std::vector<std::string> arguments{command, "--input"};
      arguments.insert(arguments.end(), input.begin(), input.end());
      const bool packs = arguments[0] == "pack";
      arguments.insert(arguments.end(),
                       {packs ? "--out" : "--stored", path(packs ? "p.safetensors" : "q.npz")});
      const ProcessResult run = RunProgram(arguments);
      INFO(run.error);
      CHECK(run.exit_code == 0);
    }
    CHECK(RunProgram({"verify", "--pack", path("p.safetensors"), "--stored", path("q.npz")})
              .exit_code == 0);
  }
  const ProcessResult raw =
      RunProgram({"verify", "--input", path("x.raw"), "--stored", path("q.npz")});
  CHECK(raw.exit_code == 2);
  CHECK_THAT(raw.error, ContainsSubstring("is a raw file: state shape and type"));
}

TEST_CASE("fp4lab verify reads a vendor's file, in the dialect that is named", "[e2e]") {
  const Files files;
  const auto verify = [&](const char* file, const char* dialect) {
    return RunProgram({"verify", "--input", files.folder / "x.npy", "--stored", files.folder / file,
                       "--dialect", dialect});
  };
  const auto quantize = [&](const char* file, const char* convention, const char* dialect) {
    REQUIRE(RunProgram({"quantize", files.folder / "x.npy", "--out", files.folder / file,
                        "--convention", convention, "--dialect", dialect})
                .exit_code == 0);
  };
  quantize("m.safetensors", "modelopt", "nvfp4.modelopt");
  CHECK(verify("m.safetensors", "nvfp4.modelopt").exit_code == 0);
  CHECK(verify("m.safetensors", "nvfp4.te.4over6.mae.448").exit_code == 1);
  quantize("t.safetensors", "te-columnwise", "nvfp4.te");
  CHECK(verify("t.safetensors", "nvfp4.te").exit_code == 0);
  WriteMatrix((files.folder / "x.npy").string(), Matrix<float>(33, 32).View());
  const ProcessResult smaller = verify("t.safetensors", "nvfp4.te");
  CHECK(smaller.exit_code == 2);
  CHECK_THAT(smaller.error, ContainsSubstring("is 33x48 float4_e2m1fn") &&
                                ContainsSubstring("the input is 33x32"));
}

TEST_CASE("fp4lab verify reads layouts, conventions and a given amax", "[e2e]") {
  Files files;
  files.Answer("nvfp4.te", {.amax = {64.0f}},
               {.codes = CodeOrder::kHighFirst,
                .scales = ScaleOrder::k128x4,
                .transposed = true,
                .tensor_scale = TensorScaleConvention::kDivisor});
  const std::vector<std::string> right{"--amax",
                                       "64",
                                       "--codes-order",
                                       "high-first",
                                       "--scales-order",
                                       "128x4",
                                       "--transposed",
                                       "--tensor-scale",
                                       files.folder / "amax.npy",
                                       "--tensor-scale-is",
                                       "divisor",
                                       "--check-padding"};
  const ProcessResult run = files.Verify(right);
  INFO(run.output << run.error);
  CHECK(run.exit_code == 0);
  std::vector<std::string> own_amax(right.begin() + 2, right.end());
  CHECK(files.Verify(own_amax).exit_code == 1);
}

TEST_CASE("fp4lab verify puts the Hadamard transform before the quantizer", "[e2e]") {
  Files files;
  files.Answer("nvfp4.te", {}, {}, 16);
  CHECK(files.Verify({"--hadamard", "16"}).exit_code == 0);
  CHECK(files.Verify().exit_code == 1);
  CHECK(files.Verify({"--hadamard", "16", "--signs", "none"}).exit_code == 1);
}

TEST_CASE("fp4lab verify replays the random bits of stochastic rounding", "[e2e]") {
  Files files;
  std::vector<std::uint16_t> random(files.x.values.size());
  for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<std::uint16_t>(i * 40503);
  WriteNpy(files.folder / "random.npy", MakeNpyArray<std::uint16_t>({random.size()}, random));
  files.Answer("nvfp4.te.stochastic", {.random = random});
  const std::vector<std::string> dialect{"--dialect", "nvfp4.te.stochastic"};
  std::vector<std::string> with = dialect;
  with.insert(with.end(), {"--random", files.folder / "random.npy"});
  CHECK(files.Verify(with).exit_code == 0);
  const ProcessResult without = files.Verify(dialect);
  CHECK(without.exit_code == 2);
  CHECK_THAT(without.error, ContainsSubstring("--random: the dialect nvfp4.te.stochastic"));
  files.Answer("nvfp4.te");
  CHECK(files.Verify(with).exit_code == 1);
}

TEST_CASE("fp4lab verify --stochastic judges runs whose random bits are not known", "[e2e]") {
  Files files;
  files.x = NormalMatrix(4, 64, 128);
  WriteNpy(files.folder / "x.npy", MakeNpyArray<float>({64, 128}, files.x.values));
  std::vector<std::string> more{"--dialect", "nvfp4.te.stochastic", "--stochastic"};
  CHECK(files.Verify(more).exit_code == 2);  // no codes yet
  for (int run = 5; run >= 0; --run) {
    std::vector<std::uint16_t> random(files.x.values.size());
    FillBits16({.seed = static_cast<std::uint64_t>(run)}, 0, random);
    files.Answer("nvfp4.te.stochastic", {.random = random});
    if (run == 0) break;
    const std::string name = files.folder / ("codes" + std::to_string(run) + ".npy");
    std::filesystem::rename(files.folder / "codes.npy", name);
    more.insert(more.end(), {"--more-codes", name});
  }
  const ProcessResult right = files.Verify(more);
  INFO(right.output << right.error);
  CHECK(right.exit_code == 0);
  CHECK_THAT(right.output, ContainsSubstring("nvfp4.te.stochastic, 6 runs, "));
  std::vector<std::string> shared(more.begin(), more.begin() + 3);
  for (int run = 0; run < 5; ++run) shared.insert(shared.end(), {"--more-codes", more[4]});
  CHECK(files.Verify(shared).exit_code == 1);
  const ProcessResult wrong_dialect = files.Verify({"--stochastic"});
  CHECK(wrong_dialect.exit_code == 2);
  CHECK_THAT(wrong_dialect.error, ContainsSubstring("does not round stochastically") &&
                                      ContainsSubstring("give the dialect nvfp4.te.stochastic\n"));
  CHECK_THAT(right.output, ContainsSubstring("\npower   99 of 100 kernels with probabilities off"));
}

TEST_CASE("fp4lab verify distinguishes equal bytes from others in an approximate dialect's set",
          "[e2e]") {
  Files files;
  const Dialect& exact = *FindDialect("nvfp4.flashinfer.te-exact.014327a");
  const Dialect& set = *FindDialect("nvfp4.flashinfer");
  files.x = HazardInput(std::vector<Dialect>{exact, set}, 2.7182817f);
  WriteNpy(files.folder / "x.npy",
           MakeNpyArray<float>({files.x.rows, files.x.cols}, files.x.values));
  files.Answer("nvfp4.flashinfer");
  const ProcessResult member = files.Verify({"--dialect", "nvfp4.flashinfer"});
  CHECK(member.exit_code == 0);
  CHECK_THAT(member.output, ContainsSubstring("nvfp4.flashinfer: equal\n"));
  files.Answer("nvfp4.flashinfer.te-exact.014327a");
  const ProcessResult within = files.Verify({"--dialect", "nvfp4.flashinfer"});
  CAPTURE(within.output);
  CHECK(within.exit_code == 0);
  REQUIRE_THAT(within.output, ContainsSubstring("codes   ") && ContainsSubstring(" differ\n"));
  CHECK_THAT(within.output, !ContainsSubstring("nvfp4.flashinfer: equal") &&
                                ContainsSubstring("nvfp4.flashinfer: within the allowed set (") &&
                                ContainsSubstring("differ from its IEEE member)\n"));
  const Json json =
      ParseJson(files.Verify({"--dialect", "nvfp4.flashinfer", "--json"}).output, "verify");
  CHECK(json["verdict"] == "within-set");
  CHECK(json["equal"] == false);
  CHECK(json["accepted"] == true);
}

TEST_CASE("An empty matrix is refused, not accepted", "[e2e]") {
  Files files;
  for (const auto& [rows, cols] : {std::pair{0, 48}, std::pair{48, 0}}) {
    files.x = Matrix<float>(static_cast<std::size_t>(rows), static_cast<std::size_t>(cols));
    WriteNpy(files.folder / "x.npy",
             MakeNpyArray<float>({files.x.rows, files.x.cols}, files.x.values));
    files.Answer("nvfp4.te");
    for (const std::string command : {"verify", "explain", "identify"}) {
      CAPTURE(rows, cols, command);
      const ProcessResult run =
          RunProgram({command, "--input", files.folder / "x.npy", "--codes",
                      files.folder / "codes.npy", "--scales", files.folder / "scales.npy"});
      CHECK(run.exit_code == 2);
      CHECK(run.output.empty());
      CHECK(IsOneLine(run.error));
      CHECK_THAT(run.error, ContainsSubstring("the matrix has no elements"));
    }
  }
}

TEST_CASE("A kernel that declines every case has not passed", "[e2e]") {
  const std::string cases = "--dialect nvfp4.te --family signs all-zero";
  const std::string program = "'" + Program() + "'";
  // Declines each case: writes its index and check word and three zeros.
  const std::string declines =
      "python3 -c \"import struct, sys\n"
      "read, write = sys.stdin.buffer.read, sys.stdout.buffer.write\n"
      "sys.stdin.buffer.readline()\n"
      "write(b'fp4lab-answers 1\\n')\n"
      "while head := read(20):\n"
      "  index, check, rows, cols, random = struct.unpack('<5I', head)\n"
      "  read(4 * rows * cols)\n"
      "  write(struct.pack('<5I', index, check, 0, 0, 0))\n\"";
  for (const std::string more : {"", " --allow-declined"}) {
    CAPTURE(more);
    const ProcessResult run = PipeCases(cases, declines, cases + more);
    CHECK(run.exit_code == 2);
    CHECK(run.output.empty());
    CHECK(
        run.error ==
        "error: standard input: declines all 2 cases: nothing is compared; the kernel must answer "
        "one at least\n");
  }
}

TEST_CASE("fp4lab verify says what is wrong with its input in one line and 2", "[e2e]") {
  Files files;
  files.Answer("nvfp4.te");
  const std::vector<std::vector<std::string>> commands = {
      {"--dialect", "nvfp5"},        {"--scales-order", "128x4"},
      {"--codes-order", "diagonal"}, {"--tensor-scale", files.folder / "missing.npy"},
      {"--dialect", "mxfp4.floor"},  {"--signs", "maybe", "--hadamard", "16"},
  };
  for (const std::vector<std::string>& more : commands) {
    CAPTURE(more);
    const ProcessResult run = files.Verify(more);
    CHECK(run.exit_code == 2);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
  }
  const ProcessResult no_codes = RunProgram({"verify", "--input", files.folder / "x.npy"});
  CHECK(no_codes.exit_code == 2);
  CHECK_THAT(no_codes.error, ContainsSubstring("--codes: is missing"));
  CHECK(RunProgram({"verify", "--pack", files.folder / "x.npy"}).exit_code == 2);
}

}  // namespace
}  // namespace fp4lab
