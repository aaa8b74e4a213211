// Identify finds every dialect and layout from its bytes, and inputs that separate the candidates
// left.
#include "fp4lab/judge/identify/identify.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/judge/directed_inputs.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

bool Has(const std::vector<Candidate>& candidates, const Candidate& wanted) {
  return std::find(candidates.begin(), candidates.end(), wanted) != candidates.end();
}

TEST_CASE("Every dialect is identified by its own bytes", "[judge]") {
  const Matrix<float> x = TinyMatrix(96, 96, 16);
  std::size_t identified = 0;
  for (const Dialect& d : Dialects()) {
    if (IsStochastic(d)) continue;
    Candidate wanted{.kernel = {.dialect = d, .layout = {}}};
    wanted.kernel.layout.codes = DefaultCodeOrder(d.element);
    wanted.kernel.layout.tensor_scale = TensorScaleConvention::kNone;
    const StoredMatrix bytes = RunKernel(wanted.kernel, x.View());
    const Identification r =
        Identify(x.View(), bytes, {.dialect = {}, .dialects = {}, .decide = false});
    CAPTURE(d.name);
    CHECK(Has(IsApproximate(d) ? r.allowed : r.exact, wanted));
    ++identified;
  }
  CHECK(identified >= 20);
}

TEST_CASE("Layouts, transposition and transforms are identified", "[judge]") {
  const Matrix<float> x = RandomMatrix(41, 160, 96, 8, -6, 9);
  const auto check = [&](Candidate wanted) {
    const Matrix<float> rotated = InputOf({.transposed = wanted.columnwise}, x.View());
    const StoredMatrix bytes = RunKernel(wanted.kernel, rotated.View());
    const Identification r =
        Identify(x.View(), bytes, {.dialect = {}, .dialects = {}, .decide = false});
    CAPTURE(Name(wanted));
    CHECK(Has(r.exact, wanted));
  };
  Candidate c{.kernel = {.dialect = *FindDialect("nvfp4.te"), .layout = {}}};
  for (const NamedScaleOrder& order : kScaleOrders) {
    c.kernel.layout.scales = order.order;
    for (const CodeOrder codes :
         {CodeOrder::kLowFirst, CodeOrder::kHighFirst, CodeOrder::kSplitHalves}) {
      c.kernel.layout.codes = codes;
      check(c);
    }
  }
  c.columnwise = true;
  check(c);
  c.kernel.layout.transposed = true;
  check(c);
  c.kernel.layout = {.tensor_scale = TensorScaleConvention::kMultiplier};
  check(c);
  c.columnwise = false;
  c.kernel.hadamard = 16;
  c.kernel.sign_mask = 0xD7E8;
  check(c);
  Candidate square{.kernel = {.dialect = *FindDialect("nvfp4.te.2d"), .layout = {}}};
  square.kernel.layout.expanded_scales = true;
  check(square);
}

TEST_CASE("Layouts of the same bytes are one line, and vendors' own conventions come first",
          "[judge]") {
  const auto identify = [](const Matrix<float>& x, const char* dialect, StorageLayout layout) {
    const StoredMatrix bytes =
        RunKernel({.dialect = *FindDialect(dialect), .layout = layout}, x.View());
    return Identify(x.View(), bytes, {.dialect = {}, .dialects = {}, .decide = false});
  };
  const Matrix<float> whole_tiles = RandomMatrix(43, 128, 128, 8, -6, 9);
  const Identification plain = identify(whole_tiles, "nvfp4.te", {});
  CHECK_THAT(Text(plain),
             ContainsSubstring("  codes low-first, scales linear, tensor scale as amax; for this "
                               "shape the same bytes as codes low-first, scales padded, tensor "
                               "scale as amax:\n    nvfp4.te, "));
  // Square tiles of the transposed matrix, stored transposed, are those of the matrix.
  const Identification square = identify(whole_tiles, "nvfp4.te.2d", {});
  std::size_t joined = 0;
  for (const std::vector<std::size_t>& group : SameBytes(square.exact, 128, 128)) {
    const Candidate& first = square.exact[group[0]];
    for (const std::size_t i : group) {
      CHECK(square.exact[i].kernel.dialect == first.kernel.dialect);
      joined += square.exact[i].columnwise != first.columnwise ? 1 : 0;
    }
    if (first.kernel.dialect.name == "nvfp4.te.2d") CHECK_FALSE(first.columnwise);
  }
  CHECK(joined > 0);
  // Rows that fill no tile of 128 tell linear scales from padded ones.
  CHECK(SameBytes(plain.exact, 144, 80).size() == 2 * SameBytes(plain.exact, 128, 128).size());

  struct Own {
    const char* dialect;
    StorageLayout layout;
  };
  for (const Own& own :
       {Own{"nvfp4.modelopt", {.tensor_scale = TensorScaleConvention::kMultiplier}},
        Own{"nvfp4.compressed-tensors", {.tensor_scale = TensorScaleConvention::kDivisor}},
        Own{"nvfp4.te", {.tensor_scale = TensorScaleConvention::kAmax}}}) {
    const Identification r = identify(RandomMatrix(44, 48, 64, 8, -6, 9), own.dialect, own.layout);
    CAPTURE(own.dialect, Text(r));
    REQUIRE(r.exact.size() > 5);  // the formulas agree here
    CHECK(r.exact[0].kernel.dialect.name == own.dialect);
    CHECK(r.exact[0].kernel.layout == own.layout);
  }
}

