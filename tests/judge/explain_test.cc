// Explain names the cause of every wrong kernel of the table, of pairs of them, and of every other
// dialect.
#include "fp4lab/judge/explain/explain.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

const std::vector<Matrix<float>>& Inputs() {
  static const std::vector<Matrix<float>> inputs = DirectedInputs();
  return inputs;
}

Kernel KernelNamed(std::string_view name, ScaleOrder order = ScaleOrder::kLinear) {
  Kernel kernel{.dialect = *FindDialect(name), .layout = {}};
  kernel.layout.scales = order;
  return kernel;
}

bool SameBytes(const StoredMatrix& a, const StoredMatrix& b) {
  const auto bits = [](const StoredMatrix& m) {
    std::vector<std::uint32_t> words;
    for (const float v : m.tensor_scale) words.push_back(std::bit_cast<std::uint32_t>(v));
    return words;
  };
  return a.codes == b.codes && a.scales == b.scales && bits(a) == bits(b);
}

// The first input on which the cause shows, with the bytes that it gives there.
struct Shown {
  const Matrix<float>* x;
  StoredMatrix bytes;
};
std::optional<Shown> FirstInputThatShows(const Kernel& kernel, const Cause& cause) {
  for (const Matrix<float>& x : Inputs()) {
    StoredMatrix bytes = RunKernel(KernelUnder(kernel, cause), x.View(), cause.deviations);
    if (!SameBytes(bytes, RunKernel(kernel, x.View()))) return Shown{&x, std::move(bytes)};
  }
  return std::nullopt;
}

bool Names(const Explanation& explanation, const Cause& cause) {
  const std::vector<Cause>& exact = explanation.causes.exact;
  return std::any_of(exact.begin(), exact.end(),
                     [&](const Cause& c) { return Name(c) == Name(cause); });
}

void CheckEveryDeviation(const Kernel& kernel, const std::set<std::string_view>& silent) {
  std::size_t named = 0;
  for (const Deviation& d : Deviations()) {
    if (!Applies(d, kernel)) continue;
    CAPTURE(kernel.dialect.name, d.name);
    const Cause cause{.deviations = {&d}};
    const std::optional<Shown> shown = FirstInputThatShows(kernel, cause);
    CHECK(shown.has_value() == (silent.count(d.name) == 0));
    if (!shown) continue;
    const Explanation e = Explain(kernel, shown->x->View(), shown->bytes, {.search = {false}});
    CHECK_FALSE(e.equal);
    CHECK(Names(e, cause));
    ++named;
  }
  CHECK(named >= 25);
}

TEST_CASE("Explain names every deviation from nvfp4.te", "[judge]") {
  CheckEveryDeviation(KernelNamed("nvfp4.te"), {});
}
TEST_CASE("Explain names every deviation from nvfp4.te.2d", "[judge]") {
  CheckEveryDeviation(KernelNamed("nvfp4.te.2d"), {});
}
TEST_CASE("Explain names every deviation from mxfp4.floor", "[judge]") {
  CheckEveryDeviation(KernelNamed("mxfp4.floor"),
                      {"flush-to-zero"});  // no scale has a subnormal reciprocal
}
TEST_CASE("Explain names every deviation from mxfp4.rceil", "[judge]") {
  CheckEveryDeviation(KernelNamed("mxfp4.rceil"), {"saturation-missing"});  // nothing exceeds 6
}
TEST_CASE("Explain names every deviation from swizzled scales", "[judge]") {
  CheckEveryDeviation(KernelNamed("nvfp4.te", ScaleOrder::k128x4), {});
}

}  // namespace
}  // namespace fp4lab
