// Grouped products (experts): rows of A in groups, each group with weights of its own.
//
// d = alpha_g a b_g^T for the rows of group g. The rows of group g end before ends[g], and begin at
// ends[g - 1] or 0: the token offsets of torch._grouped_mm. The first sizes[g] rows of a group hold
// tokens. The other rows of a group, and rows beyond the last group, are padding, where d is zero.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/judge/products/gemm.h"
#include "fp4lab/judge/products/gemm_cause.h"
#include "fp4lab/tensor/accumulation.h"
#include "fp4lab/tensor/mma/mma_operand.h"

namespace fp4lab {

struct GroupedInputs {
  MmaOperand a = {};               // (rows, K)
  std::vector<MmaOperand> b = {};  // G operands (N, K)
  std::vector<std::size_t> ends = {};
  std::vector<std::size_t> sizes = {};  // empty: all rows of a group hold tokens
  std::vector<float> alphas = {};       // G, or 1 for all; empty: 1
  GemmOutput output = GemmOutput::kFp32;

  std::size_t Begin(std::size_t group) const { return group == 0 ? 0 : ends[group - 1]; }
  std::size_t Size(std::size_t group) const {
    return sizes.empty() ? ends[group] - Begin(group) : sizes[group];
  }
  float Alpha(std::size_t group) const {
    return alphas.empty() ? 1.0f : alphas[alphas.size() == 1 ? 0 : group];
  }
};

// Throws Error(where, ...) for ends that fall or lie beyond A, sizes beyond a group, operands of
// different N or K, and numbers of groups that differ.
void CheckGroups(const GroupedInputs& in, std::string_view where);

struct GroupedJudgement {
  struct Group {
    std::size_t group = 0;
    GemmJudgement judgement = {};  // rows count from the group's first row
  };
  std::vector<Group> groups = {};             // those that have rows
  std::size_t padding = 0;                    // elements of padding that are not zero
  std::size_t padding_row = 0;                // the first row with one
  GemmVerdict verdict = GemmVerdict::kEqual;  // the worst; kOutside for padding that is not zero
};
GroupedJudgement JudgeGrouped(const GroupedInputs& in, MatrixView<const float> d,
                              const Accumulation& under);

// A grouped kernel as a plan: what it multiplies and where it writes it.
struct GroupedKernel {
  struct Part {
    std::size_t row = 0, rows = 0;  // of A and of D
    std::size_t weights = 0;        // index of b
    float alpha = 1.0f;
  };
  GroupedInputs in;  // as the kernel reads them
  std::vector<Part> parts;
};
GroupedKernel KernelOf(const GroupedInputs& in);
// D, zero where no part writes.
Matrix<float> RunGroupedKernel(const GroupedKernel& kernel, const Accumulation& under);

struct GroupedDeviation {
  std::string_view name;  // "weights-of-next-group"
  std::string_view what;  // "takes the weights of the next group", the subject being the kernel
  bool (*apply)(GroupedKernel&);
};
std::span<const GroupedDeviation> GroupedDeviations();

// The wrong kernels whose parts are within the bounds everywhere. If some of them give all elements
// bit for bit, only these. Without any: the causes of FindGemmCauses that all groups outside of
// their bounds share.
std::vector<GemmCause> FindGroupedCauses(const GroupedInputs& in, MatrixView<const float> d,
                                         const Accumulation& under);

// Directed grouped products: empty groups at both ends and in between, groups of 1 to 130 rows,
// alphas that differ; without padding, and with groups padded to 16 and 128 rows.
struct GroupedCase {
  std::string_view name;
  std::string_view what;  // the tested causes of error
  GroupedInputs in;
};
std::vector<GroupedCase> MakeGroupedCases();

// The answers of the right kernel and of every wrong one to the cases, whose products are the same
// bits in every order of additions.
class GroupedBench {
 public:
  explicit GroupedBench(std::vector<GroupedCase> cases);
  const std::vector<GroupedCase>& cases() const { return cases_; }
  std::span<const GroupedDeviation> wrong() const { return GroupedDeviations(); }
  const Matrix<float>& Right(std::size_t c) const { return right_[c]; }
  const Matrix<float>& Answer(std::size_t w, std::size_t c) const { return wrong_[w][c]; }
  // The answers of a kernel that has the deviations w, one after the other.
  std::vector<Matrix<float>> AnswersOf(std::span<const std::size_t> w) const;
  bool IsRight(std::size_t c, const Matrix<float>& answer) const;
  // The rows of GroupedDeviations() that give all answers bit for bit; none for the right answers.
  // An answer that is missing is not compared.
  std::vector<std::size_t> Name(std::span<const std::optional<Matrix<float>>> answers) const;

 private:
  std::vector<GroupedCase> cases_;
  std::vector<Matrix<float>> right_;
  std::vector<std::vector<Matrix<float>>> wrong_;  // [deviation][case]
};

// Every accumulation that accepts the operands of all groups, with the number of elements where its
// result differs from d.
std::vector<AccumulationMatch> IdentifyGrouped(const GroupedInputs& in, MatrixView<const float> d);

}  // namespace fp4lab
