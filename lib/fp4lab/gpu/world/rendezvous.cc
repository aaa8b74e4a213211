#include "fp4lab/gpu/world/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "fp4lab/base/error.h"

namespace fp4lab::gpu {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(int handle) : handle_(handle) {}
  ~Socket() {
    if (handle_ >= 0) close(handle_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return handle_; }

 private:
  int handle_;
};

std::string PlaceOf(const World& world) { return world.address + ":" + std::to_string(world.port); }

[[noreturn]] void Fail(const World& world, const std::string& problem) {
  throw Error("process " + std::to_string(world.rank) + " of " + std::to_string(world.size),
              problem + " at " + PlaceOf(world) +
                  "; set MASTER_ADDR and MASTER_PORT to a free port of the first process's host");
}

bool WaitFor(int handle, Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd wait{handle, POLLIN, 0};
  return left.count() > 0 && poll(&wait, 1, static_cast<int>(left.count())) == 1;
}

void Serve(const World& world, std::span<const std::byte> bytes, Clock::time_point deadline) {
  const Socket listener(socket(AF_INET, SOCK_STREAM, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(world.port));
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&place), sizeof place) != 0 ||
      listen(listener.get(), world.size) != 0) {
    Fail(world, std::string("cannot listen (") + std::strerror(errno) + ")");
  }
  for (int served = 0; served + 1 < world.size; ++served) {
    if (!WaitFor(listener.get(), deadline)) Fail(world, "the other processes did not connect");
    const Socket peer(accept(listener.get(), nullptr, nullptr));
    if (send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      Fail(world, "a process disconnected");
    }
  }
}

// Returns whether all bytes have arrived.
bool Fetch(const World& world, std::span<std::byte> bytes) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(world.address.c_str(), std::to_string(world.port).c_str(), &hints, &found) != 0) {
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, &freeaddrinfo);
  const Socket server(socket(AF_INET, SOCK_STREAM, 0));
  if (connect(server.get(), addresses->ai_addr, addresses->ai_addrlen) != 0) return false;
  return recv(server.get(), bytes.data(), bytes.size(), MSG_WAITALL) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

void ShareBytes(const World& world, std::span<std::byte> bytes, double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds));
  if (world.size == 1) return;
  if (world.rank == 0) return Serve(world, bytes, deadline);
  while (!Fetch(world, bytes)) {
    if (Clock::now() > deadline) Fail(world, "the first process was not found");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace fp4lab::gpu
