#include "fp4lab/base/error.h"
#include "fp4lab/gpu/optimizer/optimizers.cuh"

namespace fp4lab::gpu {

// Each row stands in the file of its name.
extern const DeviceOptimizerRow kDeviceAdamW, kDeviceMuon;

namespace {

constexpr const DeviceOptimizerRow* kOptimizers[] = {&kDeviceAdamW, &kDeviceMuon};

}  // namespace

const DeviceOptimizerRow& DeviceOptimizerOf(const OptimizerConfig& config,
                                            const std::string& where) {
  for (const DeviceOptimizerRow* optimizer : kOptimizers) {
    if (optimizer->name == config.name) return *optimizer;
  }
  throw Error(where,
              "the GPU has no optimizer \"" + config.name + "\"; \"device\": \"cpu\" takes it");
}

}  // namespace fp4lab::gpu
