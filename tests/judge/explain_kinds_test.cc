// Kinds of wrong kernels that users met: parts with an amax of their own, stale factors, dropped
// columns, permuted rows, other tiles, stochastic rounding. The kernels are written here without
// the table of deviations.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/identify/identify.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/quantize/diagnostics/statistic.h"
#include "fp4lab/transform/hadamard_transform.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

Kernel Te() { return {.dialect = *FindDialect("nvfp4.te"), .layout = {}}; }

// Transformer Engine's kernel in plain loops. The hooks get the block's index in its row.
struct Loops {
  std::function<float(float amax, std::size_t row, std::size_t col)> amax_for =
      [](float amax, std::size_t, std::size_t) { return amax; };
  std::function<float(float amax)> amax_for_factor = [](float amax) { return amax; };
  std::function<float(float s)> encode = [](float s) { return std::min(s, kFloatMax); };
  int factor_from = 0;     // the factor of the block so many blocks before, around the row's end
  bool over_amax = false;  // x * 6 / b in place of x * e
};
StoredMatrix Quantize(const Matrix<float>& x, const Loops& loops) {
  StoredMatrix out = ShapeOf(Te().dialect, x.rows, x.cols, {});
  const float amax = MaxMagnitudeOf(x.View(), false);
  out.tensor_scale = {amax};
  const auto encode_of = [&](float a) { return loops.encode(2688.0f / a); };
  for (std::size_t r = 0; r < x.rows; ++r) {
    const std::size_t blocks = x.cols / 16;
    std::vector<float> factors, maxima;
    for (std::size_t j = 0; j < blocks; ++j) {
      float b = 0;
      for (std::size_t k = 0; k < 16; ++k) b = std::max(b, std::fabs(x(r, j * 16 + k)));
      const float encode = encode_of(loops.amax_for(amax, r, j * 16));
      const std::uint32_t byte = Encode(FormatId::kE4M3, b * (encode * (1.0f / 6.0f)));
      out.scales.push_back(static_cast<std::uint8_t>(byte));
      const float decode = 1.0f / encode_of(loops.amax_for_factor(loops.amax_for(amax, r, j * 16)));
      factors.push_back(std::min(1.0f / (Decode(FormatId::kE4M3, byte) * decode), kFloatMax));
      maxima.push_back(b);
    }
    const auto code = [&](std::size_t c) {
      const std::size_t j = c / 16;
      const auto from = (j + blocks - static_cast<std::size_t>(loops.factor_from)) % blocks;
      const float v = loops.over_amax ? x(r, c) * 6.0f / maxima[j] : x(r, c) * factors[from];
      return static_cast<std::uint8_t>(Encode(FormatId::kE2M1, v));
    };
    for (std::size_t c = 0; c < x.cols; c += 2) {
      out.codes.push_back(static_cast<std::uint8_t>(code(c) | code(c + 1) << 4));
    }
  }
  return out;
}

std::string First(const Explanation& e) {
  return e.causes.exact.empty() ? "none" : Name(e.causes.exact[0]);
}
bool Names(const Explanation& e, std::string_view name) {
  return std::any_of(e.causes.exact.begin(), e.causes.exact.end(),
                     [&](const Cause& c) { return Name(c) == name; });
}

// Random values; the amax lies in the last row, the rows before have smaller ones.
Matrix<float> Input(std::uint32_t seed, std::size_t rows = 96, std::size_t cols = 128) {
  Matrix<float> x = RandomMatrix(seed, rows, cols, 24, -4, 5);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      x(r, c) *= 1.0f + 0.37f * static_cast<float>(r * 3 / rows) +
                 0.21f * static_cast<float>(c * 2 / cols);
    }
  }
  x.values.back() = 7.1234567f;
  return x;
}

