// What this process may use of its machine: processors and memory, with the limits of containers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fp4lab {

// Processors that the process can keep busy: those of its affinity mask, and no more than the CPU
// quota of its control groups (versions 1 and 2), rounded up. At least 1. `root` is where /proc and
// /sys are looked for.
int Processors(const std::filesystem::path& root = "/");

struct MemoryRoom {
  std::uint64_t bytes = 0;
  std::string of;  // "this machine", "the container (/sys/fs/cgroup/memory.max)", "ulimit -v"
};

// Memory that can still be taken, and who says so: the kernel (what it calls available), a control
// group's limit less what is in use without the file cache, or the limit on address space.
MemoryRoom AvailableMemory(const std::filesystem::path& root = "/");

}  // namespace fp4lab
