// Threads: how many a loop may use, and loops over them.
//
// How many is said through OpenMP (OMP_NUM_THREADS, omp_set_num_threads, one inside a parallel
// region of the program around), so that loops here and loops there share one number. The threads
// are our own, because of how they wait. libgomp's spin for milliseconds between two loops, unless
// the environment says otherwise before the library is loaded, and its loops end when every thread
// has had a turn: where other programs keep the processors busy, a loop of microseconds then takes
// a stranger's time slice. A thread of ours spins for some microseconds and then sleeps; the
// calling thread takes part in the loop, and waits for no thread that has not begun by the end of
// it.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace fp4lab {

inline constexpr int kMostThreads = 1024;

// Threads that loops started by the calling thread may use, at most kMostThreads. A property of the
// calling thread (OpenMP's nthreads-var), so that concurrent runs of a study each keep their own
// share. One inside such a loop: loops do not nest.
int Threads();
void SetThreads(int threads);

// What a program starts with: OMP_NUM_THREADS where that is set, else Processors() (limits.h), so
// that a container's quota counts. Error for more than kMostThreads.
int DefaultThreads();

// ParallelFor's body without its type.
using LoopBody = void (*)(void* context, std::size_t i);
// What ParallelFor does with two or more threads.
void RunOnThreads(std::size_t count, LoopBody body, void* context);

// Calls body(i) once for every i in [0, count), on up to Threads() threads, in any order.
// `body` must write only what belongs to its own i: then no result depends on the number of
// threads. A reduction writes one partial result an i and adds them up afterwards in index order;
// the number of parts must not depend on Threads(). What a body throws ends the loop, some calls
// then not made, and comes out here.
template <class Body>
void ParallelFor(std::size_t count, Body&& body) {
  if (count <= 1 || Threads() == 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  using Function = std::remove_reference_t<Body>;
  const LoopBody call = [](void* context, std::size_t i) { (*static_cast<Function*>(context))(i); };
  RunOnThreads(count, call, const_cast<void*>(static_cast<const void*>(std::addressof(body))));
}

}  // namespace fp4lab
