#include "fp4lab/judge/verify/verify.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "fp4lab/judge/explain/explain.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const Dialect& Te() { return *FindDialect("nvfp4.te"); }

StoredMatrix RightAnswer(const Dialect& dialect, const Matrix<float>& x,
                         StorageLayout layout = {}) {
  return Store(dialect, QuantizeAs(dialect, x.View()), layout);
}

TEST_CASE("The right bytes are equal in every layout", "[judge]") {
  const Matrix<float> x = NormalMatrix(1, 33, 80);
  for (const char* name : {"nvfp4.te", "nvfp4.te.2d", "mxfp4.floor"}) {
    const Dialect& dialect = *FindDialect(name);
    for (const NamedCodeOrder& codes : kCodeOrders) {
      if (codes.order == CodeOrder::kDense6) continue;
      for (const NamedScaleOrder& scales : kScaleOrders) {
        for (const bool turned : {false, true}) {
          for (const bool expanded : {false, true}) {
            const StorageLayout layout{.codes = codes.order,
                                       .scales = scales.order,
                                       .transposed = turned,
                                       .expanded_scales = expanded};
            CAPTURE(name, codes.name, scales.name, turned, expanded);
            const StoredMatrix answer = RightAnswer(dialect, x, layout);
            const Verdict verdict =
                Verify(dialect, x.View(), answer, "answer", {.check_padding = true});
            CHECK(verdict.Equal());
            CHECK(verdict.codes.total == 33 * 80);
            CHECK(verdict.has_tensor_scale == HasTensorScale(dialect));
          }
        }
      }
    }
  }
}

// The places (row, column) at which the codes of two matrices differ.
std::vector<std::pair<std::size_t, std::size_t>> Places(const Quantized& a, const Quantized& b) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t i = 0; i < a.codes.size(); ++i) {
    if (a.codes[i] != b.codes[i]) places.emplace_back(i / a.cols, i % a.cols);
  }
  return places;
}

TEST_CASE("Differences in many rows are counted and listed in row-major order, in every layout",
          "[judge]") {
  const Matrix<float> x = NormalMatrix(8, 71, 133);
  for (const char* name : {"nvfp4.te", "nvfp4.te.2d"}) {
    const Dialect& dialect = *FindDialect(name);
    const Quantized right = QuantizeAs(dialect, x.View());
    Quantized wrong = right;
    for (std::size_t i = 5; i < wrong.codes.size(); i += 997) wrong.codes[i] ^= 1;
    wrong.codes.back() ^= 2;
    wrong.scales[3] ^= 1;
    wrong.scales.back() ^= 1;
    const auto places = Places(right, wrong);
    for (const NamedCodeOrder& codes : kCodeOrders) {
      if (codes.order == CodeOrder::kDense6) continue;
      for (const bool turned : {false, true}) {
        for (const bool expanded : {false, true}) {
          CAPTURE(name, codes.name, turned, expanded);
          const StorageLayout layout{
              .codes = codes.order, .transposed = turned, .expanded_scales = expanded};
          const Verdict v = Verify(dialect, x.View(), Store(dialect, wrong, layout), "answer",
                                   {.first = 1000, .check_padding = true});
          CHECK(v.padding_set == 0);
          CHECK(v.scales.different >= 2);
          if (!expanded) CHECK(v.scales.same_value == 0);
          REQUIRE(v.codes.first.size() == places.size());
          CHECK(v.codes.different == places.size());
          for (std::size_t i = 0; i < places.size(); ++i) {
            const Difference& d = v.codes.first[i];
            CHECK(std::pair(d.row, d.col) == places[i]);
            const std::size_t at = d.row * x.cols + d.col;
            CHECK(d.expected == right.codes[at]);
            CHECK(d.got == wrong.codes[at]);
          }
        }
      }
    }
  }
}

TEST_CASE("Every byte of padding of scales is looked at, and no other", "[judge]") {
  const Matrix<float> x = NormalMatrix(9, 33, 80);
  for (const NamedScaleOrder& order : kScaleOrders) {
    CAPTURE(order.name);
    const StoredMatrix right = RightAnswer(Te(), x, {.scales = order.order});
    StoredMatrix full = right;
    for (std::uint8_t& scale : full.scales) scale = 1;
    const Verdict v = CompareStored(right, full, "answer", {.check_padding = true});
    CHECK(v.padding_set == right.scales.size() - std::size_t{33} * 5);
  }
}

