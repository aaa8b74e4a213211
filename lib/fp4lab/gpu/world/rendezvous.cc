#include "fp4lab/gpu/world/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/gpu/world/connection.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/random_digits.h"

namespace fp4lab::gpu {
namespace {

constexpr int kProtocol = 1;
constexpr std::string_view kBeat = "beat", kGoodbye = "goodbye", kLost = "lost ";

// The hash that shows that the sender of an introduction knows the token.
std::string ProofOf(const std::string& token, const std::string& nonce, const std::string& text) {
  return Sha256(token + "\n" + Sha256(token + "\n" + nonce + "\n" + text));
}

// A message of JSON; null if none came in time or it is no JSON.
Json ReceiveJson(const Descriptor& from, Clock::time_point deadline) {
  const std::optional<std::string> text = ReceiveMessage(from, deadline);
  return text ? Json::parse(*text, nullptr, false) : Json();
}

std::string TextIn(const Json& message, const char* member) {
  if (!message.is_object() || !message.contains(member)) return "";
  return message[member].is_string() ? message[member].get<std::string>() : "";
}

[[noreturn]] void ThrowApart(const std::string& why) {
  throw Error("training in several processes", why);
}

}  // namespace

struct Rendezvous::State {
  struct Peer {
    Descriptor connection;
    std::string name;  // "process 1 of 2 on node7"
    Clock::time_point heard = Clock::now();
    bool finished = false;  // said goodbye
  };

  World world;
  RendezvousTimes times;
  Lost lost;
  Clock::time_point deadline;  // of the meeting
  std::vector<Peer> peers;     // of rank 0: all others; of the others: rank 0
  Descriptor ends;             // an eventfd: the watching thread ends
  std::thread watch;

