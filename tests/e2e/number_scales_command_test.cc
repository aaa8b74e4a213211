// FP8 with block scales that are numbers, through the program: quantize, verify, explain, identify,
// cases, convert, and products.
#include <cmath>
#include <cstring>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A folder with x.npy, 200x300 numbers in partial blocks.
struct Place {
  TemporaryFolder folder;
  Matrix<float> x{200, 300};

  Place() {
    FillNormalValues(6, 0.02, x.values);
    WriteMatrix((folder / "x.npy").string(), x.View());
  }
  ProcessResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.folder = folder.path()});
  }
  Json RunJson(std::vector<std::string> arguments) const {
    arguments.push_back("--json");
    return ParseJson(Run(arguments).output, "stdout");
  }
  std::string Path(const char* name) const { return (folder / name).string(); }
};

template <class T>
void WriteArray(const std::string& path, std::vector<std::size_t> shape,
                const std::vector<std::uint8_t>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  WriteNpy(path, MakeNpyArray<T>(std::move(shape), std::span<const T>(values)));
}

TEST_CASE("Every judging command takes scales of F32 and BF16", "[e2e][judge]") {
  const Place w;
  for (const char* dialect :
       {"fp8_e4m3.128x128.fp32", "fp8_e5m2.1x128.fp32", "fp8_e4m3.128x128.bf16"}) {
    CAPTURE(dialect);
    for (const char* file : {"q.safetensors", "q.npz"}) {
      REQUIRE(w.Run({"quantize", "x.npy", "--dialect", dialect, "--out", file}).exit_code == 0);
      CHECK(w.Run({"verify", "--input", "x.npy", "--stored", file}).exit_code == 0);
      CHECK(w.Run({"explain", "--input", "x.npy", "--stored", file}).exit_code == 0);
      CHECK_THAT(w.Run({"inspect", file}).output, ContainsSubstring("scale histogram"));
      const ProcessResult named = w.Run({"identify", "--input", "x.npy", "--stored", file});
      CHECK(named.exit_code == 0);
      CHECK_THAT(named.output, ContainsSubstring(dialect));
    }
    // Bare arrays, as a kernel leaves them: the scales' type is that of the array.
    const StoredMatrix m = ReadStored(w.Path("q.safetensors")).matrix;
    const StoredSizes sizes = SizesOf(m, "m");
    WriteArray<std::uint8_t>(w.Path("codes.npy"), {200, 300}, m.codes);
    if (m.layout.scale_type == ScaleType::kFP32) {
      WriteArray<float>(w.Path("scales.npy"), {sizes.scale_rows, sizes.scale_cols}, m.scales);
    } else {
      WriteArray<std::uint16_t>(w.Path("scales.npy"), {sizes.scale_rows, sizes.scale_cols},
                                m.scales);
    }
    const std::vector<std::string> bare = {"--input",   "x.npy",    "--codes",
                                           "codes.npy", "--scales", "scales.npy"};
    std::vector<std::string> verify = {"verify", "--dialect", dialect}, identify = {"identify"};
    verify.insert(verify.end(), bare.begin(), bare.end());
    identify.insert(identify.end(), bare.begin(), bare.end());
    CHECK(w.Run(verify).exit_code == 0);
    CHECK_THAT(w.Run(identify).output, ContainsSubstring(dialect));
  }
}

TEST_CASE("A wrong kernel of numbers is named by explain, in a file of DeepSeek's names",
          "[e2e][judge]") {
  const Place w;
  const Dialect& d = *FindDialect("fp8_e4m3.128x128.fp32");
  const Kernel kernel{
      .dialect = d,
      .layout = {.codes = CodeOrder::kBytes, .tensor_scale = TensorScaleConvention::kNone}};
  const auto write = [&](const char* deviation) {
    const Deviation* const one[] = {FindDeviation(deviation)};
    const StoredMatrix m = RunKernel(kernel, w.x.View(), one);
    SafetensorsFile file;
    file.tensors["l.weight"] = {"F8_E4M3", {200, 300}, BytesOf(m.codes)};
    file.tensors["l.weight_scale_inv"] = {"F32", {2, 3}, BytesOf(m.scales)};
    WriteSafetensors(w.folder / "w.safetensors", file);
  };
  // The row fp8_e4m3.128x128.e8m0 rounds its scales up to powers of two, too.
  for (const auto& [deviation, cause] :
       {std::pair{"scale-stored-inverted", "scale-stored-inverted"},
        {"scale-stored-power-of-two", "scale-stored-power-of-two"},
        {"scale-power-of-two-up", "fp8_e4m3.128x128.e8m0"}}) {
    CAPTURE(deviation);
    write(deviation);
    // Powers of two are read as E8M0 unless the dialect says otherwise.
    CHECK(w.Run({"verify", "--input", "x.npy", "--stored", "w.safetensors", "--dialect",
                 std::string(d.name)})
              .exit_code == 1);
    const Json e = w.RunJson({"explain", "--input", "x.npy", "--stored", "w.safetensors",
                              "--dialect", std::string(d.name)});
    REQUIRE(e["causes"].size() >= 1);
    CHECK(e["causes"][0]["name"] == cause);
  }
  // The stored scale rounded up, the elements by the unrounded one, judged as E8M0.
  write("scale-stored-power-of-two");
  const Json e = w.RunJson({"explain", "--input", "x.npy", "--stored", "w.safetensors", "--dialect",
                            "fp8_e4m3.128x128.e8m0"});
  CHECK(e["causes"][0]["name"] == "factor-from-unrounded-scale");
}

