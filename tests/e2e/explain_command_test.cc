// fp4lab explain and fp4lab identify, as a user runs them.
#include <bit>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// Writes x.npy, codes.npy and scales.npy of an nvfp4.te kernel with these deviations.
void WriteFiles(const TemporaryFolder& folder, const std::vector<std::string_view>& deviations) {
  Matrix<float> x = NormalMatrix(5, 32, 64);
  std::vector<const Deviation*> found;
  for (const std::string_view name : deviations) found.push_back(FindDeviation(name));
  const StoredMatrix bytes =
      RunKernel({.dialect = *FindDialect("nvfp4.te"), .layout = {}}, x.View(), found);
  WriteNpy(folder / "x.npy", MakeNpyArray<float>({32, 64}, x.values));
  WriteNpy(folder / "codes.npy", MakeNpyArray<std::uint8_t>({32, 32}, bytes.codes));
  WriteNpy(folder / "scales.npy", MakeNpyArray<std::uint8_t>({32, 4}, bytes.scales));
}

ProcessResult RunIn(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  ProcessOptions options;
  options.folder = folder.path();
  return RunProgram(arguments, options);
}

// The words of the command after "fp4lab" in the example of `command --help`.
std::vector<std::string> Example(const std::string& command) {
  std::string help = RunProgram({command, "--help"}).output;
  const std::size_t start = help.find("  fp4lab ", help.find("Example:"));
  REQUIRE(start != std::string::npos);
  std::vector<std::string> words;
  std::string word;
  for (const char c : help.substr(start)) {
    if (c != ' ' && c != '\n') {
      word += c;
    } else if (!word.empty()) {
      if (word != "\\") words.push_back(word);
      word.clear();
    }
  }
  words.erase(words.begin());
  return words;
}

TEST_CASE("The worked example of fp4lab explain --help runs and names the cause", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {"codes-high-first"});
  const ProcessResult run = RunIn(folder, Example("explain"));
  CAPTURE(run.output, run.error);
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("Different from nvfp4.te\n"));
  CHECK_THAT(run.output, ContainsSubstring("  scales   0 of 128 differ (0 %)\n"));
  CHECK_THAT(run.output, ContainsSubstring("  stage                   ours"));
  CHECK_THAT(run.output, ContainsSubstring("Cause: The kernel packs the even column into the high "
                                           "nibble. (codes-high-first)\n"));
  CHECK_THAT(run.output, ContainsSubstring("This cause reproduces all bytes."));
  CHECK(ReadSafetensors(folder / "block.safetensors").metadata.at("dialect") == "nvfp4.te");
}

TEST_CASE("The worked example of fp4lab identify --help runs and names the dialect", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {"codes-high-first"});
  const ProcessResult run = RunIn(folder, Example("identify"));
  CAPTURE(run.output, run.error);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.output,
             ContainsSubstring("codes high-first, scales linear; for this shape the same bytes as "
                               "codes high-first, scales 8x4:\n    nvfp4.comfyui, ") &&
                 ContainsSubstring(" nvfp4.te, "));
  CHECK(std::filesystem::exists(folder / "deciding.0.safetensors"));
}

TEST_CASE("fp4lab explain says equal, with exit code 0", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {});
  const ProcessResult run = RunIn(
      folder, {"explain", "--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"});
  CHECK(run.exit_code == 0);
  CHECK(run.output == "Equal: 2048 codes and 128 scales are those of nvfp4.te\n");
}

