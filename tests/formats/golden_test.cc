// Casts of other libraries (tests/golden/casts.npz, te_sr_host.npz) against fp4lab's.
#include "tests/support/golden.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/formats/format.h"
#include "fp4lab/formats/te_stochastic.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

constexpr bool IsNanBits(std::uint32_t u) { return (u & 0x7FFFFFFFu) > 0x7F800000u; }
constexpr bool IsNegativeNan(std::uint32_t u) { return IsNanBits(u) && u >> 31 != 0; }
constexpr bool IsMinusZero(std::uint32_t u) { return u == 0x80000000u; }
// Excludes inputs that fp4lab converts to NaN as well: -NaN, -Inf and magnitudes that round beyond
// E8M0's largest.
constexpr bool IsZeroOrNegativeInRange(std::uint32_t u) {
  return u == 0 || (u >= 0x80000000u && u < 0xFF400000u);
}

// A known difference of another library's cast: for exactly the inputs that `applies` names, the
// library's code is `code` of the input's bits, and fp4lab's code is another.
struct Difference {
  std::string_view name;
  std::string_view arrays;  // prefix of the names of the arrays concerned
  FormatId format;
  bool (*applies)(std::uint32_t bits);
  std::uint32_t (*code)(std::uint32_t bits);
};

constexpr std::array kDifferences = {
    Difference{"ml_dtypes E4M3: a NaN keeps its sign", "ml_", FormatId::kE4M3, IsNegativeNan,
               [](std::uint32_t) { return 0xFFu; }},
    Difference{"ml_dtypes E5M2: NaN is 0x7E with its sign", "ml_", FormatId::kE5M2, IsNanBits,
               [](std::uint32_t u) { return 0x7Eu | (u >> 31) << 7; }},
    Difference{"ml_dtypes E2M1: +NaN -> 0x8, -NaN -> 0x0", "ml_", FormatId::kE2M1, IsNanBits,
               [](std::uint32_t u) { return u >> 31 != 0 ? 0x0u : 0x8u; }},
    Difference{"ml_dtypes E8M0: zeros and negative numbers -> NaN", "ml_", FormatId::kE8M0,
               IsZeroOrNegativeInRange, [](std::uint32_t) { return 0xFFu; }},
    Difference{"torch E4M3: a NaN keeps its sign", "torch_", FormatId::kE4M3, IsNegativeNan,
               [](std::uint32_t) { return 0xFFu; }},
    Difference{"torch E5M2: a NaN keeps its sign", "torch_", FormatId::kE5M2, IsNegativeNan,
               [](std::uint32_t) { return 0xFFu; }},
    Difference{"TE reference E2M1: -0 -> 0x0", "te_ref_", FormatId::kE2M1, IsMinusZero,
               [](std::uint32_t) { return 0x0u; }},
    Difference{"TE reference E2M1: NaN -> 0x0", "te_ref_", FormatId::kE2M1, IsNanBits,
               [](std::uint32_t) { return 0x0u; }},
};

struct Cast {
  std::string array;
  FormatId format;
  Overflow overflow;
  std::vector<std::uint32_t> codes;
};

std::vector<std::uint32_t> CodesOf(const NpyArray& array, bool packed) {
  std::vector<std::uint32_t> codes;
  if (array.dtype == "<u2") {
    for (const std::uint16_t code : array.As<std::uint16_t>()) codes.push_back(code);
    return codes;
  }
  for (const std::uint8_t code : array.As<std::uint8_t>()) {
    codes.push_back(packed ? code & 0xFu : code);
    if (packed) codes.push_back(code >> 4u);
  }
  return codes;
}

// "ml_sweep_float8_e5m2" -> E5M2; the TE reference's packed codes are E2M1.
Cast ReadCast(const NpzFile& file, const std::string& name) {
  const bool is_te = name.rfind("te_ref_", 0) == 0;
  const std::string format = name.substr(name.find('_', name.find('_') + 1) + 1);
  const auto id = is_te ? FormatId::kE2M1 : FindFormat(format);
  REQUIRE(id.has_value());
  return {name, *id, is_te ? Overflow::kSaturate : Overflow::kSpecial,
          CodesOf(file.Read(name), is_te)};
}

// The number of inputs whose code differs from fp4lab's without a known difference, or equals
// fp4lab's in spite of one.
std::size_t Unexplained(const Cast& cast, const std::vector<std::uint32_t>& inputs,
                        std::array<std::size_t, kDifferences.size()>* uses) {
  std::size_t unexplained = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::uint32_t u = inputs[i];
    const std::uint32_t ours =
        Encode(cast.format, std::bit_cast<float>(u), Rounding::kNearestEven, 0, cast.overflow);
    bool is_right = cast.codes[i] == ours;
    for (std::size_t d = 0; d < kDifferences.size(); ++d) {
      const Difference& difference = kDifferences[d];
      if (cast.format != difference.format || cast.array.rfind(difference.arrays, 0) != 0) continue;
      if (!difference.applies(u)) continue;
      is_right = cast.codes[i] == difference.code(u) && cast.codes[i] != ours;
      ++(*uses)[d];
    }
    if (is_right || ++unexplained > 5) continue;
    UNSCOPED_INFO(cast.array << ": bits " << std::hex << u << " are " << cast.codes[i]
                             << " there and " << ours << " here");
  }
  return unexplained;
}

