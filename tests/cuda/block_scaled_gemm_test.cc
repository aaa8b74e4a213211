// fp4lab's block-scaled GEMM kernels against the model of the tensor core. Needs a GPU.
#include "fp4lab/cuda/gemm/block_scaled_gemm.h"

#include <cstdio>
#include <span>
#include <vector>

#include "fp4lab/block/packing.h"
#include "fp4lab/block/scale_swizzle.h"
#include "fp4lab/tensor/tensor_core_gemm.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

using cuda::BlockScaledProblem;
using cuda::BlockScaling;
using cuda::DeviceMemory;
using cuda::MmaForm;

bool HasDevice() {
  if (cuda::DeviceCount() > 0) return true;
  std::puts("SKIPPED: no GPU answers");
  return false;
}

struct Shape {
  std::size_t m, n, k;
};
constexpr Shape kShapes[] = {{1, 1, 1},     {16, 8, 64},   {128, 128, 256},
                             {130, 70, 96}, {33, 200, 33}, {64, 129, 480}};

struct Uploaded {
  DeviceMemory codes, scales;
  // The codes start `shift` bytes after an aligned address.
  Uploaded(const MmaOperand& x, std::size_t shift) {
    const std::vector<std::uint8_t> narrow(x.codes.begin(), x.codes.end());
    std::vector<std::uint8_t> packed = PackCodes(narrow, x.rows, x.cols, CodeOrder::kLowFirst);
    // The unused nibble at the end of a row of odd length must not matter.
    if (x.cols % 2 == 1) {
      const std::size_t pitch = (x.cols + 1) / 2;
      for (std::size_t r = 0; r < x.rows; ++r) packed[r * pitch + pitch - 1] |= 0x70;
    }
    packed.insert(packed.begin(), shift, 0);
    codes = cuda::OnDevice(std::span<const std::uint8_t>(packed));
    scales = cuda::OnDevice(std::span<const std::uint8_t>(ReorderScales(
        x.scales, ScaleOrder::kLinear, ScaleOrder::k128x4, x.rows, x.ScaleCols(), 0xFF)));
  }
};

std::vector<float> Filled(std::size_t count, bool accumulate) {
  const RandomStream stream{.seed = 12};
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = stream.Bits32(i);
    values.push_back(std::bit_cast<float>(accumulate ? (bits & 0x80FFFFFFu) | 0x3F000000u : bits));
  }
  return values;
}

struct Variant {
  MmaForm form = MmaForm::kMmaSyncSoftware;
  bool accumulate = false;
  float alpha = 1.0f;
  std::size_t shift = 0;
};

// The number of outputs that differ from the model's.
std::size_t Mismatches(BlockScaling scaling, const MmaOperand& a, const MmaOperand& b,
                       const Variant& v) {
  const Uploaded on_a(a, v.shift), on_b(b, v.shift);
  std::vector<float> got = Filled(a.rows * b.rows, v.accumulate), expected = got;
  const DeviceMemory d = cuda::OnDevice(std::span<const float>(got));
  const DeviceMemory alpha = cuda::OnDevice(std::span<const float>(&v.alpha, 1));
  cuda::BlockScaledGemm(
      {.scaling = scaling,
       .m = a.rows,
       .n = b.rows,
       .k = a.cols,
       .a = {on_a.codes.As<std::uint8_t>() + v.shift, on_a.scales.As<std::uint8_t>()},
       .b = {on_b.codes.As<std::uint8_t>() + v.shift, on_b.scales.As<std::uint8_t>()},
       .alpha = v.alpha == 1.0f ? nullptr : alpha.As<float>(),
       .accumulate = v.accumulate,
       .d = d.As<float>()},
      v.form);
  d.CopyTo(std::as_writable_bytes(std::span<float>(got)));
  TensorCoreGemm(*FindTensorCoreModel("blackwell.mxf4.f32"), a, b,
                 {.alpha = v.alpha, .accumulate = v.accumulate},
                 MatrixView<float>{expected.data(), a.rows, b.rows});
  std::size_t different = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    different +=
        std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i]) ? 1 : 0;
  }
  return different;
}

TEST_CASE("Block-scaled products are the model's, bit for bit, in every form that the chip has",
          "[cuda][gpu][differential]") {
  if (!HasDevice()) return;
  std::uint32_t number = 0;
  for (const BlockScaling scaling : {BlockScaling::kNvfp4, BlockScaling::kMxfp4}) {
    const bool nvfp4 = scaling == BlockScaling::kNvfp4;
    const Format scale = FormatOf(nvfp4 ? FormatId::kE4M3 : FormatId::kE8M0);
    for (const Shape& s : kShapes) {
      for (const Inputs inputs : kAllInputs) {
        number += 2;
        const int group = static_cast<int>(GroupOf(scaling));
        const Format element = FormatOf(FormatId::kE2M1);
        const MmaOperand a = RandomOperand(element, s.m, s.k, inputs, number, group, scale);
        const MmaOperand b = RandomOperand(element, s.n, s.k, inputs, number + 1, group, scale);
        for (const MmaForm form : cuda::kMmaForms) {
          if (!cuda::HasMmaForm(form)) continue;
          CAPTURE(nvfp4, s.m, s.n, s.k, static_cast<int>(inputs), static_cast<int>(form));
          CHECK(Mismatches(scaling, a, b, {.form = form}) == 0);
          CHECK(Mismatches(scaling, a, b, {form, true, -0.37f}) == 0);
          CHECK(Mismatches(scaling, a, b, {.form = form, .shift = 3}) == 0);
        }
      }
    }
  }
}

TEST_CASE("A product with k = 0 is all zeros, or the start when it accumulates", "[cuda][gpu]") {
  if (!HasDevice()) return;
  const std::vector<float> start = {1.5f, -0.0f, 0x1p-149f, 3.0f};
  for (const bool accumulate : {false, true}) {
    const DeviceMemory d = cuda::OnDevice(std::span<const float>(start));
    cuda::BlockScaledGemm({.m = 2, .n = 2, .accumulate = accumulate, .d = d.As<float>()},
                          MmaForm::kMmaSyncSoftware);
    std::vector<float> got(4);
    d.CopyTo(std::as_writable_bytes(std::span<float>(got)));
    CHECK(got == (accumulate ? start : std::vector<float>(4, 0.0f)));
  }
}

TEST_CASE("An MMA form that the GPU lacks is refused in one line", "[cuda][gpu]") {
  if (!HasDevice()) return;
  CHECK(cuda::HasMmaForm(MmaForm::kMmaSyncSoftware));
  const DeviceMemory d(sizeof(float));
  for (const MmaForm form : cuda::kMmaForms) {
    const auto multiply = [&] {
      cuda::BlockScaledGemm({.m = 1, .n = 1, .d = d.As<float>()}, form);
    };
    if (cuda::HasMmaForm(form)) {
      CHECK_NOTHROW(multiply());
      continue;
    }
    const std::string error = ErrorOf(multiply);
    CHECK(error.find("in software runs on every chip") != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  }
}

}  // namespace
}  // namespace fp4lab
