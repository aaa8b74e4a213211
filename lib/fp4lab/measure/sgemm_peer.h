// FP32 matrix products of other libraries, loaded at run time: oneDNN and OpenBLAS, as the
// distribution installs them. The build needs neither library.
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

// The widest vectors that the peer may use.
enum class PeerVectors { kBest, kAvx2 };

struct SgemmPeer {
  std::string name;     // "oneDNN", "OpenBLAS"
  std::string detail;   // version or kernel, if the library tells it: "2.6.3", "SkylakeX"
  std::string missing;  // why the peer cannot be used, and the remedy; empty: `sgemm` is set
  Sgemm sgemm;          // runs on Threads() threads
};

// One entry for every known library, found or not. kAvx2 loads a separate copy of a library
// (dlmopen) with its own choice of kernels, so that one process can compare with both choices.
std::vector<SgemmPeer> LoadSgemmPeers(PeerVectors vectors);

// A warning about an environment variable that makes a peer slower than it is
// ("OPENBLAS_CORETYPE=Haswell holds a peer to older kernels: unset it"); empty if there is none.
std::string PeerWarning();

}  // namespace fp4lab::measure
