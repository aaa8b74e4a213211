// Explain: two causes at once, other dialects, and the output beside the cause.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/io/process.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

Kernel KernelNamed(std::string_view name) { return {.dialect = *FindDialect(name), .layout = {}}; }

// The names of a cause's dialect and deviations.
std::set<std::string_view> Parts(const Cause& cause) {
  std::set<std::string_view> parts;
  if (cause.dialect != nullptr) parts.insert(cause.dialect->name);
  for (const Deviation* d : cause.deviations) parts.insert(d->name);
  return parts;
}
bool Names(const Explanation& e, const Cause& cause) {
  return std::any_of(e.causes.exact.begin(), e.causes.exact.end(),
                     [&](const Cause& c) { return Parts(c) == Parts(cause); });
}

Cause MakeCause(const std::vector<std::string_view>& names) {
  Cause cause;
  for (const std::string_view name : names) {
    const Dialect* dialect = FindDialect(name);
    if (dialect != nullptr) {
      cause.dialect = dialect;
    } else {
      REQUIRE(FindDeviation(name) != nullptr);
      cause.deviations.push_back(FindDeviation(name));
    }
  }
  return cause;
}

TEST_CASE("Explain names two causes at once", "[judge]") {
  struct Row {
    std::string_view kernel;
    std::vector<std::string_view> causes;
    std::size_t input;
  };
  const Row rows[] = {
      {"nvfp4.te", {"codes-high-first", "ties-away"}, 0},
      {"nvfp4.te", {"scales-shifted", "truncation"}, 1},
      {"nvfp4.te", {"codes-transposed", "tensor-scale-missing"}, 8},
      {"nvfp4.te", {"scale-one-up", "sign-dropped"}, 1},
      {"nvfp4.te", {"nvfp4.modelopt", "codes-high-first"}, 2},
      {"nvfp4.te", {"input-bf16", "truncation"}, 3},
      {"nvfp4.te", {"rht-added", "codes-split-halves"}, 6},
      {"nvfp4.te.2d", {"constant-256x6", "ties-away"}, 0},
      {"mxfp4.floor", {"mx-ceil", "codes-high-first"}, 1},
      {"mxfp4.rceil", {"scale-one-down", "negative-zero-dropped"}, 2},
  };
  const std::vector<Matrix<float>> inputs = DirectedInputs();
  for (const Row& row : rows) {
    const Kernel kernel = KernelNamed(row.kernel);
    const Cause cause = MakeCause(row.causes);
    const Matrix<float>& x = inputs[row.input];
    const StoredMatrix bytes = RunKernel(KernelUnder(kernel, cause), x.View(), cause.deviations);
    const Explanation e = Explain(kernel, x.View(), bytes);
    CAPTURE(Name(cause));
    REQUIRE_FALSE(e.equal);
    CHECK(Names(e, cause));
    CHECK(e.causes.exact.front().Parts() == 2);
  }
}

TEST_CASE("Told one dialect and given the bytes of another, explain names the other", "[judge]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Matrix<float> inputs[] = {TinyMatrix(64, 32, 16), With(TinyMatrix(32, 64), kNan)};
  std::size_t pairs = 0, differing = 0;
  for (const Dialect& a : Dialects()) {
    if (IsApproximate(a) || IsStochastic(a)) continue;
    for (const Dialect* b : ComparableDialects(a, false)) {
      if (b < &a) continue;  // each pair once: rows of one table
      ++pairs;
      for (const Matrix<float>& x : inputs) {
        Kernel kernel{.dialect = a, .layout = {}};
        kernel.layout.codes = DefaultCodeOrder(a.element);
        // Powers of two stand as numbers where numbers are asked for.
        if (ScaleTypeOf(*b, {}) == ScaleType::kByte) kernel.layout.scale_type = ScaleTypeOf(a, {});
        const Cause cause{.dialect = b};
        const StoredMatrix bytes = RunKernel(KernelUnder(kernel, cause), x.View());
        kernel.layout.scale_type = bytes.layout.scale_type;  // as the file states it
        const Explanation e =
            Explain(kernel, x.View(), bytes,
                    {.dialect = {}, .search = {.pairs = false}, .deciding_case = false});
        if (e.equal) continue;
        CAPTURE(a.name, b->name);
        CHECK(Names(e, cause));
        ++differing;
        break;
      }
    }
  }
  CAPTURE(pairs, differing);
  CHECK(differing > 100);
}

