// Options that contradict each other, or that would have no effect, are refused: one line, exit
// code 2, and no file.
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A folder with x.npy, 64x96, BF16 values, and its codes and scales under nvfp4.te, in files that
// state their grid.
struct Workplace {
  TemporaryFolder folder;
  Matrix<float> x = NormalMatrix(1, 64, 96);
  float amax = 0.0f;

  Workplace() {
    for (float& v : x.values) v = Decode(FormatId::kBF16, Encode(FormatId::kBF16, v));
    WriteMatrix(Path("x.npy"), x.View());
    const Dialect& te = *FindDialect("nvfp4.te");
    const Quantized q = QuantizeAs(te, x.View());
    amax = q.amax[0];
    const StoredMatrix m = Store(te, q, {});
    Write("codes.npy", {64, 48}, m.codes);
    Write("scales.npy", {64, 6}, m.scales);
    Write("turned-codes.npy", {48, 64}, m.codes);
    Write("turned-scales.npy", {6, 64}, m.scales);
    Write("flat-scales.npy", {64 * 6}, m.scales);
  }
  std::string Path(const std::string& name) const { return (folder / name).string(); }
  void Write(const char* name, const std::vector<std::size_t>& shape,
             const std::vector<std::uint8_t>& bytes) const {
    WriteNpy(folder / name, MakeNpyArray<std::uint8_t>(shape, bytes));
  }
  ProcessResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.folder = folder.path()});
  }
  void Refuses(const std::vector<std::string>& arguments, const std::string& part) const {
    CAPTURE(arguments);
    const ProcessResult run = Run(arguments);
    INFO(run.error);
    CHECK(run.exit_code == 2);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
    CHECK_THAT(run.error, ContainsSubstring(part));
    for (const char* out : {"o.npz", "o.safetensors", "o.gguf"}) {
      CHECK_FALSE(std::filesystem::exists(folder / out));
    }
  }
  ProcessResult Accepts(const std::vector<std::string>& arguments) const {
    CAPTURE(arguments);
    const ProcessResult run = Run(arguments);
    INFO(run.error);
    CHECK(run.exit_code == 0);
    return run;
  }
};

TEST_CASE("Signs need a transform, and a seed needs stochastic rounding", "[e2e]") {
  const Workplace w;
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"quantize", "x.npy", "--out", "o.npz"},
           {"pack", "--input", "x.npy", "--out", "o.safetensors"},
           {"explain", "--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"},
           {"verify", "--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"}}) {
    for (const std::vector<std::string>& signs : std::vector<std::vector<std::string>>{
             {"--signs", "none"}, {"--signs", "te", "--rht", "0"}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), signs.begin(), signs.end());
      w.Refuses(arguments, "are those of a transform that is not asked for; add --rht 16");
    }
  }
  w.Refuses({"quantize", "x.npy", "--seed", "7", "--out", "o.npz"},
            "--seed: is that of stochastic rounding, and nvfp4.te rounds to nearest");
  w.Accepts({"quantize", "x.npy", "--seed", "7", "--stochastic", "--out", "s.npz"});
  w.Accepts(
      {"quantize", "x.npy", "--seed", "7", "--dialect", "nvfp4.te.stochastic", "--out", "t.npz"});
}

TEST_CASE("A dialect that is not the file's is refused by convert and inspect", "[e2e]") {
  const Workplace w;
  w.Accepts({"quantize", "x.npy", "--out", "q.npz"});
  w.Accepts({"quantize", "x.npy", "--convention", "modelopt", "--out", "m.safetensors"});
  w.Refuses({"convert", "q.npz", "--dialect", "mxfp4.floor", "--out", "o.npz"},
            "--dialect mxfp4.floor: q.npz holds 64x96 float4_e2m1fn in 1x16 blocks");
  w.Refuses({"convert", "q.npz", "--dialect", "nvfp4.te.2d", "--out", "o.npz"}, "holds 64x96");
  w.Refuses({"convert", "q.npz", "--dialect", "nvfp4.modelopt", "--out", "o.npz"},
            "--dialect nvfp4.modelopt: q.npz states the dialect nvfp4.te");
  w.Refuses({"inspect", "q.npz", "--dialect", "mxfp4.floor"}, "which this dialect does not write");
  w.Accepts({"convert", "q.npz", "--dialect", "nvfp4.te", "--out", "c.npz"});
  w.Accepts({"convert", "m.safetensors", "--dialect", "nvfp4.modelopt", "--out", "d.npz"});
  CHECK(ReadStored(w.Path("d.npz")).dialect == "nvfp4.modelopt");
}

