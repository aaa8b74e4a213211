#include "fp4lab/base/interrupt.h"

#include <atomic>

namespace fp4lab {
namespace {

std::atomic<InterruptCheck> interrupt_check{nullptr};

}  // namespace

void SetInterruptCheck(InterruptCheck check) { interrupt_check.store(check); }

void CheckInterrupt() {
  const InterruptCheck check = interrupt_check.load(std::memory_order_relaxed);
  if (check != nullptr) check();
}

}  // namespace fp4lab
