// The floating-point mode and the number of threads of every handler while it computes.
#pragma once

#include <optional>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/threads_scope.h"

namespace fp4lab::handlers {

// XLA's threads flush subnormal numbers to zero, the library's arithmetic keeps them. While an
// object lives, its thread, and the threads that it starts, have IEEE arithmetic and the number of
// threads of SetHandlerThreads.
class HandlerEnvironment {
 public:
  HandlerEnvironment();
  HandlerEnvironment(const HandlerEnvironment&) = delete;
  HandlerEnvironment& operator=(const HandlerEnvironment&) = delete;

 private:
  IeeeArithmetic ieee_;
  ThreadsScope threads_;
};

// The threads that one call of a handler uses; nullopt: OpenMP's number in the calling thread.
void SetHandlerThreads(std::optional<int> threads);

}  // namespace fp4lab::handlers