TEST_CASE("Layout options that contradict a naming convention are refused", "[e2e]") {
  const Workplace w;
  w.Accepts({"quantize", "x.npy", "--out", "q.npz"});
  struct Contradiction {
    const char* convention;
    std::vector<std::string> option;
    const char* part;
  };
  const std::vector<Contradiction> contradictions = {
      {"modelopt", {"--tensor-scale-is", "divisor"}, "whose files have multiplier"},
      {"te", {"--tensor-scale-is", "divisor"}, "whose files have amax"},
      {"te-columnwise", {"--tensor-scale-is", "multiplier"}, "whose files have amax"},
      {"compressed-tensors", {"--tensor-scale-is", "none"}, "whose files have divisor"},
      {"gguf", {"--tensor-scale-is", "amax"}, "whose files have multiplier"},
      {"modelopt", {"--codes-order", "high-first"}, "whose files have low-first"},
      {"gguf", {"--codes-order", "low-first"}, "whose files have split-halves"},
      {"modelopt", {"--scales-order", "128x4"}, "whose files have linear"},
      {"te", {"--scales-order", "linear"}, "whose files have padded"},
      {"modelopt", {"--transposed"}, "whose files hold the matrix itself"},
      {"te-columnwise", {"--transposed"}, "whose files hold the matrix itself"},
      {"te", {"--expanded-scales"}, "whose files hold the scale of each block once"},
  };
  for (const Contradiction& c : contradictions) {
    const std::string out = std::string(c.convention) == "gguf" ? "o.gguf" : "o.safetensors";
    for (const char* command : {"convert", "quantize"}) {
      const char* input = std::string(command) == "convert" ? "q.npz" : "x.npy";
      std::vector<std::string> arguments{command,      input,   "--convention",
                                         c.convention, "--out", out};
      arguments.insert(arguments.end(), c.option.begin(), c.option.end());
      w.Refuses(arguments, "contradicts --convention " + std::string(c.convention) + ", " + c.part);
    }
  }
  // What agrees is not refused, and writes the number with one rounding.
  w.Accepts({"convert", "q.npz", "--convention", "modelopt", "--tensor-scale-is", "multiplier",
             "--codes-order", "low-first", "--scales-order", "linear", "--not-transposed",
             "--single-scales", "--out", "m.safetensors"});
  CHECK(ReadStored(w.Path("m.safetensors")).matrix.tensor_scale ==
        std::vector<float>{w.amax / 2688.0f});
}

TEST_CASE("A pack is a .safetensors file", "[e2e]") {
  const Workplace w;
  for (const std::string out : {"o.npz", "o", "o.safetensors#w", "o.npy"}) {
    w.Refuses({"pack", "--input", "x.npy", "--out", out},
              "--out " + out + ": is not the name of a pack");
  }
}

