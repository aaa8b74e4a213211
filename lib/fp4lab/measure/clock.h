// The clocks of a measurement, in seconds.
#pragma once

namespace fp4lab::measure {

// Time that passes.
double WallSeconds();

// Processor time of the calling thread: what other programs on the machine take does not count. For
// work on one thread only.
double ThreadSeconds();

}  // namespace fp4lab::measure
