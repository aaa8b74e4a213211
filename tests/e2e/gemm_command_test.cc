#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/judge/products/gemm_probe.h"
#include "fp4lab/tensor/accumulation.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

struct Folder {
  TemporaryFolder folder;
  std::string Path(const std::string& name) const { return (folder / name).string(); }
};

ProcessResult Gemm(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "gemm");
  return RunProgram(arguments);
}
ProcessResult VerifyGemm(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"verify", "gemm"});
  return RunProgram(arguments);
}

// Runs the example of a help text in `folder` and compares its output. A command is a line that
// starts with "$ fp4lab"; its output is the lines up to the next command.
void RunExample(const std::string& help, const std::filesystem::path& folder) {
  std::size_t commands = 0;
  std::size_t at = help.find("$ fp4lab ");
  REQUIRE(at != std::string::npos);
  while (at != std::string::npos) {
    std::string line = help.substr(at + 2, help.find('\n', at) - at - 2);
    const std::size_t next = help.find("$ fp4lab ", at + 2);
    const std::size_t output_at = help.find('\n', at) + 1;
    const std::string want =
        help.substr(output_at, next == std::string::npos ? std::string::npos : next - output_at);
    const std::string command = "cd '" + folder.string() + "' && '" + Program() + "'" +
                                line.substr(std::string("fp4lab").size());
    const ProcessResult run = RunProcess({"/bin/sh", "-c", command}, {.timeout_seconds = 60});
    INFO(line << "\n" << run.error);
    CHECK(run.exit_code == 0);
    std::string got = run.output;
    for (const char c : want) {  // help indents and may wrap: compare without white space
      if (c == ' ' || c == '\n') continue;
      while (!got.empty() && (got[0] == ' ' || got[0] == '\n')) got.erase(0, 1);
      INFO("want " << want << "got " << run.output);
      REQUIRE(!got.empty());
      REQUIRE(got[0] == c);
      got.erase(0, 1);
    }
    CHECK(got.find_first_not_of(" \n") == std::string::npos);
    ++commands;
    at = next;
  }
  CHECK(commands == 3);
}

TEST_CASE("The examples of gemm and verify gemm do what their help says", "[tools]") {
  const Folder first, second, third, fourth, fifth;
  RunExample(Gemm({"--help"}).output, first.folder.path());
  RunExample(VerifyGemm({"--help"}).output, second.folder.path());
  RunExample(RunProgram({"cases", "gemm", "--help"}).output, third.folder.path());
  RunExample(RunProgram({"cases", "grouped-gemm", "--help"}).output, fourth.folder.path());
  RunExample(RunProgram({"cases", "attention", "--help"}).output, fifth.folder.path());
}

TEST_CASE("verify gemm --cases judges a kernel's answers to directed products", "[tools]") {
  const Folder f;
  const std::string folder = f.Path("products");
  REQUIRE(RunProgram({"cases", "gemm", "--out-dir", folder}).exit_code == 0);
  const ProcessResult none = VerifyGemm({"--cases", folder});
  CHECK(none.exit_code == 2);
  CHECK_THAT(none.error, ContainsSubstring("has no answer"));

  REQUIRE(RunProgram({"cases", "gemm", "--answer", folder}).exit_code == 0);
  const ProcessResult right = VerifyGemm({"--cases", folder});
  CHECK(right.exit_code == 0);
  CHECK(right.output == "18 of 18 cases right\n");

  std::filesystem::remove(f.Path("products/e4m3-nan.d.npy"));
  CHECK(VerifyGemm({"--cases", folder}).exit_code == 1);
  const ProcessResult declined = VerifyGemm({"--cases", folder, "--allow-declined"});
  CHECK(declined.exit_code == 0);
  CHECK(declined.output == "17 of 18 cases right; 1 declined\n");

  REQUIRE(RunProgram({"cases", "gemm", "--answer", folder, "--deviation", "k-last-block-twice"})
              .exit_code == 0);
  const ProcessResult wrong = VerifyGemm({"--cases", folder, "--json"});
  CHECK(wrong.exit_code == 1);
  const Json json = ParseJson(wrong.output, "verify");
  REQUIRE(json["causes"].size() == 1);
  CHECK(json["causes"][0]["name"] == "k-last-block-twice");

  const ProcessResult both = RunProgram({"cases", "gemm", "--answer", folder, "--deviation",
                                         "alpha-twice", "--deviation", "b-signs-dropped"});
  REQUIRE(both.exit_code == 0);
  CHECK_THAT(VerifyGemm({"--cases", folder}).output,
             ContainsSubstring("wrong kernels gives these answers."));

  WriteMatrix(f.Path("products/e4m3-nan.d.npy"), Matrix<float>(3, 4).View());
  const ProcessResult shape = VerifyGemm({"--cases", folder});
  CHECK(shape.exit_code == 2);
  CHECK_THAT(shape.error, ContainsSubstring("is 3x4; the product of this case is 8x8"));
  const ProcessResult unknown =
      RunProgram({"cases", "gemm", "--answer", folder, "--deviation", "alpha-twise"});
  CHECK(unknown.exit_code != 0);
  CHECK_THAT(unknown.error, ContainsSubstring("alpha-twice"));
  CHECK(RunProgram({"cases", "gemm", "--deviation", "alpha-twice"}).exit_code != 0);
}