TEST_CASE("explain and identify read dialect and layout from an fp4lab file", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {});
  REQUIRE(RunIn(folder, {"quantize", "x.npy", "--dialect", "nvfp4.te.2d", "--scales-order", "128x4",
                         "--out", "q.npz#w"})
              .exit_code == 0);
  const ProcessResult equal = RunIn(folder, {"explain", "--input", "x.npy", "--stored", "q.npz#w"});
  CHECK(equal.exit_code == 0);
  CHECK(equal.output == "Equal: 2048 codes and 8 scales are those of nvfp4.te.2d\n");
  const ProcessResult found = RunIn(folder, {"identify", "--input", "x.npy", "--stored", "q.npz"});
  CHECK(found.exit_code == 0);
  CHECK_THAT(
      found.output,
      ContainsSubstring("codes low-first, scales 128x4, tensor scale as amax; for this shape the "
                        "same bytes as codes low-first, scales 128x4, tensor scale as amax, "
                        "transposed, of the transposed input:\n    nvfp4.te.2d, "));
  const ProcessResult other =
      RunIn(folder, {"explain", "--input", "x.npy", "--stored", "q.npz", "--dialect", "nvfp4.te"});
  CHECK(other.exit_code == 2);
  CHECK_THAT(other.error,
             ContainsSubstring("16x16 blocks with float8_e4m3fn scales, which nvfp4.te "
                               "does not write: give another --dialect"));
  const ProcessResult both =
      RunIn(folder, {"explain", "--input", "x.npy", "--stored", "q.npz", "--codes", "codes.npy"});
  CHECK(both.exit_code == 2);
  CHECK_THAT(both.error, ContainsSubstring("--stored excludes --codes"));
}

TEST_CASE("explain --pack takes from a golden pack all that the kernel got", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {"codes-high-first"});
  const std::vector<std::string> bytes = {"--codes", "codes.npy", "--scales", "scales.npy"};
  const auto explain = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "explain");
    arguments.insert(arguments.end(), bytes.begin(), bytes.end());
    return RunIn(folder, arguments);
  };
  REQUIRE(RunIn(folder, {"pack", "--input", "x.npy", "--out", "p.safetensors"}).exit_code == 0);
  const ProcessResult wrong = explain({"--pack", "p.safetensors"});
  CHECK(wrong.exit_code == 1);
  CHECK(wrong.output == explain({"--input", "x.npy"}).output);

  // A given amax is the pack's.
  WriteFiles(folder, {});
  REQUIRE(RunIn(folder, {"pack", "--input", "x.npy", "--amax", "16", "--out", "a.safetensors"})
              .exit_code == 0);
  const ProcessResult other = explain({"--pack", "a.safetensors"});
  CHECK(other.exit_code == 1);
  CHECK(other.output == explain({"--input", "x.npy", "--amax", "16"}).output);
  for (const char* option : {"--input", "--dialect", "--random"}) {
    CAPTURE(option);
    const ProcessResult refused = explain({"--pack", "p.safetensors", option, "x.npy"});
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.error, ContainsSubstring("has no effect with --pack, which holds it"));
  }
  CHECK(explain({}).exit_code == 2);
}

TEST_CASE("fp4lab explain --json, and the tests that it writes", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {"truncation", "scales-shifted"});
  const ProcessResult run =
      RunIn(folder, {"explain", "--input", "x.npy", "--codes", "codes.npy", "--scales",
                     "scales.npy", "--json", "--cpp", "block_test.h", "--python", "test_block.py"});
  CAPTURE(run.output, run.error);
  CHECK(run.exit_code == 1);
  const Json json = ParseJson(run.output, "explain");
  CHECK(json["equal"] == false);
  CHECK(json["causes"][0]["name"] == "scales-shifted + truncation");
  CHECK(json["first"]["ours"]["code"].is_number());
  CHECK(json["codes"]["compared"] == 2048);
  const std::string python = ReadFile(folder / "test_block.py");
  CHECK_THAT(python, ContainsSubstring("def test_quantizes_the_block_right():"));
  const ProcessResult compiled =
      RunProcess({"python3", "-c", "import ast,sys; ast.parse(open(sys.argv[1]).read())",
                  (folder / "test_block.py").string()});
  CHECK(compiled.exit_code == 0);
  CHECK_THAT(ReadFile(folder / "block_test.h"), ContainsSubstring("QuantizesTheBlockRight"));
}