TEST_CASE("explain finds parts that are scaled by their own amax", "[judge]") {
  struct Row {
    std::vector<std::size_t> starts;
    bool by_columns;
    std::string says;
  };
  const Row rows[] = {
      {{32}, false, "rows 0..31, 32..; "},
      {{48}, false, "rows 0..47, 48..; "},
      {{32, 64}, false, "rows 0..31, 32..63, 64..; "},
      {{64, 80}, false, "rows 0..63, 64..79, 80..; "},
      {{64}, true, "columns 0..63, 64..; "},
  };
  for (const Row& row : rows) {
    for (const int stored : {0, 1, 2}) {
      const Matrix<float> x = Input(7);
      CAPTURE(row.says, stored);
      std::vector<float> amaxes;
      const auto part_of = [&](std::size_t r, std::size_t c) {
        const std::size_t at = row.by_columns ? c : r;
        return static_cast<std::size_t>(std::count_if(row.starts.begin(), row.starts.end(),
                                                      [&](std::size_t s) { return s <= at; }));
      };
      amaxes.assign(row.starts.size() + 1, 0.0f);
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) {
          float& amax = amaxes[part_of(r, c)];
          amax = std::max(amax, std::fabs(x(r, c)));
        }
      }
      StoredMatrix bytes = Quantize(x, {.amax_for = [&](float, std::size_t r, std::size_t c) {
                                      return amaxes[part_of(r, c)];
                                    }});
      if (stored == 1) bytes.tensor_scale = {amaxes.front()};
      if (stored == 2) bytes.tensor_scale.clear();
      const Explanation e = Explain(Te(), x.View(), bytes);
      CHECK(First(e) == "amax-of-parts");
      CHECK(e.causes.certainty == Certainty::kForced);
      const std::string text = Text(Te(), e);
      CHECK_THAT(text, ContainsSubstring(row.says));
      CHECK_THAT(text,
                 ContainsSubstring(stored == 1 ? "the stored number is the amax of the first"
                                               : "the stored number is the amax of the matrix"));
    }
  }
}

// Gate and up interleaved row by row or in groups, each with an amax of its own.
TEST_CASE("explain finds parts in turn that are scaled by their own amax", "[judge]") {
  for (const std::size_t group : {1u, 8u}) {
    for (const std::size_t parts : {2u, 3u}) {
      CAPTURE(group, parts);
      const Matrix<float> x = Input(17);
      std::vector<float> amaxes(parts, 0.0f);
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) {
          float& amax = amaxes[r / group % parts];
          amax = std::max(amax, std::fabs(x(r, c)));
        }
      }
      const StoredMatrix bytes = Quantize(x, {.amax_for = [&](float, std::size_t r, std::size_t) {
                                            return amaxes[r / group % parts];
                                          }});
      const Explanation e = Explain(Te(), x.View(), bytes);
      CHECK(First(e) == "amax-of-parts");
      CHECK(e.causes.certainty == Certainty::kForced);
      CHECK_THAT(Text(Te(), e),
                 ContainsSubstring(group == 1 ? parts == 2 ? "rows 0, 2, 4 ..., rows 1, 3, 5 ...; "
                                                           : "rows 0, 3, 6 ..., rows 1, 4, 7 ..."
                                   : parts == 2 ? "rows 0..7 and every 16 further, rows 8..15 and "
                                                : "rows 16..23 and every 24 further; "));
    }
  }
}

