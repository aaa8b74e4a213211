// Which of several processes this one is: data-parallel training, a GPU a process.
#pragma once

#include <string>

namespace fp4lab {

// Process `rank` of `size`; `local` counts on its host. Processes meet at address:port, where rank
// 0 listens.
struct World {
  int rank = 0, size = 1, local = 0;
  std::string address = "127.0.0.1";
  int port = 29400;

  friend bool operator==(const World&, const World&) = default;
};

// From the environment of a launcher, the first that is complete:
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK
//   MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
//   Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS (set by srun), SLURM_LOCALID; address
//              SLURM_LAUNCH_NODE_IPADDR
// MASTER_ADDR and MASTER_PORT count for all of them; where torchrun's agent keeps that port for
// itself (TORCHELASTIC_USE_AGENT_STORE), the next one. Without any: one process. Error, naming the
// variable, for values that make no sense.
World WorldOfEnvironment();

// The same from any look-up: returns nullptr for a variable that is not set.
World ReadWorld(const char* (*variable)(const char* name));

}  // namespace fp4lab
