// The lock that processes of several machines share.
#include "fp4lab/io/shared_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

int Entries(const fs::path& folder) {
  return static_cast<int>(std::distance(fs::directory_iterator(folder), {}));
}

// A child that takes the lock, says so by the file "taken" and waits to be killed.
pid_t HoldInChild(const fs::path& folder) {
  const pid_t child = ::fork();
  if (child == 0) {
    SharedLock lock;
    const bool taken = !lock.Take(folder);
    WriteFileAtomically(folder / "taken", std::string_view(taken ? "yes" : "no"));
    for (;;) ::pause();
  }
  while (!Exists(folder / "taken")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return child;
}

void Kill(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// The lock's file as a process on another machine would have written it, `age` seconds ago.
void WriteForeign(const fs::path& folder, const std::string& name, int age) {
  WriteFileAtomically(folder / ".lock", "fp4lab lock\n" + name +
                                            "\nnode7\nboot/pid:[1]\n4711\n99\n"
                                            "2026-01-31T12:00:00Z\n");
  const std::time_t then = std::time(nullptr) - age;
  const timespec times[2] = {{then, 0}, {then, 0}};
  REQUIRE(::utimensat(AT_FDCWD, (folder / ".lock").c_str(), times, 0) == 0);
}

TEST_CASE("A lock is held by one, says by whom, and leaves no file", "[io][lock]") {
  const TemporaryFolder folder;
  const fs::path place = folder / "new";
  {
    SharedLock lock, second;
    REQUIRE_FALSE(lock.Take(place).has_value());
    lock.CheckHeld();
    const auto holder = second.Take(place);
    REQUIRE(holder.has_value());
    CHECK(holder->process == ::getpid());
    CHECK_THAT(holder->Text(), ContainsSubstring("process " + std::to_string(::getpid()) + " on "));
    CHECK(Entries(place) == 1);
  }
  CHECK(Entries(place) == 0);
  SharedLock again;
  CHECK_FALSE(again.Take(place).has_value());
}

TEST_CASE("The lock of a living process is kept, that of a killed one is taken over at once",
          "[io][lock]") {
  const TemporaryFolder folder;
  const pid_t child = HoldInChild(folder.path());
  REQUIRE(ReadFile(folder / "taken") == "yes");
  {
    SharedLock lock;
    const auto holder = lock.Take(folder.path());
    REQUIRE(holder.has_value());
    CHECK(holder->process == child);
  }
  ::kill(child, SIGKILL);
  siginfo_t info;
  ::waitid(P_PID, child, &info, WEXITED | WNOWAIT);  // dead, and still in the table of processes
  std::optional<LockHolder> dead;
  SharedLock lock;
  CHECK_FALSE(lock.Take(folder.path(), &dead).has_value());
  REQUIRE(dead.has_value());
  CHECK(dead->process == child);
  ::waitpid(child, nullptr, 0);
  CHECK(Entries(folder.path()) == 2);  // .lock and "taken": no claim is left
}

TEST_CASE("What a process that was killed before it wrote a byte has left is removed at once",
          "[io][lock]") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {  // the first byte that it writes to a file is its end
    const rlimit none{0, 0};
    ::signal(SIGXFSZ, SIG_DFL);
    ::setrlimit(RLIMIT_CORE, &none);
    ::setrlimit(RLIMIT_FSIZE, &none);
    SharedLock lock;
    (void)lock.Take(folder.path());
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(Entries(folder.path()) == 1);
  CHECK(fs::file_size(fs::directory_iterator(folder.path())->path()) == 0);
  {
    SharedLock lock;
    CHECK_FALSE(lock.Take(folder.path()).has_value());
  }
  CHECK(Entries(folder.path()) == 0);
}

TEST_CASE("A lock of another machine is dead once its file's time stands still", "[io][lock]") {
  const TemporaryFolder folder;
  const std::string name = "0123456789abcdef";
  WriteForeign(folder.path(), name, SharedLock::kDeadSeconds - 60);
  SharedLock early;
  const auto holder = early.Take(folder.path());
  REQUIRE(holder.has_value());
  CHECK(holder->Text() == "process 4711 on node7, since 2026-01-31T12:00:00Z");
  CHECK(holder->age >= SharedLock::kDeadSeconds - 60);
  WriteForeign(folder.path(), name, SharedLock::kDeadSeconds + 60);
  std::optional<LockHolder> dead;
  SharedLock late;
  CHECK_FALSE(late.Take(folder.path(), &dead).has_value());
  REQUIRE(dead.has_value());
  CHECK(dead->host == "node7");
}

TEST_CASE("A lock whose file is damaged is taken over by its age", "[io][lock]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / ".lock", std::string_view("fp4lab lo"));
  SharedLock early, late;
  REQUIRE(early.Take(folder.path()).has_value());
  const timespec times[2] = {{1, 0}, {1, 0}};
  REQUIRE(::utimensat(AT_FDCWD, (folder / ".lock").c_str(), times, 0) == 0);
  CHECK_FALSE(late.Take(folder.path()).has_value());
  late.CheckHeld();
}

TEST_CASE("Of many who take over a dead lock one gets it, though claimants were killed, too",
          "[io][lock]") {
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    const std::string name = "0123456789abcdef";
    WriteForeign(folder.path(), name, 1000);
    if (round % 2 == 1) {  // a claimant who died between its claim and its lock
      const pid_t child = HoldInChild(folder / "elsewhere");
      fs::copy_file(folder / "elsewhere/.lock", folder / (".lock.after-" + name));
      Kill(child);
      fs::remove_all(folder / "elsewhere");
    }
    std::vector<SharedLock> locks(8);
    std::atomic<int> taken{0};
    std::vector<std::thread> threads;
    for (SharedLock& lock : locks) {
      threads.emplace_back([&] { taken += lock.Take(folder.path()) ? 0 : 1; });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(taken == 1);
    CHECK(Entries(folder.path()) == 1);
  }
}

TEST_CASE("A process that lost its lock hears of it before it writes, and leaves the new one",
          "[io][lock]") {
  const TemporaryFolder folder;
  {
    SharedLock lock;
    REQUIRE_FALSE(lock.Take(folder.path()).has_value());
    WriteForeign(folder.path(), "fedcba9876543210", 0);
    CHECK_THAT(ErrorOf([&] { lock.CheckHeld(); }),
               ContainsSubstring("is process 4711 on node7") && ContainsSubstring("paused"));
  }
  CHECK(Exists(folder / ".lock"));
  fs::remove(folder / ".lock");
  SharedLock lock;
  REQUIRE_FALSE(lock.Take(folder.path()).has_value());
  fs::remove(folder / ".lock");
  CHECK_THAT(ErrorOf([&] { lock.CheckHeld(); }), ContainsSubstring("was removed"));
}

TEST_CASE("A lock follows no link at its file's name or below it", "[io][lock]") {
  const TemporaryFolder folder;
  WriteFileAtomically(folder / "victim", std::string_view("precious"));
  fs::create_symlink("victim", folder / ".lock");
  SharedLock lock;
  CHECK_THAT(ErrorOf([&] { lock.Take(folder.path()); }),
             ContainsSubstring(".lock: cannot be read: " + std::string(std::strerror(ELOOP))));
  CHECK(ReadFile(folder / "victim") == "precious");
}

}  // namespace
}  // namespace fp4lab
