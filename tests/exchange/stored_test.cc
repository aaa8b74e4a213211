// Stored matrices: every layout keeps the whole matrix, conversions commute, wrong sizes are
// refused.
#include "fp4lab/exchange/stored.h"

#include <bit>
#include <cmath>
#include <limits>

#include "fp4lab/base/random.h"
#include "tests/exchange/matrices.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Catch::Matchers::ContainsSubstring;

const std::pair<std::size_t, std::size_t> kShapes[] = {{1, 1},    {3, 16}, {16, 17}, {37, 40},
                                                       {130, 70}, {0, 16}, {5, 0}};

TEST_CASE("Loading inverts storing in every layout, tails included", "[exchange][property]") {
  std::size_t layouts = 0;
  for (const Dialect& d : BlockShapes()) {
    for (const auto& [rows, cols] : kShapes) {
      const Quantized q = AnyQuantized(d, rows, cols);
      for (const StorageLayout& layout : Layouts(d)) {
        CAPTURE(d.name, rows, cols, Name(layout.codes), Named(layout.scales).name,
                layout.transposed, layout.expanded_scales);
        const StoredMatrix stored = Store(d, q, layout);
        const StoredSizes sizes = SizesOf(stored, "x");
        CHECK(stored.codes.size() == sizes.codes);
        CHECK(stored.scales.size() == sizes.scales);
        CHECK(Load(d, stored, "x") == q);
        ++layouts;
      }
    }
  }
  CHECK(layouts == 7u * 16 * (5 * 4 + 2 + 1 + 1));
}

TEST_CASE("Converting between two layouts gives what storing in the second gives",
          "[exchange][property]") {
  for (const Dialect& d : BlockShapes()) {
    const Quantized q = AnyQuantized(d, 37, 40);
    const StoredMatrix first = Store(d, q, {.codes = DefaultCodeOrder(d.element)});
    StoredMatrix walk = first;
    for (const StorageLayout& layout : Layouts(d)) {
      CAPTURE(d.name, Name(layout.codes), Named(layout.scales).name, layout.transposed,
              layout.expanded_scales);
      walk = Convert(walk, layout, d.scale_max, "x");  // from the layout before, not the first
      CHECK(walk == Store(d, q, layout));
    }
    CHECK(Convert(walk, first.layout, d.scale_max, "x") == first);
  }
}

TEST_CASE("Codes, scales and padding lie where the layout says", "[exchange]") {
  const Dialect d{.name = "tiny", .block_rows = 2, .block_cols = 2};
  const Quantized q{.rows = 2,
                    .cols = 4,
                    .codes = {1, 2, 3, 4, 5, 6, 7, 8},
                    .scale_rows = 1,
                    .scale_cols = 2,
                    .scales = {0x31, 0x32},
                    .amax = {6.0f}};
  CHECK(Store(d, q, {}).codes == Bytes{0x21, 0x43, 0x65, 0x87});
  CHECK(Store(d, q, {}).scales == Bytes{0x31, 0x32});
  const StoredMatrix turned = Store(d, q, {.transposed = true, .expanded_scales = true});
  CHECK(turned.codes == Bytes{0x51, 0x62, 0x73, 0x84});
  CHECK(turned.scales == Bytes{0x31, 0x31, 0x32, 0x32});
  CHECK(Store(d, q, {.expanded_scales = true}).scales == Bytes{0x31, 0x32, 0x31, 0x32});
  const StoredMatrix padded = Store(d, q, {.scales = ScaleOrder::kPadded, .expanded_scales = true});
  REQUIRE(padded.scales.size() == 128 * 4);
  CHECK(Bytes(padded.scales.begin(), padded.scales.begin() + 10) ==
        Bytes{0x31, 0x32, 0, 0, 0x31, 0x32, 0, 0, 0, 0});
  const StoredMatrix tiled = Store(d, q, {.scales = ScaleOrder::k128x4, .expanded_scales = true});
  CHECK(tiled.scales.size() == 512);
  CHECK((tiled.scales[0] == 0x31 && tiled.scales[1] == 0x32 && tiled.scales[16] == 0x31));
}

