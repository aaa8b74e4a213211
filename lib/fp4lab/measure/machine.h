// The machine of a measurement: the CPU, its caches, the compiler and libraries.
#pragma once

#include <cstddef>
#include <string>

namespace fp4lab::measure {

struct Machine {
  std::string cpu;                     // /proc/cpuinfo's model name, family, model and stepping
  int cores = 0;                       // processors that this process may use
  std::size_t l1 = 0, l2 = 0, l3 = 0;  // bytes of a core's L1d and L2 and of the L3; 0: not known
  std::size_t memory = 0;              // bytes
  double load = 0;                     // average over the last minute, before the measurement
  std::string compiler;                // "GCC 12.2.0"
  std::string highway;                 // "1.0.3"
};

Machine ThisMachine();

// The CPU's name in a file as Linux writes /proc/cpuinfo. On Arm there is none: the numbers of the
// part and of its maker stand for it.
std::string CpuName(const char* cpuinfo);

// Whether the Highway that this library was built with is at least major.minor.
bool HighwayAtLeast(int major, int minor);

// Peak and current resident memory of this process, in bytes.
std::size_t PeakMemory();
std::size_t CurrentMemory();

}  // namespace fp4lab::measure