TEST_CASE("Arrays of the right size and another shape are refused", "[e2e]") {
  const Workplace w;
  const auto with = [](const char* command, const char* codes, const char* scales) {
    return std::vector<std::string>{command, "--input",  "x.npy", "--codes",
                                    codes,   "--scales", scales};
  };
  for (const char* command : {"verify", "explain", "identify"}) {
    w.Refuses(with(command, "turned-codes.npy", "scales.npy"),
              "turned-codes.npy: is 48x64; codes of this matrix in the order low-first are 64x48");
    w.Refuses(with(command, "codes.npy", "turned-scales.npy"),
              "turned-scales.npy: is 6x64; scales of this matrix in the order linear are 64x6");
  }
  w.Accepts(with("verify", "codes.npy", "scales.npy"));
  w.Accepts(with("verify", "codes.npy", "flat-scales.npy"));
  // Answers to cases in a folder.
  w.Accepts({"cases", "--family", "signs", "--out-dir", "cases"});
  const Dialect& te = *FindDialect("nvfp4.te");
  const Matrix<float> x = ReadMatrix(w.Path("cases/0000.x.npy")).values;
  const StoredMatrix m = Store(te, QuantizeAs(te, x.View()), {});
  const std::size_t bytes = x.cols / 2;
  w.Write("cases/0000.codes.npy", {x.rows, bytes}, m.codes);
  w.Write("cases/0000.scales.npy", {x.rows, x.cols / 16}, m.scales);
  w.Accepts({"verify", "--answers", "cases", "--family", "signs", "--tensor-scale-is", "none"});
  w.Write("cases/0000.codes.npy", {bytes, x.rows}, m.codes);
  w.Refuses({"verify", "--answers", "cases", "--family", "signs", "--tensor-scale-is", "none"},
            "codes: is " + std::to_string(bytes) + "x");
}

TEST_CASE("A given amax is one that a tensor can have", "[e2e]") {
  const Workplace w;
  const std::vector<std::vector<std::string>> commands = {
      {"quantize", "x.npy", "--out", "o.npz"},
      {"pack", "--input", "x.npy", "--out", "o.safetensors"},
      {"verify", "--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"},
      {"explain", "--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"}};
  for (std::vector<std::string> command : commands) {
    command.emplace_back("--amax");
    for (const char* bad : {"-1", "nan", "inf", "-inf"}) {
      command.emplace_back(bad);
      w.Refuses(command, "is not the largest magnitude of a tensor");
      command.pop_back();
    }
    command.emplace_back("0");
    w.Refuses(command, "--amax 0: is for a matrix of zeros");
  }
  w.Refuses({"identify", "--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy",
             "--amax", "-2"},
            "is not the largest magnitude");
  w.Refuses({"verify", "--family", "signs", "--amax", "inf", "--stream", "absent"},
            "is not the largest magnitude");
  w.Refuses({"quantize", "x.npy", "--dialect", "mxfp4.floor", "--amax", "1", "--out", "o.npz"},
            "--amax: 1 numbers; mxfp4.floor takes none");
  const ProcessResult small =
      w.Accepts({"quantize", "x.npy", "--amax", "0.5", "--out", "small.npz"});
  CHECK(IsOneLine(small.error));
  CHECK_THAT(small.error,
             ContainsSubstring("warning: --amax 0.5 is smaller than the largest magnitude of the "
                               "matrix, "));
  CHECK(w.Accepts({"quantize", "x.npy", "--amax", "64", "--out", "large.npz"}).error.empty());
  Matrix<float> zeros(4, 32, 0.0f);
  WriteMatrix(w.Path("zeros.npy"), zeros.View());
  CHECK(w.Accepts({"quantize", "zeros.npy", "--amax", "0", "--out", "zeros.npz"}).error.empty());
}

TEST_CASE("Options of another mode of verify are refused", "[e2e]") {
  const Workplace w;
  w.Accepts({"pack", "--input", "x.npy", "--out", "p.safetensors"});
  w.Refuses({"verify", "--pack", "p.safetensors", "--dialect", "nvfp4.modelopt"},
            "--dialect: has no effect with --pack");
  w.Refuses({"verify", "--pack", "p.safetensors", "--rht", "16"}, "has no effect with --pack");
  const std::vector<std::string> one = {"verify",    "--input",  "x.npy",     "--codes",
                                        "codes.npy", "--scales", "scales.npy"};
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--seed", "2"}, {"--family", "signs"}, {"--keep", "kept"}, {"--allow-declined"}}) {
    std::vector<std::string> arguments = one;
    arguments.insert(arguments.end(), more.begin(), more.end());
    w.Refuses(arguments, more[0] + ": is of whole sets of cases");
  }
  for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
           {"--rht", "16"}, {"--codes", "codes.npy"}, {"--random", "r.npy"}, {"--stochastic"}}) {
    std::vector<std::string> arguments = {"verify", "--family", "signs", "--stream", "absent"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    w.Refuses(arguments, ": is of one matrix, which --input names; add it");
  }
  std::vector<std::string> runs = one;
  runs.insert(runs.end(), {"--more-codes", "codes.npy"});
  w.Refuses(runs, "add --stochastic");
}

