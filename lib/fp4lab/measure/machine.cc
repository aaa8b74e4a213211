#include "fp4lab/measure/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "fp4lab/base/limits.h"

#include <hwy/base.h>
#include <hwy/highway.h>

namespace fp4lab::measure {
namespace {

// The text after "key : " in the first such line of a file; empty if there is none.
std::string Field(const char* path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (line.rfind(key, 0) != 0 || colon == std::string::npos) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const std::size_t at = line.find_first_not_of(" \t", colon + 1);
    return at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::size_t Positive(long value) { return value > 0 ? static_cast<std::size_t>(value) : 0; }

}  // namespace

std::string CpuName(const char* cpuinfo) {
  const auto field = [cpuinfo](const char* key) { return Field(cpuinfo, key); };
  if (const std::string name = field("model name"); !name.empty()) {
    return name + " (family " + field("cpu family") + ", model " + field("model") + ", stepping " +
           field("stepping") + ")";
  }
  const std::string part = field("CPU part");
  if (part.empty()) return "unknown CPU";
  return "Arm part " + part + " of implementer " + field("CPU implementer") + " (variant " +
         field("CPU variant") + ", revision " + field("CPU revision") + ")";
}

Machine ThisMachine() {
  Machine m;
  m.cpu = CpuName("/proc/cpuinfo");
  m.cores = Processors();
  m.l1 = Positive(::sysconf(_SC_LEVEL1_DCACHE_SIZE));
  m.l2 = Positive(::sysconf(_SC_LEVEL2_CACHE_SIZE));
  m.l3 = Positive(::sysconf(_SC_LEVEL3_CACHE_SIZE));
  m.memory = Positive(::sysconf(_SC_PHYS_PAGES)) * Positive(::sysconf(_SC_PAGESIZE));
  double load[1] = {0};
  if (::getloadavg(load, 1) == 1) m.load = load[0];
#if defined(__clang__)
  m.compiler = "Clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) +
               "." + std::to_string(__clang_patchlevel__);
#else
  m.compiler = "GCC " __VERSION__;
#endif
  m.highway =
      std::to_string(HWY_MAJOR) + "." + std::to_string(HWY_MINOR) + "." + std::to_string(HWY_PATCH);
  return m;
}

bool HighwayAtLeast(int major, int minor) {
  return HWY_MAJOR > major || (HWY_MAJOR == major && HWY_MINOR >= minor);
}

std::size_t PeakMemory() { return fp4lab::PeakMemory(); }

std::size_t CurrentMemory() {
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * Positive(::sysconf(_SC_PAGESIZE));
}

}  // namespace fp4lab::measure
