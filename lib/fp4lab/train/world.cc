#include "fp4lab/train/world.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "fp4lab/base/error.h"

namespace fp4lab {
namespace {

using Variable = const char* (*)(const char* name);

struct Launcher {
  const char *rank, *size, *local, *address;
};
constexpr std::array kLaunchers = {
    Launcher{"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr},
    Launcher{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", nullptr},
    Launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr},
    Launcher{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_LAUNCH_NODE_IPADDR"},
};

// The number in a variable, or `value` if the variable is not set.
int Number(Variable variable, const char* name, int value, int least, int most) {
  const char* const text = variable(name);
  if (text == nullptr) return value;
  const char* const end = text + std::strlen(text);
  const auto [stop, status] = std::from_chars(text, end, value);
  if (status != std::errc() || stop != end || value < least || value > most) {
    throw Error(std::string("$") + name, "\"" + std::string(text) + "\" is not a number from " +
                                             std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

}  // namespace

World ReadWorld(Variable variable) {
  constexpr int kMost = 1 << 20;
  World world;
  for (const Launcher& launcher : kLaunchers) {
    if (variable(launcher.rank) == nullptr || variable(launcher.size) == nullptr) continue;
    world.size = Number(variable, launcher.size, 1, 1, kMost);
    world.rank = Number(variable, launcher.rank, 0, 0, world.size - 1);
    world.local = Number(variable, launcher.local, world.rank, 0, kMost);
    if (launcher.address != nullptr && variable(launcher.address) != nullptr) {
      world.address = variable(launcher.address);
    }
    break;
  }
  if (const char* address = variable("MASTER_ADDR")) world.address = address;
  world.port = Number(variable, "MASTER_PORT", world.port, 1, 65535);
  // torchrun's own agent listens at MASTER_PORT and sets TORCHELASTIC_USE_AGENT_STORE to say so.
  const char* const agent = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (agent != nullptr && std::strcmp(agent, "True") == 0) {
    world.port += world.port < 65535 ? 1 : -1;
  }
  return world;
}

World WorldOfEnvironment() {
  return ReadWorld([](const char* name) -> const char* { return std::getenv(name); });
}

}  // namespace fp4lab
