#include "fp4lab/base/error.h"
#include "fp4lab/gpu/parts/device_parts.cuh"

namespace fp4lab::gpu {

// Each row stands in the file of its name.
extern const DevicePartRow kDeviceAttention, kDeviceGla, kDeviceMla, kDeviceMlp, kDeviceMoe;

namespace {

constexpr const DevicePartRow* kParts[] = {&kDeviceAttention, &kDeviceGla, &kDeviceMla, &kDeviceMlp,
                                           &kDeviceMoe};

}  // namespace

const DevicePartRow& DevicePartNamed(std::string_view name, const std::string& where) {
  for (const DevicePartRow* part : kParts) {
    if (part->name == name) return *part;
  }
  throw Error(where,
              "the GPU has no part \"" + std::string(name) + "\"; \"device\": \"cpu\" takes it");
}

}  // namespace fp4lab::gpu