TEST_CASE("verify gemm adds C and beta, and names a kernel that does not", "[tools]") {
  const Folder f;
  Matrix<float> a(2, 16, 1.0f), b(3, 16, 0.5f), c(2, 3), d(2, 3);
  for (std::size_t i = 0; i < 6; ++i) {
    c.values[i] = static_cast<float>(i) + 1.0f;
    d.values[i] = 2.0f * 8.0f - 3.0f * c.values[i];
  }
  WriteMatrix(f.Path("a.npy"), a.View());
  WriteMatrix(f.Path("b.npy"), b.View());
  WriteMatrix(f.Path("c.npy"), c.View());
  const auto verify = [&](const Matrix<float>& product, std::vector<std::string> more) {
    WriteMatrix(f.Path("d.npy"), product.View());
    std::vector<std::string> arguments = {
        f.Path("a.npy"), f.Path("b.npy"), f.Path("d.npy"), "--operand", "bf16", "--alpha", "2",
        "--under",       "exact"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return VerifyGemm(arguments);
  };
  const std::vector<std::string> with = {"--c", f.Path("c.npy"), "--beta", "-3"};
  const ProcessResult right = verify(d, with);
  CHECK(right.exit_code == 0);
  CHECK(right.output == "exact: equal, 6 elements bit for bit\n");
  CHECK(verify(d, {}).exit_code == 1);
  const ProcessResult without = verify(Matrix<float>(2, 3, 16.0f), with);
  CHECK(without.exit_code == 1);
  CHECK_THAT(without.output, ContainsSubstring("does not add C. (c-not-added)"));
  Matrix<float> plain = c;
  for (float& x : plain.values) x += 16.0f;
  CHECK_THAT(verify(plain, with).output, ContainsSubstring("(beta-missing)"));
  CHECK(verify(Matrix<float>(2, 3, 16.0f), {"--c", f.Path("c.npy"), "--beta", "0"}).exit_code == 0);
  CHECK_THAT(verify(d, {"--c", f.Path("a.npy")}).error, ContainsSubstring("C has the shape"));
  CHECK(verify(d, {"--beta", "2"}).exit_code == 2);
}

TEST_CASE("The files of directed products hold the operands that are judged", "[tools]") {
  const Folder f;
  const std::string folder = f.Path("products");
  REQUIRE(RunProgram({"cases", "gemm", "--out-dir", folder}).exit_code == 0);
  const Json list = ParseJson(RunProgram({"cases", "gemm", "--json"}).output, "cases");
  REQUIRE(list["cases"].size() == 18);
  for (const Json& c : list["cases"]) {
    if (c["beta"] != 0) continue;  // `fp4lab gemm` adds no C
    const std::string name = c["name"], file = folder + "/" + name + ".safetensors";
    char alpha[32];
    std::snprintf(alpha, sizeof alpha, "%.9g", c["alpha"].get<double>());
    const ProcessResult run =
        Gemm({file + "#a", file + "#b", "--under", "exact", "--alpha", alpha, "--output",
              c["output"].get<std::string>(), "--out", folder + "/" + name + ".d.npy"});
    INFO(name << ": " << run.error);
    REQUIRE(run.exit_code == 0);
  }
  CHECK(VerifyGemm({"--cases", folder, "--allow-declined"}).output ==
        "17 of 18 cases right; 1 declined\n");
  const std::string report = RunProgram({"cases", "gemm", "--mutation-report"}).output;
  CHECK_THAT(report, !ContainsSubstring("NOT"));
}

TEST_CASE("fp4lab gemm --models lists every accumulation with its evidence", "[tools]") {
  const std::string text = Gemm({"--models"}).output;
  const Json json = ParseJson(Gemm({"--models", "--json"}).output, "models");
  REQUIRE(json["accumulations"].size() == Accumulations().size());
  for (const Accumulation& a : Accumulations()) {
    CHECK_THAT(text, ContainsSubstring(std::string(a.name)));
    CHECK_THAT(text, ContainsSubstring(std::string(a.evidence)));
  }
  CHECK(json["accumulations"].back()["name"] == "blackwell.mxf4.f32");
  CHECK(json["accumulations"].back()["fraction_bits"] == 35);
  CHECK(json["accumulations"].back()["operands"] == "e2m1");
  // What the vectors determine, and what they leave open.
  for (const Json& row : json["accumulations"]) {
    if (row["name"] == "hopper.f16.f32") {
      CHECK(row["determined"] == Json({"F", "floor"}));
      CHECK(row["open"] == Json({"2L"}));
    } else if (row["name"] == "volta.f16.f16") {
      CHECK(row["determined"] == Json::array());
      CHECK(row["open"] == Json({"2L", "F-1", "F+1", "floor-1", "floor+1", "no floor"}));
    }
  }
  CHECK_THAT(text, ContainsSubstring(" F, floor    2L "));
}

TEST_CASE("verify gemm refuses a product without elements", "[tools]") {
  const Folder f;
  WriteMatrix(f.Path("a.npy"), Matrix<float>(0, 64).View());
  WriteMatrix(f.Path("b.npy"), Matrix<float>(4, 64).View());
  WriteMatrix(f.Path("d.npy"), Matrix<float>(0, 4).View());
  const ProcessResult run =
      VerifyGemm({f.Path("a.npy"), f.Path("b.npy"), f.Path("d.npy"), "--operand", "bf16"});
  CHECK(run.exit_code == 2);
  CHECK(run.output.empty());
  CHECK(IsOneLine(run.error));
  CHECK_THAT(run.error, ContainsSubstring("elements"));
}

TEST_CASE("verify gemm distinguishes equal, inside and outside by its exit code", "[tools]") {
  const Folder f;
  Matrix<float> a(3, 64), b(4, 64);
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = 0.01f * float(i % 37) - 0.2f;
  for (std::size_t i = 0; i < b.values.size(); ++i) b.values[i] = 0.03f * float(i % 29) - 0.4f;
  WriteMatrix(f.Path("a.npy"), a.View());
  WriteMatrix(f.Path("b.npy"), b.View());
  const std::vector<std::string> files = {f.Path("a.npy"), f.Path("b.npy")};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), files.begin(), files.end());
    return more;
  };
  CHECK_THAT(Gemm(files).error, ContainsSubstring("state with --operand"));
  REQUIRE(Gemm(with({"--operand", "bf16", "--under", "hopper.f16.f32", "--out", f.Path("d.npy")}))
              .exit_code == 0);
  const auto verify = [&] {
    return VerifyGemm(with({f.Path("d.npy"), "--operand", "bf16", "--under", "hopper.f16.f32"}));
  };
  ProcessResult run = verify();
  CHECK(run.exit_code == 0);
  CHECK(run.output == "hopper.f16.f32: equal, 12 elements bit for bit\n");
  run = VerifyGemm(with({f.Path("d.npy"), "--operand", "bf16"}));
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("equal, 12 elements bit for bit, under ") &&
                             ContainsSubstring(" models:\n  ") &&
                             ContainsSubstring("\n  hopper.f16.f32\n") &&
                             !ContainsSubstring(" 0 differ"));
  const Json equal = ParseJson(
      VerifyGemm(with({f.Path("d.npy"), "--operand", "bf16", "--json"})).output, "verdict");
  CHECK(std::count(equal["equal_under"].begin(), equal["equal_under"].end(), "hopper.f16.f32") ==
        1);
  for (const auto& [name, different] : equal["accumulations"].items()) {
    CHECK((different == 0) ==
          (std::count(equal["equal_under"].begin(), equal["equal_under"].end(), name) == 1));
  }

  Matrix<float> d = ReadMatrix(f.Path("d.npy")).values;
  d(1, 2) = std::nextafter(d(1, 2), 9.0f);
  WriteMatrix(f.Path("d.npy"), d.View());
  run = verify();
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output, ContainsSubstring("inside the tensor-core bound; 1 of 12 elements"));
  CHECK_THAT(run.output, ContainsSubstring("first difference (1, 2)"));

  d(2, 3) += 0.01f;
  WriteMatrix(f.Path("d.npy"), d.View());
  run = verify();
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("outside the tensor-core bound: 1 of 12 elements"));
  CHECK_THAT(run.output, ContainsSubstring("first outside (2, 3)"));
  run = VerifyGemm(with({f.Path("d.npy"), "--operand", "bf16"}));
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("none of ") &&
                             ContainsSubstring(" models gives the product bit for bit\n"));
  const Json json = ParseJson(
      VerifyGemm(with({f.Path("d.npy"), "--operand", "bf16", "--json"})).output, "verdict");
  CHECK(json["equal_under"].empty());
  CHECK(json["verdict"] == "outside");
  CHECK(json["outside"] == 1);
  CHECK(json["accumulations"]["hopper.f16.f32"] == 2);

  CHECK(VerifyGemm(with({f.Path("none.npy"), "--operand", "bf16"})).exit_code == 2);
}

