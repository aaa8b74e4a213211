// FP32 matrix products of other libraries, found at run time: oneDNN and OpenBLAS, as the
// distribution installs them. Nothing of theirs is needed to build.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/matrix.h"

namespace fp4lab::measure {

// c = a b^T, a (M, K), b (N, K), c (M, N) row-major; a and b have unit stride in one direction.
using Sgemm =
    std::function<void(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> c)>;

// How wide the peer's vectors may be.
enum class PeerVectors { kBest, kAvx2 };

struct SgemmPeer {
  std::string name;     // "oneDNN", "OpenBLAS"
  std::string detail;   // version and kernel where the library tells: "2.6.3", "SkylakeX"
  std::string missing;  // why there is none, and the remedy; empty: `sgemm` is there
  Sgemm sgemm;          // on Threads() threads
};

// Every library that is known, found or not. Loading one twice gives two copies of it (dlmopen),
// each with its own choice of kernels, so that one process can compare with both.
std::vector<SgemmPeer> LoadSgemmPeers(PeerVectors vectors);

// What in the environment would make a peer slower than it is ("OPENBLAS_CORETYPE=Haswell: unset
// it"); empty where nothing does.
std::string PeerWarning();

}  // namespace fp4lab::measure
