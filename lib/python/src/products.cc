// Matrix products under every accumulation, and verdicts on products.
#include <bit>
#include <cmath>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/judge/products/gemm.h"
#include "fp4lab/judge/products/grouped/grouped_gemm.h"
#include "fp4lab/tensor/accumulation.h"

namespace fp4lab::python {
namespace {

// A quantized operand: dialect, rows, columns, layout, bytes.
using OperandParts = std::tuple<std::string, std::size_t, std::size_t, LayoutNames, Parts>;

struct Operand {
  const Dialect* dialect;
  MmaOperand codes;
  std::optional<float> amax;
};

Operand OperandOf(const OperandParts& parts, const char* where) {
  const auto& [name, rows, cols, layout, bytes] = parts;
  const Dialect& dialect = RequireDialect(name);
  const StoredMatrix stored = StoredOf(dialect, rows, cols, layout, bytes);
  const Quantized q = Load(dialect, stored, where);
  if (dialect.row_scaled) {
    throw Error(where, name + " has a tensor scale for each row, which no single alpha stands for");
  }
  return {.dialect = &dialect,
          .codes = MakeMmaOperand(FormatOf(dialect.element), {q.codes.data(), q.rows, q.cols},
                                  FormatOf(dialect.scale), dialect.block_rows, dialect.block_cols,
                                  q.scales),
          .amax = q.amax.empty() ? std::nullopt : std::optional(q.amax[0])};
}

const Accumulation& RequireAccumulation(const std::string& name) {
  if (const Accumulation* a = FindAccumulation(name)) return *a;
  throw Error("accumulation",
              "\"" + name + "\" is not known; " + DidYouMean(name, NamesOf(Accumulations())));
}

// A number, the name of a rule that makes alpha of the amaxes, or nothing: GemmAlpha.
float AlphaOf(const Operand& a, const Operand& b, const std::optional<float>& number,
              const std::string& rule) {
  if (number) return *number;
  const auto amax_of = [](const Operand& o, const char* where) {
    if (o.amax) return *o.amax;
    if (!HasTensorScale(*o.dialect)) return 0.0f;
    throw Error("alpha", std::string("operand ") + where +
                             " has no amax to make alpha of: give alpha as a number");
  };
  const float amax_a = amax_of(a, "a"), amax_b = amax_of(b, "b");
  if (rule.empty()) return GemmAlpha(*a.dialect, amax_a, *b.dialect, amax_b);
  std::string names;
  for (const NamedAlphaRule& r : kAlphaRules) {
    names += (names.empty() ? "" : ", ") + std::string(r.name);
    if (r.name != rule) continue;
    if (!HasEncodeScale(*a.dialect) || !HasEncodeScale(*b.dialect)) {
      throw Error("alpha", "the rule \"" + rule + "\" is of two NVFP4 operands with an amax each");
    }
    return Nvfp4Alpha(r.rule, amax_a, amax_b);
  }
  throw Error("alpha", "\"" + rule + "\" is neither a number nor one of: " + names);
}

GemmOutput OutputOf(const std::string& name) {
  std::string names;
  for (const NamedGemmOutput& o : kGemmOutputs) {
    if (o.name == name) return o.output;
    names += (names.empty() ? "" : ", ") + std::string(o.name);
  }
  throw Error("out_dtype", "\"" + name + "\" is not one of: " + names);
}

void CheckProduct(const Operand& a, const Operand& b, const Accumulation& under) {
  if (a.codes.cols != b.codes.cols) {
    throw Error("scaled_mm", "a has K = " + std::to_string(a.codes.cols) + ", b has K = " +
                                 std::to_string(b.codes.cols) + ": both must be (rows, K)");
  }
  if (const std::string why = WhyNot(under, a.codes, b.codes); !why.empty()) {
    throw Error("accumulation", std::string(under.name) + " does not take these operands: " + why);
  }
}

float RoundedTo(GemmOutput output, float x) { return FinishProduct(x, {.output = output}); }

// bias: N numbers, or none. The result is float32 values of the output type:
// out(fl(fl(alpha * sum) + bias)), one rounding less without a bias.
nb::object Product(const OperandParts& a_parts, const OperandParts& b_parts,
                   const std::optional<float>& alpha, const std::string& rule,
                   const std::vector<float>& bias, const std::string& accumulation,
                   const std::string& output_name, int threads) {
  const Accumulation& under = RequireAccumulation(accumulation);
  const GemmOutput output = OutputOf(output_name);
  Matrix<float> c;
  {
    const nb::gil_scoped_release release;
    const ThreadsScope scope(CheckedThreads(threads));
    const Operand a = OperandOf(a_parts, "a"), b = OperandOf(b_parts, "b");
    CheckProduct(a, b, under);
    if (!bias.empty() && bias.size() != b.codes.rows) {
      throw Error("bias", std::to_string(bias.size()) + " numbers; the product has " +
                              std::to_string(b.codes.rows) + " columns");
    }
    c = Matrix<float>(a.codes.rows, b.codes.rows);
    const ProductOptions options{.alpha = AlphaOf(a, b, alpha, rule),
                                 .output = bias.empty() ? output : GemmOutput::kFp32};
    if (c.values.empty()) {
    } else if (a.codes.cols == 0) {
      for (float& v : c.values) v = RoundedTo(output, 0.0f * options.alpha);
    } else {
      GemmAs(under, a.codes, b.codes, options, c.View());
    }
    if (!bias.empty()) {
      for (std::size_t i = 0; i < c.values.size(); ++i) {
        c.values[i] = RoundedTo(output, c.values[i] + bias[i % c.cols]);
      }
    }
  }
  const std::size_t rows = c.rows, cols = c.cols;
  return ArrayOf(std::move(c.values), {rows, cols});
}

// (verdict, bound, different, outside, first different, worst, [(other accumulation, different)]);
// an element is (row, column, got, want, exact, error, bound).
nb::object JudgeProduct(const OperandParts& a_parts, const OperandParts& b_parts,
                        const AnyMatrix& d, const std::optional<float>& alpha,
                        const std::string& rule, const std::string& accumulation,
                        const std::string& output_name, bool identify) {
  const Accumulation& under = RequireAccumulation(accumulation);
  const GemmOutput output = OutputOf(output_name);
  GemmJudgement verdict;
  std::vector<std::tuple<std::string, std::size_t>> matches;
  {
    const nb::gil_scoped_release release;
    const Operand a = OperandOf(a_parts, "a"), b = OperandOf(b_parts, "b");
    CheckProduct(a, b, under);
    const Input got(d);
    if (got.view().rows != a.codes.rows || got.view().cols != b.codes.rows) {
      throw Error("d", "is " + std::to_string(got.view().rows) + "x" +
                           std::to_string(got.view().cols) + "; the product is " +
                           std::to_string(a.codes.rows) + "x" + std::to_string(b.codes.rows));
    }
    if (got.view().size() == 0) throw Error("d", "has no elements: every product is right");
    const GemmClaim claim{.a = a.codes,
                          .b = b.codes,
                          .d = got.view(),
                          .alpha = AlphaOf(a, b, alpha, rule),
                          .output = output};
    verdict = JudgeGemm(claim, under);
    if (identify) {
      for (const AccumulationMatch& m : IdentifyAccumulation(claim)) {
        matches.emplace_back(m.accumulation->name, m.different);
      }
    }
  }
  const auto element = [](const GemmElement& e) {
    return nb::make_tuple(e.row, e.col, e.got, e.want, e.exact, e.error, e.bound);
  };
  return nb::make_tuple(std::string(Name(verdict.verdict)), std::string(verdict.bound),
                        verdict.different, verdict.outside, element(verdict.first_different),
                        element(verdict.worst), matches);
}

// (verdict, elements of padding that are not zero, the first such row, [(group, verdict, different,
// outside, (row, column, rows, columns) outside, worst)], [(cause, sentence)]); an element is
// (row, column, got, want).
nb::object JudgeGroupedProduct(const OperandParts& a_parts,
                               const std::vector<OperandParts>& b_parts,
                               const std::vector<std::size_t>& ends,
                               const std::vector<std::size_t>& sizes,
                               const std::vector<float>& alphas, const AnyMatrix& d,
                               const std::string& accumulation, const std::string& output_name) {
  const Accumulation& under = RequireAccumulation(accumulation);
  GroupedInputs in{.ends = ends, .sizes = sizes, .alphas = alphas};
  in.output = OutputOf(output_name);
  GroupedJudgement judged;
  std::vector<std::tuple<std::string, std::string>> causes;
  {
    const nb::gil_scoped_release release;
    const Operand a = OperandOf(a_parts, "a");
    in.a = a.codes;
    for (const OperandParts& parts : b_parts) {
      const Operand b = OperandOf(parts, "b");
      CheckProduct(a, b, under);
      in.b.push_back(b.codes);
    }
    CheckGroups(in, "ends");
    const Input got(d);
    if (got.view().rows != in.a.rows || got.view().cols != in.b[0].rows) {
      throw Error("d", "is " + std::to_string(got.view().rows) + "x" +
                           std::to_string(got.view().cols) + "; the product is " +
                           std::to_string(in.a.rows) + "x" + std::to_string(in.b[0].rows));
    }
    judged = JudgeGrouped(in, got.view(), under);
    if (judged.verdict == GemmVerdict::kOutside) {
      for (const GemmCause& c : FindGroupedCauses(in, got.view(), under)) {
        causes.emplace_back(c.name, c.what);
      }
    }
  }
  nb::list groups;
  for (const GroupedJudgement::Group& g : judged.groups) {
    const GemmJudgement& j = g.judgement;
    const Rectangle& r = j.outside_in;
    const GemmElement& e = j.outside > 0 ? j.worst : j.first_different;
    groups.append(nb::make_tuple(g.group, std::string(Name(j.verdict)), j.different, j.outside,
                                 nb::make_tuple(r.row, r.col, r.rows, r.cols),
                                 nb::make_tuple(e.row, e.col, e.got, e.want)));
  }
  return nb::make_tuple(std::string(Name(judged.verdict)), judged.padding, judged.padding_row,
                        groups, causes);
}

}  // namespace

void BindProducts(Bindings& m) {
  m.def("product", &Product, nb::arg("a"), nb::arg("b"), nb::arg("alpha").none(), nb::arg("rule"),
        nb::arg("bias"), nb::arg("accumulation"), nb::arg("output"), nb::arg("threads"));
  m.def("judge_product", &JudgeProduct, nb::arg("a"), nb::arg("b"), nb::arg("d").noconvert(),
        nb::arg("alpha").none(), nb::arg("rule"), nb::arg("accumulation"), nb::arg("output"),
        nb::arg("identify"));
  m.def("judge_grouped", &JudgeGroupedProduct, nb::arg("a"), nb::arg("b"), nb::arg("ends"),
        nb::arg("sizes"), nb::arg("alphas"), nb::arg("d").noconvert(), nb::arg("accumulation"),
        nb::arg("output"));
}

}  // namespace fp4lab::python