TEST_CASE("explain finds parts whose scales were encoded again for one number", "[judge]") {
  for (const std::size_t parts : {2u, 3u}) {
    CAPTURE(parts);
    const Matrix<float> x = Input(18);
    std::vector<float> amaxes(parts, 0.0f);
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) {
        float& amax = amaxes[r * parts / x.rows];
        amax = std::max(amax, std::fabs(x(r, c)));
      }
    }
    StoredMatrix bytes = Quantize(x, {.amax_for = [&](float, std::size_t r, std::size_t) {
                                    return amaxes[r * parts / x.rows];
                                  }});
    const float whole = 1.0f / (2688.0f / bytes.tensor_scale[0]);
    for (std::size_t i = 0; i < bytes.scales.size(); ++i) {
      const float part = 1.0f / (2688.0f / amaxes[i / (x.cols / 16) * parts / x.rows]);
      const float s = Decode(FormatId::kE4M3, bytes.scales[i]);
      bytes.scales[i] = static_cast<std::uint8_t>(Encode(FormatId::kE4M3, s * (part / whole)));
    }
    const Explanation e = Explain(Te(), x.View(), bytes);
    CHECK(First(e) == "parts-folded");
    CHECK(e.causes.certainty == Certainty::kForced);
    CHECK_THAT(Text(Te(), e), ContainsSubstring(parts == 2 ? ": rows 0..47, 48..; "
                                                           : ": rows 0..31, 32..63, 64..; "));
  }
}

TEST_CASE("explain finds factors of the block before and of another amax", "[judge]") {
  const Matrix<float> x = Input(8);
  Explanation e = Explain(Te(), x.View(), Quantize(x, {.factor_from = 1}));
  CHECK(First(e) == "factor-of-previous");
  CHECK(e.causes.certainty == Certainty::kForced);
  CHECK_THAT(Text(Te(), e), ContainsSubstring("that of the row's last block"));
  for (const float amax : {3.25f, 1.0f, 11.5f}) {
    CAPTURE(amax);
    e = Explain(Te(), x.View(), Quantize(x, {.amax_for_factor = [&](float) { return amax; }}));
    CHECK(First(e) == "factor-amax-stale");
    CHECK(e.causes.certainty == Certainty::kFitted);
    REQUIRE(e.causes.exact[0].value.has_value());
    CHECK(std::fabs(e.causes.exact[0].value->amax - amax) <= 1e-3f * amax);
  }
}

TEST_CASE("explain names x * 6 / b, and no second cause", "[judge]") {
  for (std::uint32_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const Matrix<float> x = RandomMatrix(20 + seed, 256, 256, 8, -4, 5);  // with ties
    const Explanation e = Explain(Te(), x.View(), Quantize(x, {.over_amax = true}));
    CHECK(Names(e, "elements-over-amax"));
    for (const Cause& cause : e.causes.exact) {
      CHECK((Name(cause) == "elements-over-amax" || Name(cause) == "factor-from-unrounded-scale"));
    }
    CHECK((e.causes.certainty != Certainty::kForced || First(e) == "elements-over-amax"));
  }
}

TEST_CASE("A missing clamp to FLT_MAX comes before an S in BF16 that overflows too", "[judge]") {
  const Matrix<float> x = Scaled(Input(9), -140);
  const Explanation e = Explain(Te(), x.View(), Quantize(x, {.encode = [](float s) { return s; }}));
  REQUIRE_FALSE(e.equal);
  const auto place = [&](std::string_view name) {
    return std::find_if(e.causes.exact.begin(), e.causes.exact.end(),
                        [&](const Cause& c) { return Name(c) == name; });
  };
  CHECK(place("encode-scale-unclamped") != e.causes.exact.end());
  CHECK(place("encode-scale-unclamped") < place("encode-scale-bf16"));
}

// The bytes of another input.
Explanation ExplainInput(const Matrix<float>& x, const Matrix<float>& quantized) {
  return Explain(Te(), x.View(), Quantize(quantized, {}));
}

