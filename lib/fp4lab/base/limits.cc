#include "fp4lab/base/limits.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

// The leading numbers of a file; empty if the file is missing or starts with a word such as "max".
std::vector<double> Numbers(const fs::path& path) {
  std::ifstream in(path);
  std::vector<double> numbers;
  for (double number = 0; in >> number;) numbers.push_back(number);
  return numbers;
}

std::optional<double> Number(const fs::path& path) {
  const std::vector<double> numbers = Numbers(path);
  return numbers.empty() ? std::nullopt : std::optional(numbers[0]);
}

// The number after `key` in a file of lines "key number" or "key: number kB"; 0 if there is none.
double NumberOf(const fs::path& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    double number = 0;
    if (words >> name >> number && name == key) return number;
  }
  return 0;
}

bool Lists(const std::string& controllers, const std::string& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

// The folders of the control groups that contain this process, innermost first: control groups of
// version 2 if `controller` is empty, else of that version 1 controller. In a container the path in
// /proc/self/cgroup may be the host's; then only the outermost folder is visible.
std::vector<fs::path> ControlGroups(const fs::path& root, const std::string& controller) {
  std::vector<fs::path> folders;
  const fs::path mount = root / "sys/fs/cgroup" / controller;
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {  // "4:cpu,cpuacct:/a/b", "0::/a/b"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? !controllers.empty() : !Lists(controllers, controller)) continue;
    for (fs::path at = fs::path(line.substr(second + 1)).relative_path(); !at.empty();
         at = at.parent_path()) {
      folders.push_back(mount / at);
    }
  }
  folders.push_back(mount);
  return folders;
}

// The smallest CPU quota of the control groups, in processors; infinity without a quota.
double CpuQuota(const fs::path& root) {
  double least = std::numeric_limits<double>::infinity();
  for (const fs::path& group : ControlGroups(root, "")) {
    const std::vector<double> max = Numbers(group / "cpu.max");  // quota and period
    if (max.size() == 2 && max[1] > 0) least = std::min(least, max[0] / max[1]);
  }
  for (const fs::path& group : ControlGroups(root, "cpu")) {
    const std::optional<double> quota = Number(group / "cpu.cfs_quota_us"),
                                period = Number(group / "cpu.cfs_period_us");
    if (quota && period && *quota > 0 && *period > 0) least = std::min(least, *quota / *period);
  }
  return least;
}

int AffinityCount() {
  // More processors than any kernel has been built for.
  constexpr int kMost = 1 << 16;
  cpu_set_t* const set = CPU_ALLOC(kMost);
  if (set == nullptr) return 1;
  const std::size_t size = CPU_ALLOC_SIZE(kMost);
  CPU_ZERO_S(size, set);
  const int count = ::sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 1;
  CPU_FREE(set);
  return count;
}

void Lower(double bytes, const std::string& of, MemoryRoom* room) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(bytes, 0.0, 0x1p62));
  if (whole < room->bytes) *room = {whole, of};
}

struct MemoryFiles {
  const char *controller, *limit, *usage, *cached[2];
};
constexpr MemoryFiles kMemoryFiles[] = {
    {"", "memory.max", "memory.current", {"inactive_file", "active_file"}},
    {"memory",
     "memory.limit_in_bytes",
     "memory.usage_in_bytes",
     {"total_inactive_file", "total_active_file"}}};

}  // namespace

int Processors(const fs::path& root) {
  const IeeeArithmetic ieee;
  const double processors = std::min<double>(AffinityCount(), std::ceil(CpuQuota(root)));
  return std::max(1, static_cast<int>(processors));
}

MemoryRoom SharedMemory(const fs::path& root) {
  const IeeeArithmetic ieee;
  MemoryRoom room{std::numeric_limits<std::uint64_t>::max(), ""};
  const double available = NumberOf(root / "proc/meminfo", "MemAvailable:") * 1024;
  if (available > 0) Lower(available, "this machine", &room);
  for (const MemoryFiles& files : kMemoryFiles) {
    for (const fs::path& group : ControlGroups(root, files.controller)) {
      const std::optional<double> limit = Number(group / files.limit),
                                  usage = Number(group / files.usage);
      if (!limit || !usage) continue;
      double cached = 0;
      for (const char* key : files.cached) cached += NumberOf(group / "memory.stat", key);
      Lower(*limit - *usage + std::min(cached, *usage),
            "the container (" + (group / files.limit).string() + ")", &room);
    }
  }
  return room;
}

MemoryRoom AvailableMemory(const fs::path& root) {
  const IeeeArithmetic ieee;
  MemoryRoom room = SharedMemory(root);
  struct Limit {
    decltype(RLIMIT_AS) resource;
    const char* used;
    const char* name;
  };
  for (const Limit& limit :
       {Limit{RLIMIT_AS, "VmSize:", "ulimit -v"}, Limit{RLIMIT_DATA, "VmData:", "ulimit -d"}}) {
    rlimit space{};
    if (::getrlimit(limit.resource, &space) != 0 || space.rlim_cur == RLIM_INFINITY) continue;
    const double used = NumberOf("/proc/self/status", limit.used) * 1024;
    Lower(static_cast<double>(space.rlim_cur) - used, limit.name, &room);
  }
  return room;
}

std::uint64_t PeakMemory() {  // getrusage would count the memory of the process before exec, too
  const IeeeArithmetic ieee;
  return static_cast<std::uint64_t>(NumberOf("/proc/self/status", "VmHWM:")) * 1024;
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace fp4lab