TEST_CASE("The casts of ml_dtypes, torch and Transformer Engine are ours, but for a named list",
          "[formats][golden]") {
  const NpzFile file = OpenGolden("casts.npz");
  std::vector<std::uint32_t> bf16, sweep;
  for (std::uint32_t u = 0; u < 0x10000; ++u) bf16.push_back(u << 16);
  const NpyArray bits = file.Read("sweep_f32_bits");
  for (const std::uint32_t u : bits.As<std::uint32_t>()) sweep.push_back(u);
  std::size_t casts = 0;
  std::array<std::size_t, kDifferences.size()> uses{};
  for (const std::string& name : file.Names()) {
    const bool is_bf16 = name.find("_bf16all_") != std::string::npos;
    if (!is_bf16 && name.find("_sweep_") == std::string::npos) continue;
    const Cast cast = ReadCast(file, name);
    const std::vector<std::uint32_t>& inputs = is_bf16 ? bf16 : sweep;
    INFO(name);
    REQUIRE(cast.codes.size() == inputs.size());
    CHECK(Unexplained(cast, inputs, &uses) == 0);
    ++casts;
  }
  CHECK(casts == 17);
  for (std::size_t d = 0; d < kDifferences.size(); ++d) {
    INFO(kDifferences[d].name);
    CHECK(uses[d] > 0);
  }
}

TEST_CASE("Every code decodes to ml_dtypes's value", "[formats][golden]") {
  const NpzFile file = OpenGolden("casts.npz");
  for (const FormatId id : {FormatId::kE2M1, FormatId::kE4M3, FormatId::kE5M2, FormatId::kE8M0}) {
    const NpyArray table = file.Read("ml_decode_" + std::string(Named(id).name));
    const auto values = table.As<std::uint32_t>();
    REQUIRE(values.size() == 1u << FormatOf(id).bits);
    for (std::uint32_t code = 0; code < values.size(); ++code) {
      INFO(Named(id).name << " code " << code);
      CHECK(std::bit_cast<std::uint32_t>(Decode(id, code)) == values[code]);
    }
  }
}

struct StochasticTable {
  std::vector<std::uint32_t> inputs;  // binary32 bits
  std::vector<std::uint8_t> nibbles;  // (inputs, 256)
};

StochasticTable ReadStochasticTable() {
  const NpzFile file = OpenGolden("te_sr_host.npz");
  const NpyArray inputs = file.Read("sr_x_f32_bits"), nibbles = file.Read("sr_nibble");
  REQUIRE(nibbles.shape == std::vector<std::size_t>{3898, 256});
  const auto x = inputs.As<std::uint32_t>();
  const auto n = nibbles.As<std::uint8_t>();
  return {{x.begin(), x.end()}, {n.begin(), n.end()}};
}

TEST_CASE("Transformer Engine's software stochastic rounding is reproduced, all 256 random bytes",
          "[formats][golden]") {
  const StochasticTable table = ReadStochasticTable();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < table.inputs.size(); ++i) {
    const float x = std::bit_cast<float>(table.inputs[i]);
    for (std::uint32_t r = 0; r < 256; ++r) {
      wrong += EncodeTransformerEngineStochastic(x, r) != table.nibbles[256 * i + r];
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE(
    "The carry of 8 bits differs from Transformer Engine's rounding only where its sum rounds "
    "up to a grid value",
    "[formats][golden]") {
  const StochasticTable table = ReadStochasticTable();
  std::size_t differences = 0, unexplained = 0;
  for (std::size_t i = 0; i < table.inputs.size(); ++i) {
    const float x = std::bit_cast<float>(table.inputs[i]);
    if (IsNanBits(table.inputs[i])) continue;
    const float a = std::bit_cast<float>(table.inputs[i] & 0x7FFFFFFFu);
    const float q = a < 2.0f ? 0.5f : a < 4.0f ? 1.0f : 2.0f;
    for (std::uint32_t r = 0; r < 256; ++r) {
      const std::uint32_t carry = Encode(FormatId::kE2M1, x, Rounding::kStochastic, r << 8);
      const float push = static_cast<float>(r) / 256.0f * q;
      const float sum = a + push;
      // The difference is exact in double: its operands are within a factor of two, or push is 0.
      const bool rounded_up = static_cast<double>(sum) - push > a;
      const bool on_grid = Decode(FormatId::kE2M1, Encode(FormatId::kE2M1, sum)) == sum;
      const bool differs = carry != table.nibbles[256 * i + r];
      differences += differs;
      unexplained += differs != (rounded_up && on_grid && r > 0);
    }
  }
  CHECK(differences == 34);
  CHECK(unexplained == 0);
}

}  // namespace
}  // namespace fp4lab
