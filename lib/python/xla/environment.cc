#include "environment.h"

#include <immintrin.h>

#include <atomic>

namespace fp4lab::handlers {
namespace {

constexpr unsigned kIeee = 0x1F80;  // MXCSR: RNE, all exceptions masked, no flush to zero

std::atomic<int> handler_threads = 0;  // 0: not set

}  // namespace

HandlerEnvironment::HandlerEnvironment() : mode_(_mm_getcsr()), threads_(handler_threads) {
  _mm_setcsr(kIeee);
}

HandlerEnvironment::~HandlerEnvironment() { _mm_setcsr(mode_); }

void SetHandlerThreads(std::optional<int> threads) { handler_threads = threads.value_or(0); }

}  // namespace fp4lab::handlers
