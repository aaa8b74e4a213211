// Libraries that the GEMM is measured against, where the build found them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"

namespace fp4lab::bench {

struct Peer {
  std::string name;  // with the kernel it chose, if it says
  // c = a * b^T on `threads` threads.
  std::function<void(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> c,
                     int threads)>
      gemm;
};

std::vector<Peer>& Peers();

inline bool AddPeer(Peer peer) {
  Peers().push_back(std::move(peer));
  return true;
}

}  // namespace fp4lab::bench
