// Messages over TCP between the processes of one run: each is its size in four bytes, the lowest
// first, and its text. IPv6 and IPv4.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace fp4lab::gpu {

using Clock = std::chrono::steady_clock;

inline Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A file descriptor that is closed with its owner; -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int Number() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

// Listens at a port of all addresses of this host. If that fails, returns none, and *why has the
// system's reason.
Descriptor ListenAt(int port, std::string* why);
// The next connection to a listener; none if `deadline` passes.
Descriptor Accept(const Descriptor& listener, Clock::time_point deadline);
// Connects to a name or an address of either family, at the first of its addresses that answers.
// If that fails, returns none, and *why has the reason.
Descriptor ConnectTo(const std::string& address, int port, std::string* why);

// Waits until there is something to read, or the other side has ended. Returns whether that
// happened before `deadline`.
bool WaitFor(const Descriptor& from, Clock::time_point deadline);

// Returns whether the system took the message; it waits for a slow receiver at most five seconds.
bool SendMessage(const Descriptor& to, std::string_view message);
// The next message; none if the other side ends, if `deadline` passes, or if what comes is longer
// than a message of these processes can be.
std::optional<std::string> ReceiveMessage(const Descriptor& from, Clock::time_point deadline);

}  // namespace fp4lab::gpu
