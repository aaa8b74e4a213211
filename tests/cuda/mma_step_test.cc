// The software form of the warp instruction against the model of the tensor core, on the CPU: 32
// lanes whose registers are filled at random, under every scale selector.
#include "fp4lab/cuda/gemm/mma_step.h"

#include <vector>

#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

using cuda::BlockScaling;

constexpr Format kElement = FormatOf(FormatId::kE2M1);

// The registers of 32 lanes.
struct Lanes {
  std::uint32_t a[4][32] = {}, b[2][32] = {}, d[4][32] = {}, a_scales[32] = {}, b_scales[32] = {};

  std::uint32_t A(unsigned reg, unsigned lane) const { return a[reg][lane]; }
  std::uint32_t B(unsigned reg, unsigned lane) const { return b[reg][lane]; }
  std::uint32_t ScaleA(unsigned lane) const { return a_scales[lane]; }
  std::uint32_t ScaleB(unsigned lane) const { return b_scales[lane]; }
};

Format ScaleFormatOf(BlockScaling scaling) {
  return FormatOf(scaling == BlockScaling::kNvfp4 ? FormatId::kE4M3 : FormatId::kE8M0);
}

std::uint32_t Code(const MmaOperand& x, unsigned row, unsigned k) { return x.codes[row * 64 + k]; }

// A register with the scale bytes of a row from byte_id on; the bytes that this instruction does
// not read hold NaN.
std::uint32_t ScaleWord(const MmaOperand& x, unsigned row, unsigned byte_id) {
  std::uint32_t word = 0xFFFFFFFFu;
  for (std::size_t i = 0; i < x.ScaleCols(); ++i) {
    const unsigned shift = (byte_id + static_cast<unsigned>(i)) * 8;
    word = (word & ~(0xFFu << shift)) |
           static_cast<std::uint32_t>(x.scales[row * x.ScaleCols() + i]) << shift;
  }
  return word;
}

struct Selectors {
  cuda::ScaleSelector a, b;
};

Lanes Filled(const MmaOperand& a, const MmaOperand& b, const std::vector<std::uint32_t>& c,
             Selectors s) {
  Lanes lanes;
  for (unsigned lane = 0; lane < 32; ++lane) {
    lanes.a_scales[lane] = lanes.b_scales[lane] = 0xFFFFFFFFu;  // NaN: no scale is read
    for (unsigned nibble = 0; nibble < 8; ++nibble) {
      for (unsigned reg = 0; reg < 4; ++reg) {
        const cuda::FragmentElement e = cuda::ElementOfA({lane, reg, nibble});
        lanes.a[reg][lane] |= Code(a, e.row, e.col) << 4 * nibble;
      }
      for (unsigned reg = 0; reg < 2; ++reg) {
        const cuda::FragmentElement e = cuda::ElementOfB({lane, reg, nibble});
        lanes.b[reg][lane] |= Code(b, e.row, e.col) << 4 * nibble;
      }
    }
    for (unsigned reg = 0; reg < 4; ++reg) {
      const cuda::FragmentElement e = cuda::ElementOfD(lane, reg);
      lanes.d[reg][lane] = c[e.row * 8 + e.col];
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    lanes.a_scales[cuda::LaneOfScaleA(row, s.a.thread_id)] = ScaleWord(a, row, s.a.byte_id);
  }
  for (unsigned row = 0; row < 8; ++row) {
    lanes.b_scales[cuda::LaneOfScaleB(row, s.b.thread_id)] = ScaleWord(b, row, s.b.byte_id);
  }
  return lanes;
}

std::size_t Mismatches(BlockScaling scaling, const MmaOperand& a, const MmaOperand& b,
                       const std::vector<std::uint32_t>& c, Selectors s) {
  const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
  const Lanes lanes = Filled(a, b, c, s);
  std::size_t different = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned reg = 0; reg < 4; ++reg) {
      const std::uint32_t start = lanes.d[reg][lane];
      const std::uint32_t got =
          scaling == BlockScaling::kNvfp4
              ? cuda::MmaInSoftware<BlockScaling::kNvfp4>(lanes, lane, reg, s.a, s.b, start)
              : cuda::MmaInSoftware<BlockScaling::kMxfp4>(lanes, lane, reg, s.a, s.b, start);
      const cuda::FragmentElement e = cuda::ElementOfD(lane, reg);
      const MmaScales scales{a.ScaleRow(e.row), b.ScaleRow(e.col), a.group, a.scale_format};
      const std::uint32_t expected =
          TensorCoreDot(model, a.format, a.Row(e.row), b.format, b.Row(e.col), start, scales);
      different += got == expected ? 0 : 1;
    }
  }
  return different;
}

