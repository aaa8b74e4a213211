// The parts of a training step, and the clock that tells how its time is shared among them.
//
// A scope (StepScope) says which part its thread works on; scopes nest, and time counts for the
// innermost. A thread without a clock pays for a scope with one read of a thread-local pointer, a
// thread with one with two readings of the time. No number of a run depends on any of this.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fp4lab {

enum class StepPart : std::uint8_t {
  kGemm,           // products of matrices in linears, router and head
  kAttention,      // scores, softmax and values, with the rotation of queries and keys
  kQuantization,   // operands of linears: rounding, transforms, amaxes, codes
  kOptimizer,      // the update of the weights
  kCommunication,  // sums over the processes of a data-parallel run
  kOther           // norms, activations, embedding, loss, copies
};
inline constexpr std::size_t kStepParts = 6;
// "gemm", "attention", "quantization", "optimizer", "communication", "other".
std::string_view StepPartName(StepPart part);

// Seconds of each part; all are 0 or more.
struct StepTimes {
  std::array<double, kStepParts> seconds = {};

  double& Of(StepPart part) { return seconds[static_cast<std::size_t>(part)]; }
  double Of(StepPart part) const { return seconds[static_cast<std::size_t>(part)]; }
  double Total() const;
  // The part's share of the total, 0 to 1; 0 of no time.
  double Share(StepPart part) const;
};

// Times the scopes of the thread that made it, as long as it lives. A clock within another one's
// life takes its place until it ends.
class StepClock {
 public:
  StepClock();
  ~StepClock();
  StepClock(const StepClock&) = delete;
  StepClock& operator=(const StepClock&) = delete;

  // The times up to now; those between scopes are kOther's.
  StepTimes Times();

 private:
  friend class StepScope;
  using Time = std::chrono::steady_clock::time_point;

  // The time since the last change counts for the part so far; returns that part.
  StepPart ChangeTo(StepPart part);

  StepClock* before_;
  StepPart part_ = StepPart::kOther;
  Time since_;
  StepTimes times_;
};

// While it lives, its thread works on `part`.
class StepScope {
 public:
  explicit StepScope(StepPart part);
  ~StepScope();
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;

 private:
  StepClock* const clock_;
  StepPart before_ = StepPart::kOther;
};

}  // namespace fp4lab
