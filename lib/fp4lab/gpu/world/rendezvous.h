// The processes of a data-parallel run find each other over TCP, make sure that they are of one
// run, and notice when one of them ends.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "fp4lab/train/world.h"

namespace fp4lab::gpu {

// In seconds. From a loss until the others end, at most silence + reply + grace pass.
struct RendezvousTimes {
  double meet = 120.0;    // until all processes have come
  double reply = 3.0;     // for a message that the other side sends at once
  double beat = 5.0;      // between signs of life
  double silence = 20.0;  // after which a process without a sign of life is lost
  double grace = 5.0;     // from a loss until the end of this process, which may have its own error
};

// Rank 0 listens at world.address:world.port, the others connect. A process joins if it knows
// world.token (shown by a hash with a number of rank 0's; the token is not sent) and if WhyApart
// finds nothing. After the constructor each process has one connection to rank 0, or rank 0 to all.
// A thread watches them: a process that ends without the destructor, or is silent for too long, is
// lost to all others.
class Rendezvous {
 public:
  // Called once, by the watching thread, with one line that names the process that was lost.
  using Lost = std::function<void(const std::string& line)>;

  // Every process of a world with size > 1 constructs one. Rank 0's `bytes` overwrite those of the
  // others. Throws Error, one line that names the processes: one that does not come, cannot train
  // with rank 0, has the number of another one or does not know the token.
  Rendezvous(const World& world, std::span<std::byte> bytes, Lost lost,
             const RendezvousTimes& times = {});
  // Says goodbye, unless an exception is on its way: then the others lose this process.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp4lab::gpu
