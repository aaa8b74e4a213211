// MakeMpiProcesses and MpiLibrary in a build without MPI.
#include "fp4lab/base/error.h"
#include "fp4lab/train/processes/processes.h"

namespace fp4lab {

std::unique_ptr<Processes> MakeMpiProcesses(
    const World& world, const std::string& where,
    const std::function<std::string(int on_host)>& /*why_not*/) {
  throw Error(where, "\"cpu\" trains in one process, and a launcher started " +
                         std::to_string(world.size) +
                         "; use threads, a build with MPI (cmake -DFP4LAB_MPI=ON), or \"cuda\"");
}

std::string MpiLibrary() { return ""; }

}  // namespace fp4lab
