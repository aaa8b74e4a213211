#include "fp4lab/measure/machine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/base/parallel.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/measure/clock.h"
#include "fp4lab/measure/probes.h"
#include "fp4lab/measure/sgemm_peer.h"
#include "tests/support/catch.h"

namespace fp4lab::measure {
namespace {

TEST_CASE("A machine says what it is", "[measure]") {
  const Machine m = ThisMachine();
  CHECK(!m.cpu.empty());
  CHECK(m.cores >= 1);
  CHECK(m.memory > std::size_t{1} << 26);
  CHECK(!m.compiler.empty());
  CHECK(HighwayAtLeast(1, 0));
  CHECK(!HighwayAtLeast(99, 0));
  CHECK(m.highway.find('.') != std::string::npos);
}

TEST_CASE("A CPU is named by its model on x86, by the numbers of its part on Arm", "[measure]") {
  const TemporaryFolder folder;
  const auto name = [&folder](const char* text) {
    const std::filesystem::path file = folder / "cpuinfo";
    WriteFileAtomically(file, std::string_view(text));
    return CpuName(file.c_str());
  };
  CHECK(name("processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: A CPU\nstepping\t: "
             "1\n") == "A CPU (family 25, model 17, stepping 1)");
  CHECK(name("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
             "CPU part\t: 0xd4f\nCPU revision\t: 1\n") ==
        "Arm part 0xd4f of implementer 0x41 (variant 0x0, revision 1)");
  CHECK(name("") == "unknown CPU");
}

TEST_CASE("Memory that was held counts in the peak after it was given back", "[measure]") {
  const std::size_t before = PeakMemory();
  constexpr std::size_t kBytes = std::size_t{1} << 27;
  {
    const std::vector<char> held(kBytes + before, 1);
    CHECK(CurrentMemory() >= kBytes);
  }
  CHECK(PeakMemory() >= before + kBytes / 2);
}

TEST_CASE("Clocks go forward, a thread's only while it works", "[measure]") {
  const double wall = WallSeconds(), thread = ThreadSeconds();
  SpendCycles(30'000'000);
  CHECK(WallSeconds() > wall);
  CHECK(ThreadSeconds() > thread);
}

TEST_CASE("WriteBytes and CopyBytes touch every byte", "[measure]") {
  std::vector<std::byte> from((std::size_t{5} << 20) + 7), to(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 31 >> 3);
  const int threads = Threads();
  for (const int n : {1, 3}) {
    SetThreads(n);
    WriteBytes(to);
    CHECK(to == std::vector<std::byte>(from.size(), std::byte{1}));
    CopyBytes(from, to);
    CHECK(to == from);
  }
  SetThreads(threads);
}

TEST_CASE("MoveBytes writes every byte of an output of any size", "[measure]") {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{1} << 20, (std::size_t{5} << 20) + 77}) {
    const std::vector<std::byte> from(size);
    for (const std::size_t written : {std::size_t{0}, size / 8, size}) {
      std::vector<std::byte> to(written + 1);
      MoveBytes(from, std::span(to).first(written));
      CHECK(std::count(to.begin(), to.end(), std::byte{1}) == static_cast<std::ptrdiff_t>(written));
      CHECK(to.back() == std::byte{0});
    }
  }
}

TEST_CASE("A BLAS peer that is found multiplies; a missing one says what to install", "[measure]") {
  const std::vector<SgemmPeer> peers = LoadSgemmPeers(PeerVectors::kBest);
  CHECK(peers.size() == 2);
  for (const SgemmPeer& peer : peers) {
    CAPTURE(peer.name, peer.missing);
    CHECK(peer.missing.empty() == static_cast<bool>(peer.sgemm));
    if (!peer.sgemm) {
      CHECK(peer.missing.find("apt install") != std::string::npos);
      continue;
    }
    const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
    float c[4] = {};
    peer.sgemm({a, 2, 2}, {b, 2, 2}, {c, 2, 2});
    CHECK(std::vector<float>(c, c + 4) == std::vector<float>{17, 23, 39, 53});
  }
}

TEST_CASE("A library and its copy held to AVX2 multiply side by side on two threads", "[measure]") {
  const int threads = Threads();
  SetThreads(2);
  constexpr std::size_t kSize = 300;  // enough for both threads
  const std::vector<float> a(kSize * kSize, 2), b(kSize * kSize, 3);
  for (const PeerVectors vectors : {PeerVectors::kAvx2, PeerVectors::kBest}) {
    for (const SgemmPeer& peer : LoadSgemmPeers(vectors)) {
      CAPTURE(peer.name, peer.detail, peer.missing);
      if (!peer.sgemm) continue;
      ::setenv("FP4LAB_TEST", "moves the environment", 1);  // must not disturb a copy's libc
      std::vector<float> c(kSize * kSize);
      peer.sgemm({a.data(), kSize, kSize}, {b.data(), kSize, kSize}, {c.data(), kSize, kSize});
      CHECK(c == std::vector<float>(kSize * kSize, 6 * kSize));
      ::unsetenv("FP4LAB_TEST");
    }
  }
  SetThreads(threads);
}

TEST_CASE("An environment that slows a peer is reported by name", "[measure]") {
  const char* before = std::getenv("OPENBLAS_CORETYPE");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("OPENBLAS_CORETYPE", "Haswell", 1);
  CHECK(
      PeerWarning() ==
      "OPENBLAS_CORETYPE=Haswell limits a reference library to older kernels: unset the variable");
  ::unsetenv("OPENBLAS_CORETYPE");
  CHECK(PeerWarning().find("OPENBLAS_CORETYPE") == std::string::npos);
  if (before != nullptr) ::setenv("OPENBLAS_CORETYPE", kept.c_str(), 1);
}

}  // namespace
}  // namespace fp4lab::measure
