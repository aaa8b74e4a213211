// Verdicts on attention, and its directed cases.
#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/judge/attention/attention_case.h"

namespace fp4lab::python {
namespace {

GemmOutput OutputNamed(const std::string& name) {
  for (const NamedGemmOutput& o : kGemmOutputs) {
    if (o.name == name) return o.output;
  }
  throw Error("output", "\"" + name + "\" is not the type of an answer");
}

Matrix<float> Copied(const AnyMatrix& array) {
  const Input input(array);
  const MatrixView<const float> view = input.view();
  Matrix<float> copy(view.rows, view.cols);
  for (std::size_t r = 0; r < view.rows; ++r) {
    for (std::size_t c = 0; c < view.cols; ++c) copy(r, c) = view(r, c);
  }
  return copy;
}

// Q, K and V as rows of all heads.
using Shape = std::tuple<std::size_t, std::size_t>;  // heads of Q, heads of K and V

AttentionPlan PlanFor(const AnyMatrix& q, const AnyMatrix& k, const AnyMatrix& v,
                      const Shape& heads, double scale, bool causal, const std::string& output,
                      const std::string& scheme_name) {
  const AttentionScheme& scheme = RequireAttentionScheme(scheme_name, "scheme");
  AttentionInputs in{.heads = std::get<0>(heads),
                     .kv_heads = std::get<1>(heads),
                     .q = Copied(q),
                     .k = Copied(k),
                     .v = Copied(v),
                     .scale = scale,
                     .causal = causal,
                     .output = OutputNamed(output)};
  CheckAttention(in, scheme, "q, k and v");
  return PlanOf(in, scheme);
}

// (different, outside, heads outside, (row, column, rows, columns), (head, query, channel, got,
// low, high, exact), [(cause, sentence)]).
nb::object JudgeAttentionOf(const AnyMatrix& q, const AnyMatrix& k, const AnyMatrix& v,
                            const AnyMatrix& o, const Shape& heads, double scale, bool causal,
                            const std::string& output, const std::string& scheme) {
  AttentionJudgement j;
  std::vector<std::tuple<std::string, std::string>> causes;
  {
    const nb::gil_scoped_release release;
    const AttentionPlan plan = PlanFor(q, k, v, heads, scale, causal, output, scheme);
    const Matrix<float> got = Copied(o);
    if (got.rows != plan.in.q.rows || got.cols != plan.in.q.cols) {
      throw Error("o", "is " + std::to_string(got.rows) + "x" + std::to_string(got.cols) +
                           "; the answer is " + std::to_string(plan.in.q.rows) + "x" +
                           std::to_string(plan.in.q.cols) + " (rows of all heads x channels)");
    }
    j = JudgeAttention(EvaluateAttention(plan), plan.in.heads, got.View());
    if (j.outside > 0) {
      for (const GemmCause& c : FindAttentionCauses(plan, got.View())) {
        causes.emplace_back(c.name, c.what);
      }
    }
  }
  const AttentionElement& e = j.first;
  const Rectangle& r = j.outside_in;
  return nb::make_tuple(
      j.different, j.outside, j.heads, nb::make_tuple(r.row, r.col, r.rows, r.cols),
      nb::make_tuple(e.head, e.query, e.channel, e.got, e.low, e.high, e.exact), causes);
}

// The answer of the right kernel, (heads * queries, channels), as float32 values of the output.
nb::object AttentionAnswer(const AnyMatrix& q, const AnyMatrix& k, const AnyMatrix& v,
                           const Shape& heads, double scale, bool causal, const std::string& output,
                           const std::string& scheme, const std::vector<std::string>& deviations) {
  Matrix<float> answer;
  {
    const nb::gil_scoped_release release;
    AttentionPlan plan = PlanFor(q, k, v, heads, scale, causal, output, scheme);
    for (const WrongAttention& wrong : WrongAttentions()) {
      for (const std::string& name : deviations) {
        if (wrong.name == name) wrong.Apply(plan);
      }
    }
    answer = EvaluateAttention(plan).answer;
  }
  const std::size_t rows = answer.rows, cols = answer.cols;
  return ArrayOf(std::move(answer.values), {rows, cols});
}

// [(name, what, scheme, (heads, kv_heads), causal, output, q, k, v)] of the cases whose operands
// are numbers.
nb::object AttentionCases() {
  nb::list list;
  for (AttentionCase& c : MakeAttentionCases()) {
    if (c.plan.operands_given) continue;
    AttentionInputs& in = c.plan.in;
    const auto array = [](Matrix<float>& x) {
      const std::size_t rows = x.rows, cols = x.cols;
      return ArrayOf(std::move(x.values), {rows, cols});
    };
    const std::string output(kGemmOutputs[static_cast<std::size_t>(in.output)].name);
    list.append(nb::make_tuple(std::string(c.name), std::string(c.what),
                               std::string(c.plan.scheme.name),
                               nb::make_tuple(in.heads, in.kv_heads), in.causal, output,
                               array(in.q), array(in.k), array(in.v)));
  }
  return list;
}

nb::object SchemeNames() {
  nb::list names;
  for (const AttentionScheme& s : AttentionSchemes()) names.append(std::string(s.name));
  return names;
}

}  // namespace

void BindAttention(Bindings& m) {
  m.def("judge_attention", &JudgeAttentionOf, nb::arg("q"), nb::arg("k"), nb::arg("v"),
        nb::arg("o").noconvert(), nb::arg("heads"), nb::arg("scale"), nb::arg("causal"),
        nb::arg("output"), nb::arg("scheme"));
  m.def("attention", &AttentionAnswer, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("heads"),
        nb::arg("scale"), nb::arg("causal"), nb::arg("output"), nb::arg("scheme"),
        nb::arg("deviations"));
  m.def("attention_cases", &AttentionCases);
  m.def("attention_schemes", &SchemeNames);
}

}  // namespace fp4lab::python