TEST_CASE("The random Hadamard transform: missing, other signs, other roundings", "[judge]") {
  Kernel kernel = KernelNamed("nvfp4.te");
  kernel.hadamard = 16;
  kernel.sign_mask = 0xD7E8;
  const Matrix<float> x = RandomMatrix(21, 64, 96, 8, -6, 9);
  std::size_t named = 0;
  for (const Deviation& d : Deviations()) {
    if (d.name.substr(0, 4) != "rht-" || !Applies(d, kernel)) continue;
    const Deviation* const one[] = {&d};
    const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one));
    CAPTURE(d.name);
    CHECK_FALSE(e.equal);
    CHECK(Names(e, {.deviations = {&d}}));
    ++named;
  }
  CHECK(named == 9);
}

TEST_CASE("Stochastic rounding: truncation and other orders of the random bits", "[judge]") {
  const RandomStream stream{.seed = 4};
  for (const ElementRounding rounding :
       {ElementRounding::kStochastic16, ElementRounding::kStochastic8}) {
    Kernel kernel = KernelNamed("nvfp4.te");
    kernel.dialect.rounding = rounding;
    const Matrix<float> x = RandomMatrix(22, 32, 64, 24, -4, 5);
    std::vector<std::uint16_t> random;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const std::uint32_t bits = stream.Bits16(i);
      random.push_back(static_cast<std::uint16_t>(
          rounding == ElementRounding::kStochastic8 ? bits & 0xFFu : bits));
    }
    const DialectOptions options{.amax = {}, .random = random};
    std::size_t named = 0;
    for (const std::string_view cause :
         {"truncation", "random-bits-reversed", "random-bits-neighbours", "random-bytes-swapped",
          "nearest-even"}) {
      if (!Applies(*FindDeviation(cause), kernel)) continue;
      const Deviation* const one[] = {FindDeviation(cause)};
      const StoredMatrix bytes = RunKernel(kernel, x.View(), one, options);
      const Explanation e = Explain(kernel, x.View(), bytes, {.dialect = options, .search = {}});
      CAPTURE(cause);
      CHECK_FALSE(e.equal);
      CHECK(Names(e, {.deviations = {one[0]}}));
      ++named;
    }
    CHECK(named == (rounding == ElementRounding::kStochastic16 ? 5 : 4));
  }
}

TEST_CASE("Same values in other bytes are told from wrong ones", "[judge]") {
  const Kernel kernel = KernelNamed("nvfp4.te");
  const Matrix<float> x = TinyMatrix(64, 64);
  const auto explain = [&](std::string_view name) {
    const Deviation* const one[] = {FindDeviation(name)};
    return Explain(kernel, x.View(), RunKernel(kernel, x.View(), one));
  };
  CHECK(explain("negative-zero-dropped").same_values);
  CHECK(explain("zero-under-zero-scale").same_values);
  CHECK_FALSE(explain("truncation").same_values);
  CHECK_FALSE(explain("scales-zero").same_values);
}

TEST_CASE("Bytes that nothing explains are traced, counted and given a nearest cause", "[judge]") {
  const Kernel kernel = KernelNamed("nvfp4.te");
  const Matrix<float> x = RandomMatrix(1, 64, 64, 8, -4, 5);
  const Deviation* const one[] = {FindDeviation("truncation")};
  StoredMatrix bytes = RunKernel(kernel, x.View(), one);
  bytes.codes[100] ^= 0x41;  // on top of the deviation, damage that no rule makes
  const Explanation e = Explain(kernel, x.View(), bytes);
  CHECK(e.causes.exact.empty());
  REQUIRE(e.causes.best.has_value());
  CHECK(Name(e.causes.best->cause) == "truncation");
  CHECK(e.causes.best->counts.codes_differ == 2);
  CHECK_THAT(Text(kernel, e), ContainsSubstring("Nearest: truncation, which leaves 2 codes"));
}

