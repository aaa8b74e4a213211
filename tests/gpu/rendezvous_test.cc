#include "fp4lab/gpu/world/rendezvous.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/world/connection.h"
#include "fp4lab/io/host_name.h"
#include "tests/support/catch.h"

namespace fp4lab::gpu {
namespace {

using Catch::Matchers::ContainsSubstring;
using Bytes = std::array<std::byte, 128>;

constexpr RendezvousTimes kShort{
    .meet = 20.0, .reply = 1.0, .beat = 0.1, .silence = 2.0, .grace = 0.8};

// A port that no other test of this machine takes.
int NextPort() {
  static int port = 20000 + 20 * static_cast<int>(::getpid() % 600);
  return ++port;
}

// A process of a world as it ended: the error of its constructor, and the line of its loss.
struct Seen {
  std::string error, lost;
};

// Joins the world and calls `then` while the connections stand.
Seen Join(
    const World& world, Bytes* bytes, const std::function<void()>& then = [] {},
    const RendezvousTimes& times = kShort) {
  Seen seen;
  std::promise<std::string> line;
  std::future<std::string> lost = line.get_future();
  try {
    const Rendezvous rendezvous(
        world, *bytes, [&](const std::string& l) { line.set_value(l); }, times);
    then();
  } catch (const Error& e) {
    seen.error = e.what();
  }
  if (lost.wait_for(std::chrono::seconds(0)) == std::future_status::ready) seen.lost = lost.get();
  return seen;
}

// The ends of processes that meet at a time, each in a thread.
std::vector<Seen> Meet(const std::vector<World>& worlds, const RendezvousTimes& times = kShort) {
  std::vector<std::future<Seen>> joined;
  for (const World& world : worlds) {
    joined.push_back(std::async(std::launch::async, [&world, &times] {
      Bytes bytes{};
      return Join(
          world, &bytes, [] {}, times);
    }));
  }
  std::vector<Seen> seen;
  for (std::future<Seen>& one : joined) seen.push_back(one.get());
  return seen;
}

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// A process of its own that joins the world and then does `then`.
pid_t Fork(const World& world, const std::function<void()>& then) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  Bytes bytes{};
  Join(world, &bytes, then);
  ::_exit(0);
}

TEST_CASE("Every process gets rank 0's bytes in any order of arrival, by IPv4 and IPv6", "[gpu]") {
  const std::string address = GENERATE("127.0.0.1", "::1", "localhost");
  constexpr int kSize = 4;
  const int port = NextPort();
  if (address == "::1") {
    // The system's list, so that a fault of ListenAt or ConnectTo is not taken for a missing IPv6.
    std::ifstream file("/proc/net/if_inet6");
    const std::string list(std::istreambuf_iterator<char>(file), {});
    if (list.find("00000000000000000000000000000001 ") == list.npos) {
      WARN("this machine has no address ::1");
      return;
    }
  }
  std::vector<Bytes> bytes(kSize);
  std::vector<Seen> seen(kSize);
  std::atomic<int> here{0};
  for (int rank = 0; rank < kSize; ++rank) {
    bytes[static_cast<std::size_t>(rank)].fill(static_cast<std::byte>(rank + 7));
  }
  std::vector<std::thread> processes;
  for (const int rank : {3, 1, 0, 2}) {
    processes.emplace_back([&, rank] {
      const auto i = static_cast<std::size_t>(rank);
      seen[i] =
          Join({.rank = rank, .size = kSize, .address = address, .port = port}, &bytes[i], [&] {
            for (++here; here < kSize;) Sleep(0.01);
            Sleep(3 * kShort.beat);
          });
    });
  }
  for (std::thread& process : processes) process.join();
  for (std::size_t i = 0; i < kSize; ++i) {
    CHECK(seen[i].error.empty());
    CHECK(seen[i].lost.empty());
    CHECK(bytes[i] == bytes[0]);
  }
  CHECK(bytes[0][0] == std::byte{7});
}

TEST_CASE("A process that does not come is named", "[gpu]") {
  RendezvousTimes times = kShort;
  times.meet = 1.5;
  Bytes bytes{};
  CHECK_THAT(Join(
                 {.rank = 1, .size = 2, .port = NextPort()}, &bytes, [] {}, times)
                 .error,
             ContainsSubstring("process 1 of 2: the first process was not found (Connection "
                               "refused)"));
  const int port = NextPort();
  const std::vector<Seen> seen =
      Meet({{.rank = 0, .size = 4, .port = port}, {.rank = 2, .size = 4, .port = port}}, times);
  CHECK_THAT(seen[0].error, ContainsSubstring("process 0 of 4: process 1, 3 did not connect"));
  CHECK(!seen[1].error.empty());
  std::string why;
  const Descriptor taken = ListenAt(port, &why);
  CHECK_THAT(Join({.rank = 0, .size = 2, .port = port}, &bytes).error,
             ContainsSubstring("cannot listen (Address already in use) at"));
}

TEST_CASE("Processes of another run, size or number are refused with one line for all", "[gpu]") {
  const std::string host = HostName();
  const auto line = [&](const std::string& what) {
    return "training in several processes: " + what;
  };
  const auto meet = [&](World first, World second) {
    first.port = second.port = NextPort();
    const std::vector<Seen> seen = Meet({first, second});
    CHECK(seen[0].error == seen[1].error);
    return seen[0].error;
  };
  CHECK(meet({.rank = 0, .size = 2, .identity = {{"recipe", "te_nvfp4"}}},
             {.rank = 1, .size = 2, .identity = {{"recipe", "mxfp4"}}}) ==
        line("process 1 of 2 on " + host + " (there) cannot train with process 0 of 2 on " + host +
             " (here): recipe: \"te_nvfp4\" here, \"mxfp4\" there"));
  CHECK(meet({.rank = 0, .size = 2}, {.rank = 1, .size = 3}) ==
        line("process 1 of 3 on " + host + " (there) cannot train with process 0 of 2 on " + host +
             " (here): the numbers of processes differ"));
  // Two processes with one number: the third is told, too.
  const int port = NextPort();
  const std::vector<Seen> seen = Meet({{.rank = 0, .size = 4, .port = port},
                                       {.rank = 1, .size = 4, .port = port},
                                       {.rank = 1, .size = 4, .port = port}});
  for (const Seen& one : seen) {
    CHECK(one.error ==
          line("two of them are process 1 of 4 on " + host + ", the other one on " + host));
  }
}

TEST_CASE("A process that does not know the token cannot join or end a run", "[gpu]") {
  RendezvousTimes times = kShort;
  times.meet = 3.0;
  const int port = NextPort();
  const std::vector<Seen> seen = Meet({{.rank = 0, .size = 2, .port = port, .token = "ours"},
                                       {.rank = 1, .size = 2, .port = port, .token = "theirs"}},
                                      times);
  CHECK_THAT(seen[0].error,
             ContainsSubstring("process 1, or not with this run's token, did not connect"));
  CHECK_THAT(seen[1].error, ContainsSubstring("the token differs from that of the first process"));
}

TEST_CASE("Strangers at the port disturb no meeting", "[gpu]") {
  const int port = NextPort();
  std::future<Seen> first = std::async(std::launch::async, [&] {
    Bytes bytes{};
    return Join({.rank = 0, .size = 2, .port = port}, &bytes);
  });
  std::string why;
  std::vector<Descriptor> strangers;
  for (const char* words : {"", "GET / HTTP/1.1\r\n\r\n", "\xFF\xFF\xFF\xFF", "\2\1\1\1{}"}) {
    Descriptor stranger;
    while (!stranger) stranger = ConnectTo("127.0.0.1", port, &why);
    ::send(stranger.Number(), words, std::strlen(words), MSG_NOSIGNAL);
    strangers.push_back(std::move(stranger));
  }
  Bytes bytes{};
  CHECK(Join({.rank = 1, .size = 2, .port = port}, &bytes).error.empty());
  CHECK(first.get().error.empty());
}

TEST_CASE("What listens at the port but is no fp4lab is said", "[gpu]") {
  const int port = NextPort();
  std::string why;
  const Descriptor listener = ListenAt(port, &why);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) {
      const Descriptor peer = Accept(listener, Clock::now() + Seconds(0.1));
      if (peer) SendMessage(peer, "SSH-2.0");
    }
  });
  RendezvousTimes times = kShort;
  times.meet = 1.5;
  Bytes bytes{};
  CHECK_THAT(Join(
                 {.rank = 1, .size = 2, .port = port}, &bytes, [] {}, times)
                 .error,
             ContainsSubstring("was not found (what listens there is another program)"));
  done = true;
  other.join();
}

