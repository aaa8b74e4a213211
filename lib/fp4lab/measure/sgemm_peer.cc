#include "fp4lab/measure/sgemm_peer.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "fp4lab/base/parallel.h"

namespace fp4lab::measure {
namespace {

// The environment that a copy of a library reads: that of this process, with
// OMP_WAIT_POLICY=passive, so that the copy's threads do not spin beside ours, and with
// OPENBLAS_CORETYPE=Haswell, which limits OpenBLAS to AVX2. The copy's own libc keeps reading this
// environment, so the environment lives as long as the process.
char** CopiesEnvironment() {
  static std::vector<std::string> strings;
  static std::vector<char*> pointers;
  if (!pointers.empty()) return pointers.data();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (text.rfind("OMP_WAIT_POLICY=", 0) == 0 || text.rfind("OPENBLAS_CORETYPE=", 0) == 0)
      continue;
    strings.push_back(text);
  }
  strings.push_back("OMP_WAIT_POLICY=passive");
  strings.push_back("OPENBLAS_CORETYPE=Haswell");
  for (std::string& text : strings) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers.data();
}

// Opens a new copy of a library and of its dependencies, in a link namespace of its own.
void* OpenCopy(const char* name) {
  char** const ours = environ;
  environ = CopiesEnvironment();
  void* const library = dlmopen(LM_ID_NEWLM, name, RTLD_NOW | RTLD_LOCAL);
  environ = ours;
  return library;
}

// Opens the first library of `names` that can be loaded; nullptr if there is none, and why in
// *problem. The library stays loaded: libraries with threads cannot be unloaded safely.
void* Open(const std::vector<const char*>& names, PeerVectors vectors, std::string* problem) {
  for (const char* name : names) {
    void* library =
        vectors == PeerVectors::kBest ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : OpenCopy(name);
    if (library != nullptr) return library;
    const char* why = dlerror();
    if (problem->empty() && why != nullptr) *problem = why;
  }
  return nullptr;
}

template <class Function>
Function* Find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

// The function of a library that sets its number of threads. A copy of a library has a thread
// runtime of its own, which does not share our setting.
using SetThreadsFunction = void(int);

// Whether small products in each layout give the exact result.
bool IsRight(const Sgemm& sgemm) {
  constexpr std::size_t kM = 5, kN = 7, kK = 9;
  for (const bool turn_a : {false, true}) {
    for (const bool turn_b : {false, true}) {
      std::vector<float> a(kM * kK), b(kN * kK), c(kM * kN, -1.0f);
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 11) - 5.0f;
      for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 13) - 6.0f;
      const auto av = turn_a ? MatrixView<const float>(a.data(), kK, kM).Transposed()
                             : MatrixView<const float>(a.data(), kM, kK);
      const auto bv = turn_b ? MatrixView<const float>(b.data(), kK, kN).Transposed()
                             : MatrixView<const float>(b.data(), kN, kK);
      sgemm(av, bv, MatrixView<float>(c.data(), kM, kN));
      for (std::size_t m = 0; m < kM; ++m) {
        for (std::size_t n = 0; n < kN; ++n) {
          float expected = 0;  // small integers: exact in any order
          for (std::size_t k = 0; k < kK; ++k) expected += av(m, k) * bv(n, k);
          if (c[m * kN + n] != expected) return false;
        }
      }
    }
  }
  return true;
}

void CheckAndKeep(Sgemm sgemm, SgemmPeer* peer) {
  if (!IsRight(sgemm)) {
    peer->missing = peer->name + " gives wrong products here";
    return;
  }
  peer->sgemm = std::move(sgemm);
}

bool ByRows(MatrixView<const float> x) { return x.col_stride == 1; }
std::size_t LeadingStride(MatrixView<const float> x) {
  return ByRows(x) ? x.row_stride : x.col_stride;
}

struct DnnlVersion {  // dnnl_version_t
  int major, minor, patch;
};

