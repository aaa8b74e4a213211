// 200 random wrong kernels with one deviation and 200 with two, on random and on heavy-tailed
// tensors: what explain says about them, as the table of lib/fp4lab/judge/README.md.
//
//   FP4LAB_APPROVE=1 ctest --test-dir build/test -C Exhaustive -R explain_sweep_test
//
// rewrites the table.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/io/file.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/kernels/evaluate.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

// What explain said, beside the deviations that the kernel has.
enum class Outcome : std::uint8_t {
  kRight,       // the deviations that change bytes are the cause, or among those not told apart
  kConsistent,  // other causes, which give all bytes of this input, none of them called certain
  kEquivalent,  // another cause is called certain; it gives the bytes of all directed cases as well
  kNone,        // no cause gives all bytes
  kFalse        // another cause is called certain, and a directed case refutes it
};
constexpr std::array kOutcomes = {"right", "consistent", "equivalent", "none", "false"};

struct Draw {
  RandomStream stream;
  std::uint64_t at = 0;
  std::uint32_t Below(std::size_t n) { return stream.Bits32(at++) % static_cast<std::uint32_t>(n); }
};

struct Tensor {
  bool heavy = false;
  Matrix<float> x;
};

// Normal values; or values like those of trained weights and activations: each row and column has
// its own size, some columns are a hundred times larger, a few values are outliers, some are zero.
// Half of the tensors hold BF16 values.
Tensor DrawTensor(Draw& draw) {
  constexpr std::array<std::array<std::size_t, 2>, 4> kShapes = {
      {{96, 128}, {64, 160}, {130, 72}, {48, 256}}};
  const auto [rows, cols] = kShapes[draw.Below(kShapes.size())];
  Tensor t{.heavy = draw.Below(2) == 1, .x = NormalMatrix(draw.Below(1u << 30), rows, cols)};
  const bool bf16 = draw.Below(2) == 1;
  std::vector<float> of_row(rows), of_col(cols);
  for (float& v : of_row) v = std::exp2(static_cast<float>(draw.Below(400)) / 100.0f - 2.0f);
  for (float& v : of_col)
    v = draw.Below(40) == 0 ? 100.0f : 0.5f + 0.01f * static_cast<float>(draw.Below(100));
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      float& v = t.x(r, c);
      if (t.heavy) {
        v *= of_row[r] * of_col[c] * 0.03f;
        if (draw.Below(300) == 0) v *= 30.0f;
        if (draw.Below(50) == 0) v = 0.0f;
      }
      if (bf16) v = Decode(FormatId::kBF16, Encode(FormatId::kBF16, v));
    }
  }
  return t;
}

Kernel DrawKernel(Draw& draw) {
  constexpr std::array<std::string_view, 11> kDialects = {"nvfp4.te",
                                                          "nvfp4.te",
                                                          "nvfp4.te.2d",
                                                          "nvfp4.modelopt",
                                                          "nvfp4.cutlass",
                                                          "mxfp4.floor",
                                                          "mxfp4.rceil",
                                                          "nvfp4.te",
                                                          "fp8_e4m3.1x128.fp32",
                                                          "fp8_e4m3.128x128.fp32",
                                                          "fp8_e4m3.1x128.e8m0"};
  constexpr std::array kOrders = {ScaleOrder::kLinear, ScaleOrder::k128x4, ScaleOrder::kPadded};
  Kernel kernel{.dialect = *FindDialect(kDialects[draw.Below(kDialects.size())]), .layout = {}};
  const ScaleOrder order = kOrders[draw.Below(kOrders.size())];
  if (kernel.dialect.element == FormatId::kE2M1) {
    kernel.layout.scales = order;
  } else {
    kernel.layout.codes = CodeOrder::kBytes;
  }
  return kernel;
}

bool SameBytes(const StoredMatrix& a, const StoredMatrix& b) {
  return a.codes == b.codes && a.scales == b.scales &&
         std::equal(a.tensor_scale.begin(), a.tensor_scale.end(), b.tensor_scale.begin(),
                    b.tensor_scale.end(), [](float x, float y) {
                      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
                    });
}