TEST_CASE("Operands without a reduction axis are refused as such", "[e2e]") {
  const Workplace w;
  WriteNpy(w.folder / "a.npy", MakeNpyArray<float>({4, 0}, std::vector<float>{}));
  WriteNpy(w.folder / "b.npy", MakeNpyArray<float>({5, 0}, std::vector<float>{}));
  WriteMatrix(w.Path("d.npy"), Matrix<float>(4, 5).View());
  w.Refuses({"verify", "gemm", "a.npy", "b.npy", "d.npy", "--operand", "bf16"}, "a.npy: has K = 0");
  const ProcessResult gemm = w.Run({"gemm", "a.npy", "b.npy", "--operand", "bf16"});
  CHECK(gemm.exit_code == 1);
  CHECK_THAT(gemm.error, ContainsSubstring("a.npy: has K = 0"));
}

TEST_CASE("A .npy header whose shape is a number is refused as NumPy refuses it", "[e2e]") {
  const Workplace w;
  std::string text = ReadFile(w.folder / "flat-scales.npy");
  const std::size_t at = text.find("(384,)");
  REQUIRE(at != std::string::npos);
  WriteFileAtomically(w.folder / "number.npy", text.replace(at, 6, "(384) "));
  const ProcessResult run = w.Run({"quantize", "number.npy", "--dtype", "e4m3", "--out", "o.npz"});
  CHECK(run.exit_code == 1);
  CHECK(IsOneLine(run.error));
  CHECK_THAT(run.error,
             ContainsSubstring("number.npy: states the shape 384, a number; NumPy writes the "
                               "tuple (384,)"));
}

TEST_CASE("Old cases leave the folder of --keep, and nothing else does", "[e2e]") {
  const Workplace w;
  const std::string program = "'" + Program() + "'";
  const auto verify = [&](const std::string& deviation, const std::string& folder) {
    return RunProcess(
        {"sh", "-c",
         program + " cases --family element-ties | " + program + " cases answer " + deviation +
             " | " + program + " verify --family element-ties --keep " + folder},
        {.folder = w.folder.path(), .timeout_seconds = 60});
  };
  const auto files = [&](const char* folder) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(w.folder / folder)) {
      count += entry.is_regular_file() ? 1 : 0;
    }
    return count;
  };
  CHECK(verify("", "never").exit_code == 0);
  CHECK_FALSE(std::filesystem::exists(w.folder / "never"));
  CHECK(verify("--deviation truncation", "kept").exit_code == 1);
  CHECK(files("kept") > 4);
  WriteFileAtomically(w.folder / "kept/mine.txt", std::string_view("mine"));
  CHECK(verify("", "kept").exit_code == 0);
  CHECK(files("kept") == 1);
  CHECK(std::filesystem::exists(w.folder / "kept/mine.txt"));
  // A folder of cases that no verdict kept.
  w.Accepts({"cases", "--family", "element-ties", "--out-dir", "cases"});
  const std::size_t cases = files("cases");
  const ProcessResult refused = verify("--deviation truncation", "cases");
  CHECK(refused.exit_code == 2);
  CHECK(IsOneLine(refused.error));
  CHECK_THAT(refused.error, ContainsSubstring("holds cases that no verdict kept"));
  CHECK(files("cases") == cases);
}

}  // namespace
}  // namespace fp4lab
