// Explain states a cause only if the bytes force it: tests of false causes, too few differences,
// several causes, and wrong kernels that the table lacks.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/base/text/text.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/evidence.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

Kernel Te() { return {.dialect = *FindDialect("nvfp4.te"), .layout = {}}; }

// BF16 values (many ties), or all of binary32; the amax is no round number.
Matrix<float> Input(std::uint32_t seed, bool bf16, std::size_t rows = 96, std::size_t cols = 128) {
  Matrix<float> x = RandomMatrix(seed, rows, cols, bf16 ? 8 : 24, -4, 5);
  x(0, 0) = 2.0f + 0.03125f * static_cast<float>(seed % 61);
  return x;
}

// The replaceable parts of Transformer Engine's kernel, written here without the table of
// deviations.
struct Parts {
  std::function<float(float)> encode = [](float s) { return s; };
  std::function<std::uint8_t(float)> code = [](float v) {
    return static_cast<std::uint8_t>(Encode(FormatId::kE2M1, v));
  };
};
StoredMatrix Quantize(const Matrix<float>& x, const Parts& parts) {
  StoredMatrix out = ShapeOf(Te().dialect, x.rows, x.cols, {});
  const float amax = MaxMagnitudeOf(x.View(), false);
  const float encode = parts.encode(2688.0f / amax), decode = 1.0f / encode;
  out.tensor_scale = {amax};
  for (std::size_t i = 0; i < x.values.size(); i += 16) {
    float b = 0;
    for (std::size_t k = 0; k < 16; ++k) b = std::max(b, std::fabs(x.values[i + k]));
    const std::uint32_t byte = Encode(FormatId::kE4M3, b * (encode * (1.0f / 6.0f)));
    out.scales.push_back(static_cast<std::uint8_t>(byte));
    const float e = 1.0f / (Decode(FormatId::kE4M3, byte) * decode);
    for (std::size_t k = 0; k < 16; k += 2) {
      out.codes.push_back(static_cast<std::uint8_t>(parts.code(x.values[i + k] * e) |
                                                    parts.code(x.values[i + k + 1] * e) << 4));
    }
  }
  return out;
}

bool Names(const Explanation& e, std::string_view name) {
  return std::any_of(e.causes.exact.begin(), e.causes.exact.end(),
                     [&](const Cause& c) { return Name(c) == name; });
}
// The name of the cause that Explain states as forced; "" if there is none.
std::string Stated(const Explanation& e) {
  return e.causes.certainty == Certainty::kForced ? Name(e.causes.exact[0]) : "";
}

// Checks on 24 inputs that the cause is among those named and that no other cause is stated.
void CheckNeverFalse(const Parts& parts, const std::string& cause, std::size_t least_stated) {
  std::size_t stated = 0;
  for (std::uint32_t seed = 0; seed < 24; ++seed) {
    CAPTURE(cause, seed);
    const Matrix<float> x = Input(300 + seed, seed % 2 == 0);
    const Explanation e = Explain(Te(), x.View(), Quantize(x, parts), {.deciding_case = false});
    if (e.equal) continue;
    CHECK(Names(e, cause));
    CHECK((Stated(e).empty() || Stated(e) == cause));
    stated += Stated(e) == cause ? 1 : 0;
  }
  CHECK(stated >= least_stated);
}

std::uint8_t TiesUpward(float v) {
  const float down =
      -Decode(FormatId::kE2M1, Encode(FormatId::kE2M1, -v, Rounding::kTowardPositive));
  const float up = Decode(FormatId::kE2M1, Encode(FormatId::kE2M1, v, Rounding::kTowardPositive));
  const bool tie = up - v == v - down && up != down;
  const Rounding rounding = tie ? Rounding::kTowardPositive : Rounding::kNearestEven;
  return static_cast<std::uint8_t>(Encode(FormatId::kE2M1, v, rounding));
}
float Fp16(float x) { return Decode(FormatId::kFP16, Encode(FormatId::kFP16, x)); }

TEST_CASE("Ties toward plus infinity are never called approximate division", "[judge]") {
  CheckNeverFalse({.code = TiesUpward}, "ties-toward-positive", 0);
  const Matrix<float> ties = TieMatrix(150, 80);
  const Explanation e = Explain(Te(), ties.View(), Quantize(ties, {.code = TiesUpward}));
  CHECK(Stated(e) == "ties-toward-positive");
  CHECK_THAT(Text(Te(), e), ContainsSubstring("every code that differs under a right scale is an "
                                              "exact tie"));
}

