// Directed cases for attention kernels: on them every wrong kernel of the table
// (attention_kernel.h) differs from the right one and from every other.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/judge/attention/attention.h"
#include "fp4lab/judge/attention/attention_kernel.h"

namespace fp4lab {

struct AttentionCase {
  std::string_view name;  // "sageattention3"
  std::string_view what;  // the tested causes of error
  // Q, K and V as numbers, which a kernel quantizes by the plan's scheme; or as codes, where
  // plan.operands_given.
  AttentionPlan plan;
};
std::vector<AttentionCase> MakeAttentionCases();

// The answers that the right kernel and every wrong kernel may give. Members may be called by
// several threads.
class AttentionBench {
 public:
  explicit AttentionBench(std::vector<AttentionCase> cases);

  const std::vector<AttentionCase>& cases() const { return cases_; }
  const std::vector<WrongAttention>& wrong() const { return wrong_; }
  const AttentionRange& RightRange(std::size_t c) const { return right_[c]; }
  const Matrix<float>& Right(std::size_t c) const { return right_[c].answer; }
  // The answers of wrong kernel w; the right ones where it does not change the case.
  const AttentionRange& Range(std::size_t w, std::size_t c) const;
  const Matrix<float>& Answer(std::size_t w, std::size_t c) const { return Range(w, c).answer; }

  // The answers of a kernel that has the deviations w, one after the other.
  std::vector<Matrix<float>> AnswersOf(std::span<const std::size_t> w) const;
  bool IsRight(std::size_t c, const Matrix<float>& answer) const;
  // The wrong kernels that may give all answers; none if all are right. An answer that is missing
  // is not compared.
  std::vector<std::size_t> Name(std::span<const std::optional<Matrix<float>>> answers) const;

 private:
  std::vector<AttentionCase> cases_;
  std::vector<WrongAttention> wrong_;
  std::vector<AttentionRange> right_;
  // [wrong][case], if it changes; computed when the first caller needs it.
  mutable std::vector<std::vector<std::optional<AttentionRange>>> ranges_;
  mutable std::once_flag once_;
  const std::optional<AttentionRange>& RangeIfChanged(std::size_t w, std::size_t c) const;
};

}  // namespace fp4lab
