// Parallel loops and the number of threads that they use.
//
// OpenMP holds the number of threads (OMP_NUM_THREADS, omp_set_num_threads, one inside a parallel
// region of the calling program), so that these loops and the caller's OpenMP loops share one
// setting. The threads are not OpenMP's, because of how OpenMP threads wait. libgomp's threads spin
// for milliseconds between two loops, unless the environment says otherwise before the library is
// loaded, and a libgomp loop ends only when every thread has had a turn: if other programs keep the
// processors busy, a loop of microseconds then lasts as long as another program's time slice. The
// threads here spin for some microseconds and then sleep; the calling thread takes part in the loop
// and does not wait for a thread that has not begun by the end of the loop.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/interrupt.h"

namespace fp4lab {

inline constexpr int kMostThreads = 1024;

// Threads that loops started by the calling thread may use, at most kMostThreads. The number is a
// property of the calling thread (OpenMP's nthreads-var), so that concurrent runs of a study each
// keep their own share. Threads() is 1 inside such a loop: loops do not nest.
int Threads();
void SetThreads(int threads);

// The number of threads that a program should start with: OMP_NUM_THREADS if that is set, else
// Processors() (limits.h), which respects a container's quota. Throws Error for an OMP_NUM_THREADS
// above kMostThreads.
int DefaultThreads();

// The type-erased body of ParallelFor.
using LoopBody = void (*)(void* context, std::size_t i);
// ParallelFor on two or more threads.
void RunOnThreads(std::size_t count, LoopBody body, void* context);

// Calls body(i) once for every i in [0, count), on up to Threads() threads, in any order.
// body(i) must write only data of its own i: then no result depends on the number of threads. A
// reduction writes one partial result per i and adds the partial results afterwards in index order;
// the number of parts must not depend on Threads(). An exception from body ends the loop, with some
// calls not made, and is rethrown here. The calling thread polls for an interrupt (interrupt.h)
// before each of its iterations, at any number of threads. Every call computes in IEEE arithmetic,
// whatever the state of the calling thread (ieee_arithmetic.h).
template <class Body>
void ParallelFor(std::size_t count, Body&& body) {
  const IeeeArithmetic ieee;
  if (count <= 1 || Threads() == 1) {
    for (std::size_t i = 0; i < count; ++i) {
      CheckInterrupt();
      body(i);
    }
    return;
  }
  using Function = std::remove_reference_t<Body>;
  const LoopBody call = [](void* context, std::size_t i) { (*static_cast<Function*>(context))(i); };
  RunOnThreads(count, call, const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace fp4lab