TEST_CASE("fp4lab identify --json lists near dialects and exits with 1 if none is exact",
          "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {"truncation"});
  const ProcessResult run = RunIn(folder, {"identify", "--input", "x.npy", "--codes", "codes.npy",
                                           "--scales", "scales.npy", "--json"});
  CHECK(run.exit_code == 1);
  const Json json = ParseJson(run.output, "identify");
  CHECK(json["exact"].empty());
  CHECK(json["near"].size() == 3);
  CHECK(json["near"][0]["scales_different"] == 0);
}

TEST_CASE("explain and identify refuse bad input in one line, with exit code 2", "[tools]") {
  const TemporaryFolder folder;
  WriteFiles(folder, {});
  WriteFileAtomically(folder / "raw.bin", std::string_view("0123456789"));
  const auto error = [&](std::vector<std::string> arguments) {
    const ProcessResult run = RunIn(folder, arguments);
    CHECK(run.exit_code == 2);
    CHECK(IsOneLine(run.error));
    return run.error;
  };
  CHECK_THAT(error({"explain", "--input", "x.npy", "--codes", "codes.npy", "--dialect", "nvfp5"}),
             ContainsSubstring("--dialect nvfp5: is not known"));
  CHECK_THAT(error({"explain", "--input", "none.npy", "--codes", "codes.npy"}),
             ContainsSubstring("none.npy"));
  CHECK_THAT(error({"explain", "--input", "raw.bin", "--codes", "codes.npy"}),
             ContainsSubstring("--shape"));
  CHECK_THAT(error({"explain", "--input", "x.npy", "--codes", "raw.bin"}),
             ContainsSubstring("codes: 10 bytes cannot hold 32x64 codes, which take 1024"));
  CHECK_THAT(
      error({"explain", "--input", "x.npy", "--codes", "codes.npy", "--scales-order", "4x4"}),
      ContainsSubstring("--scales-order 4x4: is not known; did you mean \"8x4\"?"));
  CHECK_THAT(error({"identify", "--input", "x.npy", "--codes", "codes.npy", "--dialects", "x"}),
             ContainsSubstring("--dialects x: is not known"));
}

// Runs `fp4lab cases | kernel | fp4lab verify --keep kept` with a kernel that has one deviation.
void KeepWrongCases(const TemporaryFolder& folder, const std::string& deviation) {
  const std::string program = Program();
  const std::string pipe = "'" + program + "' cases | '" + program + "' cases answer --deviation " +
                           deviation + " | '" + program + "' verify --keep kept > verdict.txt";
  ProcessOptions options;
  options.folder = folder.path();
  CHECK(RunProcess({"sh", "-c", pipe}, options).exit_code == 1);
}

TEST_CASE("explain --kept names the cause that holds for all cases", "[tools]") {
  for (const std::string deviation : {"ties-away", "codes-high-first", "division-for-reciprocal"}) {
    CAPTURE(deviation);
    const TemporaryFolder folder;
    KeepWrongCases(folder, deviation);
    const ProcessResult result = RunIn(folder, {"explain", "--kept", "kept", "--json"});
    CHECK(result.exit_code == 1);
    const Json json = ParseJson(result.output, "output");
    bool named = false;
    for (const Json& cause : json["causes"]) {
      named = named || (cause["name"] == deviation && cause["explains"] == json["cases"]);
    }
    CHECK(json["cases"] >= 1);
    CHECK(named);
    CHECK_THAT(RunIn(folder, {"explain", "--kept", "kept"}).output,
               ContainsSubstring("it explains all of them"));
  }
}

// A cause that explains some cases is no cause; a number that one case shows is tried on all.
TEST_CASE("explain --kept names x * 1.1 as such, not what explains one case", "[tools]") {
  const TemporaryFolder folder;
  KeepWrongCases(folder, "input-times");
  const std::string text = RunIn(folder, {"explain", "--kept", "kept"}).output;
  INFO(text);
  CHECK_THAT(text, ContainsSubstring("Cause: input-times 1.1: it explains all of them."));
  CHECK_THAT(text, !ContainsSubstring("Cause: input-fp16"));
}