TEST_CASE("The transposed layout of 16x16 blocks is Transformer Engine's columnwise copy",
          "[exchange][golden]") {
  const NpzFile file = OpenGolden("te_bf16_core.npz");
  const Dialect d{.name = "te.2d", .block_rows = 16};
  int compared = 0;
  for (const Json& entry : GoldenIndex(file)) {
    const std::string name = entry.at("id").get<std::string>() + ".2d.";
    if (!file.Has(name + "qx") || !file.Has(name + "qxt")) continue;
    const auto bytes = [&](const char* field) {
      const NpyArray array = file.Read(name + field);
      const auto span = array.As<std::uint8_t>();
      return Bytes(span.begin(), span.end());
    };
    StoredMatrix m{
        .layout = {.expanded_scales = true}, .codes = bytes("qx"), .scales = bytes("sx")};
    m.rows = file.Read(name + "qx").shape[0];
    m.cols = file.Read(name + "qxt").shape[0];
    m.block_rows = 16;
    if (m.rows % 16 != 0 || m.cols % 16 != 0) continue;
    const StoredMatrix turned =
        Convert(m, {.transposed = true, .expanded_scales = true}, d.scale_max, name);
    CHECK(turned.codes == bytes("qxt"));
    CHECK(turned.scales == bytes("sxt"));
    CHECK(TransposedCodes(m.codes, m.rows, m.cols, CodeOrder::kLowFirst) == bytes("qxt"));
    ++compared;
  }
  CHECK(compared >= 10);
}

TEST_CASE("Sizes that do not fit are refused with the size that would", "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  const StoredMatrix good = Store(d, AnyQuantized(d, 4, 32), {});
  const auto error = [&](auto&& change) {
    StoredMatrix m = good;
    change(m);
    return ErrorOf([&] { Load(d, m, "weights"); });
  };
  CHECK(error([](StoredMatrix& m) { m.codes.pop_back(); }) ==
        "weights: 63 bytes of codes; 4x32 codes of float4_e2m1fn in the order low-first take 64");
  CHECK(error([](StoredMatrix& m) { m.scales.resize(512); }) ==
        "weights: 512 bytes of scales; 4x2 scales in the order linear take 8; they fit the order "
        "128x4 or padded");
  CHECK(error([](StoredMatrix& m) { m.tensor_scale.resize(3); }) ==
        "weights: 3 tensor scales; nvfp4 has 1 for 4 rows");
  CHECK_THAT(error([](StoredMatrix& m) { m.rows = m.cols = std::size_t{1} << 33; }),
             ContainsSubstring("is too large"));
  CHECK_THAT(error([](StoredMatrix& m) { m.block_cols = 32; }),
             ContainsSubstring("1x32 blocks with e4m3 scales; the dialect nvfp4 has e2m1"));
  CHECK_THAT(error([](StoredMatrix& m) { m.layout.codes = CodeOrder::kDense6; }),
             ContainsSubstring("dense6 does not hold codes of float4_e2m1fn"));
  CHECK_THAT(error([](StoredMatrix& m) {
               m.layout.codes = CodeOrder::kBytes;
               m.codes.assign(128, 0);
               m.codes[33] = 16;
             }),
             ContainsSubstring("byte 16 at (1, 1) is not a code"));
}

TEST_CASE("Expanded scales that differ within one tile are refused", "[exchange]") {
  const Dialect d{.name = "nvfp4.2d", .block_rows = 16};
  StoredMatrix m = Store(d, AnyQuantized(d, 16, 16), {.expanded_scales = true});
  m.scales[9] ^= 1;
  CHECK_THAT(ErrorOf([&] { Load(d, m, "x"); }), ContainsSubstring("x: scale (9, 0) is "));
}

TEST_CASE("Tensor scale goes from amax to each convention and back", "[exchange][property]") {
  const RandomStream random{11, 0};
  const auto kinds = {TensorScaleConvention::kMultiplier, TensorScaleConvention::kDivisor};
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const std::uint32_t exponent = 40 + random.Bits16(3 * i) % 170u;
    const float amax = std::bit_cast<float>(exponent << 23 | random.Bits16(3 * i + 1) << 7 |
                                            (random.Bits16(3 * i + 2) & 0x7Fu));
    for (const TensorScaleConvention kind : kinds) {
      const float stored = ConvertTensorScale(amax, TensorScaleConvention::kAmax, kind, 2688.0f);
      const float back = ConvertTensorScale(stored, kind, TensorScaleConvention::kAmax, 2688.0f);
      if (ConvertTensorScale(back, TensorScaleConvention::kAmax, kind, 2688.0f) != stored) {
        FAIL("amax " << amax << " is stored as " << stored << ", read as " << back);
      }
    }
  }
  CHECK(ConvertTensorScale(2.0f, TensorScaleConvention::kMultiplier,
                           TensorScaleConvention::kDivisor, 1) == 0.5f);
  const float zero = ConvertTensorScale(0.0f, TensorScaleConvention::kAmax,
                                        TensorScaleConvention::kDivisor, 2688.0f);
  CHECK(std::isinf(zero));
  CHECK(ConvertTensorScale(zero, TensorScaleConvention::kDivisor, TensorScaleConvention::kAmax,
                           2688.0f) == 0.0f);
}