TEST_CASE("Bytes that nothing gives are told with the nearest dialects", "[judge]") {
  const Matrix<float> x = RandomMatrix(42, 64, 64, 8, -6, 9);
  StoredMatrix bytes = RunKernel({.dialect = *FindDialect("nvfp4.te"), .layout = {}}, x.View());
  bytes.codes[77] ^= 0x23;
  const Identification r = Identify(x.View(), bytes);
  CHECK(r.exact.empty());
  REQUIRE_FALSE(r.near.empty());
  CHECK(r.near.front().counts.codes_differ == 2);
  CHECK(r.near.front().counts.scales_differ == 0);
  CHECK_THAT(Text(r), ContainsSubstring("2 of 4096 codes and 0 of 256 scales differ"));
}

TEST_CASE("A deciding input parts the dialects that agree on a plain one", "[judge]") {
  // A constant matrix: every formula gives the same bytes.
  const Matrix<float> x(16, 32, 1.0f);
  const StoredMatrix bytes =
      RunKernel({.dialect = *FindDialect("nvfp4.te"), .layout = {}}, x.View());
  IdentifyOptions options;
  for (const std::string_view name : {"nvfp4.te", "nvfp4.cutlass", "nvfp4.modelopt",
                                      "nvfp4.torchao.inference", "nvfp4.quartet2"}) {
    REQUIRE(FindDialect(name) != nullptr);
    options.dialects.push_back(FindDialect(name));
  }
  const Identification r = Identify(x.View(), bytes, options);
  REQUIRE(r.exact.size() > 1);
  REQUIRE_FALSE(r.deciding.empty());
  for (const DecidingInput& input : r.deciding) {
    CHECK(input.groups.size() > 1);
    for (const DecidingInput::Group& group : input.groups) {
      for (const std::size_t i : group.members) {
        const Candidate& c = r.exact[i];
        const StoredMatrix theirs =
            RunKernel(c.kernel, c.columnwise ? input.x.View().Transposed() : input.x.View());
        CHECK(theirs.codes == group.bytes.codes);
        CHECK(theirs.scales == group.bytes.scales);
      }
    }
  }
  CAPTURE(Text(r));
  std::set<std::string_view> together;
  for (const std::vector<std::size_t>& part : r.inseparable) {
    for (const std::size_t i : part) together.insert(r.exact[i].kernel.dialect.name);
    CHECK(together.size() <= 1);  // layouts of one dialect at most
    together.clear();
  }
  const TemporaryFolder folder;
  WriteDecidingInput(r.deciding[0], r.exact, folder / "deciding.safetensors");
  const SafetensorsFile file = ReadSafetensors(folder / "deciding.safetensors");
  CHECK(file.tensors.count("input") == 1);
  CHECK(file.tensors.count("1.codes") == 1);
  CHECK_FALSE(file.metadata.at("0").empty());
}

}  // namespace
}  // namespace fp4lab
