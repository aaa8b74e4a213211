// Results of real tensor cores, as operands and results of a model: fp4lab's probe of an H200, and
// vectors that others published, in the folder that FP4LAB_EXTERNAL_VECTORS names.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {

inline std::optional<std::filesystem::path> ExternalVectors(const char* name, const char* source) {
  const char* folder = std::getenv("FP4LAB_EXTERNAL_VECTORS");
  if (folder != nullptr && *folder != '\0') return std::filesystem::path(folder) / name;
  std::printf("SKIPPED: set FP4LAB_EXTERNAL_VECTORS to a folder with %s (public data: %s)\n", name,
              source);
  return std::nullopt;
}

// Rows of K operands, codes of one format, each with its c and d: binary32 bits, or binary16 bits
// if the model's output is binary16.
struct HardwareVectors {
  std::string name;
  const TensorCoreModel* model = nullptr;
  Format operand = {};
  std::size_t k = 0;
  std::vector<std::uint32_t> a = {}, b = {}, c = {}, d = {};
  std::vector<std::uint8_t> scale_a = {}, scale_b = {};  // of every row
  MmaScales scales = {};
  bool open = false;  // no hardware's answer: the reading that OpenChoices defaults to

  bool IsAnswerOf(const TensorCoreModel& m, std::size_t row) const {
    const auto codes = [&](const std::vector<std::uint32_t>& all) {
      return std::span<const std::uint32_t>(all).subspan(row * k, k);
    };
    MmaScales with = scales;
    with.a = scale_a;
    with.b = scale_b;
    return TensorCoreDot(m, operand, codes(a), operand, codes(b), c[row], with) == d[row];
  }
  std::size_t Mismatches(const TensorCoreModel& m) const {
    std::size_t wrong = 0;
    for (std::size_t row = 0; row < d.size(); ++row) wrong += !IsAnswerOf(m, row);
    return wrong;
  }
  bool Refuses(const TensorCoreModel& m) const {
    for (std::size_t row = 0; row < d.size(); ++row) {
      if (!IsAnswerOf(m, row)) return true;
    }
    return false;
  }
};

inline void CheckAll(const std::vector<HardwareVectors>& all, std::size_t rows) {
  for (const HardwareVectors& v : all) {
    INFO(v.name);
    REQUIRE(v.model != nullptr);
    REQUIRE(v.d.size() == rows);
    CHECK(v.Mismatches(*v.model) == 0);
  }
}

// ---- fp4lab's probe

// One matrix instruction of tests/cuda/tensor_core_probe.cu.
struct ProbedInstruction {
  const char* instruction;
  const char* model;
  Format operand;
};
inline const ProbedInstruction kProbedInstructions[] = {
    {"mma.m16n8k16.f32.bf16", "hopper.f16.f32", FormatOf(FormatId::kBF16)},
    {"mma.m16n8k16.f32.f16", "hopper.f16.f32", FormatOf(FormatId::kFP16)},
    {"mma.m16n8k16.f16.f16", "hopper.f16.f16", FormatOf(FormatId::kFP16)},
    {"mma.m16n8k8.f32.tf32", "hopper.tf32.f32", kTf32},
    {"mma.m16n8k32.f32.e4m3", "hopper.mma.f8.f32", FormatOf(FormatId::kE4M3)},
    {"mma.m16n8k32.f32.e5m2", "hopper.mma.f8.f32", FormatOf(FormatId::kE5M2)},
    {"mma.m16n8k32.f16.e4m3", "hopper.mma.f8.f16", FormatOf(FormatId::kE4M3)},
    {"mma.m16n8k32.f16.e5m2", "hopper.mma.f8.f16", FormatOf(FormatId::kE5M2)},
    {"wgmma.m64n8k16.f32.bf16", "hopper.f16.f32", FormatOf(FormatId::kBF16)},
    {"wgmma.m64n8k16.f32.f16", "hopper.f16.f32", FormatOf(FormatId::kFP16)},
    {"wgmma.m64n8k16.f16.f16", "hopper.f16.f16", FormatOf(FormatId::kFP16)},
    {"wgmma.m64n8k8.f32.tf32", "hopper.tf32.f32", kTf32},
    {"wgmma.m64n8k32.f32.e4m3", "hopper.wgmma.f8.f32", FormatOf(FormatId::kE4M3)},
    {"wgmma.m64n8k32.f32.e5m2", "hopper.wgmma.f8.f32", FormatOf(FormatId::kE5M2)},
    {"wgmma.m64n8k32.f16.e4m3", "hopper.wgmma.f8.f16", FormatOf(FormatId::kE4M3)},
    {"wgmma.m64n8k32.f16.e5m2", "hopper.wgmma.f8.f16", FormatOf(FormatId::kE5M2)},
};