TEST_CASE("verify --keep prints the explain command with the layout, and keeps one run's cases",
          "[tools]") {
  const TemporaryFolder folder;
  const std::string program = Program();
  ProcessOptions options;
  options.folder = folder.path();
  const auto pipe = [&](const std::string& answer, const std::string& verify) {
    return RunProcess({"sh", "-c",
                       "'" + program + "' cases | '" + program + "' cases answer " + answer +
                           " | '" + program + "' verify --keep kept " + verify},
                      options);
  };
  const std::string layout = "--codes-order high-first --scales-order 128x4";
  const ProcessResult wrong = pipe(layout + " --deviation truncation", layout);
  CHECK(wrong.exit_code == 1);
  CHECK_THAT(wrong.output,
             ContainsSubstring("fp4lab explain --dialect nvfp4.te " + layout + " --kept kept\n"));
  CHECK_THAT(RunIn(folder, {"explain", "--kept", "kept", "--codes-order", "high-first",
                            "--scales-order", "128x4"})
                 .output,
             ContainsSubstring("Cause: truncation: it explains all of them."));
  CHECK(pipe("", "").exit_code == 0);
  CHECK_THAT(RunIn(folder, {"explain", "--kept", "kept"}).error, ContainsSubstring("holds no"));
}

// kept.json has the layout and the amax: no option has to be given again.
// The random bits of a case say which factors its codes allow.
TEST_CASE("explain names a stale amax of factors under stochastic rounding", "[tools]") {
  const TemporaryFolder folder;
  const std::string program = "'" + Program() + "'", dialect = " --dialect nvfp4.te.stochastic ";
  ProcessOptions options;
  options.folder = folder.path();
  const std::string pipe = program + " cases" + dialect + "| " + program + " cases answer" +
                           dialect + "--deviation factor-amax-stale | " + program +
                           " verify --keep kept" + dialect;
  CHECK(RunProcess({"sh", "-c", pipe}, options).exit_code == 1);
  const ProcessResult result = RunIn(folder, {"explain", "--kept", "kept"});
  INFO(result.output);
  CHECK_THAT(result.output,
             ContainsSubstring("Cause: factor-amax-stale: it explains all of them."));
}

TEST_CASE("explain --kept reads kept.json, and refuses options that contradict it", "[tools]") {
  struct Row {
    std::string dialect, answer, verify, refused, says;
  };
  const std::vector<Row> rows = {
      {"nvfp4.te", "--codes-order high-first --scales-order 128x4", "", "--codes-order low-first",
       "--codes-order low-first: contradicts kept/kept.json, which says high-first; leave"},
      {"nvfp4.te", "--transposed", "", "--not-transposed",
       "--not-transposed: contradicts kept/kept.json, which says \"transposed\": true; leave"},
      {"nvfp4.te.2d", "--expanded-scales --scales-order 8x4", "", "--scales-order linear",
       "--scales-order linear: contradicts kept/kept.json, which says 8x4; leave"},
      {"nvfp4.te", "--tensor-scale-is divisor", "", "--tensor-scale-is amax",
       "--tensor-scale-is amax: contradicts kept/kept.json, which says divisor; leave"},
      {"nvfp4.cutlass", "", "", "--dialect nvfp4.te",
       "--dialect nvfp4.te: contradicts kept/kept.json, which says nvfp4.cutlass; leave"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.dialect, row.answer);
    const TemporaryFolder folder;
    const std::string program = "'" + Program() + "'", dialect = " --dialect " + row.dialect + " ";
    ProcessOptions options;
    options.folder = folder.path();
    const std::string pipe = program + " cases" + dialect + "| " + program + " cases answer" +
                             dialect + row.answer + " --deviation truncation | " + program +
                             " verify --keep kept" + dialect + row.answer;
    CHECK(RunProcess({"sh", "-c", pipe}, options).exit_code == 1);
    const ProcessResult plain = RunIn(folder, {"explain", "--kept", "kept"});
    CHECK_THAT(plain.output, ContainsSubstring("differ from " + row.dialect + ".") &&
                                 ContainsSubstring("Cause: truncation: it explains all of them."));
    const ProcessResult repeated =
        RunProcess({"sh", "-c", program + " explain --kept kept" + dialect + row.answer}, options);
    CHECK(repeated.output == plain.output);
    const char* const as_before =  // the names of older versions
        "sed -i s/tensor_scale_is/level_two_is/ kept/kept.json && cd kept && "
        "for f in *.tensor_scale.npy; do mv $f ${f%.tensor_scale.npy}.level_two.npy; done";
    REQUIRE(RunProcess({"sh", "-c", as_before}, options).exit_code == 0);
    CHECK(RunIn(folder, {"explain", "--kept", "kept"}).output == plain.output);
    const ProcessResult refused =
        RunProcess({"sh", "-c", program + " explain --kept kept " + row.refused}, options);
    CHECK(refused.exit_code == 2);
    CHECK(IsOneLine(refused.error));
    CHECK_THAT(refused.error, ContainsSubstring(row.says));
  }
}

