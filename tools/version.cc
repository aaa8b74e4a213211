// fp4lab --version: what a report of a fault should say about the program.
#include "tools/version.h"

#include <string>
#include <vector>

#include "fp4lab/base/simd.h"
#include "fp4lab/base/version.h"
#include "fp4lab/cuda/build.h"
#include "fp4lab/cuda/device.h"
#include "fp4lab/measure/machine.h"

namespace fp4lab::tools {
namespace {

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string CudaVersion(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string CudaText() {
  const cuda::BuildDescription build = cuda::ThisBuild();
  if (!build.present) return "CUDA      not built in";
  std::string text = "CUDA      runtime " + CudaVersion(build.runtime) + "; machine code for " +
                     build.chips + ", PTX for " + build.ptx;
  const int devices = cuda::DeviceCount();
  if (devices == 0) return text + "\n          no device: " + cuda::WhyNoDevice();
  for (int i = 0; i < devices; ++i) {
    const cuda::DeviceDescription d = cuda::UseDevice(i);
    text += "\n          device " + std::to_string(i) + ": " + d.name + ", compute capability " +
            std::to_string(d.major) + "." + std::to_string(d.minor) + ", driver of CUDA " +
            CudaVersion(d.driver);
  }
  return text;
}

}  // namespace

std::string VersionText() {
  const measure::Machine machine = measure::ThisMachine();
  return "fp4lab " + std::string(kVersion) + "\n" + "compiler  " + machine.compiler + ", Highway " +
         machine.highway + "\n" + "SIMD      compiled in: " + Joined(CompiledSimdTargets()) + "\n" +
         "          available here: " + Joined(SimdTargets()) + "\n" +
         "          chosen: " + ActiveSimdTarget() + "\n" + CudaText();
}

}  // namespace fp4lab::tools