TEST_CASE("An encode scale in FP16 is never called another code base's formula", "[judge]") {
  CheckNeverFalse({.encode = Fp16}, "encode-scale-fp16", 0);
  Matrix<float> large = Input(330, false, 512, 512);
  large(0, 0) = 2.78189f;  // S lies between two FP16 numbers
  CHECK(Stated(Explain(Te(), large.View(), Quantize(large, {.encode = Fp16}))) ==
        "encode-scale-fp16");
}

// Approximate division allows the bytes of any other tie rule; it does not imply them.
TEST_CASE("Bytes that only a set of answers allows are consistent with it, no more", "[judge]") {
  std::size_t in_sets = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const Matrix<float> x = Input(340 + seed, true);
    std::uint32_t state = 77u + seed;
    Parts parts;  // a pseudo-random bit sends a tie up or down
    parts.code = [&](float v) {
      state = state * 1664525u + 1013904223u;
      return (state >> 31) != 0 ? TiesUpward(v)
                                : static_cast<std::uint8_t>(Encode(FormatId::kE2M1, v));
    };
    const Explanation e = Explain(Te(), x.View(), Quantize(x, parts), {.search = {.pairs = false}});
    if (e.equal) continue;
    CHECK(Stated(e).empty());
    in_sets += e.causes.sets.empty() ? 0 : 1;
    if (e.causes.sets.empty() || !e.causes.exact.empty()) continue;
    CHECK_THAT(Text(Te(), e), ContainsSubstring("Cause: consistent with division by approximate "
                                                "instructions"));
    CHECK(ToJson(Te(), e)["verdict"] == "consistent with");
  }
  CHECK(in_sets > 0);
}

TEST_CASE("Damage that no rule makes has no cause, and its place is told", "[judge]") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const Matrix<float> x = Input(400 + seed, seed % 2 == 0);
    StoredMatrix bytes = RunKernel(Te(), x.View());
    const RandomStream stream{.seed = seed};
    const std::size_t flips = seed % 4 == 0 ? 1 : 1 + seed * 7;
    for (std::size_t k = 0; k < flips; ++k) {
      const std::uint32_t word = stream.Bits32(k);
      std::vector<std::uint8_t>& part = word % 5 == 0 ? bytes.scales : bytes.codes;
      part[(word >> 8) % part.size()] ^= static_cast<std::uint8_t>(1u << (word >> 5 & 7u));
    }
    const Explanation e = Explain(Te(), x.View(), bytes, {.search = {.pairs = seed % 5 == 0}});
    if (e.equal) continue;
    CHECK(Stated(e).empty());
    CHECK_THAT(Text(Te(), e), ContainsSubstring("  where    "));
    CHECK(ToJson(Te(), e)["where"]["blocks_different"] == e.extent.differing.size());
  }
}

TEST_CASE("Two errors of which the table knows one have no cause", "[judge]") {
  for (const std::string_view known : {"truncation", "scale-one-up", "codes-high-first",
                                       "amax-of-first-row", "ties-away", "scales-transposed"}) {
    CAPTURE(known);
    const Matrix<float> x = Input(500, true);
    const Deviation* const one[] = {FindDeviation(known)};
    StoredMatrix bytes = RunKernel(Te(), x.View(), one);
    for (std::size_t i = 40; i < bytes.codes.size(); i += 97) bytes.codes[i] ^= 0x22;
    const Explanation e = Explain(Te(), x.View(), bytes);
    CHECK(e.causes.exact.empty());
    CHECK_THAT(Text(Te(), e), ContainsSubstring("Cause: not found among"));
  }
}

TEST_CASE("A pattern of columns is told where nothing explains it", "[judge]") {
  const Matrix<float> x = Input(600, true);
  StoredMatrix bytes = RunKernel(Te(), x.View());
  const RandomStream stream{.seed = 6};
  for (std::size_t r = 32; r < 48; ++r) {
    for (std::size_t c = 15; c < x.cols; c += 16) {
      bytes.codes[(r * x.cols + c) / 2] ^=
          static_cast<std::uint8_t>((1 + stream.Bits32(r + c) % 7) << 4);
    }
  }
  const Explanation e = Explain(Te(), x.View(), bytes);
  CHECK(Stated(e).empty());
  CHECK_THAT(Text(Te(), e),
             ContainsSubstring("  where    rows 32..47 of 96, columns 15..127 of 128; "
                               "only at column = 15 modulo 16\n"));
}

