// Verdicts on kernels, their explanations, directed cases and wrong kernels.
#include <algorithm>
#include <utility>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/explain/explain.h"
#include "fp4lab/judge/identify/identify.h"
#include "fp4lab/judge/kernels/kernel_plan.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/judge/verify/verify.h"
#include "fp4lab/judge/verify/verify_stochastic.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::python {
namespace {

using Random = std::optional<Words16>;
// The kernel that is asked for: dialect, rounding, layout, size of its transform, signs.
using KernelNames = std::tuple<std::string, std::string, LayoutNames, int, std::uint32_t>;

Kernel KernelOf(const KernelNames& names) {
  const auto& [dialect, rounding, layout, hadamard, sign_mask] = names;
  if (hadamard != 0 && hadamard != 16 && hadamard != 32) {
    throw Error("rht", "a kernel's transform has size 16 or 32");
  }
  return {.dialect = DialectWith(dialect, rounding),
          .layout = LayoutOf(layout),
          .hadamard = hadamard,
          .sign_mask =
              hadamard == 32 && sign_mask <= 0xFFFFu ? sign_mask | sign_mask << 16 : sign_mask};
}
const LayoutNames& LayoutOf(const KernelNames& names) { return std::get<2>(names); }

StoredMatrix AnswerOf(const Kernel& kernel, MatrixView<const float> x, const LayoutNames& layout,
                      const Parts& parts) {
  return StoredOf(kernel.dialect, x.rows, x.cols, layout, parts);
}

void RequireElements(MatrixView<const float> x) {
  if (x.size() == 0) throw Error("x", "has no elements: every kernel is right on it");
}

// (accepted, one line, all lines, JSON).
using VerdictParts = std::tuple<bool, std::string, std::string, std::string>;

VerdictParts VerifyArrays(const KernelNames& names, const AnyMatrix& array, bool columnwise,
                          const Parts& parts, const std::vector<float>& amax, const Random& random,
                          bool check_padding, std::size_t first) {
  const Kernel kernel = KernelOf(names);
  const nb::gil_scoped_release release;
  const Input input(array);
  MatrixView<const float> x = columnwise ? input.view().Transposed() : input.view();
  RequireElements(x);
  const StoredMatrix answer = AnswerOf(kernel, x, LayoutOf(names), parts);
  Matrix<float> transformed;
  if (kernel.hadamard != 0) {
    transformed = Matrix<float>(x.rows, x.cols);
    CheckHadamard(x, kernel.hadamard, transformed.View());
    RandomHadamard(x, kernel.hadamard, kernel.sign_mask, transformed.View());
  }
  VerifyOptions options{.quantize = OptionsOf(kernel.dialect, x, amax, random, std::nullopt),
                        .first = first,
                        .check_padding = check_padding};
  const Verdict verdict =
      Verify(kernel.dialect, kernel.hadamard != 0 ? std::as_const(transformed).View() : x, answer,
             "codes", options);
  return {verdict.Accepted(), Headline(kernel.dialect, verdict),
          VerdictText(kernel.dialect, verdict), VerdictJson(kernel.dialect, verdict).dump()};
}

nb::object MatrixArray(Matrix<float>&& x) {
  const std::size_t rows = x.rows, cols = x.cols;
  return ArrayOf(std::move(x.values), {rows, cols});
}

// (equal, text, JSON, None or (row, column, elements of the block, amax, pytest, C++ test)).
// deciding_case: ExplainOptions::deciding_case.
nb::object ExplainArrays(const KernelNames& names, const AnyMatrix& array, bool columnwise,
                         const Parts& parts, const std::vector<float>& amax, const Random& random,
                         bool pairs, bool deciding_case) {
  const Kernel kernel = KernelOf(names);
  Explanation e;
  {
    const nb::gil_scoped_release release;
    const Input input(array);
    const MatrixView<const float> x = columnwise ? input.view().Transposed() : input.view();
    RequireElements(x);
    const StoredMatrix answer = AnswerOf(kernel, x, LayoutOf(names), parts);
    ExplainOptions options{.dialect = OptionsOf(kernel.dialect, x, amax, random, std::nullopt),
                           .deciding_case = deciding_case};
    options.search.pairs = pairs;
    e = Explain(kernel, x, answer, options);
  }
  nb::object reproducer = nb::none();
  if (e.reproducer) {
    const Reproducer& r = *e.reproducer;
    reproducer = nb::make_tuple(r.row, r.col, MatrixArray(Matrix<float>(r.x)), r.amax,
                                PythonTest(r), CppTest(r));
  }
  return nb::make_tuple(e.equal, Text(kernel, e), ToJson(kernel, e).dump(), reproducer);
}

std::tuple<bool, std::string, std::string> IdentifyArrays(
    const AnyMatrix& array, const Parts& parts, const std::vector<float>& amax,
    const Random& random, const std::vector<std::string>& dialects,
    const std::vector<std::string>& also, const std::string& scale_type, bool decide) {
  IdentifyOptions options{.decide = decide};
  for (const std::string& name : dialects) options.dialects.push_back(&RequireDialect(name));
  if (dialects.empty() && !also.empty()) {
    for (const Dialect& row : Dialects()) options.dialects.push_back(&row);
  }
  for (const std::string& name : also) options.dialects.push_back(&RequireDialect(name));
  const nb::gil_scoped_release release;
  const Input input(array);
  const MatrixView<const float> x = input.view();
  RequireElements(x);
  options.dialect.amax = amax;
  if (random) {
    if (random->size() != x.size()) {
      throw Error("random", "needs a field of bits for each element of x");
    }
    options.dialect.random = {random->data(), random->size()};
  }
  StoredMatrix got;
  got.layout.scale_type = FindScaleType(scale_type).value_or(ScaleType::kByte);
  const auto& [codes, scales, tensor_scale] = parts;
  if (codes.size() != 0) got.codes.assign(codes.data(), codes.data() + codes.size());
  if (scales.size() != 0) got.scales.assign(scales.data(), scales.data() + scales.size());
  got.tensor_scale = tensor_scale;
  const Identification result = Identify(x, got, options);
  return {result.Fits(), Text(result), ToJson(result).dump()};
}

// [(family, name, x, whether all elements are BF16 values, None or random bits)].
nb::list Cases(const std::string& name, const std::string& rounding, const std::string& level,
               std::uint64_t seed, const std::vector<std::string>& families, bool bf16_only) {
  CaseOptions options{.seed = seed, .families = families, .bf16_only = bf16_only};
  std::string names;
  bool found = false;
  for (const NamedCaseLevel& l : kCaseLevels) {
    names += (names.empty() ? "" : ", ") + std::string(l.name);
    if (l.name != level) continue;
    options.level = l.level;
    found = true;
  }
  if (!found) throw Error("level", "\"" + level + "\" is not one of: " + names);
  const Dialect dialect = DialectWith(name, rounding);
  std::vector<Case> cases;
  {
    const nb::gil_scoped_release release;
    cases = MakeCases(dialect, options);
  }
  nb::list list;
  for (Case& c : cases) {
    nb::object random = nb::none();
    const std::size_t rows = c.x.rows, cols = c.x.cols;
    if (!c.random.empty()) random = ArrayOf(std::move(c.random), {rows, cols});
    list.append(nb::make_tuple(std::string(c.family), c.name, MatrixArray(std::move(c.x)),
                               c.is_bf16, random));
  }
  return list;
}

// [(name, what, stage)] of the deviations that change some byte of the kernel.
std::vector<std::tuple<std::string, std::string, std::string>> WrongKernels(
    const KernelNames& names) {
  const Kernel kernel = KernelOf(names);
  std::vector<std::tuple<std::string, std::string, std::string>> rows;
  for (const Deviation& d : Deviations()) {
    if (!Applies(d, kernel)) continue;
    constexpr const char* kStages[] = {"input",   "tensor scale", "scale",
                                       "element", "layout",       "nothing"};
    rows.emplace_back(d.name, d.what, kStages[static_cast<std::size_t>(d.stage)]);
  }
  return rows;
}

nb::object RunWrongKernel(const KernelNames& names, const AnyMatrix& array,
                          const std::vector<std::string>& deviations,
                          const std::vector<float>& amax, const Random& random) {
  const Kernel kernel = KernelOf(names);
  std::vector<const Deviation*> found;
  for (const std::string& name : deviations) {
    found.push_back(FindDeviation(name));
    if (found.back() == nullptr) throw Error("deviation", "\"" + name + "\" is not in the table");
  }
  StoredMatrix bytes;
  {
    const nb::gil_scoped_release release;
    const Input input(array);
    bytes = RunKernel(kernel, input.view(), found,
                      OptionsOf(kernel.dialect, input.view(), amax, random, std::nullopt));
  }
  return TupleOf(std::move(bytes));
}

VerdictParts VerifyRuns(const KernelNames& names, const AnyMatrix& array,
                        const std::vector<Parts>& runs, const std::vector<float>& amax,
                        double error_rate) {
  const Kernel kernel = KernelOf(names);
  RequireStochastic(kernel.dialect, "dialect");
  const nb::gil_scoped_release release;
  const Input input(array);
  const MatrixView<const float> x = input.view();
  RequireElements(x);
  if (runs.empty()) throw Error("samples", "there is no run to judge");
  std::vector<StoredMatrix> answers;
  for (const Parts& parts : runs) answers.push_back(AnswerOf(kernel, x, LayoutOf(names), parts));
  const StatisticalVerdict verdict = VerifyStatistically(kernel.dialect, x, answers, "codes",
                                                         {.quantize = {.amax = amax}}, error_rate);
  const std::string text = StatisticalText(kernel.dialect, verdict);
  return {verdict.Accepted(), text.substr(0, text.find('\n')), text,
          StatisticalJson(kernel.dialect, verdict).dump()};
}

}  // namespace

