// A checkpoint under the names of each code base is found and clean; each fault of a table is found
// under its name, alone.
#include "fp4lab/checkpoint/check.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/exchange/vendors/vendor.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

CheckReport CheckFile(const SafetensorsFile& file, const char* config = "") {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "model.safetensors", file);
  if (*config != 0) WriteFileAtomically(folder / "config.json", std::string_view(config));
  return CheckCheckpoint(folder.path());
}

// A code base's names, written for x (64 x 128).
struct Named64 {
  const char* naming;
  const char* formula;
  std::function<void(const Matrix<float>&, SafetensorsFile*)> add;
};

std::vector<Named64> AllNames() {
  const auto nvfp4 = [](const Matrix<float>& x, TensorScaleConvention c) {
    return Quantize("nvfp4.modelopt", x, {.tensor_scale = c});
  };
  const auto mxfp4 = [](const Matrix<float>& x) { return Quantize("mxfp4.rceil", x); };
  const auto fp8 = [](const Matrix<float>& x) {
    return Quantize(
        "fp8_e4m3", x,
        {.codes = CodeOrder::kBytes, .tensor_scale = TensorScaleConvention::kMultiplier});
  };
  return {
      {"modelopt", "NVFP4",
       [](const Matrix<float>& x, SafetensorsFile* f) { AddModelOpt(f, "a.l", x); }},
      {"compressed-tensors", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = nvfp4(x, TensorScaleConvention::kDivisor);
         f->tensors["a.l.weight_packed"] = TensorOf("I8", {64, 64}, m.codes);
         f->tensors["a.l.weight_scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
         f->tensors["a.l.weight_global_scale"] = NumbersTensor({1}, m.tensor_scale);
       }},
      {"compressed-tensors", "MXFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l.weight_packed"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l.weight_scale"] = TensorOf("U8", {64, 4}, m.scales);
       }},
      {"modelopt", "MXFP4",  // Quark's names
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l.weight"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l.weight_scale"] = TensorOf("U8", {64, 4}, m.scales);
       }},
      {"torchao", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = nvfp4(x, TensorScaleConvention::kMultiplier);
         f->tensors["a.l._weight_qdata"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l._weight_scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
         f->tensors["a.l._weight_per_tensor_scale"] = NumbersTensor({}, m.tensor_scale);
       }},
      {"torchao-attributes", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = nvfp4(x, TensorScaleConvention::kMultiplier);
         f->tensors["a.l.qdata"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l.scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
         f->tensors["a.l.per_tensor_scale"] = NumbersTensor({}, m.tensor_scale);
       }},
      {"gpt-oss", "MXFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l_blocks"] = TensorOf("U8", {2, 32, 4, 16}, m.codes);
         f->tensors["a.l_scales"] = TensorOf("U8", {2, 32, 4}, m.scales);
       }},
      {"deepseek-v3", "FP8 E4M3, 128x128",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = fp8(x);
         f->tensors["a.l.weight"] = TensorOf("F8_E4M3", {64, 128}, m.codes);
         f->tensors["a.l.weight_scale_inv"] = NumbersTensor({1, 1}, m.tensor_scale);
       }},
      {"deepseek-v4", "MXFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l.weight"] = TensorOf("I8", {64, 64}, m.codes);
         f->tensors["a.l.scale"] = TensorOf("F8_E8M0", {64, 4}, m.scales);
       }},
      {"comfyui", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = Quantize("nvfp4.comfyui", x,
                                         {.codes = CodeOrder::kHighFirst,
                                          .scales = ScaleOrder::k128x4,
                                          .tensor_scale = TensorScaleConvention::kMultiplier});
         const std::string marker = R"({"format": "nvfp4"})";
         f->tensors["a.l.weight"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l.weight_scale"] = TensorOf("U8", {128, 8}, m.scales);
         f->tensors["a.l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
         f->tensors["a.l.comfy_quant"] =
             TensorOf("U8", {marker.size()}, {marker.begin(), marker.end()});
       }},
      {"mlx", "MXFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l.weight"] = TensorOf("U32", {64, 16}, m.codes);
         f->tensors["a.l.scales"] = TensorOf("U8", {64, 4}, m.scales);
       }},
      {"modelopt", "FP8 E4M3, a scale a row",  // Hugging Face's fbgemm_fp8
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = fp8(x);
         std::vector<float> scales(64);
         for (std::size_t r = 0; r < 64; ++r) scales[r] = m.tensor_scale[0] + static_cast<float>(r);
         f->tensors["a.l.weight"] = TensorOf("F8_E4M3", {64, 128}, m.codes);
         f->tensors["a.l.weight_scale"] = NumbersTensor({64, 1}, scales);
       }},
      {"modelopt", "FP8 E4M3, a scale a tensor",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = fp8(x);
         f->tensors["a.l.weight"] = TensorOf("F8_E4M3", {64, 128}, m.codes);
         f->tensors["a.l.weight_scale"] = NumbersTensor({}, m.tensor_scale);
       }},
      {"te", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = Quantize("nvfp4.te", x, {.scales = ScaleOrder::kPadded});
         f->tensors["a.l_rowwise_data"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l_rowwise_scale_inv"] = TensorOf("U8", {128, 8}, m.scales);
         f->tensors["a.l_amax_rowwise"] = NumbersTensor({1}, m.tensor_scale);
       }},
      {"te-columnwise", "NVFP4",  // of a matrix whose transposed one is x
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = Quantize("nvfp4.te", x, {.scales = ScaleOrder::kPadded});
         f->tensors["a.l_columnwise_data"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l_columnwise_scale_inv"] = TensorOf("U8", {128, 8}, m.scales);
         f->tensors["a.l_amax_columnwise"] = NumbersTensor({1}, m.tensor_scale);
       }},
      {"modelopt-experts", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = nvfp4(x, TensorScaleConvention::kMultiplier);
         f->tensors["a.l"] = TensorOf("U8", {2, 32, 64}, m.codes);
         f->tensors["a.l_weight_scale"] = TensorOf("F8_E4M3", {2, 32, 8}, m.scales);
         f->tensors["a.l_weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
         f->tensors["a.l_input_scale"] = NumbersTensor({}, {0.01f});
       }},
      {"torchao-colon", "NVFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = nvfp4(x, TensorScaleConvention::kMultiplier);
         f->tensors["a.l:qdata"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l:scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
         f->tensors["a.l:per_tensor_scale"] = NumbersTensor({}, m.tensor_scale);
       }},
      {"torchao-colon", "MXFP4",  // MXTensor
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l:qdata"] = TensorOf("U8", {64, 64}, m.codes);
         f->tensors["a.l:scale"] = TensorOf("F8_E8M0", {64, 4}, m.scales);
       }},
      {"gpt-oss-original", "MXFP4",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = mxfp4(x);
         f->tensors["a.l.blocks"] = TensorOf("U8", {2, 32, 4, 16}, m.codes);
         f->tensors["a.l.scales"] = TensorOf("U8", {2, 32, 4}, m.scales);
       }},
      {"comfyui-scaled", "FP8 E4M3, a scale a tensor",
       [=](const Matrix<float>& x, SafetensorsFile* f) {
         const StoredMatrix m = fp8(x);
         f->tensors["a.l.weight"] = TensorOf("F8_E4M3", {64, 128}, m.codes);
         f->tensors["a.l.scale_weight"] = NumbersTensor({}, m.tensor_scale);
         f->tensors["a.l.scale_input"] = NumbersTensor({}, {0.01f});
       }},
  };
}

