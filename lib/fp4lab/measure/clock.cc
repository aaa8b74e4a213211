#include "fp4lab/measure/clock.h"

#include <ctime>

namespace fp4lab::measure {
namespace {

double Seconds(clockid_t id) {
  std::timespec t;
  clock_gettime(id, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

double WallSeconds() { return Seconds(CLOCK_MONOTONIC); }
double ThreadSeconds() { return Seconds(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace fp4lab::measure
