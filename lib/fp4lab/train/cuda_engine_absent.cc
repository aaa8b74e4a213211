// MakeCudaEngine and CudaGpus in a build without CUDA.
#include "fp4lab/base/error.h"
#include "fp4lab/train/engine.h"

namespace fp4lab {

int CudaGpus() { return 0; }

std::unique_ptr<Engine> MakeCudaEngine(const TrainConfig& /*config*/, const std::string& where,
                                       const World& /*world*/) {
  throw Error(where,
              "\"cuda\" needs a build with CUDA (cmake -DFP4LAB_CUDA=ON); this one computes on "
              "\"cpu\" only");
}

}  // namespace fp4lab
