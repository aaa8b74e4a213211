// FindDecidingCase: the directed case on which causes write different bytes.
#include <algorithm>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/explain/causes.h"
#include "fp4lab/judge/kernels/run_kernel.h"

namespace fp4lab {
namespace {

constexpr std::size_t kMostCauses = 4;
constexpr std::size_t kMostElements = 1 << 13;  // of a case that is tried

bool Takes(const Kernel& kernel, const Case& c) {
  if (c.x.values.size() > kMostElements) return false;
  return kernel.hadamard == 0 ||
         (c.is_bf16 && c.x.cols % static_cast<std::size_t>(kernel.hadamard) == 0);
}

bool SameBytes(const StoredMatrix& a, const StoredMatrix& b) {
  return a.codes == b.codes && a.scales == b.scales;
}

std::size_t DifferentAnswers(const Kernel& kernel, std::span<const Cause> causes, const Case& c) {
  std::vector<StoredMatrix> answers;
  for (const Cause& cause : causes) {
    StoredMatrix answer = RunKernel(KernelUnder(kernel, cause), c.x.View(), cause.deviations,
                                    {.random = c.random}, cause.value ? &*cause.value : nullptr);
    const auto same = [&](const StoredMatrix& other) { return SameBytes(answer, other); };
    if (std::none_of(answers.begin(), answers.end(), same)) answers.push_back(std::move(answer));
  }
  return answers.size();
}

}  // namespace

std::optional<DecidingCase> FindDecidingCase(const Kernel& kernel, std::span<const Cause> causes) {
  const IeeeArithmetic ieee;
  causes = causes.first(std::min(causes.size(), kMostCauses));
  std::optional<DecidingCase> best;
  for (const Case& c : MakeCases(kernel.dialect)) {
    if (!Takes(kernel, c)) continue;
    const std::size_t answers = DifferentAnswers(kernel, causes, c);
    if (answers > (best ? best->answers : 1)) best = {c.name, causes.size(), answers};
    if (answers == causes.size()) break;
  }
  return best;
}

}  // namespace fp4lab