TEST_CASE("explain finds dropped columns, permuted rows and a multiplied input", "[judge]") {
  for (const std::size_t dropped : {1u, 5u, 16u, 40u}) {
    CAPTURE(dropped);
    Matrix<float> x = Input(10), y = x;
    x(2, 3) = y(2, 3) = 7.75f;  // the amax stays
    for (std::size_t r = 0; r < y.rows; ++r) {
      for (std::size_t c = y.cols - dropped; c < y.cols; ++c) y(r, c) = 0.0f;
    }
    const Explanation e = ExplainInput(x, y);
    CHECK(Names(e, "input-columns-dropped"));
    CHECK_THAT(Text(Te(), e), ContainsSubstring("the last " + std::to_string(dropped)));
  }
  const Matrix<float> x = Input(11);
  const auto permuted = [&](auto source) {
    Matrix<float> y = x;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) y(r, c) = x(source(r), c);
    }
    return First(ExplainInput(x, y));
  };
  CHECK(permuted([](std::size_t r) { return r ^ 1; }) == "input-rows-permuted");
  CHECK(permuted([](std::size_t r) { return r < 48 ? 2 * r : 2 * r - 95; }) ==
        "input-rows-permuted");
  CHECK(permuted([](std::size_t r) { return r % 2 * 48 + r / 2; }) == "input-rows-permuted");
  CHECK(permuted([](std::size_t r) { return 95 - r; }) == "input-rows-permuted");
  // 2 parts of 48 rows, 8 at a time; 4 parts of 24 rows, 1 at a time; 3 parts of 32, 16 at a time.
  const auto in_turn = [&](std::size_t parts, std::size_t group) {
    const std::size_t turns = 96 / (parts * group);
    return permuted([=](std::size_t r) {
      return (r / group % parts * turns + r / (group * parts)) * group + r % group;
    });
  };
  CHECK(in_turn(2, 8) == "input-rows-in-turn");
  CHECK(in_turn(4, 1) == "input-rows-in-turn");
  CHECK(in_turn(3, 16) == "input-rows-in-turn");
  CHECK(in_turn(24, 1) == "input-rows-in-turn");
  const auto columns = [&](auto source, bool up) {
    Matrix<float> y = x;
    for (std::size_t r = 0; r < x.rows; ++r) {
      for (std::size_t c = 0; c < x.cols; ++c) y(r, c) = x(up ? 95 - r : r, source(c));
    }
    return First(ExplainInput(x, y));
  };
  CHECK(columns([](std::size_t c) { return 127 - c; }, false) == "input-columns-permuted");
  CHECK(columns([](std::size_t c) { return c ^ 1; }, false) == "codes-high-first");
  CHECK(columns([](std::size_t c) { return c % 2 * 64 + c / 2; }, false) ==
        "input-columns-permuted");
  CHECK(columns([](std::size_t c) { return 127 - c; }, true) == "input-reversed");
  CHECK(permuted([](std::size_t r) { return r == 5 ? 41 : r == 41 ? 5 : r; }) == "parts-swapped");
  for (const float factor : {1.1f, 0.5f, 3.0f}) {
    CAPTURE(factor);
    Matrix<float> y = x;
    for (float& v : y.values) v *= factor;
    const Explanation e = ExplainInput(x, y);
    CHECK(First(e) == "input-times");
    CHECK_FALSE(Names(e, "input-fp16"));
  }
}

// Two rows are swapped in which blocks are equal by chance.
TEST_CASE("explain finds swapped rows that share blocks", "[judge]") {
  Matrix<float> x = Input(12);
  for (std::size_t c = 48; c < 64; ++c) x(5, c) = x(40, c) = 0.0f;
  Matrix<float> y = x;
  for (std::size_t c = 0; c < x.cols; ++c) std::swap(y(5, c), y(40, c));
  CHECK(First(ExplainInput(x, y)) == "parts-swapped");
}

