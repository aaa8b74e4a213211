#include "fp4lab/train/world.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "fp4lab/base/error.h"
#include "fp4lab/train/checkpoint.h"

namespace fp4lab {
namespace {

using Variable = const char* (*)(const char* name);

struct Launcher {
  const char *rank, *size, *local, *address;
  std::array<const char*, 2> job;  // the variables whose values name the job
};
constexpr std::array kLaunchers = {
    Launcher{"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr, {"TORCHELASTIC_RUN_ID", nullptr}},
    Launcher{"OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK",
             nullptr,
             {"PMIX_NAMESPACE", nullptr}},
    Launcher{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr, {nullptr, nullptr}},
    Launcher{"SLURM_PROCID",
             "SLURM_STEP_NUM_TASKS",
             "SLURM_LOCALID",
             "SLURM_LAUNCH_NODE_IPADDR",
             {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
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
    for (const char* name : launcher.job) {
      const char* const value = name == nullptr ? nullptr : variable(name);
      if (value != nullptr) world.token += std::string(value) + ".";
    }
    break;
  }
  if (const char* address = variable("MASTER_ADDR")) world.address = address;
  if (const char* token = variable("FP4LAB_TOKEN")) world.token = token;
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

namespace {

std::string HostName() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string NameOf(const Json& process) {
  return "process " + std::to_string(process.at("rank").get<int>()) + " of " +
         std::to_string(process.at("size").get<int>()) + " on " +
         process.at("host").get<std::string>();
}

}  // namespace

Json IntroductionOf(const World& world) {
  return {{"rank", world.rank},
          {"size", world.size},
          {"host", HostName()},
          {"identity", world.identity}};
}

std::string WhyApart(const Json& first, const Json& other) {
  try {
    const std::string pair =
        NameOf(other) + " (there) cannot train with " + NameOf(first) + " (here): ";
    if (other.at("size") != first.at("size")) return pair + "the numbers of processes differ";
    const std::string difference = FirstDifference(first.at("identity"), other.at("identity"));
    return difference.empty() ? "" : pair + difference;
  } catch (const Json::exception&) {
    throw Error("the introduction of a process", "is not one of fp4lab");
  }
}

}  // namespace fp4lab