TEST_CASE("explain --kept refuses options without effect and a kept.json that is not ours",
          "[tools]") {
  const TemporaryFolder folder;
  KeepWrongCases(folder, "truncation");
  for (const char* option : {"--amax", "--input", "--codes"}) {
    const ProcessResult run = RunIn(folder, {"explain", "--kept", "kept", option, "1"});
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.error, ContainsSubstring("has no effect with --kept"));
  }
  for (const auto& [text, says] : {std::pair{"{}", "kept.json#: needs the key \"dialect\""},
                                   std::pair{R"({"dialect": "nvfp4.te", "codes_order": "x"})",
                                             "kept.json#/codes_order: \"x\" is not known"}}) {
    WriteFileAtomically(folder / "kept" / "kept.json", std::string_view(text));
    const ProcessResult run = RunIn(folder, {"explain", "--kept", "kept"});
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.error, ContainsSubstring(says));
  }
}

TEST_CASE("explain --kept knows the amax that the kernel was given", "[tools]") {
  const TemporaryFolder folder;
  const std::string program = "'" + Program() + "'";
  ProcessOptions options;
  options.folder = folder.path();
  const std::string pipe = program + " cases --family signs | " + program +
                           " cases answer --deviation truncation | " + program +
                           " verify --family signs --keep kept --amax 1e6";
  CHECK(RunProcess({"sh", "-c", pipe}, options).exit_code == 1);
  CHECK(ParseJson(ReadFile(folder / "kept" / "kept.json"), "kept")["amax"][0] == 1e6);
}

TEST_CASE("explain --kept refuses a folder without cases", "[tools]") {
  const TemporaryFolder folder;
  const ProcessResult result = RunIn(folder, {"explain", "--kept", "."});
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.error, ContainsSubstring("`fp4lab verify --keep` writes them"));
}

// ---- Rows, parts and bytes in another arrangement

const Dialect& Mxfp4() { return *FindDialect("mxfp4.rceil"); }

void WriteParts(const TemporaryFolder& folder, const Matrix<float>& x, const StoredMatrix& bytes,
                std::vector<std::size_t> codes_shape, std::vector<std::size_t> scales_shape) {
  WriteNpy(folder / "x.npy", MakeNpyArray<float>({x.rows, x.cols}, x.values));
  WriteNpy(folder / "codes.npy", MakeNpyArray<std::uint8_t>(std::move(codes_shape), bytes.codes));
  WriteNpy(folder / "scales.npy",
           MakeNpyArray<std::uint8_t>(std::move(scales_shape), bytes.scales));
}

