// The number of threads of loops for a scope.
#pragma once

#include "fp4lab/base/parallel.h"

namespace fp4lab {

// The largest number of threads of loops that the calling thread starts, during a scope; 0: as it
// is. The destructor sets the number of before.
class ThreadsScope {
 public:
  explicit ThreadsScope(int threads) : before_(Threads()) {
    if (threads > 0) SetThreads(threads);
  }
  ~ThreadsScope() { SetThreads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

}  // namespace fp4lab