// Operands of MXFP4 whose codes are counted, and the product in binary64; `zero` is the value of
// the scale byte 0.
StoredMatrix Counted(std::size_t rows, std::size_t cols, std::uint8_t scale) {
  StoredMatrix m = ShapeOf(*FindDialect("mxfp4.floor"), rows, cols,
                           {.tensor_scale = TensorScaleConvention::kNone});
  for (std::size_t i = 0; i < rows * cols / 2; ++i) {
    m.codes.push_back(static_cast<std::uint8_t>(i * 37 + i / 31));
  }
  m.scales.assign(rows * cols / 32, scale);
  return m;
}
Matrix<float> ProductOf(const StoredMatrix& a, const StoredMatrix& b, double zero) {
  const auto value = [&](const StoredMatrix& m, std::size_t r, std::size_t k) {
    const std::size_t at = r * m.cols + k;
    const std::uint32_t code = m.codes[at / 2] >> (at % 2 * 4) & 0xFu;
    const std::uint8_t byte = m.scales[at / 32];
    return Decode(FormatId::kE2M1, code) * (byte == 0 ? zero : std::ldexp(1.0, byte - 127));
  };
  Matrix<float> d(a.rows, b.rows);
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < b.rows; ++c) {
      double sum = 0.0;
      for (std::size_t k = 0; k < a.cols; ++k) sum += value(a, r, k) * value(b, c, k);
      d(r, c) = static_cast<float>(sum);
    }
  }
  return d;
}