TEST_CASE("cases judges a kernel with scales of numbers through the pipe", "[e2e][judge]") {
  const std::string program = "'" + Program() + "' ", of = " --dialect fp8_e4m3.1x128.fp32";
  for (const char* family : {"scale-hazards", "zero-blocks"}) {
    const std::string cases = of + " --family " + family;
    const auto judge = [&](const std::string& more) {
      return RunProcess({"sh", "-c",
                         program + "cases" + cases + " | " + program + "cases answer" + of + more +
                             " | " + program + "verify" + cases})
          .exit_code;
    };
    CHECK(judge("") == 0);
    CHECK(judge(" --deviation scale-stored-inverted") == 1);
  }
}

TEST_CASE("convert changes the type of scales, and refuses what the type lacks", "[e2e]") {
  const Place w;
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "fp8_e4m3.128x128.e8m0", "--out", "e.npz"})
              .exit_code == 0);
  REQUIRE(w.Run({"convert", "e.npz", "--scales-type", "fp32", "--convention", "modelopt", "--out",
                 "m.safetensors#l"})
              .exit_code == 0);
  const FileContent content(w.folder / "m.safetensors");
  const SafetensorsFile file = ViewSafetensors(content.bytes(), "m");
  CHECK(file.tensors.at("l.weight_scale").dtype == "F32");
  CHECK(w.Run({"verify", "--input", "x.npy", "--stored", "m.safetensors", "--dialect",
               "fp8_e4m3.128x128.e8m0"})
            .exit_code == 0);
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "fp8_e4m3.128x128.fp32", "--out", "n.npz"})
              .exit_code == 0);
  const ProcessResult refused =
      w.Run({"convert", "n.npz", "--scales-type", "bf16", "--out", "b.npz"});
  CHECK(refused.exit_code == 1);
  CHECK(IsOneLine(refused.error));
  CHECK_THAT(refused.error, ContainsSubstring("which bf16 does not have"));
  CHECK_FALSE(Exists(w.folder / "b.npz"));
}

// DeepSeek's product of 1x128 activations and 128x128 weights, and torch's of scaled rows.
TEST_CASE("verify gemm judges products of scaled FP8", "[e2e][judge]") {
  const Place w;
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "fp8_e4m3.1x128.fp32", "--out", "a.npz"})
              .exit_code == 0);
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "fp8_e4m3.128x128.fp32", "--out", "b.npz"})
              .exit_code == 0);
  Matrix<float> d(200, 200), none(200, 200);
  const Matrix<float> a = StoredValues(ReadStored(w.Path("a.npz")).matrix, 1.0f, "a");
  const Matrix<float> b = StoredValues(ReadStored(w.Path("b.npz")).matrix, 1.0f, "b");
  for (std::size_t m = 0; m < 200; ++m) {
    for (std::size_t n = 0; n < 200; ++n) {
      double sum = 0;
      for (std::size_t k = 0; k < 300; ++k) sum += double{a(m, k)} * b(n, k);
      d(m, n) = static_cast<float>(sum);
    }
  }
  WriteMatrix(w.Path("d.npy"), d.View());
  CHECK(w.Run({"verify", "gemm", "a.npz", "b.npz", "d.npy"}).exit_code == 0);
  for (float& v : d.values) v = Decode(FormatId::kE4M3, Encode(FormatId::kE4M3, v * 64.0f));
  WriteMatrix(w.Path("fp8.npy"), d.View());
  const std::vector<std::string> fp8 = {"verify",  "gemm",     "a.npz", "b.npz",
                                        "fp8.npy", "--output", "e4m3",  "--output-scale"};
  std::vector<std::string> right = fp8, wrong = fp8;
  right.push_back("64");
  wrong.push_back("32");
  CHECK(w.Run(right).exit_code == 0);
  const ProcessResult other = w.Run(wrong);
  CHECK(other.exit_code == 1);
  CHECK_THAT(other.output, ContainsSubstring("With --output-scale 64, 0 of 40000 elements are "
                                             "outside."));
  wrong.push_back("--json");
  CHECK(ParseJson(w.Run(wrong).output, "json")["better"] ==
        Json({{"options", "--output-scale 64"}, {"outside", 0}}));

  // FP4 in blocks rounded to FP8, its tensor scales in alpha.
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "nvfp4.te", "--out", "q.npz"}).exit_code == 0);
  REQUIRE(w.Run({"gemm", "q.npz", "q.npz", "--alpha", "kernel", "--out", "p.npy"}).exit_code == 0);
  Matrix<float> product = ReadMatrix(w.Path("p.npy")).values;
  for (float& v : product.values) v = Decode(FormatId::kE4M3, Encode(FormatId::kE4M3, v));
  WriteMatrix(w.Path("p8.npy"), product.View());
  const ProcessResult fp4 = w.Run(
      {"verify", "gemm", "q.npz", "q.npz", "p8.npy", "--output", "e4m3", "--alpha", "kernel"});
  CHECK(fp4.output == "exact: equal, 40000 elements bit for bit\n");
  CHECK_THAT(w.Run({"verify", "gemm", "a.npz", "b.npz", "d.npy", "--alpha", "kernel"}).error,
             ContainsSubstring("is not a finite number, which a product of scaled FP8 takes"));
}

}  // namespace
}  // namespace fp4lab