StoredMatrix Run(const Kernel& kernel, const Cause& cause, MatrixView<const float> x) {
  return RunKernel(KernelUnder(kernel, cause), x, cause.deviations, {},
                   cause.value ? &*cause.value : nullptr);
}

bool Equivalent(const Kernel& kernel, const Cause& a, const Cause& b) {
  const std::vector<Case> cases = MakeCases(kernel.dialect);
  return std::all_of(cases.begin(), cases.end(), [&](const Case& c) {
    return SameBytes(Run(kernel, a, c.x.View()), Run(kernel, b, c.x.View()));
  });
}

// Deviations of this kernel, all of which change it, with the table's values; at most one has a
// value. nullopt if the draw has no such kernel.
std::optional<Cause> DrawCause(Draw& draw, const Kernel& kernel, std::size_t parts) {
  Cause cause;
  std::size_t with_value = 0;
  for (std::size_t k = 0; k < parts; ++k) {
    const Deviation& d = Deviations()[draw.Below(Deviations().size())];
    cause.deviations.push_back(&d);
    with_value += d.kind != ValueKind::kNone ? 1 : 0;
  }
  std::size_t applied = 0;
  PlanOf(kernel, cause.deviations, &applied);
  if (applied != parts || with_value > 1) return std::nullopt;
  return cause;
}

// The cause without a deviation that changes no byte of this input.
Cause Visible(const Kernel& kernel, const Cause& cause, MatrixView<const float> x,
              const StoredMatrix& bytes) {
  for (std::size_t part = 0; part < cause.deviations.size() && cause.Parts() > 1; ++part) {
    Cause rest = cause;
    rest.deviations.erase(rest.deviations.begin() + static_cast<std::ptrdiff_t>(part));
    if (SameBytes(Run(kernel, rest, x), bytes)) return rest;
  }
  return cause;
}

bool SameParts(const Cause& a, const Cause& b) {
  return a.dialect == b.dialect && std::is_permutation(a.deviations.begin(), a.deviations.end(),
                                                       b.deviations.begin(), b.deviations.end());
}

// Whether `truth` changes nothing but the amax, to the number that `cause` states. The bytes tell
// no origin of the number.
bool IsItsAmax(const Kernel& kernel, const Cause& truth, const Cause& cause,
               MatrixView<const float> x) {
  if (cause.deviations.size() != 1 || cause.deviations[0]->kind != ValueKind::kAmax) return false;
  const KernelPlan plan = PlanOf(kernel, truth.deviations);
  KernelPlan rest = plan;
  rest.tensor = PlanOf(kernel).tensor;
  const std::vector<float> amax = AmaxOf(plan, x, {});
  return rest == PlanOf(kernel) && amax.size() == 1 && cause.value && cause.value->amax == amax[0];
}

// Whether `cause` together with one deviation of `truth` gives the bytes of all directed cases: it
// is `truth` without a deviation that changes no byte of this input. (Where scales come from the
// amax, not from S, a missing S is the same as one that misses in the factor.)
bool IsWithoutOne(const Kernel& kernel, const Cause& truth, const Cause& cause) {
  if (truth.Parts() < 2 || cause.value) return false;
  return std::any_of(truth.deviations.begin(), truth.deviations.end(), [&](const Deviation* d) {
    Cause both = cause;
    both.deviations.push_back(d);
    return Equivalent(kernel, truth, both);
  });
}

