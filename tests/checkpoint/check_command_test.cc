// fp4lab check: the table, JSON, exit codes and files that it refuses.
#include <filesystem>
#include <string>

#include "fp4lab/io/file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/gguf.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"
#include "tests/support/examples.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("fp4lab check: a clean checkpoint, one with findings, and what cannot be read", "[e2e]") {
  const TemporaryFolder folder;
  SafetensorsFile file;
  for (int layer = 0; layer < 12; ++layer) {
    AddModelOpt(&file, "layers." + std::to_string(layer) + ".up_proj", Weights(1, 32, 64));
  }
  WriteSafetensors(folder / "q.safetensors", file);
  const ProcessResult clean = RunProgram({"check", folder / "q.safetensors"});
  CHECK(clean.exit_code == 0);
  CHECK_THAT(clean.output, ContainsSubstring("12 quantized matrices"));
  CHECK_THAT(clean.output,
             ContainsSubstring("12        layers.*.up_proj  modelopt  NVFP4    32x64"));
  CHECK_THAT(clean.output, ContainsSubstring("no findings\n"));

  file.tensors.erase("layers.3.up_proj.input_scale");
  WriteSafetensors(folder / "q.safetensors", file);
  const ProcessResult found = RunProgram({"check", folder.path()});
  CHECK(found.exit_code == 1);
  CHECK_THAT(found.output, ContainsSubstring("input-scale-missing (1): "));
  CHECK_THAT(found.output, ContainsSubstring("  layers.3.up_proj: none is stored"));
  const ProcessResult json = RunProgram({"check", folder.path(), "--json"});
  CHECK(json.exit_code == 1);
  const Json report = ParseJson(json.output, "check");
  CHECK(report["matrices"].size() == 12);
  CHECK(report["clean"] == false);
  CHECK(report["findings"][0]["finding"] == "input-scale-missing");
  CHECK(report["findings"][0]["where"] == "layers.3.up_proj");

  WriteFileAtomically(folder / "b.safetensors", std::string_view("damaged"));
  WriteFileAtomically(folder / "x.txt", std::string_view("text"));
  std::filesystem::create_directory(folder / "empty");
  for (const std::string path : {"b.safetensors", "x.txt", "empty", "gone.safetensors"}) {
    CAPTURE(path);
    const ProcessResult refused = RunProgram({"check", folder / path});
    CHECK(refused.exit_code == 2);
    CHECK(refused.output.empty());
    CHECK(IsOneLine(refused.error));
    CHECK_THAT(refused.error, ContainsSubstring(path));
  }
}

TEST_CASE("fp4lab check: several checkpoints have a report each, and one exit code", "[e2e]") {
  const TemporaryFolder folder;
  SafetensorsFile file;
  for (int layer = 0; layer < 4; ++layer) {
    AddModelOpt(&file, "layers." + std::to_string(layer) + ".up_proj", Weights(1, 32, 64));
  }
  WriteSafetensors(folder / "good.safetensors", file);
  file.tensors.erase("layers.3.up_proj.input_scale");
  WriteSafetensors(folder / "bad.safetensors", file);
  const std::string good = folder / "good.safetensors", bad = folder / "bad.safetensors";
  CHECK(RunProgram({"check", good, good}).exit_code == 0);
  const ProcessResult both = RunProgram({"check", bad, good});
  CHECK(both.exit_code == 1);
  CHECK(both.output ==
        RunProgram({"check", bad}).output + "\n" + RunProgram({"check", good}).output);
  const Json reports = ParseJson(RunProgram({"check", good, bad, "--json"}).output, "check");
  REQUIRE(reports.size() == 2);
  CHECK(reports[0]["clean"] == true);
  CHECK(reports[1]["clean"] == false);
  const ProcessResult refused = RunProgram({"check", good, bad, "--original", "x.npy"});
  CHECK(refused.exit_code == 2);
  CHECK_THAT(refused.error, ContainsSubstring("--original: is of one checkpoint; give one path"));
  CHECK(RunProgram({"check", good, folder / "gone.safetensors"}).exit_code == 2);
}

TEST_CASE("fp4lab check: .gguf with experts", "[e2e]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Weights(2, 64, 64);
  GgufFile gguf;
  const StoredMatrix g = Quantize(
      "nvfp4.ggml", x,
      {.codes = CodeOrder::kSplitHalves, .tensor_scale = TensorScaleConvention::kMultiplier});
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < g.codes.size() / 32; ++i) {
    for (std::size_t s = 0; s < 4; ++s) bytes.push_back(std::byte{g.scales[i * 4 + s]});
    for (std::size_t c = 0; c < 32; ++c) bytes.push_back(std::byte{g.codes[i * 32 + c]});
  }
  const std::vector<float> numbers = {0.01f, 0.02f};
  const auto raw = std::as_bytes(std::span(numbers));
  gguf.tensors["blk.0.ffn_up_exps.weight"] = {
      kGgmlNvfp4, {2, 32, 64}, ByteArray(bytes.begin(), bytes.end())};
  gguf.tensors["blk.0.ffn_up_exps.scale"] = {kGgmlF32, {2}, ByteArray(raw.begin(), raw.end())};
  WriteGguf(folder / "m.gguf", gguf);
  const ProcessResult experts = RunProgram({"check", folder / "m.gguf", "--json"});
  CHECK(experts.exit_code == 0);
  const Json report = ParseJson(experts.output, "check");
  CHECK(report["matrices"][0]["parts"] == 2);
  CHECK(report["matrices"][0]["tensor_scale"].size() == 2);
  CHECK(report["matrices"][0]["formula"] == "NVFP4");

  gguf.tensors["blk.0.ffn_up_exps.weight"].bytes.Change()[0] = std::byte{0x7F};
  WriteGguf(folder / "m.gguf", gguf);
  const ProcessResult nan = RunProgram({"check", folder / "m.gguf"});
  CHECK(nan.exit_code == 1);
  CHECK_THAT(nan.output, ContainsSubstring("nan-scales (1): "));
}

TEST_CASE("fp4lab check --original: a swizzled file under names that are linear", "[e2e]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Weights(3, 128, 64);
  const StoredMatrix m =
      Quantize("nvfp4.modelopt", x,
               {.scales = ScaleOrder::k128x4, .tensor_scale = TensorScaleConvention::kMultiplier});
  SafetensorsFile file, original;
  file.tensors["l.weight"] = TensorOf("U8", {128, 32}, m.codes);
  file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {128, 4}, m.scales);
  file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
  original.tensors["l.weight"] = NumbersTensor({128, 64}, x.values);
  WriteSafetensors(folder / "q.safetensors", file);
  WriteSafetensors(folder / "x.safetensors", original);
  const ProcessResult run =
      RunProgram({"check", folder / "q.safetensors", "--original", folder / "x.safetensors"});
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output, ContainsSubstring("read with codes low-first and scales 128x4"));
  const ProcessResult list = RunProgram({"inspect", folder / "q.safetensors", "--list"});
  CHECK(list.output == "l (modelopt)\n");
}

TEST_CASE("The examples in the help of check and compare print what they say", "[e2e]") {
  CheckHelpExamples({"check"});
  CheckHelpExamples({"compare"});
}

}  // namespace
}  // namespace fp4lab