// Accumulators: zeros, ordinary numbers, any exponent, any bits.
std::vector<std::uint32_t> RandomAccumulators(std::uint32_t number) {
  const RandomStream stream{.seed = 8, .tensor = number};
  std::vector<std::uint32_t> c;
  for (std::uint32_t i = 0; i < 128; ++i) {
    const std::uint32_t bits = stream.Bits32(i);
    c.push_back(number % 4 == 0   ? (bits & 0x80000000u)
                : number % 4 == 1 ? ((bits & 0x80FFFFFFu) | 0x40000000u)
                : number % 4 == 2 ? ((bits & 0x807FFFFFu) | (bits >> 16 & 0x7Fu) << 24)
                                  : bits);
  }
  return c;
}

TEST_CASE("The software form of the warp instruction is the model, for every selector",
          "[cuda][differential]") {
  std::uint32_t number = 0;
  for (const BlockScaling scaling : {BlockScaling::kNvfp4, BlockScaling::kMxfp4}) {
    const bool mx = scaling == BlockScaling::kMxfp4;
    for (const Inputs inputs : kAllInputs) {
      for (unsigned selector = 0; selector < (mx ? 16u : 8u); ++selector) {
        const unsigned byte_id = selector / 8 * 2;
        const Selectors s{{byte_id, selector % 2}, {byte_id, selector / 2 % 4}};
        for (int repeat = 0; repeat < 4; ++repeat, ++number) {
          const int group = static_cast<int>(GroupOf(scaling));
          const MmaOperand a =
              RandomOperand(kElement, 16, 64, inputs, 2 * number, group, ScaleFormatOf(scaling));
          const MmaOperand b =
              RandomOperand(kElement, 8, 64, inputs, 2 * number + 1, group, ScaleFormatOf(scaling));
          CAPTURE(mx, static_cast<int>(inputs), selector, repeat);
          CHECK(Mismatches(scaling, a, b, RandomAccumulators(number), s) == 0);
        }
      }
    }
  }
}

// All pairs of scale bytes, with one product, with two that cancel, with none.
TEST_CASE("The software form reads every scale as the model does", "[cuda][exhaustive]") {
  const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
  const std::uint32_t kCodes[] = {0x00000003u, 0x000000B3u, 0x00000000u, 0x0000000Fu};
  for (const BlockScaling scaling : {BlockScaling::kNvfp4, BlockScaling::kMxfp4}) {
    std::size_t different = 0;
    for (std::uint32_t pair = 0; pair < 0x10000u; ++pair) {
      const std::uint32_t code = kCodes[pair * 40503u >> 13 & 3u];
      const std::uint32_t c = pair % 3 == 0 ? 0x3F800001u : pair % 3 == 1 ? 0u : 0x00000003u;
      const std::uint32_t a[8] = {code}, b[8] = {0x00000022u};
      const bool nvfp4 = scaling == BlockScaling::kNvfp4;
      const std::uint32_t got =
          nvfp4 ? cuda::MmaElement<BlockScaling::kNvfp4>(a, b, pair & 0xFFu, pair >> 8, c)
                : cuda::MmaElement<BlockScaling::kMxfp4>(a, b, pair & 0xFFu, pair >> 8, c);
      std::vector<std::uint32_t> x(64), y(64);
      for (unsigned i = 0; i < 8; ++i) {
        x[i] = code >> 4 * i & 15u;
        y[i] = b[0] >> 4 * i & 15u;
      }
      const std::vector<std::uint8_t> a_scales = {static_cast<std::uint8_t>(pair), 0, 0, 0};
      const std::vector<std::uint8_t> b_scales = {static_cast<std::uint8_t>(pair >> 8), 0, 0, 0};
      const MmaScales scales{a_scales, b_scales, static_cast<int>(GroupOf(scaling)),
                             ScaleFormatOf(scaling)};
      different += got != TensorCoreDot(model, kElement, x, kElement, y, c, scales) ? 1 : 0;
    }
    CHECK(different == 0);
  }
}

TEST_CASE("The constants of the software form are the model's", "[cuda]") {
  const TensorCoreModel& model = *FindTensorCoreModel("blackwell.mxf4.f32");
  CHECK(model.products == static_cast<int>(cuda::kMmaK));
  CHECK(model.fraction_bits == cuda::kMmaFractionBits);
  CHECK(model.floor == cuda::kMmaFloor);
}

}  // namespace
}  // namespace fp4lab