// A row of 32 bytes as codes; for TF32, the upper 19 bits of a binary32, which the tensor core
// reads.
inline void AppendCodes(const Format& format, std::span<const std::uint32_t> row,
                        std::vector<std::uint32_t>* codes) {
  const int container = format == kTf32 ? 32 : format.bits;
  for (const std::uint32_t word : row) {
    for (int bit = 0; bit < 32; bit += container) {
      const std::uint32_t element = word >> bit;
      codes->push_back(container == 32 ? element >> 13 : element & ((1u << container) - 1));
    }
  }
}

inline std::vector<HardwareVectors> ProbedVectors() {
  const NpzFile file = OpenGolden("h200_tensor_core.npz");
  std::vector<HardwareVectors> all;
  for (const ProbedInstruction& probed : kProbedInstructions) {
    INFO(probed.instruction);
    const std::string prefix = std::string(probed.instruction) + ".";
    const NpyArray a = file.Read(prefix + "a"), b = file.Read(prefix + "b");
    const NpyArray c = file.Read(prefix + "c"), d = file.Read(prefix + "d");
    REQUIRE(a.shape == std::vector<std::size_t>{d.shape.at(0), 16, 8});
    REQUIRE(b.shape == std::vector<std::size_t>{d.shape.at(0), 8, 8});
    HardwareVectors v{.name = probed.instruction,
                      .model = FindTensorCoreModel(probed.model),
                      .operand = probed.operand,
                      .c = {c.As<std::uint32_t>().begin(), c.As<std::uint32_t>().end()},
                      .d = {d.As<std::uint32_t>().begin(), d.As<std::uint32_t>().end()}};
    for (std::size_t i = 0; i < v.d.size(); ++i) {
      const std::size_t tile = i / 128, row = i % 128 / 8, col = i % 8;
      AppendCodes(v.operand, a.As<std::uint32_t>().subspan((tile * 16 + row) * 8, 8), &v.a);
      AppendCodes(v.operand, b.As<std::uint32_t>().subspan((tile * 8 + col) * 8, 8), &v.b);
    }
    v.k = v.a.size() / v.d.size();
    all.push_back(std::move(v));
  }
  return all;
}

// ---- Published vectors: north-numerical-computing/MATLAB-tensor-core, model_validation

struct PublishedFixture {
  const char* gpu;
  const char* format;
  Format operand;
  const char* model32;
  const char* model16;     // nullptr: no binary16 results
  bool ignores_c = false;  // the binary32 results were taken with c = 0
};
inline const Format &kBf16 = FormatOf(FormatId::kBF16), &kFp16 = FormatOf(FormatId::kFP16),
                    &kE4m3 = FormatOf(FormatId::kE4M3), &kE5m2 = FormatOf(FormatId::kE5M2);
