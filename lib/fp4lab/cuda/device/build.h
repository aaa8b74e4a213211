// The version of CUDA and the chips for which the CUDA backend of this build was compiled.
#pragma once

#include <string>

namespace fp4lab::cuda {

// "13.0" for 13000, the encoding of versions in the CUDA runtime.
inline std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

struct BuildDescription {
  bool present = false;  // false in a build without CUDA: the other members are empty
  int runtime = 0;       // version of the linked runtime, 13000 for CUDA 13.0
  std::string chips;     // with machine code, named as in FP4LAB_CUDA_ARCHITECTURES: "90a 100a"
  std::string ptx;       // targets of the PTX for later chips: "90"
};

BuildDescription ThisBuild();

}  // namespace fp4lab::cuda