TEST_CASE("verify gemm names a scale byte that is read otherwise, and the rectangle of garbage",
          "[tools]") {
  const Folder f;
  StoredMatrix a = Counted(32, 128, 127);
  const StoredMatrix b = Counted(128, 128, 254);
  for (std::size_t i = 0; i < a.scales.size(); i += 2) a.scales[i] = 0;  // 2^-127
  a.codes[3] = 0x22;
  const auto write = [&](const char* name, const StoredMatrix& m) {
    WriteStored(f.Path(name), m, "mxfp4.floor", "fp4lab", 1.0f);
    return f.Path(name);
  };
  const std::string files[] = {write("a.safetensors", a), write("b.safetensors", b)};
  const auto verify = [&](const Matrix<float>& d, bool json = false) {
    WriteMatrix(f.Path("d.npy"), d.View());
    std::vector<std::string> arguments = {files[0], files[1], f.Path("d.npy"), "--under", "exact"};
    if (json) arguments.push_back("--json");
    return VerifyGemm(arguments);
  };
  // Without blocks of scale 1 beside them, blocks of 2^-127 * 2^127 count.
  for (std::uint8_t& byte : a.scales) byte = 0;
  write("a.safetensors", a);
  CHECK(verify(ProductOf(a, b, 0x1p-127)).exit_code == 0);
  const ProcessResult zero = verify(ProductOf(a, b, 0.0));
  CHECK(zero.exit_code == 1);
  CHECK_THAT(
      zero.output,
      ContainsSubstring("Possible cause: The kernel reads the E8M0 scale byte 0x00 as 0, not as "
                        "2^-127. (e8m0-0x00-as-0)\n       This cause reproduces all elements.\n"));
  Matrix<float> garbage = ProductOf(a, b, 0x1p-127);
  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t c = 64; c < 96; ++c) garbage(r, c) = 1e30f;
  }
  const ProcessResult run = verify(garbage);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("  outside in rows 0..31, columns 64..95 only: all 1024 "
                                           "elements there\n") &&
                             !ContainsSubstring("Cause"));
  const Json json = ParseJson(verify(garbage, true).output, "json");
  CHECK(json["outside_in"] == Json({{"row", 0}, {"column", 64}, {"rows", 32}, {"columns", 32}}));
  CHECK(json["causes"].empty());
}

