// fp4lab quantize, dequantize, inspect and convert as a user runs them.
#include <cmath>
#include <cstdlib>

#include "fp4lab/block/quantize.h"
#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/examples.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A folder with a matrix x.npy of 48x128 numbers, exact in BF16, in which the program is run.
struct Workplace {
  TemporaryFolder folder;
  Matrix<float> x{48, 128};

  Workplace() {
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = RoundToBf16(std::sin(static_cast<float>(i * i % 977)) * 3.0f);
    }
    WriteMatrix((folder / "x.npy").string(), x.View());
  }
  ProcessResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.folder = folder.path()});
  }
  std::string Fails(const std::vector<std::string>& arguments) const {
    const ProcessResult run = Run(arguments);
    CHECK(run.exit_code != 0);
    CHECK(run.output.empty());
    CHECK(IsOneLine(run.error));
    return run.error;
  }
  std::string Path(const char* name) const { return (folder / name).string(); }
};

// Codes and scales must be equal, the tensor scale up to the roundings between conventions.
void CheckSameMatrix(const std::string& a_place, const std::string& b_place) {
  const StorageLayout plain{.codes = CodeOrder::kBytes};
  const StoredMatrix a = Convert(ReadStored(a_place).matrix, plain, 448.0f, "a");
  const StoredMatrix b = Convert(ReadStored(b_place).matrix, plain, 448.0f, "b");
  CHECK((a.rows == b.rows && a.cols == b.cols));
  CHECK(a.codes == b.codes);
  CHECK(a.scales == b.scales);
  REQUIRE((a.tensor_scale.size() == 1 && b.tensor_scale.size() == 1));
  CHECK(a.tensor_scale[0] == Catch::Approx(b.tensor_scale[0]).epsilon(1e-6));
}

TEST_CASE("fp4lab quantize writes the bytes of the library", "[e2e][exchange]") {
  const Workplace w;
  const ProcessResult run = w.Run({"quantize", "x.npy", "--out", "q.safetensors#w"});
  REQUIRE(run.error.empty());
  CHECK(run.output ==
        "q.safetensors#w: nvfp4.te, 48x128 float4_e2m1fn in 1x16 blocks with float8_e4m3fn "
        "scales\n");
  const Quantized q =
      Quantize(w.x.View(), {.dialect = *FindDialect("nvfp4"), .amax = TensorAmax(w.x.View())});
  const StoredFile file = ReadStored(w.Path("q.safetensors"));
  CHECK(file.entry == StoredFileEntry{"w", "fp4lab"});
  CHECK(file.dialect == "nvfp4.te");
  CHECK(file.matrix.codes == q.codes);
  CHECK(file.matrix.scales == q.scales);
  CHECK(file.matrix.tensor_scale == q.amax);
}

TEST_CASE("A matrix converted through every convention keeps its values", "[e2e][exchange]") {
  const Workplace w;
  REQUIRE(w.Run({"quantize", "x.npy", "--out", "0.npz", "--codes-order", "high-first",
                 "--scales-order", "8x4", "--transposed"})
              .exit_code == 0);
  const std::vector<std::vector<std::string>> steps = {{"modelopt", "1.safetensors#a"},
                                                       {"gguf", "2.gguf#b"},
                                                       {"compressed-tensors", "3.npz#c"},
                                                       {"te", "4.safetensors#d"},
                                                       {"fp4lab", "5.npz"}};
  std::string from = "0.npz";
  for (const auto& step : steps) {
    const ProcessResult run = w.Run({"convert", from, "--convention", step[0], "--out", step[1]});
    INFO(run.error);
    REQUIRE(run.exit_code == 0);
    CHECK_THAT(run.output, ContainsSubstring("48x128 float4_e2m1fn in 1x16 blocks"));
    from = step[1];
  }
  CheckSameMatrix(w.Path("0.npz"), w.Path("5.npz"));
}