TEST_CASE("One changed byte of each part is found at its place, in every layout", "[judge]") {
  const Matrix<float> x = NormalMatrix(2, 33, 80);
  for (const bool turned : {false, true}) {
    CAPTURE(turned);
    const StorageLayout layout{.scales = ScaleOrder::k128x4, .transposed = turned};
    Quantized q = QuantizeAs(Te(), x.View());
    q.codes[7 * 80 + 21] ^= 3;
    q.scales[12 * 5 + 4] += 1;
    q.amax[0] *= 2.0f;
    const Verdict verdict = Verify(Te(), x.View(), Store(Te(), q, layout), "answer");
    CHECK_FALSE(verdict.Equal());
    REQUIRE(verdict.codes.different == 1);
    CHECK(verdict.codes.first[0].row == 7);
    CHECK(verdict.codes.first[0].col == 21);
    CHECK((verdict.codes.first[0].expected ^ verdict.codes.first[0].got) == 3);
    REQUIRE(verdict.scales.different == 1);
    CHECK(verdict.scales.first[0].row == (turned ? 4 : 12));  // in the stored order
    CHECK(verdict.scales.first[0].col == (turned ? 12 : 4));
    CHECK(verdict.tensor_scale.different == 1);
    CHECK(verdict.codes.same_value + verdict.scales.same_value == 0);
  }
}

TEST_CASE("Other bytes for the same values are told from wrong ones", "[judge]") {
  Matrix<float> x(3, 48);
  for (std::size_t c = 0; c < 48; ++c) x(0, c) = static_cast<float>(c % 7) - 3.0f;
  for (std::size_t c = 16; c < 32; ++c) x(1, c) = 0x1p-40f;  // under a scale of 0
  Quantized q = QuantizeAs(Te(), x.View());
  REQUIRE(q.scales[4] == 0);
  REQUIRE(q.codes[48 + 20] == 7);
  q.codes[48 + 20] = 0;  // a code under a zero scale
  q.codes[3] = 8;        // -0 for 0
  q.scales[8] = 0x38;    // another scale for a block of zeros
  const Verdict verdict = Verify(Te(), x.View(), Store(Te(), q, {}), "answer");
  CHECK_FALSE(verdict.Equal());
  CHECK(verdict.OnlyOtherBytes());
  CHECK(verdict.codes.same_value == 2);
  CHECK(verdict.scales.same_value == 1);
  q.codes[5] ^= 8;
  CHECK_FALSE(Verify(Te(), x.View(), Store(Te(), q, {}), "answer").OnlyOtherBytes());
}

TEST_CASE("Kinds of NaN are the same value", "[judge]") {
  const Dialect& dialect = *FindDialect("mxfp8_e4m3.floor");
  const Matrix<float> x(1, 32, kNan);
  Quantized q = QuantizeAs(dialect, x.View());
  REQUIRE(q.codes[0] == 0x7F);
  q.codes[0] = 0xFF;
  const StorageLayout layout{.codes = CodeOrder::kBytes,
                             .tensor_scale = TensorScaleConvention::kNone};
  const Verdict verdict = Verify(dialect, x.View(), Store(dialect, q, layout), "answer");
  CHECK(verdict.codes.different == 1);
  CHECK(verdict.OnlyOtherBytes());
}

TEST_CASE("Padding counts only where it is asked for", "[judge]") {
  const Matrix<float> x = NormalMatrix(3, 5, 33);
  StoredMatrix answer = RightAnswer(Te(), x, {.scales = ScaleOrder::k128x4});
  answer.scales.back() = 0xAB;
  answer.codes[16] |= 0xF0;  // beside the last of 33 codes
  CHECK(Verify(Te(), x.View(), answer, "answer").Equal());
  const Verdict verdict = Verify(Te(), x.View(), answer, "answer", {.check_padding = true});
  CHECK_FALSE(verdict.Equal());
  CHECK(verdict.padding_set == 2);
}

TEST_CASE("An answer of the wrong size is refused with the size that fits", "[judge]") {
  const Matrix<float> x = NormalMatrix(3, 5, 32);
  StoredMatrix answer = RightAnswer(Te(), x);
  answer.scales.pop_back();
  CHECK(ErrorOf([&] { Verify(Te(), x.View(), answer, "s.npy"); })
            .find("s.npy: 9 bytes of scales; a 5x32 matrix with codes low-first and scales linear "
                  "has 10") == 0);
}

