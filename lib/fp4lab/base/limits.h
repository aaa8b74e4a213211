// Processors and memory that this process may use, including the limits of containers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fp4lab {

// Processors that the process can keep busy: the number in its affinity mask, but at most the CPU
// quota of its control groups (versions 1 and 2), rounded up. At least 1. `root` is the folder that
// contains /proc and /sys.
int Processors(const std::filesystem::path& root = "/");

struct MemoryRoom {
  std::uint64_t bytes = 0;
  // The limit that applies: "this machine", "the container (/sys/fs/cgroup/memory.max)" or
  // "ulimit -v".
  std::string of;
};

// Memory that the processes of this machine or container can still allocate together: the least of
// the kernel's MemAvailable and each control group's limit minus its usage without the file cache.
MemoryRoom SharedMemory(const std::filesystem::path& root = "/");

// Memory that this process can still allocate: SharedMemory, but at most the unused part of its
// limit on address space.
MemoryRoom AvailableMemory(const std::filesystem::path& root = "/");

// The most memory that this process has had resident, in bytes; 0 where the kernel does not say.
std::uint64_t PeakMemory();

// Gives memory that was freed back to the system. The GNU C library keeps freed blocks of up to 32
// MiB: training runs that had observed their operands stayed 1 to 13 % larger.
void ReturnFreedMemory();

}  // namespace fp4lab
