// Threads. The only header that knows OpenMP.
#pragma once

#include <omp.h>

#include <cstddef>
#include <cstdint>

namespace fp4lab {

// Threads that loops started by the calling thread may use. A property of the calling thread
// (OpenMP's nthreads-var), so that concurrent runs of a study each keep their own share.
// One inside such a loop: loops do not nest.
inline int Threads() {
  return omp_get_active_level() < omp_get_max_active_levels() ? omp_get_max_threads() : 1;
}
inline void SetThreads(int threads) { omp_set_num_threads(threads < 1 ? 1 : threads); }

// Calls body(i) once for every i in [0, count), on up to Threads() threads, in any order.
// `body` must be noexcept in effect and write only what belongs to its own i: then no result
// depends on the number of threads. A reduction writes one partial result an i and adds them up
// afterwards in index order; the number of parts must not depend on Threads().
template <class Body>
void ParallelFor(std::size_t count, Body&& body) {
  if (count <= 1 || Threads() == 1) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  const auto n = static_cast<std::int64_t>(count);
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t i = 0; i < n; ++i) body(static_cast<std::size_t>(i));
}

}  // namespace fp4lab
