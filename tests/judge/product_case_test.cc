// Directed cases for GEMM kernels: every wrong kernel is caught and named, no other is blamed.
#include "fp4lab/judge/products/product_case.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fp4lab/base/random.h"
#include "fp4lab/formats/format.h"
#include "fp4lab/judge/products/bench_coverage.h"
#include "fp4lab/tensor/accumulation.h"
#include "tests/judge/bench_names.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

const ProductBench& Bench() {
  static const ProductBench bench(MakeProductCases());
  return bench;
}

std::size_t Find(std::string_view name) {
  const std::vector<WrongGemm>& wrong = Bench().wrong();
  const auto at =
      std::find_if(wrong.begin(), wrong.end(), [&](const WrongGemm& w) { return w.name == name; });
  REQUIRE(at != wrong.end());
  return static_cast<std::size_t>(at - wrong.begin());
}

std::size_t CaseAt(std::string_view name) { return fp4lab::CaseAt(Bench(), name); }

std::vector<std::string> Names(const std::vector<Matrix<float>>& answers) {
  return NamesOf(Bench(), answers);
}

TEST_CASE("The directed products catch and name every wrong GEMM kernel", "[judge]") {
  const BenchCoverage coverage = MeasureBench(Bench());
  REQUIRE(coverage.rows.size() >= 60);
  INFO(CoverageText(Bench(), coverage));
  CHECK(coverage.caught == coverage.rows.size());
  CHECK(coverage.named == coverage.rows.size());
  std::set<std::string_view> names;
  for (const WrongGemm& w : Bench().wrong()) names.insert(w.name);
  CHECK(names.size() == Bench().wrong().size());
}

TEST_CASE("Two random deviations of a GEMM kernel never name a third", "[judge]") {
  const RandomStream random{.seed = 34};
  const std::size_t rows = Bench().wrong().size();
  std::size_t named = 0;
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t first = random.Bits32(2 * i) % rows;
    const std::size_t second = (first + 1 + random.Bits32(2 * i + 1) % (rows - 1)) % rows;
    const std::vector<std::size_t> both = {first, second};
    const std::vector<std::string> names = Names(Bench().AnswersOf(both));
    INFO(Bench().wrong()[first].name << ", then " << Bench().wrong()[second].name);
    for (const std::string& name : names) {
      CHECK((name == Bench().wrong()[first].name || name == Bench().wrong()[second].name));
    }
    named += names.empty() ? 0 : 1;
  }
  CHECK(named < 40);  // one deviation hides the other in some pairs only
}

TEST_CASE("Order-free cases have one answer under every accumulation of 24 bits", "[judge]") {
  for (std::size_t i = 0; i < Bench().cases().size(); ++i) {
    const ProductCase& c = Bench().cases()[i];
    for (const Accumulation& sum : Accumulations()) {
      const bool cuts = sum.model != nullptr && sum.model->output != MmaOutput::kTruncate32;
      if (cuts || !WhyNot(sum, c.a, c.b).empty()) continue;
      Matrix<float> d(c.a.rows, c.b.rows);
      GemmAs(sum, c.a, c.b, {.alpha = c.alpha, .output = c.output}, d.View());
      for (std::size_t k = 0; k < c.c.values.size(); ++k) d.values[k] += c.beta * c.c.values[k];
      INFO(c.name << " under " << sum.name);
      CHECK(Bench().IsRight(i, d));
    }
  }
}

TEST_CASE("Wrong products stated by hand have the causes of the table", "[judge]") {
  // The answers are changed here without the table: a tail of rows, a NaN, the buffer's order.
  std::vector<Matrix<float>> answers;
  for (std::size_t c = 0; c < Bench().cases().size(); ++c) answers.push_back(Bench().Right(c));
  CHECK(Names(answers).empty());
  const std::vector<Matrix<float>> right = answers;

  for (std::size_t c = 0; c < answers.size(); ++c) {
    for (float& d : answers[c].values) d = d != d ? 0.0f : d;
  }
  CHECK(Names(answers) == std::vector<std::string>{"output-nan-as-0"});

  answers = right;
  for (Matrix<float>& d : answers) {
    const std::size_t whole = d.rows / 16 * 16;
    for (std::size_t m = whole == 0 ? d.rows : whole; m < d.rows; ++m) {
      for (std::size_t n = 0; n < d.cols; ++n) d(m, n) = 0.0f;
    }
  }
  CHECK(Names(answers) == std::vector<std::string>{"row-tail-of-16-zero"});

  answers = right;
  for (Matrix<float>& d : answers) {
    const Matrix<float> as = d;
    for (std::size_t m = 0; m < d.rows; ++m) {
      for (std::size_t n = 0; n < d.cols; ++n) d.values[n * d.rows + m] = as(m, n);
    }
  }
  CHECK(Names(answers) == std::vector<std::string>{"output-transposed"});

  // y = 257 and 259 are ties of BF16: 256 and 260 are right, away from zero 258 and 260.
  const std::size_t bf16 = CaseAt("bf16-output");
  const ProductCase& c = Bench().cases()[bf16];
  const Matrix<double> a = ExactValues(c.a), b = ExactValues(c.b);
  answers = right;
  std::size_t ties = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (Bench().cases()[i].output != GemmOutput::kBf16) continue;
    for (std::size_t m = 0; m < c.a.rows; ++m) {
      for (std::size_t n = 0; n < c.b.rows; ++n) {
        double y = 0;
        for (std::size_t k = 0; k < c.a.cols; ++k) y += a(m, k) * b(n, k);
        const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(y));
        ties += (bits & 0xFFFFu) == 0x8000u ? 1 : 0;
        answers[i](m, n) = std::bit_cast<float>((bits + 0x8000u) & 0xFFFF0000u);
      }
    }
  }
  CHECK(ties > 8);
  CHECK(answers[bf16].values == Bench().Answer(Find("output-ties-away"), bf16).values);
}

}  // namespace
}  // namespace fp4lab