TEST_CASE("explain finds tiles of scales in a wrong order where linear scales are asked for",
          "[judge]") {
  const Matrix<float> x = Input(13, 256, 128);
  StoredMatrix bytes = Quantize(x, {});
  const std::vector<std::uint8_t> linear = bytes.scales;
  for (const bool inner : {false, true}) {
    CAPTURE(inner);
    for (std::size_t r = 0; r < 256; ++r) {
      for (std::size_t c = 0; c < 8; ++c) {
        const std::size_t tile = (r / 128 * 2 + c / 4) * 512, i = r % 128, j = c % 4;
        const std::size_t place = inner ? i % 32 * 16 + j * 4 + i / 32 : j * 128 + i;
        bytes.scales[tile + place] = linear[r * 8 + c];
      }
    }
    Kernel tiled = Te();
    const std::string name = inner ? "scale-tiles-inner-transposed" : "scale-tiles-transposed";
    CHECK(First(Explain(tiled, x.View(), bytes)) == "scales-128x4 + " + name);
    tiled.layout.scales = ScaleOrder::k128x4;
    CHECK(First(Explain(tiled, x.View(), bytes)) == name);
  }
}

TEST_CASE("explain and identify find AITER's orders of bytes, and scales padded along one axis",
          "[judge]") {
  const Matrix<float> x = Input(19, 80, 208);  // 13 scales a row, 104 bytes of codes
  const StoredMatrix plain = Quantize(x, {});
  StoredMatrix aiter = plain, columns = plain, tiles = plain;
  aiter.scales.assign(std::size_t{256} * 16, 0);
  columns.scales.assign(std::size_t{80} * 16, 0);
  for (std::size_t r = 0; r < 80; ++r) {
    for (std::size_t c = 0; c < 13; ++c) {
      const std::uint8_t scale = plain.scales[r * 13 + c];
      aiter.scales[(r / 32 * 2 + c / 8) * 256 + c % 4 * 64 + r % 16 * 4 + c / 4 % 2 * 2 +
                   r / 16 % 2] = scale;
      columns.scales[r * 16 + c] = scale;
    }
  }
  tiles.codes.assign(std::size_t{80} * 128, 0);
  for (std::size_t r = 0; r < 80; ++r) {
    for (std::size_t c = 0; c < 104; ++c) {
      tiles.codes[(r / 16 * 4 + c / 32) * 512 + c % 32 / 16 * 256 + r % 16 * 16 + c % 16] =
          plain.codes[r * 104 + c];
    }
  }
  const std::pair<const StoredMatrix*, std::string> rows[] = {
      {&aiter, "scales-aiter"}, {&columns, "scales-columns-padded"}, {&tiles, "codes-16x16"}};
  for (const auto& [bytes, name] : rows) {
    CAPTURE(name);
    const Explanation e = Explain(Te(), x.View(), *bytes);
    CHECK(First(e) == name);
    CHECK(e.causes.certainty == Certainty::kForced);
    const Identification found = Identify(x.View(), *bytes);
    CHECK(!found.Fits());
    REQUIRE(!found.arranged.empty());
    CHECK(Name(found.arranged[0].cause) == name);
    CHECK(std::any_of(found.arranged.begin(), found.arranged.end(), [](const auto& a) {
      return a.candidate.kernel.dialect.name == "nvfp4.te" && !a.candidate.columnwise;
    }));
  }
}

TEST_CASE("explain and identify find DeepGEMM's packed scales", "[judge]") {
  const Matrix<float> x = NormalMatrix(23, 96, 1152);
  const Dialect& d = *FindDialect("mxfp8_e4m3.rceil");
  const StorageLayout layout{.codes = CodeOrder::kBytes};
  StoredMatrix bytes = Store(d, QuantizeAs(d, x.View()), layout);
  const std::vector<std::uint8_t> scales = bytes.scales;  // 36 of a row
  for (std::size_t r = 0; r < 96; ++r) {
    for (std::size_t c = 0; c < 36; ++c) {
      bytes.scales[(c / 4 * 96 + r) * 4 + c % 4] = scales[r * 36 + c];
    }
  }
  const Explanation e = Explain({.dialect = d, .layout = layout}, x.View(), bytes);
  CHECK(First(e) == "scales-deepgemm");
  const Identification found = Identify(x.View(), bytes);
  REQUIRE(!found.arranged.empty());
  CHECK(Name(found.arranged[0].cause) == "scales-deepgemm");
}