TEST_CASE("A matrix is found under every code base's names, and is clean", "[checkpoint]") {
  const Matrix<float> x = Weights(1, 64, 128);
  for (const Named64& n : AllNames()) {
    CAPTURE(n.naming, n.formula);
    SafetensorsFile file;
    n.add(x, &file);
    file.tensors["a.norm.weight"] = NumbersTensor({4}, {1, 1, 1, 1});
    const CheckReport report = CheckFile(file);
    CHECK(FindingsOf(report).empty());
    REQUIRE(report.matrices.size() == 1);
    const CheckedMatrix& m = report.matrices[0];
    CHECK(m.name == "a.l");
    CHECK(m.naming == n.naming);
    CHECK(m.formula == n.formula);
    CHECK(m.reading.parts * m.reading.rows == 64);
    CHECK(m.reading.cols == 128);
    CHECK_FALSE(m.reading.scales_dtype_wrong);
  }
  for (const Vendor& vendor : kVendors) {
    const auto names = AllNames();
    CAPTURE(vendor.name);
    CHECK(std::ranges::any_of(names, [&](const Named64& n) { return n.naming == vendor.name; }));
  }
}

// A fault in a checkpoint of two experts with gate and up (ModelOpt's names), and its finding.
struct Fault {
  const char* finding;
  const char* text;
  std::function<void(SafetensorsFile*)> make;
};
const std::string kUp = "e.1.up_proj";