TEST_CASE("Values are decoded in the operation order of each tensor-scale convention",
          "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  const Quantized q = AnyQuantized(d, 3, 40);
  const float amax = q.amax[0];
  for (const NamedTensorScale& kind : kTensorScaleConventions) {
    const StoredMatrix m = Store(d, q, {.transposed = true, .tensor_scale = kind.convention});
    const Matrix<float> values = StoredValues(m, d.scale_max, "x");
    for (std::size_t r = 0; r < 3; ++r) {
      for (std::size_t c = 0; c < 40; ++c) {
        const float s = Decode(FormatId::kE4M3, q.scales[r * 3 + c / 16]);
        const float multiplier = amax / 2688.0f, divisor = 2688.0f / amax;
        const float te = s * amax, inverse = 1.0f / 2688.0f;
        const float factor = kind.convention == TensorScaleConvention::kNone   ? s
                             : kind.convention == TensorScaleConvention::kAmax ? te * inverse
                             : kind.convention == TensorScaleConvention::kMultiplier
                                 ? s * multiplier
                                 : s / divisor;
        CHECK(values(r, c) == Decode(FormatId::kE2M1, q.codes[r * 40 + c]) * factor);
      }
    }
  }
}

TEST_CASE("A stored divisor is the S that the code base computes", "[exchange]") {
  const Dialect& d = *FindDialect("nvfp4.compressed-tensors");
  constexpr TensorScaleConvention kDivisor = TensorScaleConvention::kDivisor;
  const auto divisor = [&](float amax) { return NumberOfAmax(d, amax, kDivisor); };
  CHECK(divisor(std::bit_cast<float>(0x05280001u)) == std::bit_cast<float>(0x7F7FFFFFu));
  CHECK(divisor(0.0f) == 1.0f);  // a tensor of zeros
  CHECK(NumberOfAmax(*FindDialect("nvfp4.compressed-tensors.0.14"), 0.0f, kDivisor) ==
        std::numeric_limits<float>::infinity());
  // Two roundings: fl(fl(1/amax) * 2688) and fl(2688/amax) part, and a file has the first.
  int apart = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const float amax = std::bit_cast<float>(0x40400000u + 4099 * i);
    const Matrix<float> x(1, 16, amax);
    const Quantized q = QuantizeAs(d, x.View());
    const StoredMatrix m = Store(d, q, {.tensor_scale = kDivisor});
    REQUIRE(m.tensor_scale.size() == 1);
    CHECK(m.tensor_scale[0] == 1.0f / amax * 2688.0f);
    apart += m.tensor_scale[0] != 2688.0f / amax ? 1 : 0;
    const Quantized loaded = Load(d, m, "x");
    CHECK(NumberOfAmax(d, loaded.amax[0], kDivisor) == m.tensor_scale[0]);
    // Under Transformer Engine's dialect a divisor is one division.
    CHECK(NumberOfAmax(*FindDialect("nvfp4.te"), amax, kDivisor) == 2688.0f / amax);
  }
  CHECK(apart > 100);
}

TEST_CASE("A tensor scale of unknown meaning is not converted", "[exchange]") {
  const Dialect d{.name = "nvfp4"};
  StoredMatrix m = Store(d, AnyQuantized(d, 2, 16), {});
  m.layout.tensor_scale = TensorScaleConvention::kNone;
  CHECK_THAT(ErrorOf([&] { Convert(m, {}, d.scale_max, "x"); }),
             ContainsSubstring("state the convention"));
}

}  // namespace
}  // namespace fp4lab