TEST_CASE("An approximate dialect accepts every answer of its set", "[judge]") {
  for (const Dialect& dialect : Dialects()) {
    if (!IsApproximate(dialect)) continue;
    CAPTURE(dialect.name);
    const Matrix<float> x = NormalMatrix(4, 16, 64);
    const Verdict verdict = Verify(dialect, x.View(), RightAnswer(dialect, x), "answer");
    REQUIRE(verdict.allowed);
    CHECK(verdict.Equal());
    Quantized q = QuantizeAs(dialect, x.View());
    q.codes[5] ^= 8;
    const Verdict wrong = Verify(dialect, x.View(), Store(dialect, q, {}), "answer");
    CHECK_FALSE(wrong.Accepted());
    CHECK(wrong.allowed->codes_outside == 1);
  }
}

// What verify advises about a wrong number is what explain finds.
TEST_CASE("The advice about a number of another amax follows from codes and scales", "[judge]") {
  const Dialect& dialect = *FindDialect("nvfp4.te");
  Matrix<float> x = NormalMatrix(31, 64, 64);
  x(40, 3) = 5.0f;
  x(3, 40) = 3.65625f;
  for (const TensorScaleConvention convention :
       {TensorScaleConvention::kAmax, TensorScaleConvention::kMultiplier}) {
    const StorageLayout layout{.tensor_scale = convention};
    const auto advice = [&](const StoredMatrix& bytes) {
      const Verdict verdict = Verify(dialect, x.View(), bytes, "answer");
      REQUIRE(verdict.tensor_scale_reading);
      return verdict.tensor_scale_reading->remedy;
    };
    const StoredMatrix right = RightAnswer(dialect, x, layout);
    const StoredMatrix stale =
        Store(dialect, QuantizeAs(dialect, x.View(), {.amax = {7.7f}}), layout);
    CHECK_THAT(advice(stale), ContainsSubstring("give the kernel this tensor's amax"));
    StoredMatrix only_number = right;
    only_number.tensor_scale = stale.tensor_scale;
    CHECK_THAT(advice(only_number), ContainsSubstring("computed with the right amax"));
    // Two ranks, joined under the first one's number.
    const StoredMatrix top =
        Store(dialect, QuantizeAs(dialect, x.View().Block(0, 0, 32, 64)), layout);
    StoredMatrix joined = right;
    std::copy(top.codes.begin(), top.codes.end(), joined.codes.begin());
    std::copy(top.scales.begin(), top.scales.end(), joined.scales.begin());
    joined.tensor_scale = top.tensor_scale;
    CHECK_THAT(advice(joined), ContainsSubstring("store a number for each part and judge them"));
    const auto looks = Verify(dialect, x.View(), joined, "answer").tensor_scale_reading->looks;
    CHECK_THAT(looks, ContainsSubstring("rows 0..31, 32..; the stored number is the amax of the "
                                        "first part"));
    // Codes that follow from no amax at all.
    StoredMatrix mixed = joined;
    for (std::size_t i = 0; i < mixed.codes.size(); i += 5) mixed.codes[i] ^= 0x11;
    CHECK_THAT(advice(mixed), ContainsSubstring("find out with fp4lab explain which part"));
    const Explanation e = Explain({.dialect = dialect, .layout = layout}, x.View(), joined);
    CHECK_THAT(
        Text({.dialect = dialect, .layout = layout}, e),
        ContainsSubstring("rows 0..31, 32..; the stored number is the amax of the first part"));
  }
}

TEST_CASE("A verdict is text for people and JSON for machines", "[judge]") {
  const Matrix<float> x = NormalMatrix(5, 16, 64);
  Quantized q = QuantizeAs(Te(), x.View());
  q.codes[64 + 2] ^= 8;
  const Verdict verdict = Verify(Te(), x.View(), Store(Te(), q, {}), "answer");
  const std::string text = VerdictText(Te(), verdict);
  CHECK_THAT(text,
             Catch::Matchers::ContainsSubstring("codes   1 of 1024 differ\n  element (1, 2): "));
  CHECK_THAT(text, Catch::Matchers::ContainsSubstring("scales  equal (64)\n"));
  const Json json = VerdictJson(Te(), verdict);
  CHECK(json["equal"] == false);
  CHECK(json["codes"]["different"] == 1);
  CHECK(json["scales"]["different"] == 0);
  CHECK(json["tensor_scale"]["total"] == 1);
}

// ---- The stream

std::string Answers(const Dialect& dialect, const CaseOptions& options,
                    const std::vector<Case>& cases, std::vector<const Deviation*> deviations = {}) {
  std::stringstream in, out;
  WriteCases(dialect, options, cases, in);
  Kernel kernel{.dialect = dialect, .layout = {}};
  AnswerCases(kernel, deviations, in, "cases", out);
  return out.str();
}

