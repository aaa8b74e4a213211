// Grouped products: groups, padding, empty groups, and the causes of wrong ones.
#include "fp4lab/judge/products/grouped/grouped_gemm.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/random.h"
#include "tests/judge/bench_names.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

const Accumulation& Exact() { return *FindAccumulation("exact"); }

const GroupedBench& Bench() {
  static const GroupedBench bench(MakeGroupedCases());
  return bench;
}
const std::vector<GroupedCase>& Cases() { return Bench().cases(); }

std::vector<std::string> Names(const std::vector<Matrix<float>>& answers) {
  return NamesOf(Bench(), answers);
}

std::vector<Matrix<float>> AnswersOf(const std::vector<const GroupedDeviation*>& deviations) {
  std::vector<Matrix<float>> answers;
  for (const GroupedCase& c : Cases()) {
    GroupedKernel k = KernelOf(c.in);
    for (const GroupedDeviation* d : deviations) d->apply(k);
    answers.push_back(RunGroupedKernel(k, Exact()));
  }
  return answers;
}

// d, row by row from the definition.
Matrix<float> Product(const GroupedInputs& in) {
  const Matrix<double> a = ExactValues(in.a);
  Matrix<float> d(in.a.rows, in.b[0].rows);
  std::size_t begin = 0;
  for (std::size_t g = 0; g < in.b.size(); ++g) {
    const Matrix<double> b = ExactValues(in.b[g]);
    const std::size_t rows = in.sizes.empty() ? in.ends[g] - begin : in.sizes[g];
    for (std::size_t m = begin; m < begin + rows; ++m) {
      for (std::size_t n = 0; n < d.cols; ++n) {
        double y = 0;
        for (std::size_t k = 0; k < a.cols; ++k) y += a(m, k) * b(n, k);
        d(m, n) = static_cast<float>(in.alphas[g] * y);
      }
    }
    begin = in.ends[g];
  }
  return d;
}

TEST_CASE("Right grouped products are equal, with empty groups and padding", "[judge]") {
  std::vector<Matrix<float>> answers;
  for (const GroupedCase& c : Cases()) {
    CAPTURE(c.name);
    answers.push_back(Product(c.in));
    const GroupedJudgement j = JudgeGrouped(c.in, answers.back().View(), Exact());
    CHECK(j.verdict == GemmVerdict::kEqual);
    CHECK(j.padding == 0);
    CHECK(j.groups.size() < c.in.b.size());
    // The products are exact in every order.
    for (const char* under : {"fp32-sequential", "blackwell.mxf4.f32"}) {
      const GroupedJudgement other =
          JudgeGrouped(c.in, answers.back().View(), *FindAccumulation(under));
      CHECK((other.verdict == GemmVerdict::kEqual || other.verdict == GemmVerdict::kUndetermined));
    }
  }
  CHECK(Names(answers).empty());
}

TEST_CASE("The directed grouped products catch and name every wrong grouped kernel", "[judge]") {
  REQUIRE(GroupedDeviations().size() >= 15);
  for (const GroupedDeviation& d : GroupedDeviations()) {
    CAPTURE(d.name);
    const std::vector<Matrix<float>> answers = AnswersOf({&d});
    CHECK(Names(answers) == std::vector<std::string>{std::string(d.name)});
    for (std::size_t i = 0; i < Cases().size(); ++i) {
      const GroupedJudgement j = JudgeGrouped(Cases()[i].in, answers[i].View(), Exact());
      if (j.verdict == GemmVerdict::kEqual) continue;
      const std::vector<GemmCause> causes =
          FindGroupedCauses(Cases()[i].in, answers[i].View(), Exact());
      CHECK(std::any_of(causes.begin(), causes.end(),
                        [&](const GemmCause& c) { return c.name == d.name && c.equal(); }));
    }
  }
}

TEST_CASE("Two random deviations of a grouped kernel never name a third", "[judge]") {
  const RandomStream random{.seed = 35};
  const std::size_t rows = GroupedDeviations().size();
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t first = random.Bits32(2 * i) % rows;
    const std::size_t second = (first + 1 + random.Bits32(2 * i + 1) % (rows - 1)) % rows;
    const GroupedDeviation &one = GroupedDeviations()[first], &two = GroupedDeviations()[second];
    INFO(one.name << ", then " << two.name);
    const bool both_shifts = one.name.rfind("empty-groups-shift-", 0) == 0 &&
                             two.name.rfind("empty-groups-shift-", 0) == 0;
    for (const std::string& name : Names(AnswersOf({&one, &two}))) {
      // Weights and alphas that shift are one row, "-both", which is those two by its definition.
      if (both_shifts && name == "empty-groups-shift-both") continue;
      CHECK((name == one.name || name == two.name));
    }
  }
}

TEST_CASE("Grouped products that are changed by hand have their causes", "[judge]") {
  const GroupedInputs& in = Cases()[0].in;  // sizes 0, 20, 7, 0, 130, 3, 1
  GroupedInputs next = in;
  std::rotate(next.alphas.begin(), next.alphas.begin() + 1, next.alphas.end());
  std::vector<GemmCause> causes = FindGroupedCauses(in, Product(next).View(), Exact());
  REQUIRE(causes.size() == 1);
  CHECK(causes[0].name == "alphas-of-next-group");

  next = in;
  next.b = {in.b[0], in.b[0], in.b[1], in.b[0], in.b[2], in.b[3], in.b[4]};
  causes = FindGroupedCauses(in, Product(next).View(), Exact());
  REQUIRE(causes.size() == 1);
  CHECK(causes[0].name == "empty-groups-shift-weights");

  const GroupedInputs& padded = Cases()[2].in;
  Matrix<float> d = Product(padded);
  d(17, 3) = 0.5f;
  const GroupedJudgement j = JudgeGrouped(padded, d.View(), Exact());
  CHECK(j.verdict == GemmVerdict::kOutside);
  CHECK(j.padding == 1);
  CHECK(j.padding_row == 17);
  CHECK(FindGroupedCauses(padded, d.View(), Exact()).empty());

  // An ordinary wrong kernel in every group: signs of A dropped.
  next = in;
  for (std::uint32_t& code : next.a.codes) code &= 7u;
  causes = FindGroupedCauses(in, Product(next).View(), Exact());
  REQUIRE(causes.size() == 1);
  CHECK(causes[0].name == "a-signs-dropped");
}

TEST_CASE("Groups that do not fit are refused with their numbers", "[judge]") {
  const auto refused = [](GroupedInputs in) {
    try {
      CheckGroups(in, "x");
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const GroupedInputs& in = Cases()[2].in;
  CHECK(refused(in).empty());
  GroupedInputs wrong = in;
  wrong.ends[1] = 5;
  CHECK_THAT(refused(wrong),
             ContainsSubstring("group 1 ends at row 5; ends are cumulative, from 32"));
  wrong = in;
  wrong.sizes[2] = 17;
  CHECK_THAT(refused(wrong), ContainsSubstring("group 2 has 17 rows of tokens in 16 rows"));
  wrong = in;
  wrong.alphas.pop_back();
  CHECK_THAT(refused(wrong), ContainsSubstring("5 alphas for 6 groups"));
  wrong = in;
  wrong.ends.pop_back();
  CHECK_THAT(refused(wrong), ContainsSubstring("5 ends for 6 groups"));
  wrong = in;
  wrong.b[4].cols = 32;
  CHECK_THAT(refused(wrong), ContainsSubstring("the weights of group 4 are 8x32"));
}

}  // namespace
}  // namespace fp4lab