// gpt-oss stores gate in the even rows and up in the odd ones.
TEST_CASE("explain and identify find gate and up in turn", "[tools]") {
  const TemporaryFolder folder;
  const Matrix<float> x = NormalMatrix(31, 64, 64);  // gate, then up
  Matrix<float> stored = x;
  for (std::size_t r = 0; r < 64; ++r) {
    for (std::size_t c = 0; c < 64; ++c) stored(r, c) = x(r % 2 * 32 + r / 2, c);
  }
  WriteParts(folder, x, Store(Mxfp4(), QuantizeAs(Mxfp4(), stored.View()), {}), {64, 2, 16},
             {64, 2});
  const std::vector<std::string> files = {"--input",   "x.npy",    "--codes",
                                          "codes.npy", "--scales", "scales.npy"};
  const auto run = [&](std::vector<std::string> command) {
    command.insert(command.end(), files.begin(), files.end());
    return RunIn(folder, command);
  };
  const ProcessResult explained = run({"explain", "--dialect", "mxfp4.rceil"});
  CHECK(explained.exit_code == 1);
  CHECK_THAT(explained.output, ContainsSubstring("the rows in another order: the halves in turn"));
  const ProcessResult identified = run({"identify"});
  CHECK(identified.exit_code == 1);
  CHECK_THAT(
      identified.output,
      ContainsSubstring("codes low-first, scales linear, where the kernel quantizes the rows "
                        "in another order: the halves in turn (0, R/2, 1, R/2 + 1 ...):\n"
                        "    mxfp4.rceil, "));
}

TEST_CASE("AITER's scales are found, and read by name and by a JSON file", "[tools]") {
  const TemporaryFolder folder;
  const Matrix<float> x = NormalMatrix(32, 64, 160);
  StoredMatrix bytes = Store(Mxfp4(), QuantizeAs(Mxfp4(), x.View()), {});
  std::vector<std::uint8_t> shuffled(std::size_t{256} * 8, 0);
  for (std::size_t r = 0; r < 64; ++r) {
    for (std::size_t c = 0; c < 5; ++c) {
      shuffled[r / 32 * 256 + c % 4 * 64 + r % 16 * 4 + c / 4 % 2 * 2 + r / 16 % 2] =
          bytes.scales[r * 5 + c];
    }
  }
  bytes.scales = shuffled;
  WriteParts(folder, x, bytes, {64, 80}, {256, 8});
  WriteFileAtomically(folder / "aiter.json",
                      std::string(R"({"pad": [256, 8], "reshape": ["R/32", 2, 16, "C/8", 2, 4],)"
                                  R"( "transpose": [0, 3, 5, 2, 4, 1]})"));
  const auto run = [&](std::vector<std::string> command) {
    command.insert(command.end(),
                   {"--input", "x.npy", "--codes", "codes.npy", "--scales", "scales.npy"});
    return RunIn(folder, command);
  };
  CHECK_THAT(run({"explain", "--dialect", "mxfp4.rceil"}).output,
             ContainsSubstring("in the order of AITER's e8m0_shuffle. (scales-aiter)"));
  CHECK_THAT(run({"identify"}).output, ContainsSubstring("in the order of AITER's e8m0_shuffle:"));
  for (const char* order : {"aiter", "aiter.json"}) {
    const ProcessResult verified =
        run({"verify", "--dialect", "mxfp4.rceil", "--scales-bytes", order});
    CHECK(verified.exit_code == 0);
    CHECK_THAT(verified.output, ContainsSubstring("mxfp4.rceil: equal\n"));
  }
  const ProcessResult unknown =
      run({"verify", "--dialect", "mxfp4.rceil", "--scales-bytes", "aitre"});
  CHECK(unknown.exit_code == 2);
  CHECK_THAT(unknown.error, ContainsSubstring("did you mean \"aiter\"?"));
  const ProcessResult wrong =
      run({"verify", "--dialect", "mxfp4.rceil", "--scales-bytes", "columns-padded"});
  CHECK(wrong.exit_code == 2);
  CHECK_THAT(wrong.error, ContainsSubstring("scales.npy: has 2048 bytes; a grid of 64x5 in the "
                                            "order columns-padded takes 512"));
}

