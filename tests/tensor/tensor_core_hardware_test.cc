// The models of tensor cores against what real chips returned. The vectors are other people's data
// and not part of this project: FP4LAB_EXTERNAL_VECTORS names the folder that holds them.
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/npy.h"
#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

std::optional<std::filesystem::path> ExternalVectors(const char* name, const char* source) {
  const char* folder = std::getenv("FP4LAB_EXTERNAL_VECTORS");
  if (folder != nullptr && *folder != '\0') return std::filesystem::path(folder) / name;
  std::printf("SKIPPED: set FP4LAB_EXTERNAL_VECTORS to a folder with %s (public data: %s)\n", name,
              source);
  return std::nullopt;
}

// A fixture's operand, binary32 bits of an exact value, as a code of its format.
std::uint32_t CodeOf(const Format& format, std::uint32_t bits) {
  if (format == kTf32) return bits >> 13;
  return Encode(format, std::bit_cast<float>(bits), Rounding::kNearestEven, 0, Overflow::kSpecial);
}

struct Fixture {
  const char* gpu;
  const char* format;
  Format operand;
  const char* model32;
  const char* model16;  // nullptr: no binary16 results
  bool ignores_c;       // the binary32 results were taken with c = 0
};

const Format& kBf16 = FormatOf(FormatId::kBF16);
const Format& kFp16 = FormatOf(FormatId::kFP16);
const Format& kE4m3 = FormatOf(FormatId::kE4M3);
const Format& kE5m2 = FormatOf(FormatId::kE5M2);

const Fixture kFixtures[] = {
    {"A100", "bf16", kBf16, "ampere.f16.f32", nullptr, false},
    {"A100", "fp16", kFp16, "ampere.f16.f32", "ampere.f16.f16", false},
    {"A100", "tf32", kTf32, "ampere.tf32.f32", nullptr, false},
    {"Ada", "bf16", kBf16, "ampere.f16.f32", nullptr, false},
    {"Ada", "fp16", kFp16, "ampere.f16.f32", "ampere.f16.f16", false},
    {"Ada", "tf32", kTf32, "ampere.tf32.f32", nullptr, false},
    {"Ada", "E4M3", kE4m3, "ada.f8.f32", "ada.f8.f16", false},
    {"Ada", "E5M2", kE5m2, "ada.f8.f32", "ada.f8.f16", false},
    {"H100", "bf16", kBf16, "hopper.f16.f32", nullptr, false},
    {"H100", "fp16", kFp16, "hopper.f16.f32", "hopper.f16.f16", false},
    {"H100", "tf32", kTf32, "hopper.tf32.f32", nullptr, false},
    {"H100", "E4M3", kE4m3, "hopper.wgmma.f8.f32", "hopper.mma.f8.f16", true},
    {"H100", "E5M2", kE5m2, "hopper.wgmma.f8.f32", "hopper.mma.f8.f16", true},
    {"B200", "bf16", kBf16, "hopper.f16.f32", nullptr, false},
    {"B200", "fp16", kFp16, "hopper.f16.f32", "hopper.f16.f16", false},
    {"B200", "tf32", kTf32, "hopper.tf32.f32", nullptr, false},
    {"B200", "E4M3", kE4m3, "hopper.mma.f8.f32", "hopper.mma.f8.f16", false},
    {"B200", "E5M2", kE5m2, "hopper.mma.f8.f32", "hopper.mma.f8.f16", false},
};

