// The place of a process in data-parallel training: one process per GPU, or some on CPUs.
#pragma once

#include <string>

#include "fp4lab/io/json.h"

namespace fp4lab {

// Process `rank` of `size`; `local` is its number on its host. Processes on GPUs meet at
// address:port, where rank 0 listens.
struct World {
  int rank = 0, size = 1, local = 0;
  std::string address = "127.0.0.1";
  int port = 29400;
  // A secret of the processes of this world, so that those of other jobs cannot join it.
  std::string token = {};
  // Whether each process keeps the optimizer's states of its share of the parameters only.
  bool shards_optimizer = false;
  // Members that all processes must have in common: program, inputs, data, step. Null: none.
  Json identity = {};

  friend bool operator==(const World&, const World&) = default;
};

// The world of a launcher, read from the environment of the first launcher whose rank and size are
// set:
//   torchrun   RANK, WORLD_SIZE, LOCAL_RANK
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK
//   MPICH      PMI_RANK, PMI_SIZE, MPI_LOCALRANKID
//   Slurm      SLURM_PROCID, SLURM_STEP_NUM_TASKS (set by srun), SLURM_LOCALID; address: the first
//              host of SLURM_STEP_NODELIST, or SLURM_LAUNCH_NODE_IPADDR
// MASTER_ADDR and MASTER_PORT apply to all launchers; if torchrun's agent keeps that port for
// itself (TORCHELASTIC_USE_AGENT_STORE), the processes meet at the next port. The token is
// FP4LAB_TOKEN or, without it, the launcher's name of the job (TORCHELASTIC_RUN_ID, PMIX_NAMESPACE,
// or SLURM_JOB_ID and SLURM_STEP_ID). Without any launcher: one process. Throws Error, naming the
// variable, for values that make no sense.
World WorldOfEnvironment();

// WorldOfEnvironment from any look-up, which returns nullptr for a variable that is not set.
World ReadWorld(const char* (*variable)(const char* name));

// The text by which a process joins the first: {"rank", "size", "host", "identity"}.
Json IntroductionOf(const World& world);
// "process 1 of 2 on node7".
std::string ProcessName(const Json& introduction);

// Why the process that introduces itself as `other` cannot train with the first process: one line
// that names both, and the first difference between them; "" if it can. Throws Error if `other` is
// no introduction.
std::string WhyApart(const Json& first, const Json& other);

}  // namespace fp4lab