TEST_CASE("gemm refuses with one line what it cannot multiply", "[tools]") {
  const Folder f;
  REQUIRE(Gemm({"--probe", "nvfp4", "--out", f.Path("p.safetensors")}).exit_code == 0);
  const std::string a = f.Path("p.safetensors#a"), b = f.Path("p.safetensors#b");
  const auto error = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {a, b});
    const ProcessResult run = Gemm(more);
    CHECK(run.exit_code != 0);
    CHECK(IsOneLine(run.error));
    return run.error;
  };
  CHECK_THAT(error({"--under", "fp16"}), ContainsSubstring("`fp4lab gemm --models` lists them"));
  CHECK_THAT(error({"--under", "ada.f8.f32"}),
             ContainsSubstring("not representable in the operand"));
  CHECK_THAT(error({"--alpha", "kernel"}), ContainsSubstring("amax"));
  CHECK_THAT(error({"--alpha", "1x"}), ContainsSubstring("is not a finite number"));
  CHECK_THAT(error({"--output", "f64"}), ContainsSubstring("one of: f32 bf16 f16"));
  CHECK_THAT(Gemm({}).error, ContainsSubstring("needs two files"));
  CHECK_THAT(Gemm({"--probe", "fp3"}).error, ContainsSubstring("one of: nvfp4 mxfp4 e4m3 bf16"));
}

TEST_CASE("gemm --answers reads a model's parameters from its answers to the probes", "[tools]") {
  const Folder f;
  const std::string probes = f.Path("p.safetensors"), d = f.Path("d.npy");
  const auto read = [&](const char* operands, const char* model) {
    REQUIRE(Gemm({"--probe", operands, "--out", probes}).exit_code == 0);
    REQUIRE(Gemm({probes + "#a", probes + "#b", "--under", model, "--out", d}).exit_code == 0);
    return ParseJson(Gemm({"--probe", operands, "--answers", d, "--json"}).output, "reading");
  };
  const Json hopper = read("bf16", "hopper.f16.f32");
  CHECK(hopper["fraction_bits"] == 25);
  CHECK(hopper["step"] == 16);
  CHECK(hopper["floor"] == -133);
  CHECK(hopper["equal"] == Json({"hopper.f16.f32"}));
  const Json ampere = read("bf16", "ampere.f16.f32");
  CHECK(ampere["fraction_bits"] == 24);
  CHECK(ampere["step"] == 8);
  const Json fp8 = read("e4m3", "hopper.mma.f8.f32");
  CHECK(fp8["step"] == 0);
  const Json mxf4 = read("nvfp4", "blackwell.mxf4.f32");
  CHECK(mxf4["fraction_bits"] == 35);
  CHECK(mxf4["zero_group_counts"] == false);
}

}  // namespace
}  // namespace fp4lab
