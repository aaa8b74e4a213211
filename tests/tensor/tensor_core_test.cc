#include "fp4lab/tensor/tensor_core.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensor/hardware_vectors.h"

namespace fp4lab {
namespace {

TEST_CASE("The Hopper models return what an H200 returned", "[tensor][golden]") {
  for (const HardwareVectors& v : ProbedVectors()) {
    INFO(v.name);
    REQUIRE(v.model != nullptr);
    CHECK(v.Mismatches(*v.model) == 0);
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
