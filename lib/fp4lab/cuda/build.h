// What the CUDA backend of this build was compiled with.
#pragma once

#include <string>

namespace fp4lab::cuda {

struct BuildDescription {
  bool present = false;  // the other members say nothing where it is not
  int runtime = 0;       // 13000 for CUDA 13.0; linked in
  std::string chips;     // with machine code, as in FP4LAB_CUDA_ARCHITECTURES: "90a 100a"
  std::string ptx;       // for later chips: "90"
};

BuildDescription ThisBuild();

}  // namespace fp4lab::cuda