SafetensorsFile Experts() {
  SafetensorsFile file;
  for (const char* expert : {"e.0.", "e.1."}) {
    Matrix<float> x = Weights(2, 64, 128);
    AddModelOpt(&file, std::string(expert) + "gate_proj", x);
    std::reverse(x.values.begin(), x.values.end());  // the same amax
    AddModelOpt(&file, std::string(expert) + "up_proj", x);
  }
  return file;
}

std::span<std::byte> BytesIn(SafetensorsFile* f, const std::string& tensor) {
  return f->tensors.at(tensor).bytes.Change();
}
void FillScales(SafetensorsFile* f, std::uint8_t byte, std::size_t every = 1) {
  const std::span<std::byte> scales = BytesIn(f, kUp + ".weight_scale");
  for (std::size_t i = 0; i < scales.size(); i += every) scales[i] = std::byte{byte};
}
void SetNumber(SafetensorsFile* f, const std::string& tensor, float number) {
  f->tensors[tensor] = NumbersTensor({}, {number});
}

std::vector<Fault> Faults() {
  return {
      {"zero-scales", "all 512 blocks have a scale of 0", [](auto* f) { FillScales(f, 0); }},
      {"zero-scales", "64 of 512 blocks", [](auto* f) { FillScales(f, 0, 8); }},
      {"constant-scales", "all 512 scales are 1", [](auto* f) { FillScales(f, 0x38); }},
      {"nan-scales", "128 of 512 scales are NaN", [](auto* f) { FillScales(f, 0x7F, 4); }},
      {"saturated-scales", "scales are 448", [](auto* f) { FillScales(f, 0x7E, 4); }},
      {"negative-scales", "128 of 512 scales have a sign", [](auto* f) { FillScales(f, 0xB8, 4); }},
      {"tensor-scale-zero", "is 0",
       [](auto* f) {
         for (const char* part : {"gate_proj", "up_proj"}) {
           SetNumber(f, std::string("e.1.") + part + ".weight_scale_2", 0);
         }
       }},
      {"tensor-scale-differs", "e.1.gate_proj has",
       [](auto* f) { SetNumber(f, kUp + ".weight_scale_2", 1e-4f); }},
      {"tensor-scale-missing", "has no e.1.up_proj.weight_scale_2",
       [](auto* f) { f->tensors.erase(kUp + ".weight_scale_2"); }},
      {"tensor-scale-count", "3 tensor scales for 1 part",
       [](auto* f) {
         f->tensors[kUp + ".weight_scale_2"] = NumbersTensor({3}, {1e-4f, 1e-4f, 1e-4f});
       }},
      {"input-scale-missing", "other matrices have one",
       [](auto* f) { f->tensors.erase(kUp + ".input_scale"); }},
      {"input-scale-zero", "is 0", [](auto* f) { SetNumber(f, kUp + ".input_scale", 0); }},
      {"grid", "64x128 in 1x16 blocks has 64x8",
       [](auto* f) {
         auto& t = f->tensors[kUp + ".weight_scale"];
         t = TensorOf("F8_E4M3", {64, 5}, std::vector<std::uint8_t>(320, 0x38));
       }},
      {"grid", "64x128 in 1x16 blocks has 64x8",  // the grid of codes that are not packed
       [](auto* f) {
         auto& t = f->tensors[kUp + ".weight_scale"];
         t = TensorOf("F8_E4M3", {64, 4}, std::vector<std::uint8_t>(256, 0x38));
       }},
      {"grid", "scales are 8x64",
       [](auto* f) {
         f->tensors[kUp + ".weight_scale"].shape = {8, 64};
       }},
      {"scale-dtype", "declared F8_E8M0",
       [](auto* f) { f->tensors[kUp + ".weight_scale"].dtype = "F8_E8M0"; }},
      {"codes-dtype", "declared F8_E4M3",
       [](auto* f) { f->tensors[kUp + ".weight"].dtype = "F8_E4M3"; }},
      {"zero-codes", "every code is 0",
       [](auto* f) { std::ranges::fill(BytesIn(f, kUp + ".weight"), std::byte{0}); }},
      {"constant-codes", "is 0x3A",
       [](auto* f) { std::ranges::fill(BytesIn(f, kUp + ".weight"), std::byte{0x3A}); }},
      {"unused", "e.1.up_proj.weight is F32",
       [](auto* f) {
         for (const char* part : {".weight", ".weight_scale_2", ".input_scale"}) {
           f->tensors.erase(kUp + part);
         }
         f->tensors[kUp + ".weight"] = NumbersTensor({2}, {1, 2});
       }},
      {"unused", "left over from calibration",
       [](auto* f) { f->tensors[kUp + ".weight_quantizer._scale"] = NumbersTensor({}, {1}); }},
  };
}

