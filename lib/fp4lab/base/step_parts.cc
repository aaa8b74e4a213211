#include "fp4lab/base/step_parts.h"

#include <numeric>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

thread_local StepClock* clock_of_thread = nullptr;

}  // namespace

std::string_view StepPartName(StepPart part) {
  constexpr std::array<std::string_view, kStepParts> kNames = {
      "gemm", "attention", "quantization", "optimizer", "communication", "other"};
  return kNames[static_cast<std::size_t>(part)];
}

double StepTimes::Total() const {
  const IeeeArithmetic ieee;
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double StepTimes::Share(StepPart part) const {
  const IeeeArithmetic ieee;
  const double total = Total();
  return total > 0.0 ? Of(part) / total : 0.0;
}

StepClock::StepClock() : before_(clock_of_thread), since_(std::chrono::steady_clock::now()) {
  clock_of_thread = this;
}
StepClock::~StepClock() { clock_of_thread = before_; }

StepPart StepClock::ChangeTo(StepPart part) {
  const Time now = std::chrono::steady_clock::now();
  times_.Of(part_) += std::chrono::duration<double>(now - since_).count();
  since_ = now;
  const StepPart before = part_;
  part_ = part;
  return before;
}

StepTimes StepClock::Times() {
  const IeeeArithmetic ieee;
  ChangeTo(part_);
  return times_;
}

StepScope::StepScope(StepPart part) : clock_(clock_of_thread) {
  if (clock_ != nullptr) before_ = clock_->ChangeTo(part);
}
StepScope::~StepScope() {
  if (clock_ != nullptr) clock_->ChangeTo(before_);
}

}  // namespace fp4lab