TEST_CASE("Tiles that differ are told where nothing explains them", "[judge]") {
  const RandomStream stream{.seed = 7};
  const auto explain = [&](std::size_t side, const std::vector<std::pair<int, int>>& corners) {
    const Matrix<float> x = Input(610, true);
    StoredMatrix bytes = RunKernel(Te(), x.View());
    for (const auto& [top, left] : corners) {
      for (std::size_t k = 0; k < side * side; k += 2) {
        const std::size_t r = static_cast<std::size_t>(top) + k / side;
        const std::size_t c = static_cast<std::size_t>(left) + k % side;
        bytes.codes[(r * x.cols + c) / 2] ^=
            static_cast<std::uint8_t>((stream.Bits32(k) % 7 + 1) * 0x11);
      }
    }
    return Explain(Te(), x.View(), bytes);
  };
  const Explanation diagonal = explain(32, {{0, 0}, {32, 64}});
  CHECK(Stated(diagonal) == "");
  CHECK_THAT(Text(Te(), diagonal),
             ContainsSubstring("  where    rows 0..63 of 96, columns 0..95 of 128\n"
                               "           only in the tiles of 32x32 at (0, 0), (32, 64)\n"));
  const Json where = ToJson(Te(), diagonal)["where"];
  CHECK(where["tile_side"] == 32);
  CHECK(where["tiles"] == Json({{0, 0}, {32, 64}}));
  CHECK(explain(16, {{0, 0}, {16, 112}, {80, 48}}).extent.tiles.corners.size() == 3);
  // The rectangle says as much of neighbours, of a single tile and of many tiles.
  CHECK(explain(32, {{0, 0}, {0, 32}}).extent.tiles.side == 0);
  CHECK(explain(32, {{32, 64}}).extent.tiles.side == 0);
  CHECK(explain(16, {{0, 0}, {16, 112}, {80, 48}, {48, 0}, {48, 48}}).extent.tiles.side == 0);
}

// Each of these deviations is left out of the search, so that it is an unknown error. None of them
// has an equivalent row, which Explain could rightly name.
TEST_CASE("An error that the table lacks gets no false cause", "[judge]") {
  Kernel kernel = Te();
  kernel.layout.scales = ScaleOrder::k128x4;
  for (const std::string_view unknown : {"scale-tiles-not-interleaved",
                                         "scale-tiles-transposed",
                                         "scales-8x4",
                                         "scales-transposed",
                                         "scales-shifted",
                                         "codes-shifted",
                                         "code-bytes-swapped",
                                         "parts-swapped",
                                         "tensor-scale-inverted",
                                         "constant-448",
                                         "encode-scale-fp16",
                                         "decode-scale-bf16",
                                         "decode-scale-fp16",
                                         "scale-truncated",
                                         "scale-power-of-two",
                                         "block-amax-without-abs",
                                         "block-of-one-more",
                                         "block-of-even-lanes",
                                         "block-of-half-the-width",
                                         "block-of-twice-the-width",
                                         "factor-rounded-fp16",
                                         "scaled-fp16",
                                         "ties-toward-positive",
                                         "ties-toward-negative",
                                         "ties-to-odd",
                                         "ties-toward-zero",
                                         "round-away",
                                         "round-down",
                                         "sign-dropped",
                                         "negative-to-zero",
                                         "saturated-sign-lost",
                                         "overflow-to-zero"}) {
    const Deviation* const one[] = {FindDeviation(unknown)};
    REQUIRE(one[0] != nullptr);
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      CAPTURE(unknown, seed);
      const Matrix<float> x = Input(700 + seed, seed != 1);
      ExplainOptions options;
      options.search = {.pairs = false, .without = {one[0]}};
      options.deciding_case = false;
      const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one), options);
      CHECK(Stated(e) == "");
    }
  }
}