TEST_CASE("The models return what A100, Ada, H100 and B200 tensor cores returned", "[tensor][hw]") {
  const auto path = ExternalVectors(
      "tensor_core_hw.npz", "north-numerical-computing/MATLAB-tensor-core, model_validation");
  if (!path) return;
  const NpzFile file(*path);
  for (const Fixture& fixture : kFixtures) {
    const std::string prefix = std::string(fixture.gpu) + "." + fixture.format + ".";
    INFO(prefix);
    const NpyArray a_array = file.Read(prefix + "a"), b_array = file.Read(prefix + "b");
    const NpyArray c_array = file.Read(prefix + "c_fp32"), d_array = file.Read(prefix + "d_fp32");
    const auto a_bits = a_array.As<std::uint32_t>(), b_bits = b_array.As<std::uint32_t>();
    const auto c_bits = c_array.As<std::uint32_t>(), d_bits = d_array.As<std::uint32_t>();
    const std::size_t k = a_array.shape.at(1);
    std::optional<NpyArray> d16;
    if (fixture.model16 != nullptr) d16 = file.Read(prefix + "d_fp16");
    std::size_t wrong32 = 0, wrong16 = 0;
    std::vector<std::uint32_t> a(k), b(k);
    for (std::size_t row = 0; row < c_bits.size(); ++row) {
      for (std::size_t i = 0; i < k; ++i) {
        a[i] = CodeOf(fixture.operand, a_bits[row * k + i]);
        b[i] = CodeOf(fixture.operand, b_bits[row * k + i]);
      }
      const std::uint32_t c = fixture.ignores_c ? 0u : c_bits[row];
      wrong32 += TensorCoreDot(*FindTensorCoreModel(fixture.model32), fixture.operand, a,
                               fixture.operand, b, c) != d_bits[row];
      if (!d16) continue;
      const std::uint32_t c16 = CodeOf(kFp16, c_bits[row]);
      const std::uint32_t d = TensorCoreDot(*FindTensorCoreModel(fixture.model16), fixture.operand,
                                            a, fixture.operand, b, c16);
      // The file keeps binary16 results as the binary32 bits of their values.
      wrong16 += std::bit_cast<std::uint32_t>(Decode(kFp16, d)) != d16->As<std::uint32_t>()[row];
    }
    REQUIRE(c_bits.size() == 1500);
    CHECK(wrong32 == 0);
    CHECK(wrong16 == 0);
  }
}

// One row of b200_vectors.tsv.
struct FrozenVector {
  std::string kind;
  Format operand;
  std::vector<std::uint32_t> a, b;
  std::vector<std::uint8_t> scale_a, scale_b;
  std::uint32_t c = 0, expected = 0;

  bool Is(const char* part) const { return kind.find(part) != std::string::npos; }
};

std::vector<std::uint32_t> HexWords(const std::string& text) {
  std::vector<std::uint32_t> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    words.push_back(static_cast<std::uint32_t>(std::stoul(word, nullptr, 16)));
  }
  return words;
}

std::vector<std::uint8_t> HexBytes(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (const std::uint32_t word : HexWords(text)) bytes.push_back(static_cast<std::uint8_t>(word));
  return bytes;
}

FrozenVector ParseRow(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  REQUIRE(fields.size() >= 9);
  FrozenVector v;
  v.kind = fields[0];
  const std::string& format = fields[1];
  v.operand = format == "tf32"  ? kTf32
              : format == "f16" ? kFp16
                                : FormatOf(FindFormat(format).value());
  v.a = HexWords(fields[3]);
  v.b = HexWords(fields[4]);
  const int container_shift = format == "tf32" ? 13 : format == "bf16" ? 16 : 0;
  for (std::uint32_t& word : v.a) word >>= container_shift;
  for (std::uint32_t& word : v.b) word >>= container_shift;
  v.scale_a = HexBytes(fields[5]);
  v.scale_b = HexBytes(fields[6]);
  v.c = HexWords(fields[7]).at(0);
  v.expected = HexWords(fields[8]).at(0);
  REQUIRE(v.a.size() == std::stoul(fields[2]));
  REQUIRE(v.b.size() == v.a.size());
  return v;
}

const TensorCoreModel& ModelOf(const FrozenVector& v) {
  const char* name = v.Is("mxf8f6f4") ? "blackwell.mxf8f6f4.f32"
                     : v.Is("mxf4")   ? "blackwell.mxf4.f32"
                     : v.Is("f8f6f4") ? "blackwell.f8f6f4.f32"
                     : v.Is("tf32")   ? "hopper.tf32.f32"
                                      : "hopper.f16.f32";
  return *FindTensorCoreModel(name);
}

TEST_CASE("The models return what a B200's tcgen05 instructions returned", "[tensor][hw]") {
  const auto path = ExternalVectors("b200_vectors.tsv", "sf-tensor/tcgen05, validation.py");
  if (!path) return;
  std::istringstream in(ReadFile(*path));
  std::size_t frozen = 0, open = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    const FrozenVector v = ParseRow(line);
    INFO(line);
    const MmaScales scales{v.scale_a, v.scale_b, v.Is("block16") ? 16 : 32,
                           v.Is("ue4m3") ? kE4m3 : FormatOf(FormatId::kE8M0)};
    // OPEN rows expect the reading that OpenChoices defaults to.
    CHECK(TensorCoreDot(ModelOf(v), v.operand, v.a, v.operand, v.b, v.c, scales) == v.expected);
    (v.kind.rfind("OPEN", 0) == 0 ? open : frozen) += 1;
  }
  CHECK(frozen == 27);
  CHECK(open == 3);
}

}  // namespace
}  // namespace fp4lab