inline const PublishedFixture kPublishedFixtures[] = {
    {"V100", "fp16", kFp16, "volta.f16.f32", "volta.f16.f16"},
    {"A2", "bf16", kBf16, "ampere.f16.f32", nullptr},
    {"A2", "fp16", kFp16, "ampere.f16.f32", "ampere.f16.f16"},
    {"A2", "tf32", kTf32, "ampere.tf32.f32", nullptr},
    {"A100", "bf16", kBf16, "ampere.f16.f32", nullptr},
    {"A100", "fp16", kFp16, "ampere.f16.f32", "ampere.f16.f16"},
    {"A100", "tf32", kTf32, "ampere.tf32.f32", nullptr},
    {"Ada", "bf16", kBf16, "ampere.f16.f32", nullptr},
    {"Ada", "fp16", kFp16, "ampere.f16.f32", "ampere.f16.f16"},
    {"Ada", "tf32", kTf32, "ampere.tf32.f32", nullptr},
    {"Ada", "E4M3", kE4m3, "ada.f8.f32", "ada.f8.f16"},
    {"Ada", "E5M2", kE5m2, "ada.f8.f32", "ada.f8.f16"},
    {"L40S", "bf16", kBf16, "ampere.f16.f32", nullptr},
    {"L40S", "fp16", kFp16, "ampere.f16.f32", "ampere.f16.f16"},
    {"L40S", "tf32", kTf32, "ampere.tf32.f32", nullptr},
    {"L40S", "E4M3", kE4m3, "ada.f8.f32", nullptr},
    {"L40S", "E5M2", kE5m2, "ada.f8.f32", nullptr},
    {"H100", "bf16", kBf16, "hopper.f16.f32", nullptr},
    {"H100", "fp16", kFp16, "hopper.f16.f32", "hopper.f16.f16"},
    {"H100", "tf32", kTf32, "hopper.tf32.f32", nullptr},
    {"H100", "E4M3", kE4m3, "hopper.wgmma.f8.f32", "hopper.mma.f8.f16", true},
    {"H100", "E5M2", kE5m2, "hopper.wgmma.f8.f32", "hopper.mma.f8.f16", true},
    {"H200", "bf16", kBf16, "hopper.f16.f32", nullptr},
    {"H200", "fp16", kFp16, "hopper.f16.f32", "hopper.f16.f16"},
    {"H200", "tf32", kTf32, "hopper.tf32.f32", nullptr},
    {"H200", "E4M3", kE4m3, "hopper.wgmma.f8.f32", "hopper.mma.f8.f16", true},
    {"H200", "E5M2", kE5m2, "hopper.wgmma.f8.f32", "hopper.mma.f8.f16", true},
    {"B200", "bf16", kBf16, "hopper.f16.f32", nullptr},
    {"B200", "fp16", kFp16, "hopper.f16.f32", "hopper.f16.f16"},
    {"B200", "tf32", kTf32, "hopper.tf32.f32", nullptr},
    {"B200", "E4M3", kE4m3, "hopper.mma.f8.f32", "hopper.mma.f8.f16"},
    {"B200", "E5M2", kE5m2, "hopper.mma.f8.f32", "hopper.mma.f8.f16"},
};

// The code of a fixture's number, which is stored as the binary32 bits of an exact value.
inline std::uint32_t CodeOf(const Format& format, std::uint32_t bits) {
  if (format == kTf32) return bits >> 13;
  return Encode(format, std::bit_cast<float>(bits), Rounding::kNearestEven, 0, Overflow::kSpecial);
}

// The arrays of a fixture as binary32 bits: a and b (rows, K), c, d of one output width.
struct PublishedArrays {
  std::vector<std::uint32_t> a, b, c, d32, d16;
};

inline void AppendFixture(const PublishedFixture& f, const std::string& from,
                          const PublishedArrays& arrays, std::vector<HardwareVectors>* all) {
  HardwareVectors v{.name = from + " " + f.gpu + " " + f.format, .operand = f.operand};
  v.k = arrays.a.size() / arrays.c.size();
  for (const std::uint32_t bits : arrays.a) v.a.push_back(CodeOf(f.operand, bits));
  for (const std::uint32_t bits : arrays.b) v.b.push_back(CodeOf(f.operand, bits));
  if (!arrays.d32.empty()) {
    HardwareVectors wide = v;
    wide.model = FindTensorCoreModel(f.model32);
    wide.c = f.ignores_c ? std::vector<std::uint32_t>(arrays.c.size(), 0) : arrays.c;
    wide.d = arrays.d32;
    all->push_back(std::move(wide));
  }
  if (f.model16 == nullptr) return;
  v.name += " to fp16";
  v.model = FindTensorCoreModel(f.model16);
  for (const std::uint32_t bits : arrays.c) v.c.push_back(CodeOf(kFp16, bits));
  // Binary16 results are kept as the binary32 bits of their values.
  for (const std::uint32_t bits : arrays.d16) v.d.push_back(CodeOf(kFp16, bits));
  all->push_back(std::move(v));
}

// tensor_core_hw.npz: the first 1500 rows of some of the fixtures.
inline std::vector<HardwareVectors> PublishedRows(const std::filesystem::path& path) {
  const NpzFile file(path);
  std::vector<HardwareVectors> all;
  for (const PublishedFixture& f : kPublishedFixtures) {
    const std::string prefix = std::string(f.gpu) + "." + f.format + ".";
    if (!file.Has(prefix + "a")) continue;
    const auto words = [&](const char* name) {
      const NpyArray array = file.Read(prefix + name);
      const auto view = array.As<std::uint32_t>();
      return std::vector<std::uint32_t>(view.begin(), view.end());
    };
    AppendFixture(f, "rows",
                  {words("a"), words("b"), words("c_fp32"), words("d_fp32"),
                   f.model16 == nullptr ? std::vector<std::uint32_t>{} : words("d_fp16")},
                  &all);
  }
  return all;
}