TEST_CASE("Vendors are dequantized in their own order of operations", "[e2e][exchange]") {
  const Workplace w;
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "nvfp4.modelopt", "--convention", "modelopt",
                 "--out", "m.safetensors"})
              .error.empty());
  REQUIRE(w.Run({"dequantize", "m.safetensors", "--out", "y.safetensors", "--dtype", "bf16"})
              .error.empty());
  const StoredMatrix m = ReadStored(w.Path("m.safetensors")).matrix;
  const NumberFile y = ReadMatrix(w.Path("y.safetensors"));
  CHECK(Name(y.type) == "bfloat16");
  Matrix<float> values = StoredValues(m, 448.0f, "m");
  for (float& v : values.values) v = RoundToBf16(v);
  CHECK(y.values == values);
}

TEST_CASE("fp4lab convert converts between layouts of fp4lab files", "[e2e][exchange]") {
  const Workplace w;
  REQUIRE(w.Run({"quantize", "x.npy", "--dialect", "nvfp4.te.2d", "--out", "a.npz"}).error.empty());
  const ProcessResult run = w.Run({"convert", "a.npz", "--out", "b.npz", "--transposed",
                                   "--expanded-scales", "--scales-order", "128x4", "--codes-order",
                                   "split-halves", "--tensor-scale-is", "multiplier"});
  CHECK_THAT(run.output, ContainsSubstring("split-halves codes, 128x4 scales, transposed, expanded "
                                           "scales, tensor scale as multiplier"));
  REQUIRE(
      w.Run({"convert", "b.npz", "--out", "c.npz", "--not-transposed", "--single-scales",
             "--scales-order", "linear", "--codes-order", "low-first", "--tensor-scale-is", "amax"})
          .error.empty());
  CheckSameMatrix(w.Path("a.npz"), w.Path("c.npz"));
}

TEST_CASE("Stochastic rounding depends on the seed and on nothing else", "[e2e][exchange]") {
  const Workplace w;
  const auto codes = [&](const char* seed, const char* out) {
    REQUIRE(
        w.Run({"quantize", "x.npy", "--stochastic", "--seed", seed, "--out", out}).error.empty());
    return ReadStored(w.Path(out)).matrix.codes;
  };
  CHECK(codes("1", "a.npz") == codes("1", "b.npz"));
  CHECK_FALSE(codes("1", "a.npz") == codes("2", "c.npz"));
}

TEST_CASE("The Hadamard transform takes BF16 values and whole groups", "[e2e][exchange]") {
  const Workplace w;
  REQUIRE(w.Run({"quantize", "x.npy", "--rht", "16", "--out", "h.npz"}).error.empty());
  REQUIRE(w.Run({"quantize", "x.npy", "--rht", "16", "--signs", "none", "--out", "n.npz"})
              .error.empty());
  CHECK_FALSE(ReadStored(w.Path("h.npz")).matrix.codes == ReadStored(w.Path("n.npz")).matrix.codes);
  Matrix<float> odd(2, 20, 0.1f);
  WriteMatrix(w.Path("odd.npy"), odd.View());
  CHECK_THAT(w.Fails({"quantize", "odd.npy", "--rht", "16", "--out", "o.npz"}),
             ContainsSubstring("needs rows of whole groups"));
  Matrix<float> fine(2, 32, 0.1f);
  WriteMatrix(w.Path("fine.npy"), fine.View());
  CHECK_THAT(w.Fails({"quantize", "fine.npy", "--rht", "16", "--out", "o.npz"}),
             ContainsSubstring("--bf16 rounds it first"));
  CHECK(w.Run({"quantize", "fine.npy", "--rht", "16", "--bf16", "--out", "o.npz"}).exit_code == 0);
}

TEST_CASE("fp4lab inspect says what a file holds, in words and in JSON", "[e2e][exchange]") {
  const Workplace w;
  REQUIRE(
      w.Run({"quantize", "x.npy", "--scales-order", "padded", "--out", "q.npz#w"}).error.empty());
  const std::string text = w.Run({"inspect", "q.npz"}).output;
  CHECK_THAT(text,
             ContainsSubstring("dialect       nvfp4.te\n") &&
                 ContainsSubstring("layout        low-first codes, padded scales, tensor scale as "
                                   "amax\n") &&
                 ContainsSubstring("blocks        384\n") &&
                 ContainsSubstring("padding, all 0  <- as read"));
  const ProcessResult run =
      w.Run({"inspect", "q.npz", "--input", "x.npy", "--json", "--error-map", "map.svg"});
  REQUIRE(run.error.empty());
  const Json json = ParseJson(run.output, "inspect");
  CHECK(json["format"]["scales_order"] == "padded");
  CHECK(json["blocks"] == 384);
  CHECK(json["scale_histogram"].size() == 256);
  CHECK(json["error"]["sqnr_db"].get<double>() > 15);
  CHECK(json["error"]["block_error"].size() == 384);
  CHECK(json["scale_layouts"].size() == 2);  // padded and 128x4
  CHECK_THAT(ReadFile(w.Path("map.svg")), ContainsSubstring("48x8 blocks</text>"));
  CHECK(w.Run({"inspect", "q.npz", "--list"}).output == "w (fp4lab)\n");
}