TEST_CASE("Each fault is found under its name, and nothing else is", "[checkpoint]") {
  REQUIRE(FindingsOf(CheckFile(Experts())).empty());
  for (const Fault& fault : Faults()) {
    SafetensorsFile file = Experts();
    fault.make(&file);
    const CheckReport report = CheckFile(file);
    CAPTURE(fault.finding, fault.text, FindingsOf(report));
    REQUIRE_FALSE(report.findings.empty());
    for (const Finding& f : report.findings) {
      if (f.kind == FindingKind::kTensorScaleDiffers) continue;  // follows from some others
      CHECK(std::string(Named(f.kind).name) == fault.finding);
    }
    const auto found =
        std::find_if(report.findings.begin(), report.findings.end(),
                     [&](const Finding& f) { return Named(f.kind).name == fault.finding; });
    REQUIRE(found != report.findings.end());
    CHECK_THAT(found->text, ContainsSubstring(fault.text));
    CHECK_THAT(found->where, ContainsSubstring("e.1."));
  }
}

TEST_CASE("Scales of E8M0: zeroed, cast by value, NaN, at the end of the range", "[checkpoint]") {
  const Matrix<float> x = Weights(3, 64, 128);
  const StoredMatrix m = Quantize("mxfp4.rceil", x);
  const auto check = [&](const std::vector<std::uint8_t>& scales) {
    SafetensorsFile file;
    file.tensors["l.weight"] = TensorOf("I8", {64, 64}, m.codes);
    file.tensors["l.scale"] = TensorOf("F8_E8M0", {64, 4}, scales);
    return FindingsOf(CheckFile(file));
  };
  CHECK(check(m.scales).empty());
  CHECK(check(std::vector<std::uint8_t>(256, 0)) == std::vector<std::string>{"zero-scales@l"});
  CHECK(check(std::vector<std::uint8_t>(256, 0x7F)) ==
        std::vector<std::string>{"constant-scales@l"});
  std::vector<std::uint8_t> cast = m.scales;
  for (std::uint8_t& s : cast) s = s < 127 ? 0 : static_cast<std::uint8_t>(1u << (s - 127));
  cast[0] = 1;
  CHECK(check(cast) == std::vector<std::string>{"numbers-as-bytes@l"});
  std::vector<std::uint8_t> nan = m.scales;
  nan[7] = 0xFF;
  CHECK(check(nan) == std::vector<std::string>{"nan-scales@l"});
}

TEST_CASE("Codes that a format does not have", "[checkpoint]") {
  const Matrix<float> x = Weights(4, 64, 128);
  SafetensorsFile file;
  StoredMatrix m =
      Quantize("nvfp4.modelopt", x,
               {.codes = CodeOrder::kBytes, .tensor_scale = TensorScaleConvention::kMultiplier});
  m.codes[777] = 0x1F;
  file.tensors["l.weight"] = TensorOf("U8", {64, 128}, m.codes);
  file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
  file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
  const CheckReport report = CheckFile(file);
  REQUIRE(FindingsOf(report) == std::vector<std::string>{"impossible-codes@l"});
  CHECK(report.findings[0].text == "1 byte that e2m1 lacks, the first at byte 777");
  CHECK(report.matrices[0].reading.codes == CodeOrder::kBytes);

  StoredMatrix eight =
      Quantize("fp8_e4m3", x,
               {.codes = CodeOrder::kBytes, .tensor_scale = TensorScaleConvention::kMultiplier});
  eight.codes[5] = eight.codes[9] = 0xFF;
  SafetensorsFile other;
  other.tensors["l.weight"] = TensorOf("F8_E4M3", {64, 128}, eight.codes);
  other.tensors["l.weight_scale"] = NumbersTensor({}, eight.tensor_scale);
  const CheckReport nan = CheckFile(other);
  REQUIRE(FindingsOf(nan) == std::vector<std::string>{"impossible-codes@l"});
  CHECK(nan.findings[0].text == "2 bytes of NaN or Inf, the first at byte 5");
}