TEST_CASE("A process that is killed or stands still is lost to all others", "[gpu]") {
  const bool killed = GENERATE(true, false);
  const int port = NextPort();
  const auto world = [&](int rank) { return World{.rank = rank, .size = 3, .port = port}; };
  const pid_t child = Fork(world(2), [&] { ::raise(killed ? SIGKILL : SIGSTOP); });
  std::vector<std::future<Seen>> others;
  for (const int rank : {0, 1}) {
    others.push_back(std::async(std::launch::async, [&, rank] {
      Bytes bytes{};
      return Join(world(rank), &bytes, [] { Sleep(2 * kShort.silence + 2 * kShort.grace); });
    }));
  }
  for (std::future<Seen>& other : others) {
    const Seen seen = other.get();
    CHECK(seen.error.empty());
    CHECK(seen.lost == "process 2 of 3 on " + HostName() +
                           (killed ? " ended" : " gave no sign of life for 2 s"));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_CASE("A process with an error of its own ends by it, and the others are told", "[gpu]") {
  const int port = NextPort();
  std::future<Seen> second = std::async(std::launch::async, [&] {
    Bytes bytes{};
    return Join({.rank = 1, .size = 2, .port = port}, &bytes, [] {
      Sleep(0.2);
      throw Error("step 7", "the run has diverged");
    });
  });
  Bytes bytes{};
  SECTION("that have none") {
    CHECK(Join({.rank = 0, .size = 2, .port = port}, &bytes, [] { Sleep(3.0); }).lost ==
          "process 1 of 2 on " + HostName() + " ended");
  }
  SECTION("that have the same, and say only that") {
    const Seen first = Join({.rank = 0, .size = 2, .port = port}, &bytes, [] {
      Sleep(0.3);
      throw Error("step 7", "the run has diverged");
    });
    CHECK(first.error == "step 7: the run has diverged");
    CHECK(first.lost.empty());
  }
  CHECK(second.get().error == "step 7: the run has diverged");
}

}  // namespace
}  // namespace fp4lab::gpu