SgemmPeer LoadOneDnn(PeerVectors vectors) {
  using SgemmFunction =
      int(char, char, std::int64_t, std::int64_t, std::int64_t, float, const float*, std::int64_t,
          const float*, std::int64_t, float, float*, std::int64_t);
  SgemmPeer peer{.name = "oneDNN", .detail = {}, .missing = {}, .sgemm = {}};
  std::string problem;
  void* library = Open({"libdnnl.so.3", "libdnnl.so.2"}, vectors, &problem);
  auto* function = library ? Find<SgemmFunction>(library, "dnnl_sgemm") : nullptr;
  if (function == nullptr) {
    peer.missing = "libdnnl.so.2 or .3 not found: apt install libdnnl2 (" + problem + ")";
    return peer;
  }
  if (auto* version = Find<const DnnlVersion*()>(library, "dnnl_version")) {
    const DnnlVersion& v = *version();
    peer.detail =
        std::to_string(v.major) + "." + std::to_string(v.minor) + "." + std::to_string(v.patch);
  }
  if (vectors == PeerVectors::kAvx2) {
    constexpr int kAvx2 = 0x7;  // dnnl_cpu_isa_avx2
    auto* limit = Find<int(int)>(library, "dnnl_set_max_cpu_isa");
    if (limit == nullptr || limit(kAvx2) != 0) {
      peer.missing = "oneDNN " + peer.detail + " cannot be held to AVX2";
      return peer;
    }
  }
  auto* set_threads = Find<SetThreadsFunction>(library, "omp_set_num_threads");
  CheckAndKeep(
      [function, set_threads](MatrixView<const float> a, MatrixView<const float> b,
                              MatrixView<float> c) {
        if (set_threads != nullptr) set_threads(Threads());
        const auto size = [](std::size_t n) { return static_cast<std::int64_t>(n); };
        function(ByRows(a) ? 'N' : 'T', ByRows(b) ? 'T' : 'N', size(c.rows), size(c.cols),
                 size(a.cols), 1.0f, a.data, size(LeadingStride(a)), b.data, size(LeadingStride(b)),
                 0.0f, c.data, size(c.row_stride));
      },
      &peer);
  return peer;
}

SgemmPeer LoadOpenBlas(PeerVectors vectors) {
  using SgemmFunction = void(int, int, int, int, int, int, float, const float*, int, const float*,
                             int, float, float*, int);
  SgemmPeer peer{.name = "OpenBLAS", .detail = {}, .missing = {}, .sgemm = {}};
  std::string problem;
  void* library = Open({"libopenblas.so.0"}, vectors, &problem);
  auto* function = library ? Find<SgemmFunction>(library, "cblas_sgemm") : nullptr;
  auto* set_threads =
      library ? Find<SetThreadsFunction>(library, "openblas_set_num_threads") : nullptr;
  if (function == nullptr || set_threads == nullptr) {
    peer.missing = "libopenblas.so.0 not found: apt install libopenblas0-openmp (" + problem + ")";
    return peer;
  }
  if (auto* config = Find<char*()>(library, "openblas_get_corename")) peer.detail = config();
  CheckAndKeep(
      [function, set_threads](MatrixView<const float> a, MatrixView<const float> b,
                              MatrixView<float> c) {
        constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;  // cblas.h
        set_threads(Threads());
        const auto size = [](std::size_t n) { return static_cast<int>(n); };
        function(kRowMajor, ByRows(a) ? kPlain : kTransposed, ByRows(b) ? kTransposed : kPlain,
                 size(c.rows), size(c.cols), size(a.cols), 1.0f, a.data, size(LeadingStride(a)),
                 b.data, size(LeadingStride(b)), 0.0f, c.data, size(c.row_stride));
      },
      &peer);
  return peer;
}

}  // namespace

std::vector<SgemmPeer> LoadSgemmPeers(PeerVectors vectors) {
  return {LoadOneDnn(vectors), LoadOpenBlas(vectors)};
}

std::string PeerWarning() {
  for (const char* name : {"OPENBLAS_CORETYPE", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      return std::string(name) + "=" + value +
             " limits a reference library to older kernels: unset the variable";
    }
  }
  return "";
}

}  // namespace fp4lab::measure
