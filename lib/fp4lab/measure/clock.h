// The clocks of a measurement, in seconds.
#pragma once

namespace fp4lab::measure {

// Elapsed time on a monotonic clock.
double WallSeconds();

// Processor time of the calling thread: time that other programs on the machine take does not
// count. For work on one thread only.
double ThreadSeconds();

}  // namespace fp4lab::measure
