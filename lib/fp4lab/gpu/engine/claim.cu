#include <algorithm>
#include <mutex>

#include "fp4lab/base/error.h"
#include "fp4lab/cuda/device/build.h"
#include "fp4lab/gpu/engine/claim.cuh"

namespace fp4lab::gpu {
namespace {

constexpr int kLeastCapability = 9;  // the kernels multiply pairs of BF16 (mul.bf16x2)

bool IsUsable(int device) {
  int major = 0;
  return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         major >= kLeastCapability;
}

std::mutex engines_mutex;
std::vector<int> engines_on;  // number of engines on each GPU

}  // namespace

std::vector<int> Gpus(std::string* why) {
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::vector<int> devices;
  if (status == cudaErrorInsufficientDriver && driver == 0) {
    *why = "no NVIDIA driver is installed";
  } else if (status == cudaErrorInsufficientDriver) {
    *why = "the NVIDIA driver supports CUDA up to " + cuda::VersionText(driver) +
           ", this program needs " + cuda::VersionText(runtime) + "; update the driver";
  } else if (status != cudaSuccess || count == 0) {
    *why = status == cudaSuccess || status == cudaErrorNoDevice ? "no GPU is visible"
                                                                : cudaGetErrorString(status);
  } else {
    for (int i = 0; i < count; ++i) {
      if (IsUsable(i)) devices.push_back(i);
    }
    *why = "the GPU is older than compute capability 9.0, which products of BF16 pairs need";
  }
  return devices;
}

GpuClaim::GpuClaim(const std::string& where, const World& world) {
  std::string why;
  const std::vector<int> devices = Gpus(&why);
  if (devices.empty()) {
    throw Error(where, "\"cuda\" cannot be used: " + why + "; \"cpu\" trains on any machine");
  }
  const std::lock_guard lock(engines_mutex);
  engines_on.resize(std::max<std::size_t>(engines_on.size(), devices.back() + std::size_t{1}));
  device_ = *std::min_element(devices.begin(), devices.end(), [](int a, int b) {
    return engines_on[static_cast<std::size_t>(a)] < engines_on[static_cast<std::size_t>(b)];
  });
  if (world.size > 1 || world.local > 0)
    device_ = devices[static_cast<std::size_t>(world.local) % devices.size()];
  ++engines_on[static_cast<std::size_t>(device_)];
  Use();
}

GpuClaim::~GpuClaim() {
  const std::lock_guard lock(engines_mutex);
  --engines_on[static_cast<std::size_t>(device_)];
}

std::string GpuClaim::Name() const { return cuda::UseDevice(device_).name; }

}  // namespace fp4lab::gpu