TEST_CASE("identify finds permuted rows, and parts with an amax of their own", "[judge]") {
  const Matrix<float> x = Input(20);
  Matrix<float> y = x;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) y(r, c) = x(r % 2 * 48 + r / 2, c);
  }
  const auto cause = [&](const StoredMatrix& bytes) {
    const Identification found = Identify(x.View(), bytes);
    CHECK_THAT(Text(found),
               ContainsSubstring("No dialect and layout gives these bytes as they are. "
                                 "They are exactly those of\n"));
    return found.arranged.empty() ? "none" : Sentence(found.arranged[0].cause);
  };
  CHECK_THAT(cause(Quantize(y, {})),
             ContainsSubstring("rows in another order: the halves in turn"));
  const StoredMatrix parts =
      Quantize(x, {.amax_for = [&](float amax, std::size_t r, std::size_t) {
                 return r < 32 ? MaxMagnitudeOf(x.View().Block(0, 0, 32, x.cols), false) : amax;
               }});
  CHECK_THAT(cause(parts), ContainsSubstring("by the part's own amax: rows 0..31, 32..; "));
  // Nothing explains bytes of another input.
  const Identification none = Identify(x.View(), Quantize(Input(21), {}));
  CHECK(none.arranged.empty());
  CHECK(!none.near.empty());
}

// The transform as a product with the matrix diag(signs) H / 4, one row of the matrix or one of its
// columns negated; normal BF16 values, of which some groups cancel to 0.
TEST_CASE("explain finds a negated row or column of the Hadamard matrix", "[judge]") {
  for (int place = 0; place < 16; ++place) {
    for (const bool column : {false, true}) {
      CAPTURE(place, column);
      Kernel kernel = Te();
      kernel.hadamard = 16;
      kernel.sign_mask = kTeSignMask16;
      Matrix<float> x = NormalMatrix(static_cast<std::uint64_t>(place), 64, 64);
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        x.values[i] = i % 160 < 16 ? (i % 2 == 0 ? 1.0f : -1.0f)
                                   : Decode(FormatId::kBF16, Encode(FormatId::kBF16, x.values[i]));
      }
      Matrix<float> y(x.rows, x.cols);
      for (std::size_t g = 0; g < x.values.size(); g += 16) {
        for (int j = 0; j < 16; ++j) {
          double sum = 0.0;
          for (int k = 0; k < 16; ++k) {
            double h = std::popcount(static_cast<unsigned>(j & k)) % 2 != 0 ? -0.25 : 0.25;
            if ((kTeSignMask16 >> k & 1u) != 0) h = -h;
            if ((column ? j : k) == place) h = -h;
            sum += h * static_cast<double>(x.values[g + static_cast<std::size_t>(k)]);
          }
          y.values[g + static_cast<std::size_t>(j)] =
              Decode(FormatId::kBF16, Encode(FormatId::kBF16, static_cast<float>(sum)));
        }
      }
      const Explanation e = Explain(kernel, x.View(), Quantize(y, {}));
      CHECK(First(e) == (column ? "rht-row-negated" : "rht-sign-wrong"));
    }
  }
}

