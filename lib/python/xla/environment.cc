#include "environment.h"

#include <atomic>

namespace fp4lab::handlers {
namespace {

std::atomic<int> handler_threads = 0;  // 0: not set

}  // namespace

HandlerEnvironment::HandlerEnvironment() : threads_(handler_threads) {}

void SetHandlerThreads(std::optional<int> threads) { handler_threads = threads.value_or(0); }

}  // namespace fp4lab::handlers
