#include "fp4lab/tensor/tensor_core.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

// One matrix instruction of tests/cuda/tensor_core_probe.cu.
struct Probed {
  const char* instruction;
  const char* model;
  Format operand;
};

const Probed kProbed[] = {
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

// A row of 32 bytes as codes; of a binary32 in memory the tensor core reads the upper 19 bits.
std::vector<std::uint32_t> CodesOfRow(const Format& format, std::span<const std::uint32_t> row) {
  const int container = format == kTf32 ? 32 : format.bits;
  std::vector<std::uint32_t> codes;
  for (const std::uint32_t word : row) {
    for (int bit = 0; bit < 32; bit += container) {
      const std::uint32_t element = word >> bit;
      codes.push_back(container == 32 ? element >> 13 : element & ((1u << container) - 1));
    }
  }
  return codes;
}

TEST_CASE("The Hopper models return what an H200 returned", "[tensor][golden]") {
  const NpzFile file = OpenGolden("h200_tensor_core.npz");
  for (const Probed& probed : kProbed) {
    INFO(probed.instruction);
    const std::string prefix = std::string(probed.instruction) + ".";
    const NpyArray a = file.Read(prefix + "a"), b = file.Read(prefix + "b");
    const NpyArray c = file.Read(prefix + "c"), d = file.Read(prefix + "d");
    REQUIRE(a.shape == std::vector<std::size_t>{d.shape.at(0), 16, 8});
    REQUIRE(b.shape == std::vector<std::size_t>{d.shape.at(0), 8, 8});
    const TensorCoreModel& model = *FindTensorCoreModel(probed.model);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < d.As<std::uint32_t>().size(); ++i) {
      const std::size_t tile = i / 128, row = i % 128 / 8, col = i % 8;
      const auto x =
          CodesOfRow(probed.operand, a.As<std::uint32_t>().subspan((tile * 16 + row) * 8, 8));
      const auto y =
          CodesOfRow(probed.operand, b.As<std::uint32_t>().subspan((tile * 8 + col) * 8, 8));
      wrong += TensorCoreDot(model, probed.operand, x, probed.operand, y,
                             c.As<std::uint32_t>()[i]) != d.As<std::uint32_t>()[i];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("Open questions about mxf4 change the answer only where they should", "[tensor]") {
  const Format& e2m1 = FormatOf(FormatId::kE2M1);
  std::vector<std::uint32_t> a(64, 0), b(64, 0);
  a[0] = a[1] = a[16] = b[0] = b[16] = 2;  // 1 * 1 - 1 * 1 in group 0, 1 * 1 in group 1
  b[1] = 0xA;
  const std::vector<std::uint8_t> big_first = {0xA7, 0x7F, 0x7F, 0x7F}, ones(4, 0x7F);
  const MmaScales scales{big_first, ones, 16, FormatOf(FormatId::kE8M0)};
  const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
  const auto dot = [&](const OpenChoices& open) {
    return TensorCoreDot(model, e2m1, a, e2m1, b, 0, scales, open);
  };
  CHECK(dot({.cancelled_group_counts = true}) == 0u);
  CHECK(dot({.cancelled_group_counts = false}) == 0x3F800000u);
  a[0] = a[1] = 0;  // now group 0 has no product at all
  CHECK(dot({.zero_group_counts = false}) == 0x3F800000u);
  CHECK(dot({.zero_group_counts = true}) == 0u);
}

TEST_CASE("Special values of a matrix instruction have stated results", "[tensor]") {
  const TensorCoreModel& model = *FindTensorCoreModel("hopper.f16.f32");
  const Format& bf16 = FormatOf(FormatId::kBF16);
  const std::uint32_t one = 0x3F80, inf = 0x7F80, minus_inf = 0xFF80, nan = 0x7FC0, zero = 0;
  const auto dot = [&](std::vector<std::uint32_t> a, std::vector<std::uint32_t> b,
                       std::uint32_t c) { return TensorCoreDot(model, bf16, a, bf16, b, c); };
  CHECK(dot({zero}, {one}, 0x80000000u) == 0u);  // all terms zero: +0
  CHECK(dot({nan, one}, {one, one}, 0) == 0x7FFFFFFFu);
  CHECK(dot({inf, one}, {zero, one}, 0) == 0x7FFFFFFFu);
  CHECK(dot({inf, minus_inf}, {one, one}, 0) == 0x7FFFFFFFu);
  CHECK(dot({inf, one}, {minus_inf, one}, 0) == 0xFF800000u);
  CHECK(dot({one, one}, {one, one}, 0x7F800000u) == 0x7F800000u);
}

}  // namespace
}  // namespace fp4lab
