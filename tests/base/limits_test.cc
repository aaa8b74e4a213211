#include "fp4lab/base/limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

// A folder that stands for "/", with the files of /proc and /sys that a test writes.
class Root {
 public:
  Root()
      : path_(std::filesystem::temp_directory_path() /
              ("fp4lab-limits-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
  }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;
  ~Root() { std::filesystem::remove_all(path_); }

  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::filesystem::path& Path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

int AffinityCount() {
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof(set), &set) == 0);
  return CPU_COUNT(&set);
}

TEST_CASE("Processors are those of the affinity mask where no control group has a quota",
          "[base]") {
  const Root root;
  CHECK(Processors(root.Path()) == AffinityCount());
  root.Write("proc/self/cgroup", "0::/job\n");
  root.Write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  CHECK(Processors(root.Path()) == AffinityCount());

  cpu_set_t all, one;
  CPU_ZERO(&all);
  CPU_ZERO(&one);
  REQUIRE(::sched_getaffinity(0, sizeof(all), &all) == 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  CPU_SET(first, &one);
  REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
  CHECK(Processors(root.Path()) == 1);
  REQUIRE(::sched_setaffinity(0, sizeof(all), &all) == 0);
}

TEST_CASE("A CPU quota of this or any outer control group counts, rounded up", "[base]") {
  const int most = AffinityCount();
  const Root two;
  two.Write("proc/self/cgroup", "0::/outer/inner\n");
  two.Write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  two.Write("sys/fs/cgroup/outer/cpu.max", "50000 100000\n");
  CHECK(Processors(two.Path()) == 1);
  two.Write("sys/fs/cgroup/outer/cpu.max", "150000 100000\n");
  CHECK(Processors(two.Path()) == std::min(2, most));

  const Root one;
  one.Write("proc/self/cgroup", "5:cpuset:/\n3:cpu,cpuacct:/docker/1234\n1:name=systemd:/x\n");
  one.Write("sys/fs/cgroup/cpu/docker/1234/cpu.cfs_quota_us", "-1\n");
  one.Write("sys/fs/cgroup/cpu/docker/1234/cpu.cfs_period_us", "100000\n");
  CHECK(Processors(one.Path()) == most);
  one.Write("sys/fs/cgroup/cpu/docker/1234/cpu.cfs_quota_us", "100000\n");
  CHECK(Processors(one.Path()) == 1);
}

TEST_CASE("A container that sees the host's name of its control group finds the quota", "[base]") {
  const Root root;
  root.Write("proc/self/cgroup", "3:cpu,cpuacct:/docker/1234\n");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
  root.Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(Processors(root.Path()) == 1);
}

TEST_CASE("Available memory is the least that the kernel and the control groups leave", "[base]") {
  const Root root;
  root.Write("proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n");
  CHECK(AvailableMemory(root.Path()).bytes == 4096 * kMiB);
  CHECK(AvailableMemory(root.Path()).of == "this machine");

  root.Write("proc/self/cgroup", "0::/job\n");
  root.Write("sys/fs/cgroup/job/memory.max", "max\n");
  root.Write("sys/fs/cgroup/job/memory.current", std::to_string(100 * kMiB));
  CHECK(AvailableMemory(root.Path()).bytes == 4096 * kMiB);
  root.Write("sys/fs/cgroup/job/memory.max", std::to_string(1000 * kMiB));
  root.Write("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file " + std::to_string(30 * kMiB) +
                                                  "\nactive_file " + std::to_string(20 * kMiB) +
                                                  "\n");
  const MemoryRoom room = AvailableMemory(root.Path());
  CHECK(room.bytes == 950 * kMiB);
  CHECK(room.of.find("memory.max") != std::string::npos);
}

TEST_CASE("A cgroup v1 memory limit counts; its largest value means no limit", "[base]") {
  const Root root;
  root.Write("proc/meminfo", "MemAvailable:    4194304 kB\n");
  root.Write("proc/self/cgroup", "4:memory:/box\n");
  root.Write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
  root.Write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(500 * kMiB));
  CHECK(AvailableMemory(root.Path()).bytes == 4096 * kMiB);
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(700 * kMiB));
  root.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(800 * kMiB));
  root.Write("sys/fs/cgroup/memory/memory.stat",
             "inactive_file 1\ntotal_inactive_file " + std::to_string(200 * kMiB) + "\n");
  CHECK(AvailableMemory(root.Path()).bytes == 100 * kMiB);
}

TEST_CASE("This machine has processors and memory", "[base]") {
  CHECK(Processors() >= 1);
  CHECK(Processors() <= AffinityCount());
  CHECK(AvailableMemory().bytes > kMiB);
  CHECK_FALSE(AvailableMemory().of.empty());
}

}  // namespace
}  // namespace fp4lab