  [[noreturn]] void Fail(const std::string& problem) const;
  [[noreturn]] void FailWithout(const std::vector<Json>& introductions, bool turned_away) const;
  void Serve(std::span<const std::byte> bytes);
  std::optional<Json> Greet(const Descriptor& connection, bool* turned_away) const;
  void Join(std::span<std::byte> bytes);
  std::optional<Json> Introduce(const Descriptor& server, std::span<std::byte> bytes,
                                std::string* why) const;
  // Until when a message is waited for that the other side sends at once.
  Clock::time_point ReplyUntil() const { return Clock::now() + Seconds(times.reply); }
  void Tell(std::string_view message) const;
  std::string LostPeer();
  void Watch();
};

void Rendezvous::State::Fail(const std::string& problem) const {
  throw Error("process " + std::to_string(world.rank) + " of " + std::to_string(world.size),
              problem + " at " + world.address + ":" + std::to_string(world.port) +
                  "; set MASTER_ADDR and MASTER_PORT to a free port of the first process's host");
}

// Says which processes have no introduction.
void Rendezvous::State::FailWithout(const std::vector<Json>& introductions,
                                    bool turned_away) const {
  std::string missing;
  for (std::size_t rank = 0; rank < introductions.size(); ++rank) {
    if (!introductions[rank].is_null()) continue;
    missing += (missing.empty() ? "process " : ", ") + std::to_string(rank);
  }
  if (turned_away) missing += ", or not with this run's token,";
  Fail(missing + " did not connect");
}

// Rank 0: waits for all others, then sends each the bytes.
void Rendezvous::State::Serve(std::span<const std::byte> bytes) {
  std::string why;
  const Descriptor listener = ListenAt(world.port, &why);
  if (!listener) Fail("cannot listen (" + why + ")");
  const Json own = IntroductionOf(world);
  std::vector<Json> introductions(static_cast<std::size_t>(world.size));
  introductions[0] = own;
  const auto refuse = [&](const Descriptor& connection, const std::string& line) {
    SendMessage(connection, Json{{"refused", line}}.dump());
  };
  bool turned_away = false;
  while (peers.size() + 1 < introductions.size()) {
    Descriptor connection = Accept(listener, deadline);
    if (!connection) FailWithout(introductions, turned_away);
    const std::optional<Json> introduction = Greet(connection, &turned_away);
    if (!introduction) continue;
    std::string apart = WhyApart(own, *introduction);
    const auto rank = introduction->at("rank").get<std::size_t>();
    if (apart.empty() && (rank >= introductions.size() || !introductions[rank].is_null())) {
      apart =
          "two of them are " + ProcessName(*introduction) +
          (rank < introductions.size() ? ", the other one on " + TextIn(introductions[rank], "host")
                                       : "");
    }
    if (!apart.empty()) {
      refuse(connection, apart);
      for (const Peer& peer : peers) refuse(peer.connection, apart);
      ThrowApart(apart);
    }
    introductions[rank] = *introduction;
    peers.push_back({std::move(connection), ProcessName(*introduction)});
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Peer& peer : peers) {
    if (!SendMessage(peer.connection, Json{{"begins", own}}.dump()) ||
        !SendMessage(peer.connection, text)) {
      Fail(peer.name + " ended while the processes met");
    }
  }
}

// The introduction of a process that has connected; none if it is a stranger.
std::optional<Json> Rendezvous::State::Greet(const Descriptor& connection,
                                             bool* turned_away) const {
  const std::string nonce = RandomDigits() + RandomDigits();
  if (!SendMessage(connection, Json{{"fp4lab", kProtocol}, {"nonce", nonce}}.dump())) return {};
  const Json hello = ReceiveJson(connection, ReplyUntil());
  const std::string text = TextIn(hello, "introduction");
  if (text.empty()) return {};
  if (TextIn(hello, "proof") != ProofOf(world.token, nonce, text)) {
    *turned_away = true;
    SendMessage(connection, Json{{"refused",
                                  "the token differs from that of the first process; FP4LAB_TOKEN "
                                  "sets it"}}
                                .dump());
    return {};
  }
  return Json::parse(text, nullptr, false);
}

// The other ranks: find rank 0, and wait for the bytes.
void Rendezvous::State::Join(std::span<std::byte> bytes) {
  std::string why;
  while (true) {
    Descriptor server = ConnectTo(world.address, world.port, &why);
    if (server) {
      const std::optional<Json> first = Introduce(server, bytes, &why);
      if (first) return peers.push_back({std::move(server), ProcessName(*first)});
    }
    if (Clock::now() > deadline) Fail("the first process was not found (" + why + ")");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// The introduction of rank 0, which has sent the bytes; none, with the reason, if it has not.
std::optional<Json> Rendezvous::State::Introduce(const Descriptor& server,
                                                 std::span<std::byte> bytes,
                                                 std::string* why) const {
  const Json greeting = ReceiveJson(server, ReplyUntil());
  const std::string nonce = TextIn(greeting, "nonce");
  *why = "what listens there is another program";
  if (nonce.empty()) return {};
  if (greeting.value("fp4lab", Json()) != kProtocol) {
    ThrowApart("the first process is another version of fp4lab");
  }
  const std::string text = IntroductionOf(world).dump();
  SendMessage(server,
              Json{{"introduction", text}, {"proof", ProofOf(world.token, nonce, text)}}.dump());
  *why = "the first process has ended, or waits for others";
  const Json reply = ReceiveJson(server, deadline);
  if (const std::string refused = TextIn(reply, "refused"); !refused.empty()) ThrowApart(refused);
  if (!reply.is_object() || !reply.contains("begins")) return {};
  const std::optional<std::string> shared = ReceiveMessage(server, ReplyUntil());
  if (!shared || shared->size() != bytes.size()) return {};
  std::memcpy(bytes.data(), shared->data(), bytes.size());
  return reply["begins"];
}

// Reads what has come from the peers. Returns a line about the first that is lost; "" if none is.
std::string Rendezvous::State::LostPeer() {
  for (Peer& peer : peers) {
    if (peer.finished) continue;
    if (WaitFor(peer.connection, Clock::now())) {
      const std::optional<std::string> message = ReceiveMessage(peer.connection, ReplyUntil());
      if (!message) return peer.name + " ended";
      if (message->starts_with(kLost)) return message->substr(kLost.size());
      peer.finished = *message == kGoodbye;
      peer.heard = Clock::now();
    } else if (Clock::now() - peer.heard > Seconds(times.silence)) {
      return peer.name + " gave no sign of life for " +
             std::to_string(static_cast<int>(times.silence)) + " s";
    }
  }
  return "";
}

void Rendezvous::State::Tell(std::string_view message) const {
  for (const Peer& peer : peers) {
    if (!peer.finished) SendMessage(peer.connection, message);
  }
}

void Rendezvous::State::Watch() {
  Clock::time_point next_beat = Clock::now();
  while (true) {
    std::vector<pollfd> waits = {{ends.Number(), POLLIN, 0}};
    for (const Peer& peer : peers) {
      if (!peer.finished) waits.push_back({peer.connection.Number(), POLLIN, 0});
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(next_beat - Clock::now()).count();
    ::poll(waits.data(), waits.size(), static_cast<int>(std::clamp<long long>(left, 0, 1 << 30)));
    if (WaitFor(ends, Clock::now())) return;
    if (Clock::now() >= next_beat) {
      Tell(kBeat);
      next_beat = Clock::now() + Seconds(times.beat);
    }
    const std::string line = LostPeer();
    if (line.empty()) continue;
    if (world.rank == 0) Tell(std::string(kLost) + line);
    // A process that is about to end by itself says why.
    if (!WaitFor(ends, Clock::now() + Seconds(times.grace))) lost(line);
    return;
  }
}

Rendezvous::Rendezvous(const World& world, std::span<std::byte> bytes, Lost lost,
                       const RendezvousTimes& times)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.world = world;
  s.times = times;
  s.lost = std::move(lost);
  s.deadline = Clock::now() + Seconds(times.meet);
  world.rank == 0 ? s.Serve(bytes) : s.Join(bytes);
  s.ends = Descriptor(::eventfd(0, EFD_CLOEXEC));
  s.watch = std::thread([&s] { s.Watch(); });
}

Rendezvous::~Rendezvous() {
  State& s = *state_;
  ::eventfd_write(s.ends.Number(), 1);
  s.watch.join();
  if (std::uncaught_exceptions() == 0) s.Tell(kGoodbye);
}

}  // namespace fp4lab::gpu