TEST_CASE("Parts with tensor scales of their own are judged one by one", "[tools]") {
  const TemporaryFolder folder;
  const Dialect& modelopt = *FindDialect("nvfp4.modelopt");
  Matrix<float> x = NormalMatrix(33, 96, 64);
  for (std::size_t c = 0; c < 64; ++c) x(70, c) *= 2.0f;  // the amax lies in the second part
  const StorageLayout layout{.tensor_scale = TensorScaleConvention::kMultiplier};
  StoredMatrix joined;
  for (const std::size_t part : {0u, 1u}) {
    const StoredMatrix own =
        Store(modelopt, QuantizeAs(modelopt, x.View().Block(part * 48, 0, 48, 64)), layout);
    joined.codes.insert(joined.codes.end(), own.codes.begin(), own.codes.end());
    joined.scales.insert(joined.scales.end(), own.scales.begin(), own.scales.end());
    joined.tensor_scale.push_back(own.tensor_scale[0]);
  }
  WriteParts(folder, x, joined, {2, 48, 32}, {2, 48, 4});
  WriteNpy(folder / "two.npy", MakeNpyArray<float>({2}, joined.tensor_scale));
  WriteNpy(folder / "one.npy", MakeNpyArray<float>({1}, std::vector(1, joined.tensor_scale[0])));
  const auto run = [&](std::vector<std::string> command, const char* numbers) {
    command.insert(command.end(), {"--input", "x.npy", "--codes", "codes.npy", "--scales",
                                   "scales.npy", "--tensor-scale", numbers});
    return RunIn(folder, command);
  };
  const std::vector<std::string> of = {"--dialect", "nvfp4.modelopt", "--tensor-scale-is",
                                       "multiplier"};
  const auto with = [&](std::vector<std::string> command) {
    command.insert(command.end(), of.begin(), of.end());
    return command;
  };
  const ProcessResult equal = run(with({"verify", "--parts", "2"}), "two.npy");
  CHECK(equal.exit_code == 0);
  CHECK_THAT(equal.output, ContainsSubstring("part 0, rows 0..47: nvfp4.modelopt: equal\n") &&
                               ContainsSubstring("part 1, rows 48..95: nvfp4.modelopt: equal\n"));
  const ProcessResult json = run(with({"verify", "--parts", "48,48", "--json"}), "two.npy");
  CHECK(ParseJson(json.output, "json")["parts"][1]["first_row"] == 48);
  CHECK(run(with({"explain", "--parts", "2"}), "two.npy").exit_code == 0);
  const ProcessResult identified = run({"identify", "--parts", "2"}, "two.npy");
  CHECK(identified.exit_code == 0);
  CHECK_THAT(identified.output, ContainsSubstring("part 1, rows 48..95: These bytes are exactly"));
  // One number for both is wrong in the second part; without parts, explain names them.
  const ProcessResult shared = run(with({"verify", "--parts", "2"}), "one.npy");
  CHECK(shared.exit_code == 1);
  CHECK_THAT(shared.output,
             ContainsSubstring("part 0, rows 0..47: nvfp4.modelopt: equal\n") &&
                 ContainsSubstring("part 1, rows 48..95: nvfp4.modelopt: DIFFERENT, in the tensor "
                                   "scale only\n"));
  const ProcessResult whole = run(with({"explain"}), "one.npy");
  CHECK_THAT(whole.output, ContainsSubstring("by the part's own amax: rows 0..47, 48..; the stored "
                                             "number is the amax of the first part"));
  const ProcessResult advice = run(with({"verify"}), "one.npy");
  CHECK_THAT(advice.output, ContainsSubstring("rows 0..47, 48.."));
  CHECK(run(with({"verify", "--parts", "5"}), "two.npy").exit_code == 2);
  CHECK(run(with({"verify", "--parts", "3"}), "two.npy").exit_code == 2);
}

}  // namespace
}  // namespace fp4lab