TEST_CASE("explain says that a stochastic kernel explains the bytes, and only then", "[judge]") {
  const Matrix<float> x = Input(14, 128, 256);
  const Dialect& stochastic = *FindDialect("nvfp4.te.stochastic");
  const RandomStream stream{.seed = 3};
  std::vector<std::uint16_t> random, shared;
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    random.push_back(stream.Bits16(i));
    shared.push_back(stream.Bits16(i % x.cols));
  }
  const auto explain = [&](const std::vector<std::uint16_t>& bits) {
    return Explain(Te(), x.View(),
                   Store(stochastic, QuantizeAs(stochastic, x.View(), {.random = bits}), {}),
                   {.search = {.pairs = false}});
  };
  const Explanation right = explain(random);
  CHECK(right.causes.IsStochastic());
  CHECK_THAT(Text(Te(), right), ContainsSubstring("Cause: consistent with stochastic rounding"));
  CHECK(ToJson(Te(), right)["verdict"] == "consistent with");
  CHECK(ToJson(Te(), right)["stochastic"]["accepted"] == true);
  const Explanation wrong = explain(shared);
  CHECK_FALSE(wrong.causes.IsStochastic());
  CHECK_THAT(Text(Te(), wrong), ContainsSubstring("differs; it is not stochastic: "));
  const Deviation* const truncation[] = {FindDeviation("truncation")};
  const Explanation cut = Explain(Te(), x.View(), RunKernel(Te(), x.View(), truncation));
  CHECK(First(cut) == "truncation");
  CHECK_FALSE(cut.causes.stochastic.has_value());
}

// The number of an E8M0 scale in place of its byte: 2^(e - 127) modulo 256.
TEST_CASE("explain names scales stored by value; a layout that visits few bytes is not nearest",
          "[judge]") {
  const Kernel mx{.dialect = *FindDialect("mxfp4.floor"), .layout = {}};
  Matrix<float> x = Input(15, 64, 128);
  for (float& v : x.values) v *= 16.0f;
  StoredMatrix bytes = RunKernel(mx, x.View());
  for (std::uint8_t& byte : bytes.scales) {
    byte = static_cast<std::uint8_t>(static_cast<unsigned>(std::ldexp(1.0, byte - 127)) & 0xFFu);
  }
  const Explanation e = Explain(mx, x.View(), bytes);
  CHECK(First(e) == "scale-value-as-byte");
  // Without that row of the table, no layout is called near.
  const Explanation unknown =
      Explain(mx, x.View(), bytes,
              {.search = {.pairs = false, .without = {FindDeviation("scale-value-as-byte")}}});
  CHECK(unknown.causes.exact.empty());
  CHECK(
      (!unknown.causes.best || unknown.causes.best->cause.deviations[0]->stage != Stage::kLayout));
}

TEST_CASE("Where no stage of the first element differs, explain does not send there", "[judge]") {
  const Matrix<float> x = Input(16, 32, 64);
  StoredMatrix bytes = RunKernel(Te(), x.View());
  bytes.scales.resize(bytes.scales.size() + 7, 0x11);
  const Explanation e = Explain(Te(), x.View(), bytes, {.search = {.pairs = false}});
  REQUIRE_FALSE(e.equal);
  const std::string text = Text(Te(), e);
  CHECK_THAT(text, !ContainsSubstring("Check the first stage above"));
  CHECK_THAT(text, ContainsSubstring("The sizes are those of another layout"));
  CHECK_THAT(text, ContainsSubstring("run fp4lab identify"));
}

TEST_CASE("The commands that explain advises keep the layout and the transform", "[judge]") {
  Kernel kernel = Te();
  kernel.layout.codes = CodeOrder::kHighFirst;
  kernel.layout.scales = ScaleOrder::k128x4;
  kernel.layout.tensor_scale = TensorScaleConvention::kMultiplier;
  kernel.hadamard = 16;
  kernel.sign_mask = 0x1234;
  Matrix<float> x(16, 64, 1.0f);
  x(3, 20) = 2.90625f;  // a BF16 value
  x(0, 0) = 256.0f;
  const Deviation* const one[] = {FindDeviation("truncation")};
  const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one));
  REQUIRE(e.causes.certainty != Certainty::kForced);
  CHECK_THAT(Text(kernel, e),
             ContainsSubstring("fp4lab explain --dialect nvfp4.te --codes-order high-first "
                               "--scales-order 128x4 --tensor-scale-is multiplier --hadamard 16 "
                               "--signs 0x1234 --kept wrong\n"));
}

}  // namespace
}  // namespace fp4lab