void BindJudge(Bindings& m) {
  m.def("verify", &VerifyArrays, nb::arg("kernel"), nb::arg("x").noconvert(), nb::arg("columnwise"),
        nb::arg("parts"), nb::arg("amax"), nb::arg("random").noconvert().none(),
        nb::arg("check_padding"), nb::arg("first"));
  m.def("explain", &ExplainArrays, nb::arg("kernel"), nb::arg("x").noconvert(),
        nb::arg("columnwise"), nb::arg("parts"), nb::arg("amax"),
        nb::arg("random").noconvert().none(), nb::arg("pairs"), nb::arg("deciding_case"));
  m.def("identify", &IdentifyArrays, nb::arg("x").noconvert(), nb::arg("parts"), nb::arg("amax"),
        nb::arg("random").noconvert().none(), nb::arg("dialects"), nb::arg("also"),
        nb::arg("scale_type"), nb::arg("decide"));
  m.def("cases", &Cases);
  m.def("families", [] {
    std::vector<std::tuple<std::string, std::string>> rows;
    for (const CaseFamily& f : CaseFamilies()) rows.emplace_back(f.name, f.cause);
    return rows;
  });
  m.def("wrong_kernels", &WrongKernels);
  m.def("run_wrong_kernel", &RunWrongKernel, nb::arg("kernel"), nb::arg("x").noconvert(),
        nb::arg("deviations"), nb::arg("amax"), nb::arg("random").noconvert().none());
  m.def("verify_runs", &VerifyRuns, nb::arg("kernel"), nb::arg("x").noconvert(), nb::arg("runs"),
        nb::arg("amax"), nb::arg("error_rate"));
}

}  // namespace fp4lab::python
