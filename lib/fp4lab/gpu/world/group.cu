#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/gpu/engine/library.h"
#include "fp4lab/gpu/world/group.cuh"
#include "fp4lab/gpu/world/rendezvous.h"

namespace fp4lab::gpu {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";

// The functions in use, under their names without "nccl".
struct Nccl {
  decltype(&ncclGetUniqueId) GetUniqueId;
  decltype(&ncclCommInitRank) CommInitRank;
  decltype(&ncclCommDestroy) CommDestroy;
  decltype(&ncclCommAbort) CommAbort;
  decltype(&ncclAllReduce) AllReduce;
  decltype(&ncclBroadcast) Broadcast;
  decltype(&ncclGetErrorString) GetErrorString;
};

Nccl LoadNccl() {
  void* const library = OpenLibrary(kLibrary, "training in several processes");
  const auto find = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(
        FindFunction(library, kLibrary, name));
  };
  Nccl nccl{};
  find("ncclGetUniqueId", &nccl.GetUniqueId);
  find("ncclCommInitRank", &nccl.CommInitRank);
  find("ncclCommDestroy", &nccl.CommDestroy);
  find("ncclCommAbort", &nccl.CommAbort);
  find("ncclAllReduce", &nccl.AllReduce);
  find("ncclBroadcast", &nccl.Broadcast);
  find("ncclGetErrorString", &nccl.GetErrorString);
  return nccl;
}

const Nccl& LoadedNccl() {
  static const Nccl nccl = LoadNccl();
  return nccl;
}

void CheckNccl(ncclResult_t status, const char* what) {
  if (status == ncclSuccess) return;
  throw Error("GPU", std::string("NCCL ") + what + ": " + LoadedNccl().GetErrorString(status));
}

// Ends this process. Reductions wait on the GPU for a process that is lost, and nothing can end
// that wait; files are never half-written, so the run goes on from its last checkpoint.
[[noreturn]] void EndProcess(const std::string& line) {
  std::fprintf(stderr, "error: %s; start all processes again with --resume\n", line.c_str());
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

struct Group::State {
  std::unique_ptr<Rendezvous> rendezvous;  // null in a world of one process
  ncclComm_t communicator = nullptr;       // the same
  cudaStream_t stream = nullptr;

  void Reduce(void* x, std::size_t size, ncclDataType_t type, ncclRedOp_t operation) const {
    if (communicator == nullptr || size == 0) return;
    CheckNccl(LoadedNccl().AllReduce(x, x, size, type, operation, communicator, stream),
              operation == ncclSum ? "sum" : "maximum");
  }
};

Group::Group(const World& world, cudaStream_t stream)
    : world_(world), state_(std::make_unique<State>()) {
  state_->stream = stream;
  if (world.size == 1) return;
  ncclUniqueId id{};
  if (world.rank == 0) CheckNccl(LoadedNccl().GetUniqueId(&id), "id");
  state_->rendezvous =
      std::make_unique<Rendezvous>(world, std::as_writable_bytes(std::span(&id, 1)), EndProcess);
  CheckNccl(LoadedNccl().CommInitRank(&state_->communicator, world.size, id, world.rank),
            "communicator");
}

Group::~Group() {
  if (state_->communicator == nullptr) return;
  const auto end =
      std::uncaught_exceptions() == 0 ? LoadedNccl().CommDestroy : LoadedNccl().CommAbort;
  end(state_->communicator);
}

void Group::Sum(float* x, std::size_t size) const { state_->Reduce(x, size, ncclFloat, ncclSum); }

void Group::Sum(double* x, std::size_t size) const { state_->Reduce(x, size, ncclDouble, ncclSum); }

void Group::Max(float* x, std::size_t size) const { state_->Reduce(x, size, ncclFloat, ncclMax); }

void Group::Broadcast(float* x, std::size_t size, int rank) const {
  if (state_->communicator == nullptr || size == 0) return;
  CheckNccl(
      LoadedNccl().Broadcast(x, x, size, ncclFloat, rank, state_->communicator, state_->stream),
      "broadcast");
}

}  // namespace fp4lab::gpu