TEST_CASE("Scales as numbers: BF16 and binary32 beside a tensor scale", "[checkpoint]") {
  const Matrix<float> x = Weights(5, 32, 64);
  const StoredMatrix m =
      Quantize("nvfp4.modelopt", x, {.tensor_scale = TensorScaleConvention::kMultiplier});
  std::vector<float> numbers;
  for (const std::uint8_t s : m.scales) numbers.push_back(Decode(FormatId::kE4M3, s));
  SafetensorsFile file;
  file.tensors["l.weight"] = TensorOf("U8", {32, 32}, m.codes);
  file.tensors["l.weight_scale"] = NumbersTensor({32, 4}, numbers);
  file.tensors["l.weight_scale_2"] = NumbersTensor({1}, m.tensor_scale);
  const CheckReport report = CheckFile(file);
  CHECK(FindingsOf(report).empty());
  CHECK(report.matrices[0].formula == "NVFP4");
  CHECK(report.matrices[0].scales == "F32");
  file.tensors.erase("l.weight_scale_2");  // folded: nothing is missing
  CHECK(FindingsOf(CheckFile(file)).empty());
}

TEST_CASE("Shards: split matrices, duplicates, and what an index says", "[checkpoint]") {
  const TemporaryFolder folder;
  SafetensorsFile all, first, second;
  AddModelOpt(&all, "l", Weights(6, 32, 64));
  for (const auto& [name, tensor] : all.tensors) {
    (name == "l.weight" ? first : second).tensors[name] = tensor;
  }
  first.tensors["norm"] = second.tensors["norm"] = NumbersTensor({1}, {1});
  WriteSafetensors(folder / "model-1.safetensors", first);
  WriteSafetensors(folder / "model-2.safetensors", second);
  CHECK(FindingsOf(CheckCheckpoint(folder.path())) ==
        std::vector<std::string>{"split@l", "duplicate@norm"});
  const std::string index = R"({"weight_map": {"l.weight": "model-1.safetensors",
    "l.weight_scale": "model-1.safetensors", "l.weight_scale_2": "model-2.safetensors",
    "l.gone": "model-2.safetensors", "norm": "model-1.safetensors"}})";
  WriteFileAtomically(folder / "model.safetensors.index.json", std::string_view(index));
  for (const std::filesystem::path& path :
       {folder.path(), folder / "model.safetensors.index.json"}) {
    const CheckReport report = CheckCheckpoint(path);
    CHECK(FindingsOf(report) == std::vector<std::string>{"split@l", "duplicate@norm",
                                                         "index@l.gone", "index@l.weight_scale",
                                                         "index@l.input_scale"});
    CHECK(report.matrices[0].shards ==
          std::vector<std::string>{"model-1.safetensors", "model-2.safetensors"});
  }
  std::filesystem::remove(folder / "model-2.safetensors");
  CHECK_THROWS_WITH(CheckCheckpoint(folder.path()),
                    ContainsSubstring("names the file model-2.safetensors, which is not there"));
}

TEST_CASE("An index names files beside it only", "[checkpoint]") {
  const auto parse = [](const char* text) { return ParseIndex(ParseJson(text, "i"), "i"); };
  CHECK(parse(R"({"weight_map": {"a": "b.safetensors"}})").at("a") == "b.safetensors");
  for (const char* text :
       {R"({})", R"([])", R"({"weight_map": 1})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "../b.safetensors"}})", R"({"weight_map": {"a": "/etc/passwd"}})",
        R"({"weight_map": {"a": "passwd"}})", R"({"weight_map": {"a": ""}})"}) {
    CHECK_THROWS_AS(parse(text), Error);
  }
}

TEST_CASE("The configuration decides blocks, and its contradictions are found", "[checkpoint]") {
  SafetensorsFile file;
  AddModelOpt(&file, "model.l", Weights(7, 32, 64), false);
  CHECK(FindingsOf(CheckFile(file)).empty());
  const char* static_input = R"({"quantization_config": {"quant_method": "modelopt",
    "quant_algo": "NVFP4", "group_size": 16}})";
  CHECK(FindingsOf(CheckFile(file, static_input)) ==
        std::vector<std::string>{"input-scale-missing@model.l"});
  const char* other = R"({"quantization_config": {"quant_method": "modelopt",
    "quant_algo": "W4A16_NVFP4", "group_size": 32, "ignore": ["model.l*"]}})";
  CHECK(FindingsOf(CheckFile(file, other)) ==
        std::vector<std::string>{"config@model.l", "config@model.l"});
}

TEST_CASE("A report is the same for any number of threads", "[checkpoint]") {
  SafetensorsFile file = Experts();
  FillScales(&file, 0, 7);
  const TemporaryFolder folder;
  WriteSafetensors(folder / "m.safetensors", file);
  const int threads = Threads();
  SetThreads(1);
  const std::string one = ReportJson(CheckCheckpoint(folder.path())).dump();
  SetThreads(3);
  CHECK(ReportJson(CheckCheckpoint(folder.path())).dump() == one);
  SetThreads(threads);
}

}  // namespace
}  // namespace fp4lab