TEST_CASE("The trace of the first difference shows ours and theirs", "[judge]") {
  const Kernel kernel = KernelNamed("nvfp4.te");
  Matrix<float> x(2, 16, 1.0f);
  x(0, 0) = 2688.0f;  // S = 1
  x(1, 0) = 6.0f;     // block 1: scale 1
  x(1, 9) = 2.5f;     // a tie: 2 by ties to even, 3 by ties away
  const Deviation* const one[] = {FindDeviation("ties-away")};
  const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one));
  CHECK(e.counts.codes_differ == 1);
  CHECK(e.ours.row == 1);
  CHECK(e.ours.col == 9);
  CHECK(e.ours.scale == 1.0f);
  CHECK(e.ours.scaled == 2.5f);
  CHECK(e.ours.code_tie_ulps == 0);
  CHECK(e.ours.code == 4);
  CHECK(e.theirs.code == 5);
  CHECK(e.theirs.scaled_low > 2.5f);
  CHECK(e.theirs.scaled_high < 3.5f);
  CHECK(e.theirs.scale_low == 0.96875f);
  CHECK(e.theirs.scale_high == 1.0625f);
  const std::string text = Text(kernel, e);
  CHECK_THAT(text, ContainsSubstring("v is exactly a tie"));
  CHECK_THAT(text, ContainsSubstring("The kernel rounds ties away from zero. (ties-away)"));
}

TEST_CASE("explain's reproducer block shows the difference on its own", "[judge]") {
  const Kernel kernel = KernelNamed("nvfp4.te.2d");
  const Matrix<float> x = RandomMatrix(8, 70, 40, 8, -4, 5);
  const Deviation* const one[] = {FindDeviation("ties-away")};
  const Explanation e = Explain(kernel, x.View(), RunKernel(kernel, x.View(), one));
  REQUIRE(e.reproducer.has_value());
  const Reproducer& r = *e.reproducer;
  const Quantized alone = QuantizeAs(kernel.dialect, r.x.View(), {.amax = r.amax, .random = {}});
  CHECK(alone.codes == r.expected.codes);
  CHECK(alone.scales == r.expected.scales);
  CHECK(r.got.codes != r.expected.codes);

  const TemporaryFolder folder;
  WriteReproducer(r, folder / "block.safetensors");
  const SafetensorsFile file = ReadSafetensors(folder / "block.safetensors");
  CHECK(file.metadata.at("dialect") == "nvfp4.te.2d");
  CHECK(file.tensors.at("input").shape == std::vector<std::size_t>{r.x.rows, r.x.cols});
  CHECK(file.tensors.at("got.codes").bytes != file.tensors.at("expected.codes").bytes);
  CHECK_THAT(PythonTest(r), ContainsSubstring("np.testing.assert_array_equal(codes, expected)"));
  CHECK_THAT(CppTest(r), ContainsSubstring("const std::uint8_t expected_codes[] = {"));
}

TEST_CASE("Explain refuses codes that cannot be those of the input", "[judge]") {
  const Kernel kernel = KernelNamed("nvfp4.te");
  const Matrix<float> x(16, 64, 1.0f);
  StoredMatrix bytes = RunKernel(kernel, x.View());
  bytes.codes.resize(40);
  CHECK_THAT(ErrorOf([&] { Explain(kernel, x.View(), bytes); }),
             ContainsSubstring("codes: 40 bytes cannot hold 16x64 codes, which take 512"));
}

TEST_CASE("Names of deviations are unique", "[judge]") {
  std::set<std::string_view> names;
  for (const Deviation& d : Deviations()) {
    CHECK(names.insert(d.name).second);
    CHECK(FindDialect(d.name) == nullptr);
    CHECK(FindDeviation(d.name) == &d);
  }
  CHECK(names.size() >= 100);
  CHECK(FindDeviation("no-such") == nullptr);
}

TEST_CASE("A kernel without deviations writes what its dialect says", "[judge]") {
  const std::vector<Matrix<float>> inputs = DirectedInputs();
  for (const Dialect& d : Dialects()) {
    if (IsStochastic(d)) continue;
    for (const std::size_t i : {std::size_t{0}, std::size_t{2}, std::size_t{4}, std::size_t{5}}) {
      const Matrix<float>& x = inputs[i];
      StorageLayout layout;
      layout.codes = DefaultCodeOrder(d.element);
      layout.scales = i % 2 == 0 ? ScaleOrder::k128x4 : ScaleOrder::kPadded;
      const StoredMatrix expected = Store(d, QuantizeAs(d, x.View()), layout);
      const StoredMatrix got = RunKernel({.dialect = d, .layout = layout}, x.View());
      CAPTURE(d.name, i);
      CHECK(got.codes == expected.codes);
      CHECK(got.scales == expected.scales);
      CHECK(got.tensor_scale.size() == expected.tensor_scale.size());
    }
  }
}

}  // namespace
}  // namespace fp4lab