// The folder model_validation, if the folder of external vectors has a checkout of it.
inline std::optional<std::filesystem::path> PublishedFolder() {
  const char* folder = std::getenv("FP4LAB_EXTERNAL_VECTORS");
  if (folder != nullptr && *folder != '\0') {
    const std::filesystem::path path = std::filesystem::path(folder) / "model_validation";
    if (std::filesystem::exists(path)) return path;
  }
  std::printf(
      "SKIPPED: set FP4LAB_EXTERNAL_VECTORS to a folder with model_validation of the public "
      "north-numerical-computing/MATLAB-tensor-core\n");
  return std::nullopt;
}

// Numbers of a text file: hexadecimal words, or 32 binary digits.
inline std::vector<std::uint32_t> WordsOfText(const std::filesystem::path& path) {
  std::vector<std::uint32_t> words;
  std::istringstream in(ReadFile(path));
  for (std::string word; in >> word;) {
    words.push_back(
        static_cast<std::uint32_t>(std::stoul(word, nullptr, word.size() == 32 ? 2 : 16)));
  }
  return words;
}

// 5000 rows of every fixture.
inline std::vector<HardwareVectors> PublishedText(const std::filesystem::path& folder) {
  std::vector<HardwareVectors> all;
  for (const PublishedFixture& f : kPublishedFixtures) {
    const std::filesystem::path here = folder / f.gpu / f.format;
    const auto words = [&](const std::string& name, const std::string& format) {
      return WordsOfText(here / (name + "_" + f.gpu + "_" + format + ".txt"));
    };
    AppendFixture(
        f, "text",
        {words("a", f.format), words("b", f.format), words("c", "fp32"), words("d", "fp32"),
         f.model16 == nullptr ? std::vector<std::uint32_t>{} : words("d", "fp16")},
        &all);
  }
  return all;
}

// ---- Published vectors: sf-tensor/tcgen05, b200_vectors.tsv

inline std::vector<std::uint32_t> HexWords(const std::string& text) {
  std::vector<std::uint32_t> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    words.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
  }
  return words;
}

inline HardwareVectors FrozenVector(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  REQUIRE(fields.size() >= 9);
  const std::string &kind = fields[0], &format = fields[1];
  const auto is = [&](const char* part) { return kind.find(part) != std::string::npos; };
  HardwareVectors v{.name = line};
  v.model = FindTensorCoreModel(is("mxf8f6f4") ? "blackwell.mxf8f6f4.f32"
                                : is("mxf4")   ? "blackwell.mxf4.f32"
                                : is("f8f6f4") ? "blackwell.f8f6f4.f32"
                                : is("tf32")   ? "hopper.tf32.f32"
                                               : "hopper.f16.f32");
  v.operand = format == "tf32"  ? kTf32
              : format == "f16" ? kFp16
                                : FormatOf(FindFormat(format).value());
  v.k = std::stoul(fields[2]);
  v.a = HexWords(fields[3]);
  v.b = HexWords(fields[4]);
  const int container_shift = format == "tf32" ? 13 : format == "bf16" ? 16 : 0;
  for (std::uint32_t& word : v.a) word >>= container_shift;
  for (std::uint32_t& word : v.b) word >>= container_shift;
  REQUIRE((v.a.size() == v.k && v.b.size() == v.k));
  for (const std::uint32_t byte : HexWords(fields[5])) {
    v.scale_a.push_back(static_cast<std::uint8_t>(byte));
  }
  for (const std::uint32_t byte : HexWords(fields[6])) {
    v.scale_b.push_back(static_cast<std::uint8_t>(byte));
  }
  v.scales.group = is("block16") ? 16 : 32;
  v.scales.format = is("ue4m3") ? kE4m3 : FormatOf(FormatId::kE8M0);
  v.c = {HexWords(fields[7]).at(0)};
  v.d = {HexWords(fields[8]).at(0)};
  v.open = kind.rfind("OPEN", 0) == 0;
  return v;
}

inline std::vector<HardwareVectors> FrozenVectors(const std::filesystem::path& path) {
  std::vector<HardwareVectors> all;
  std::istringstream in(ReadFile(path));
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') all.push_back(FrozenVector(line));
  }
  return all;
}

}  // namespace fp4lab