Outcome Classify(const Kernel& kernel, const Cause& truth, const SearchResult& found,
                 MatrixView<const float> x) {
  const auto is_truth = [&](const Cause& c) { return SameParts(c, truth); };
  if (found.certainty == Certainty::kForced && !is_truth(found.exact[0])) {
    if (IsItsAmax(kernel, truth, found.exact[0], x)) return Outcome::kRight;
    if (Equivalent(kernel, truth, found.exact[0])) return Outcome::kEquivalent;
    return IsWithoutOne(kernel, truth, found.exact[0]) ? Outcome::kRight : Outcome::kFalse;
  }
  if (std::any_of(found.exact.begin(), found.exact.end(), is_truth)) return Outcome::kRight;
  const bool any = !found.exact.empty() || !found.sets.empty() || found.IsStochastic();
  return any ? Outcome::kConsistent : Outcome::kNone;
}

using Counts = std::array<std::size_t, kOutcomes.size()>;

// Runs kernels until `wanted` of them have differed from the reference.
Counts Sweep(std::size_t parts, bool heavy, std::size_t wanted) {
  Draw draw{.stream = {.seed = 1000 + 10 * parts + (heavy ? 1u : 0u)}};
  Counts counts{};
  for (std::size_t done = 0; done < wanted;) {
    Tensor tensor = DrawTensor(draw);
    const Kernel kernel = DrawKernel(draw);
    const std::optional<Cause> truth = DrawCause(draw, kernel, parts);
    if (tensor.heavy != heavy || !truth) continue;
    const StoredMatrix bytes = Run(kernel, *truth, tensor.x.View());
    if (SameBytes(bytes, RunKernel(kernel, tensor.x.View()))) continue;
    ++done;
    const Explanation e = Explain(kernel, tensor.x.View(), bytes, {.deciding_case = false});
    const Cause visible = Visible(kernel, *truth, tensor.x.View(), bytes);
    const Outcome outcome = Classify(kernel, visible, e.causes, tensor.x.View());
    ++counts[static_cast<std::size_t>(outcome)];
    if (outcome == Outcome::kFalse || outcome == Outcome::kNone || std::getenv("VERBOSE")) {
      std::fprintf(stderr, "%s %s (%zux%zu%s): %s%s%s\n", std::string(kernel.dialect.name).c_str(),
                   Name(*truth).c_str(), tensor.x.rows, tensor.x.cols, heavy ? ", heavy" : "",
                   kOutcomes[static_cast<std::size_t>(outcome)], e.causes.exact.empty() ? "" : ": ",
                   e.causes.exact.empty() ? "" : Name(e.causes.exact[0]).c_str());
    }
    CHECK(outcome != Outcome::kFalse);
  }
  return counts;
}

std::string Table() {
  std::string table =
      "| wrong kernels | right | consistent | equivalent | none | false |\n"
      "|---|---|---|---|---|---|\n";
  for (const std::size_t parts : {1u, 2u}) {
    for (const bool heavy : {false, true}) {
      table += std::string("| 100 with ") + (parts == 1 ? "one deviation" : "two deviations") +
               (heavy ? ", heavy-tailed tensors" : ", normal tensors") + " |";
      for (const std::size_t count : Sweep(parts, heavy, 100)) {
        table += " " + std::to_string(count) + " |";
      }
      table += "\n";
    }
  }
  return table;
}

TEST_CASE("explain calls no cause of random wrong kernels certain that another kernel refutes",
          "[judge]") {
  const std::string table = Table();
  std::printf("%s", table.c_str());
  const std::string page =
      std::string(std::getenv("FP4LAB_SOURCE_DIR")) + "/lib/fp4lab/judge/README.md";
  const std::string text = ReadFile(page);
  constexpr std::string_view kBegin = "<!-- explain_sweep_test -->\n", kEnd = "<!-- end -->";
  const std::size_t begin = text.find(kBegin);
  REQUIRE(begin != std::string::npos);
  const std::size_t first = begin + kBegin.size(), end = text.find(kEnd, first);
  REQUIRE(end != std::string::npos);
  if (std::getenv("FP4LAB_APPROVE") != nullptr) {
    WriteFileAtomically(page, text.substr(0, first) + table + text.substr(end));
  } else {
    CHECK(text.substr(first, end - first) == table);
  }
}

}  // namespace
}  // namespace fp4lab
