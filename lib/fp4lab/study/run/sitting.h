// The loop of one sitting of a training run: from its current step to its end or to a stop.
#pragma once

#include <functional>

namespace fp4lab::study {

// The callbacks through which the loop drives a run.
struct Sitting {
  std::function<bool()> done;
  std::function<void()> advance;  // one optimizer step, or the work due between two steps
  std::function<void(double seconds)> advanced;  // after advance: its time, and a save's before it
  std::function<bool()> stops;                   // called once after each advance: whether to stop
  std::function<bool(double seconds)> saves;     // whether to save, `seconds` after the last save
  std::function<void()> save;
};

// Advances the run until it is done or stops. Saves the run at the end, and on the way whenever
// `saves` returns true. After an exception the last save holds.
void Sit(const Sitting& run);

}  // namespace fp4lab::study
