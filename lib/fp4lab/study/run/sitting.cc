#include "fp4lab/study/run/sitting.h"

#include <chrono>

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab::study {

void Sit(const Sitting& run) {
  const IeeeArithmetic ieee;
  using Clock = std::chrono::steady_clock;
  const auto between = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  };
  Clock::time_point last = Clock::now(), saved = last;
  bool is_saved = false, stops = false;
  while (!run.done() && !stops) {
    run.advance();
    const Clock::time_point now = Clock::now();
    run.advanced(between(last, now));
    last = now;
    stops = run.stops();
    is_saved = run.saves(between(saved, now));
    if (!is_saved) continue;
    run.save();
    saved = Clock::now();
  }
  if (!is_saved) run.save();
}

}  // namespace fp4lab::study