TEST_CASE("The four file commands refuse bad files and options in one line", "[e2e][exchange]") {
  const Workplace w;
  REQUIRE(w.Run({"quantize", "x.npy", "--out", "q.npz"}).error.empty());
  WriteFileAtomically(w.Path("bad.safetensors"), std::string_view("12345678abc"));
  WriteFileAtomically(w.Path("bad.gguf"), std::string_view("GGUF"));
  CHECK_THAT(w.Fails({"quantize", "none.npy", "--out", "o.npz"}),
             ContainsSubstring("none.npy: cannot be read"));
  CHECK_THAT(w.Fails({"quantize", "x.npz", "--out", "o.npz"}), ContainsSubstring("\"x.npy\"?"));
  CHECK_THAT(w.Fails({"inspect", "qq.npz"}), ContainsSubstring("did you mean \"q.npz\""));
  CHECK_THAT(w.Fails({"verify", "--stream", "qq.npz"}),
             ContainsSubstring("did you mean \"q.npz\""));
  CHECK_THAT(w.Fails({"quantize", "x.npy", "--out", "o.bin"}),
             ContainsSubstring("cannot be used with the naming convention fp4lab"));
  CHECK_THAT(w.Fails({"quantize", "x.npy", "--dialect", "nvfp5", "--out", "o.npz"}),
             ContainsSubstring("--dialect nvfp5: is not known; `fp4lab dialects` lists them"));
  CHECK_THAT(w.Fails({"quantize", "x.npy", "--codes-order", "dense6", "--out", "o.npz"}),
             ContainsSubstring("does not hold codes"));
  CHECK_THAT(w.Fails({"quantize", "x.npy", "--codes-order", "odd", "--out", "o.npz"}),
             ContainsSubstring("--codes-order odd: is not known; one of: low-first"));
  CHECK_THAT(w.Fails({"quantize", "x.npy", "--amax", "1", "2", "--out", "o.npz"}),
             ContainsSubstring("--amax: 2 numbers; nvfp4.te takes 1"));
  CHECK_THAT(w.Fails({"inspect", "x.npy"}),
             ContainsSubstring("is not a .safetensors, .npz or .gguf"));
  CHECK_THAT(w.Fails({"inspect", "bad.safetensors"}), ContainsSubstring("truncated"));
  CHECK_THAT(w.Fails({"inspect", "bad.gguf"}), ContainsSubstring("ends inside its header"));
  CHECK_THAT(w.Fails({"inspect", "q.npz", "--error-map", "m.svg"}), ContainsSubstring("--input"));
  CHECK_THAT(w.Fails({"dequantize", "q.npz#w", "--out", "y.npy"}),
             ContainsSubstring("has no quantized matrix w"));
  CHECK_THAT(w.Fails({"dequantize", "q.npz", "--dialect", "mxfp4.floor", "--out", "y.npy"}),
             ContainsSubstring("1x16 blocks with e4m3 scales; the dialect mxfp4.floor has"));
  CHECK_THAT(w.Fails({"convert", "q.npz", "--convention", "vllm", "--out", "y.npz"}),
             ContainsSubstring("convention vllm: is not known"));
  CHECK(w.Run({"convert", "q.npz"}).exit_code == 2);
}

TEST_CASE("The example in each command's help runs and prints what it says", "[e2e][exchange]") {
  for (const char* command : {"quantize", "dequantize", "inspect", "convert"}) {
    CheckHelpExamples({command});
  }
}

}  // namespace
}  // namespace fp4lab
