#include "fp4lab/train/world.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/io/host_name.h"
#include "fp4lab/train/checkpoint.h"

namespace fp4lab {
namespace {

using Variable = const char* (*)(const char* name);

struct Launcher {
  const char *rank, *size, *local;
  const char *address = nullptr, *hosts = nullptr;
  std::array<const char*, 2> job = {};  // the variables whose values name the job
};
constexpr std::array kLaunchers = {
    Launcher{.rank = "RANK",
             .size = "WORLD_SIZE",
             .local = "LOCAL_RANK",
             .job = {"TORCHELASTIC_RUN_ID"}},
    Launcher{.rank = "OMPI_COMM_WORLD_RANK",
             .size = "OMPI_COMM_WORLD_SIZE",
             .local = "OMPI_COMM_WORLD_LOCAL_RANK",
             .job = {"PMIX_NAMESPACE"}},
    Launcher{.rank = "PMI_RANK", .size = "PMI_SIZE", .local = "MPI_LOCALRANKID"},
    Launcher{.rank = "SLURM_PROCID",
             .size = "SLURM_STEP_NUM_TASKS",
             .local = "SLURM_LOCALID",
             .address = "SLURM_LAUNCH_NODE_IPADDR",
             .hosts = "SLURM_STEP_NODELIST",
             .job = {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
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

// The first host of a list of Slurm: "gpu007" of "gpu[007-012,015],login1".
std::string FirstHost(const std::string& list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == list.npos || list[open] == ',') return list.substr(0, open);
  const std::size_t end = list.find_first_of("-,]", open);
  const std::size_t close = list.find(']', open), next = list.find_first_of("[,", close);
  if (end == list.npos || close == list.npos) return list;
  // The text after the brackets is part of the name: "r[1-2]-ib".
  const std::string rest = list.substr(close + 1, next == list.npos ? next : next - close - 1);
  return list.substr(0, open) + list.substr(open + 1, end - open - 1) + rest;
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
    if (launcher.hosts != nullptr && variable(launcher.hosts) != nullptr) {
      world.address = FirstHost(variable(launcher.hosts));
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

Json IntroductionOf(const World& world) {
  return {{"rank", world.rank},
          {"size", world.size},
          {"host", HostName()},
          {"identity", world.identity}};
}

std::string ProcessName(const Json& introduction) {
  const IeeeArithmetic ieee;
  return "process " + std::to_string(introduction.at("rank").get<int>()) + " of " +
         std::to_string(introduction.at("size").get<int>()) + " on " +
         introduction.at("host").get<std::string>();
}

std::string WhyApart(const Json& first, const Json& other) {
  const IeeeArithmetic ieee;
  try {
    const std::string pair =
        ProcessName(other) + " (there) cannot train with " + ProcessName(first) + " (here): ";
    if (other.at("size") != first.at("size")) return pair + "the numbers of processes differ";
    const std::string difference = FirstDifference(first.at("identity"), other.at("identity"));
    return difference.empty() ? "" : pair + difference;
  } catch (const Json::exception&) {
    throw Error("the introduction of a process", "is not one of fp4lab");
  }
}

}  // namespace fp4lab
