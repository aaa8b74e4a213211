// Fuzzes dialects that JSON spells out: an accepted one quantizes a matrix to the bytes of the
// scalar definition, which the judge's kernel writes, too, and its name spells it out again.
#include "fp4lab/exchange/stored.h"
#include "fp4lab/exchange/tables_json.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/quantize/quantize.h"
#include "fp4lab/spelling/spelled_dialect.h"
#include "tests/fuzz/fuzz.h"

namespace {

// 8 x 256 elements of many magnitudes, both zeros, Inf and NaN among them.
fp4lab::Matrix<float> Elements() {
  fp4lab::Matrix<float> x(8, 256);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const int step = static_cast<int>(i * 37 % 101) - 50;
    x.values[i] = static_cast<float>(step) * (i % 3 == 0   ? 0x1p-9f
                                              : i % 3 == 1 ? 0x1.8p0f
                                                           : 0x1p7f);
  }
  x(1, 3) = -0.0f;
  x(2, 40) = __builtin_inff();
  x(3, 200) = __builtin_nanf("");
  for (std::size_t c = 64; c < 128; ++c) x(5, c) = 0.0f;
  return x;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fp4lab;
  static const Matrix<float> x = Elements();
  const Dialect* dialect = nullptr;
  OneLineOrNothing([&] {
    const Json json = ParseJson({reinterpret_cast<const char*>(data), size}, "mine.json");
    dialect = &SpelledDialect(json, "mine.json");
  });
  if (dialect == nullptr) return 0;
  const Dialect& d = *dialect;
  if (DialectNamed(d.name, "name") != &d) std::abort();
  if (&SpelledDialect(DialectJson(d), "printed") != &d) std::abort();
  if (TakesRandomBits(d)) return 0;
  const Quantized want = reference::QuantizeAs(d, x.View());
  if (!(QuantizeAs(d, x.View()).codes == want.codes)) std::abort();
  const StorageLayout layout{.codes = DefaultCodeOrder(d.element)};
  const StoredMatrix stored = Store(d, want, layout);
  if (RunKernel({.dialect = d, .layout = layout}, x.View()).codes != stored.codes) std::abort();
  DequantizeAs(d, Load(d, stored, "stored"));
  return 0;
}