TEST_CASE("A few differences out of few are consistent with a cause, and enough force it",
          "[judge]") {
  Matrix<float> x(64, 64, 1.0f);
  x(0, 0) = 2688.0f;
  const Deviation* const one[] = {FindDeviation("truncation")};
  const auto explain = [&](std::size_t count) {
    for (std::size_t k = 0; k < count; ++k) {
      x(1 + k, 16) = 6.0f;
      x(1 + k, 20) = 2.9f;
      x(1 + k, 21) = 0.01f * static_cast<float>(k);  // makes the blocks distinct
    }
    return Explain(Te(), x.View(), RunKernel(Te(), x.View(), one));
  };
  const Explanation few = explain(5);
  CHECK(few.causes.evidence == 6);  // five blocks, and the equal blocks of ones
  CHECK(few.causes.certainty != Certainty::kForced);
  CHECK(Names(few, "truncation"));
  for (std::size_t k = 0; k < 5; ++k) x(1 + k, 22) = -2.9f;  // rounding down makes it -3
  const Explanation alone = explain(5);
  CHECK(alone.causes.certainty == Certainty::kTooFew);
  const std::size_t evidence = alone.causes.evidence;
  CHECK((evidence > 5 && evidence < kEnoughDifferences));
  CHECK_THAT(
      Text(Te(), alone),
      ContainsSubstring("Cause: consistent with: ") &&
          ContainsSubstring("(truncation)\n       This cause reproduces all bytes. But only " +
                            std::to_string(evidence) +
                            " independent differences support it;\n"
                            "       fp4lab states a cause from 32 on.\n"));
  CHECK(ToJson(Te(), alone)["verdict"] == "consistent with");
  const Explanation equal_blocks = [&] {
    Matrix<float> same(64, 64, 2.9f);
    for (std::size_t r = 0; r < 64; ++r)
      same(r, 0) = same(r, 16) = same(r, 32) = same(r, 48) = 6.0f;
    same(0, 0) = 2688.0f;
    return Explain(Te(), same.View(), RunKernel(Te(), same.View(), one));
  }();
  CHECK(equal_blocks.counts.codes_differ > 1000);
  CHECK(equal_blocks.causes.evidence < kEnoughDifferences);
}

// Ties away from zero and ties toward plus infinity differ in negative ties only.
TEST_CASE("A cause that few blocks tell from another is consistent, with the count of blocks",
          "[judge]") {
  Matrix<float> x = TieMatrix(150, 80);
  for (float& v : x.values) v = std::fabs(v);
  const Deviation* const one[] = {FindDeviation("ties-away")};
  for (std::size_t blocks = 1; blocks <= kClearMargin; ++blocks) {
    // One more block whose scale is 1 (the tensor's amax is 2688) and that has a negative tie.
    const std::size_t first = 16 * (5 * blocks + 1);
    std::fill_n(x.values.begin() + static_cast<std::ptrdiff_t>(first), 16, 1.0f);
    x.values[first] = 6.0f;
    x.values[first + 1] = -2.5f;
    const Explanation e = Explain(Te(), x.View(), RunKernel(Te(), x.View(), one));
    CAPTURE(blocks, Text(Te(), e));
    CHECK(Names(e, "ties-away"));
    if (blocks == kClearMargin) {
      CHECK(Stated(e) == "ties-away");
      continue;
    }
    CHECK(e.causes.certainty == Certainty::kNearRival);
    REQUIRE(e.causes.near.has_value());
    CHECK(e.causes.near->blocks_left == blocks);
    CHECK_THAT(Text(Te(), e),
               ContainsSubstring("But " + Name(e.causes.near->cause) + " leaves only " +
                                 CountText(blocks, "block") + " different.\n"));
    CHECK(ToJson(Te(), e)["verdict"] == "consistent with");
    CHECK(ToJson(Te(), e)["near"]["blocks_left"] == blocks);
  }
}

TEST_CASE("Causes that are not told apart are listed with a case that decides", "[judge]") {
  Matrix<float> positive = TieMatrix(64, 64);
  for (float& v : positive.values) v = std::fabs(v);
  const Deviation* const one[] = {FindDeviation("ties-away")};
  const Explanation e = Explain(Te(), positive.View(), RunKernel(Te(), positive.View(), one));
  CHECK(Names(e, "ties-away"));
  CHECK(Names(e, "ties-toward-positive"));  // the same for positive numbers
  CHECK(e.causes.certainty == Certainty::kNotToldApart);
  REQUIRE(e.deciding.has_value());
  const std::string text = Text(Te(), e);
  CHECK_THAT(text, ContainsSubstring("Cause: not determined by these bytes."));
  CHECK_THAT(text, ContainsSubstring("The directed case " + e.deciding->name));
  CHECK(ToJson(Te(), e)["verdict"] == "not told apart");
}

}  // namespace
}  // namespace fp4lab