SetVerdict VerdictOn(const Dialect& dialect, const std::vector<Case>& cases,
                     const std::string& answers) {
  std::stringstream in(answers);
  return VerifyStream(dialect, cases, in, "answers");
}

TEST_CASE("Cases go through the stream as FP32 and as BF16 and come back equal", "[judge]") {
  for (const char* name : {"nvfp4.te", "nvfp4.te.2d", "nvfp4.te.row-scaled", "nvfp4.te.stochastic",
                           "mxfp4.rceil", "nvfp4.flashinfer"}) {
    CAPTURE(name);
    const Dialect& dialect = *FindDialect(name);
    for (const bool bf16 : {false, true}) {
      const CaseOptions options{.families = {"signs", "tails", "nan-inf"}, .bf16_only = bf16};
      const std::vector<Case> cases = MakeCases(dialect, options);
      CHECK(VerdictOn(dialect, cases, Answers(dialect, options, cases)).Accepted());
    }
  }
}

TEST_CASE("A stream of wrong, missing, doubled or foreign answers is named", "[judge]") {
  const CaseOptions options{.families = {"signs", "all-zero"}};
  const std::vector<Case> cases = MakeCases(Te(), options);
  const std::string right = Answers(Te(), options, cases);
  const auto error = [&](const std::string& answers) {
    return ErrorOf([&] { VerdictOn(Te(), cases, answers); });
  };
  const SetVerdict wrong =
      VerdictOn(Te(), cases, Answers(Te(), options, cases, {FindDeviation("sign-dropped")}));
  CHECK_FALSE(wrong.Accepted());
  CHECK(wrong.cases[0].verdict.Equal());  // case all-zero
  CHECK_FALSE(wrong.cases[1].verdict.Equal());

  CHECK(error("") ==
        "answers: is empty: it holds no answers; the program that writes them says why");
  CHECK(error("fp4lab-answers 2\n").find("answers: does not start with the line") == 0);
  CHECK(error("fp4lab-answers 1\n") == "answers: holds no answer to case 0 (all-zero)");
  CHECK(error(right.substr(0, 30)) == "answers: ends within record 0");
  CHECK(error(right.substr(0, right.size() - 1)) == "answers: ends within record 1");
  CHECK(error(right + right.substr(17)).find("answers, case 0 (all-zero): is answered twice") == 0);
  std::string foreign = right;
  foreign[21] ^= 1;  // the check number of the answer
  CHECK(error(foreign).find("its check number is another case's: verify needs the options") !=
        std::string::npos);
  foreign = right;
  foreign[17] = 9;
  CHECK(error(foreign).find("answers: answers case 9 of 2") == 0);
  std::string huge = right;
  huge[17 + 11] = '\x7F';  // the top byte of the size of the codes
  CHECK(error(huge).find("no answer is that long") != std::string::npos);
}

TEST_CASE("A declined case is different, or allowed", "[judge]") {
  const CaseOptions options{.families = {"all-zero", "signs"}};
  const std::vector<Case> cases = MakeCases(Te(), options);
  REQUIRE(cases.size() == 2);
  std::string declined = Answers(Te(), options, cases);
  std::uint32_t sizes[3];  // of the first answer's parts
  std::memcpy(sizes, declined.data() + 17 + 8, sizeof sizes);
  declined.replace(17 + 8, 12 + sizes[0] + sizes[1] + 4 * sizes[2], 12, '\0');
  std::stringstream first(declined), second(declined);
  CHECK_FALSE(VerifyStream(Te(), cases, first, "answers").Accepted());
  const SetVerdict allowed = VerifyStream(Te(), cases, second, "answers", {.allow_declined = true});
  CHECK(allowed.Accepted());
  CHECK_THAT(
      SetVerdictText(Te(), cases, allowed),
      Catch::Matchers::StartsWith("nvfp4.te: 1 of 2 cases as the dialect has them; 1 declined\n"
                                  "  all-zero: 1 declined; it tests "));
  const Json json = SetVerdictJson(Te(), cases, allowed);
  CHECK(json["accepted"] == true);
  CHECK(json["equal"] == false);
  CHECK(json["different"] == 0);
  CHECK(json["declined"] == 1);
  CHECK(json["cases"][0] == Json({{"index", 0},
                                  {"name", "all-zero"},
                                  {"equal", false},
                                  {"accepted", true},
                                  {"declined", true}}));
}

}  // namespace
}  // namespace fp4lab
