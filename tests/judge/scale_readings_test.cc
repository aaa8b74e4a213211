// Products of devices that read scale bytes in another way.
#include "fp4lab/judge/products/scale_readings.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/tensor/operands.h"

namespace fp4lab {
namespace {

MmaOperand Operand(FormatId scale, std::uint32_t seed) {
  const bool mx = scale == FormatId::kE8M0;
  MmaOperand x = RandomOperand(FormatOf(FormatId::kE2M1), 6, 128, Inputs::kTypical, seed,
                               mx ? 32 : 16, FormatOf(scale));
  for (std::size_t i = 0; i < x.scales.size(); ++i) {
    x.scales[i] = static_cast<std::uint8_t>(mx ? 120 + i % 9 : 0x20 + i % 40);
  }
  return x;
}

Matrix<float> Exact(const MmaOperand& a, const MmaOperand& b) {
  Matrix<float> d(a.rows, b.rows);
  GemmAs(*FindAccumulation("exact"), a, b, {}, d.View());
  return d;
}

std::vector<std::string> Causes(const MmaOperand& a, const MmaOperand& b, const Matrix<float>& d) {
  std::vector<std::string> names;
  for (const ReadingMatch& m :
       FindScaleReadings({.a = a, .b = b, .d = d.View()}, *FindAccumulation("exact"))) {
    CHECK(m.verdict == GemmVerdict::kEqual);
    names.emplace_back(m.reading->name);
  }
  return names;
}

// The byte that operands have at one place, and the operand that the device saw.
struct Device {
  const char* name;
  FormatId scale;
  std::uint8_t byte;
  std::function<void(MmaOperand*, std::size_t)> sees;
};

void Clear(MmaOperand* x, std::size_t i) {
  const std::size_t row = i / x->ScaleCols(),
                    first = i % x->ScaleCols() * static_cast<std::size_t>(x->group);
  for (std::size_t k = 0; k < static_cast<std::size_t>(x->group); ++k)
    x->codes[row * x->cols + first + k] = 0;
  x->scales[i] = x->scale_format == FormatOf(FormatId::kE8M0) ? 127 : 0x38;
}

TEST_CASE("A device that reads one scale byte in another way is named", "[judge]") {
  const std::vector<Device> devices = {
      {"0x7f-as-448", FormatId::kE4M3, 0x7F, [](auto* x, auto i) { x->scales[i] = 0x7E; }},
      {"0x7f-as-0", FormatId::kE4M3, 0x7F, Clear},
      {"e8m0-0x00-as-0", FormatId::kE8M0, 0x00, Clear},
      {"e8m0-0xff-as-0", FormatId::kE8M0, 0xFF, Clear},
      {"e8m0-0xff-as-2^127", FormatId::kE8M0, 0xFF, [](auto* x, auto i) { x->scales[i] = 0xFE; }},
      {"subnormal-scales-as-0", FormatId::kE4M3, 0x05, Clear},
  };
  for (const Device& device : devices) {
    MmaOperand a = Operand(device.scale, 1), b = Operand(device.scale, 2);
    const std::size_t at = a.ScaleCols() + 1;  // in row 1
    a.scales[at] = device.byte;
    if (device.byte == 0x00) {  // 2^-127 beside 2^-126
      a.scales.assign(a.scales.size(), 1);
      a.scales[at] = 0;
      b.scales.assign(b.scales.size(), 254);
    }
    MmaOperand seen = a;
    device.sees(&seen, at);
    CAPTURE(device.name);
    CHECK(Causes(a, b, Exact(seen, b)) == std::vector<std::string>{device.name});
  }
}

TEST_CASE("Elements of two programs with readings of their own are explained together", "[judge]") {
  MmaOperand a = Operand(FormatId::kE4M3, 7);
  const MmaOperand b = Operand(FormatId::kE4M3, 8);
  a.scales[1] = a.scales[a.ScaleCols()] = 0x7F;  // rows 0 and 1
  MmaOperand as_448 = a, as_480 = a;
  as_448.scales[1] = 0x7E;
  as_480.scale_format.specials = Specials::kNone;
  Matrix<float> d = Exact(as_480, b);
  const Matrix<float> other = Exact(as_448, b);
  for (std::size_t col = 0; col < d.cols; ++col) d(0, col) = other(0, col);
  const std::vector<ReadingMatch> matches =
      FindScaleReadings({.a = a, .b = b, .d = d.View()}, *FindAccumulation("exact"));
  REQUIRE(matches.size() == 2);
  CHECK(matches[0].reading->name == "0x7f-as-448");
  CHECK(matches[0].elements == 6);
  CHECK(matches[1].reading->name == "0x7f-as-480");
  CHECK(matches[1].elements == 6);
}

TEST_CASE("A wrong product that no reading explains has no cause", "[judge]") {
  MmaOperand a = Operand(FormatId::kE4M3, 3), b = Operand(FormatId::kE4M3, 4);
  a.scales[3] = 0x7F;
  Matrix<float> d = Exact(a, b);
  d(4, 4) += 100.0f;
  CHECK(Causes(a, b, d).empty());
  const MmaOperand plain_a = Operand(FormatId::kE8M0, 5), plain_b = Operand(FormatId::kE8M0, 6);
  Matrix<float> wrong = Exact(plain_a, plain_b);
  wrong(0, 0) += 100.0f;
  CHECK(Causes(plain_a, plain_b, wrong).empty());
}

}  // namespace
}  // namespace fp4lab
