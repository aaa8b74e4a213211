// fp4lab --version: the facts about the program that a bug report needs.
#include "tools/options/version.h"

#include <commit.h>  // made by tools/commit.cmake

#include <string>
#include <vector>

#include "fp4lab/base/simd/simd.h"
#include "fp4lab/base/text/text.h"
#include "fp4lab/base/version.h"
#include "fp4lab/cuda/device/build.h"
#include "fp4lab/cuda/device/device.h"
#include "fp4lab/measure/machine.h"
#include "fp4lab/train/processes/processes.h"

namespace fp4lab::tools {
namespace {

std::string CudaText() {
  const cuda::BuildDescription build = cuda::ThisBuild();
  if (!build.present) return "CUDA      not built in";
  std::string text =
      "CUDA      runtime " + cuda::VersionText(build.runtime) + "; machine code for " + build.chips;
  if (!std::string(build.ptx).empty()) text += ", PTX for " + std::string(build.ptx);
  const int devices = cuda::DeviceCount();
  if (devices == 0) return text + "\n          no device: " + cuda::WhyNoDevice();
  for (int i = 0; i < devices; ++i) {
    const cuda::DeviceDescription d = cuda::UseDevice(i);
    text += "\n          device " + std::to_string(i) + ": " + d.name + ", compute capability " +
            std::to_string(d.major) + "." + std::to_string(d.minor) + ", driver of CUDA " +
            cuda::VersionText(d.driver);
  }
  return text;
}

// The instruction of the FP4 product on a 64-bit Arm CPU, as in ", with SMMLA"; else empty.
std::string InstructionText() {
  if (ActiveSimdTarget() != "neon") return "";
  return HasMatrixMultiply() ? ", with SMMLA" : HasDotProduct() ? ", with SDOT" : "";
}

}  // namespace

std::string_view BuildCommit() { return FP4LAB_COMMIT; }

std::string VersionText() {
  const measure::Machine machine = measure::ThisMachine();
  const std::string mpi = MpiLibrary();
  return "fp4lab " + std::string(kVersion) + ", commit " + std::string(BuildCommit()) + "\n" +
         "compiler  " + machine.compiler + ", Highway " + machine.highway + "\n" +
         "SIMD      compiled in: " + Joined(CompiledSimdTargets(), " ") + "\n" +
         "          available here: " + Joined(SimdTargets(), " ") + "\n" +
         "          chosen: " + ActiveSimdTarget() + InstructionText() + "\n" + CudaText() + "\n" +
         "MPI       " + (mpi.empty() ? "not built in" : mpi);
}

}  // namespace fp4lab::tools
