// The place of a process in data-parallel training, which has one process per GPU.
#pragma once

#include <string>

namespace fp4lab {

// Process `rank` of `size`; `local` is its number on its host. Processes meet at address:port,
// where rank 0 listens.
struct World {
  int rank = 0, size = 1, local = 0;
  std::string address = "127.0.0.1";
  int port = 29400;

  friend bool operator==(const World&, const World&) = default;
};

// The world of a launcher, read from the environment of the first launcher whose rank and size are
// set:
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK
//   MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
//   Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS (set by srun), SLURM_LOCALID; address
//              SLURM_LAUNCH_NODE_IPADDR
// MASTER_ADDR and MASTER_PORT apply to all launchers; if torchrun's agent keeps that port for
// itself (TORCHELASTIC_USE_AGENT_STORE), the processes meet at the next port. Without any launcher:
// one process. Throws Error, naming the variable, for values that make no sense.
World WorldOfEnvironment();

// WorldOfEnvironment from any look-up, which returns nullptr for a variable that is not set.
World ReadWorld(const char* (*variable)(const char* name));

}  // namespace fp4lab
