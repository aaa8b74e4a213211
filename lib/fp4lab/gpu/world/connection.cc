#include "fp4lab/gpu/world/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

namespace fp4lab::gpu {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 24;  // of a message
constexpr timeval kSendLimit{.tv_sec = 5, .tv_usec = 0};

bool Receive(const Descriptor& from, char* to, std::size_t size, Clock::time_point deadline) {
  for (std::size_t got = 0; got < size;) {
    if (!WaitFor(from, deadline)) return false;
    const ssize_t piece = ::recv(from.Number(), to + got, size - got, 0);
    if (piece < 0 && errno == EINTR) continue;
    if (piece <= 0) return false;
    got += static_cast<std::size_t>(piece);
  }
  return true;
}

bool Bind(const Descriptor& listener, int family, int port) {
  const int yes = 1, no = 0;
  ::setsockopt(listener.Number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (family == AF_INET6) {
    ::setsockopt(listener.Number(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 place{};
    place.sin6_family = AF_INET6;
    place.sin6_port = htons(static_cast<std::uint16_t>(port));
    place.sin6_addr = in6addr_any;
    return ::bind(listener.Number(), reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
  }
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_ANY);
  return ::bind(listener.Number(), reinterpret_cast<sockaddr*>(&place), sizeof place) == 0;
}

}  // namespace

Descriptor::~Descriptor() {
  if (number_ >= 0) ::close(number_);
}
Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Descriptor ListenAt(int port, std::string* why) {
  for (const int family : {AF_INET6, AF_INET}) {  // the first serves both, where there is IPv6
    Descriptor listener(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (listener && Bind(listener, family, port) && ::listen(listener.Number(), SOMAXCONN) == 0) {
      return listener;
    }
    *why = std::strerror(errno);
    if (errno == EADDRINUSE) break;
  }
  return {};
}

Descriptor Accept(const Descriptor& listener, Clock::time_point deadline) {
  while (WaitFor(listener, deadline)) {
    Descriptor peer(::accept4(listener.Number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (peer) return peer;
  }
  return {};
}

Descriptor ConnectTo(const std::string& address, int port, std::string* why) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  const int status = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    *why = ::gai_strerror(status);
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    Descriptor server(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    // Linux ends an attempt to connect after the limit of sending, too.
    ::setsockopt(server.Number(), SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit);
    if (server && ::connect(server.Number(), a->ai_addr, a->ai_addrlen) == 0) return server;
    *why = std::strerror(errno);
  }
  return {};
}

bool WaitFor(const Descriptor& from, Clock::time_point deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd wait{from.Number(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::clamp<long long>(left, 0, 1 << 30)));
    if (ready == 1) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

bool SendMessage(const Descriptor& to, std::string_view message) {
  ::setsockopt(to.Number(), SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit);
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(message.size() >> (8 * i) & 0xFF);
  bytes += message;
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t piece =
        ::send(to.Number(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (piece < 0 && errno == EINTR) continue;
    if (piece <= 0) return false;
    sent += static_cast<std::size_t>(piece);
  }
  return true;
}

std::optional<std::string> ReceiveMessage(const Descriptor& from, Clock::time_point deadline) {
  std::array<char, 4> head{};
  if (!Receive(from, head.data(), head.size(), deadline)) return std::nullopt;
  std::size_t size = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    size |= std::size_t{static_cast<unsigned char>(head[i])} << (8 * i);
  }
  if (size > kMostBytes) return std::nullopt;
  std::string message(size, '\0');
  if (!Receive(from, message.data(), size, deadline)) return std::nullopt;
  return message;
}

}  // namespace fp4lab::gpu
