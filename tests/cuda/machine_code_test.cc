// Checks the compiled kernels in the files that the build keeps: PTX for every chip of the build,
// and ptxas's report on registers. No GPU is needed. Each chip that the build leaves out is a ctest
// entry of its own that says SKIPPED; on a CI machine no chip may be left out.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "fp4lab/io/process.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ifstream in(path);
  REQUIRE(in);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

fs::path KeptFolder() {
  const char* folder = std::getenv("FP4LAB_CUDA_KEPT");
  REQUIRE(folder != nullptr);
  return folder;
}

// The folder of kept files of each source below lib/fp4lab/cuda: build/cuda/row_kernel and so on.
std::vector<fs::path> Sources() {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(SourceDirectory() / "lib" / "fp4lab" / "cuda")) {
    if (entry.path().extension() != ".cu") continue;
    folders.push_back(KeptFolder() / entry.path().stem());
    CAPTURE(folders.back());
    REQUIRE(fs::exists(folders.back() / "ptxas.log"));
  }
  REQUIRE(folders.size() >= 11);
  return folders;
}

// The chips of FP4LAB_CUDA_ARCHITECTURES, such as "90a" and "100a".
std::vector<std::string> CompiledChips() {
  const char* chips = std::getenv("FP4LAB_CUDA_CHIPS");
  std::istringstream words(chips == nullptr ? "" : chips);
  return {std::istream_iterator<std::string>(words), {}};
}
const std::vector<std::string> kChips = CompiledChips();

// For which chips a source has code of its own (ALL, FAMILY, SAME), and the chips that it was
// compiled for: cuda/NAME.chips of the build.
struct SourceChips {
  std::string code;
  std::vector<std::string> chips;
};
SourceChips ChipsOf(const fs::path& source) {
  std::istringstream words(ReadText(source.string() + ".chips"));
  SourceChips result;
  words >> result.code;
  result.chips.assign(std::istream_iterator<std::string>(words), {});
  REQUIRE(!result.chips.empty());
  return result;
}

bool IsHopper(const std::string& chip) { return chip == "90a"; }
// Data-center Blackwell (sm_10x) has tensor memory; workstation Blackwell (sm_12x) has mma.sync
// with block scales.
bool HasTensorMemory(const std::string& chip) { return chip.rfind("10", 0) == 0; }
bool HasScaledMma(const std::string& chip) { return chip.rfind("12", 0) == 0; }

// PTX of a source for a chip, from row_kernel.compute_100a.ptx as nvcc --keep names it; empty if
// there is none.
std::string Ptx(const fs::path& source, const std::string& chip) {
  for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
    if (entry.path().extension() != ".ptx") continue;
    const std::string text = ReadText(entry.path());
    if (text.find(".target sm_" + chip + "\n") != std::string::npos) return text;
  }
  return "";
}

// CMakeLists.txt says it, and what a source includes decides it.
TEST_CASE("A source has code for a chip of its own where it includes chip.cuh", "[cuda]") {
  std::set<std::string> compiled;
  for (const fs::path& source : Sources()) {
    CAPTURE(source);
    const auto [code, chips] = ChipsOf(source);
    const std::string name = source.filename().string();
    const bool own = ReadText(source / (name + ".d")).find("device/chip.cuh") != std::string::npos;
    CHECK((code == "ALL" || code == "FAMILY" || code == "SAME"));
    CHECK((code != "SAME") == own);
    // Products by tensor core: their machine code differs between sm_100a and sm_103a.
    CHECK((code == "ALL") == (name.find("scaled_gemm") != std::string::npos ||
                              name.find("tcgen05") != std::string::npos));
    for (const std::string& chip : kChips) {
      const bool first = chip == kChips.front();
      const bool same_family = chip == "103a" && std::count(kChips.begin(), kChips.end(), "100a");
      if (first || code == "ALL" || (code == "FAMILY" && !same_family)) {
        CAPTURE(chip);
        CHECK(std::count(chips.begin(), chips.end(), chip) == 1);
      }
    }
    compiled.insert(chips.begin(), chips.end());
  }
  CHECK(compiled == std::set<std::string>(kChips.begin(), kChips.end()));
}

TEST_CASE("The chips under test are known; with CI=true they are all four", "[cuda]") {
  const char* ci = std::getenv("CI");
  if (ci != nullptr && std::string(ci) == "true") {
    for (const char* chip : {"90a", "100a", "103a", "120a"}) {
      CAPTURE(chip);
      CHECK(std::count(kChips.begin(), kChips.end(), chip) == 1);
    }
  }
  CHECK(!kChips.empty());
  for (const std::string& chip : kChips) {
    CAPTURE(chip);
    CHECK(IsHopper(chip) + HasTensorMemory(chip) + HasScaledMma(chip) == 1);
  }
}

TEST_CASE("Blackwell's conversions stand in the kernels for Blackwell, software for Hopper",
          "[cuda]") {
  const std::string nearest = "cvt.rn.satfinite.e2m1x2.f32";
  const std::string random = "cvt.rs.satfinite.e2m1x4.f32";
  const std::string upward = "cvt.rp.satfinite.ue8m0x2.f32";
  for (const std::string source :
       {"row_kernel", "row16_kernel", "tile_nvfp4", "tile_mxfp4", "tile16_kernel"}) {
    for (const std::string& chip : ChipsOf(KeptFolder() / source).chips) {
      CAPTURE(source, chip);
      const std::string ptx = Ptx(KeptFolder() / source, chip);
      REQUIRE(!ptx.empty());
      const auto has = [&ptx](const std::string& text) {
        return ptx.find(text) != std::string::npos;
      };
      const bool blackwell = !IsHopper(chip);
      CHECK(has(nearest) == blackwell);
      CHECK(has(random) == HasTensorMemory(chip));
      CHECK(has(upward) == (blackwell && (source == "row_kernel" || source == "tile_mxfp4")));
      CHECK(has("cvt.rn.satfinite.e4m3x2.f32") == (source != "tile_mxfp4"));
    }
  }
}

// On chips without a conversion to E2M1, kernels for blocks of 16 compare two BF16 magnitudes at a
// time.
TEST_CASE("Packed comparisons stand in the kernels for Hopper alone", "[cuda]") {
  for (const char* source : {"row16_kernel", "tile16_kernel"}) {
    for (const std::string& chip : ChipsOf(KeptFolder() / source).chips) {
      CAPTURE(source, chip);
      const std::string ptx = Ptx(KeptFolder() / source, chip);
      CHECK((ptx.find("min.s16x2.relu") != std::string::npos) == IsHopper(chip));
    }
  }
}

TEST_CASE("The columnwise Hadamard transform is matrix instructions", "[cuda]") {
  for (const char* source : {"tile_nvfp4", "tile_mxfp4", "tile16_kernel"}) {
    for (const std::string& chip : ChipsOf(KeptFolder() / source).chips) {
      CAPTURE(source, chip);
      const std::string ptx = Ptx(KeptFolder() / source, chip);
      CHECK(ptx.find("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") != std::string::npos);
      CHECK(ptx.find("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") != std::string::npos);
    }
  }
}

// ptxas's report on one kernel for one chip; `name` is mangled.
struct KernelReport {
  std::string name, chip;
  std::size_t shared = 0;  // bytes of static shared memory
};
std::vector<KernelReport> Reports(const fs::path& source) {
  const std::regex kCompiled(R"(Compiling entry function '(\w+)' for 'sm_(\w+)')");
  const std::regex kShared(R"((\d+) bytes smem)");
  std::vector<KernelReport> reports;
  std::istringstream log(ReadText(source / "ptxas.log"));
  std::smatch match;
  for (std::string line; std::getline(log, line);) {
    if (std::regex_search(line, match, kCompiled)) reports.push_back({match[1], match[2]});
    if (std::regex_search(line, match, kShared)) reports.back().shared = std::stoul(match[1]);
  }
  return reports;
}

TEST_CASE("mma.sync with block scales stands in the kernels for sm_120a alone", "[cuda]") {
  const fs::path source = KeptFolder() / "block_scaled_gemm_kernel";
  for (const std::string& chip : kChips) {
    CAPTURE(chip);
    const std::string ptx = Ptx(source, chip);
    REQUIRE(!ptx.empty());
    for (const char* instruction :
         {"mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
          ".f32.e2m1.e2m1.f32.ue4m3",
          "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col"
          ".f32.e2m1.e2m1.f32.ue8m0"}) {
      CHECK((ptx.find(instruction) != std::string::npos) == HasScaledMma(chip));
    }
  }
}

TEST_CASE("tcgen05's products stand in the kernels for sm_100a and sm_103a alone", "[cuda]") {
  const fs::path source = KeptFolder() / "tcgen05_gemm_kernel";
  for (const std::string& chip : kChips) {
    CAPTURE(chip);
    const std::string ptx = Ptx(source, chip);
    REQUIRE(!ptx.empty());
    for (const char* instruction :
         {"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.block16",
          "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32",
          "tcgen05.cp.cta_group::1.32x128b.warpx4", "tcgen05.alloc.cta_group::1.sync.aligned",
          "tcgen05.dealloc.cta_group::1.sync.aligned", "tcgen05.commit.cta_group::1.mbarrier",
          "tcgen05.ld.sync.aligned.32x32b.x8.b32", "tcgen05.st.sync.aligned.32x32b.x8.b32"}) {
      CAPTURE(instruction);
      CHECK((ptx.find(instruction) != std::string::npos) == HasTensorMemory(chip));
    }
  }
}

// Reads machine code with cuobjdump, which comes with CUDA's command line tools, not with nvcc.
// This test is a ctest entry of its own that says SKIPPED where cuobjdump is not installed.
TEST_CASE("The machine code of block-scaled products is the tensor core's instructions",
          "[.sass]") {
  const char* cuobjdump = std::getenv("FP4LAB_CUOBJDUMP");
  REQUIRE(cuobjdump != nullptr);
  const struct {
    const char *source, *chip, *instruction;
  } kExpected[] = {
      {"block_scaled_gemm_kernel", "120a", "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"},
      {"block_scaled_gemm_kernel", "120a", "OMMA.SF.16864.F32.E2M1.E2M1.E8"},
      {"tcgen05_gemm_kernel", "100a", "UTCOMMA.4X"},
      {"tcgen05_gemm_kernel", "103a", "UTCOMMA.BLOCK16"},
      {"tcgen05_gemm_kernel", "100a", "UTCCP.T.S.4x32dp128bit"},
  };
  std::size_t checked = 0;
  for (const auto& e : kExpected) {
    if (std::count(kChips.begin(), kChips.end(), e.chip) == 0) continue;
    CAPTURE(e.source, e.chip, e.instruction);
    ++checked;
    const fs::path cubin =
        KeptFolder() / e.source / (std::string(e.source) + ".compute_" + e.chip + ".cubin");
    const ProcessResult dump = RunProcess({cuobjdump, "-sass", cubin.string()});
    REQUIRE(dump.exit_code == 0);
    CHECK(dump.output.find(e.instruction) != std::string::npos);
    CHECK(dump.output.find(" LDL") == std::string::npos);
    CHECK(dump.output.find(" STL") == std::string::npos);
  }
  CHECK(checked > 0);  // ctest has this entry only if the build has a Blackwell chip
}

TEST_CASE(
    "A kernel compiled without its instruction has no static shared memory, which HasMmaForm tests",
    "[cuda]") {
  std::size_t kernels = 0;
  for (const KernelReport& r : Reports(KeptFolder() / "tcgen05_gemm_kernel")) {
    if (r.name.find("Software") != std::string::npos) continue;
    CAPTURE(r.name, r.chip);
    CHECK((r.shared > 0) == HasTensorMemory(r.chip));
    ++kernels;
  }
  for (const KernelReport& r : Reports(KeptFolder() / "block_scaled_gemm_kernel")) {
    if (r.name.find("WarpGemmKernel") == std::string::npos) continue;
    CAPTURE(r.name, r.chip);
    const bool software = r.name.find("MmaFormE0") != std::string::npos;
    CHECK((r.shared > 0) == (software || HasScaledMma(r.chip)));
    ++kernels;
  }
  CHECK(kernels == (2 + 4) * kChips.size());
}

// nvcc compiles the use of a host variable in a kernel to `trap`, without a warning.
TEST_CASE("No kernel traps", "[cuda]") {
  for (const fs::path& source : Sources()) {
    for (const std::string& chip : ChipsOf(source).chips) {
      CAPTURE(source, chip);
      const std::string ptx = Ptx(source, chip);
      REQUIRE(!ptx.empty());
      CHECK(ptx.find("trap;") == std::string::npos);
    }
  }
}

TEST_CASE("nvcc contracts no multiply and add into an FMA", "[cuda]") {
  // The sources fuse operations by name only: in convert.cuh, e2m1.cuh and divisions.
  for (const char* source : {"dialect_kernel", "dequantize_kernel", "hadamard_kernel"}) {
    for (const std::string& chip : ChipsOf(KeptFolder() / source).chips) {
      CAPTURE(source, chip);
      const std::string ptx = Ptx(KeptFolder() / source, chip);
      REQUIRE(!ptx.empty());
      CHECK(ptx.find("fma.rn.f32") == std::string::npos);
    }
  }
}

TEST_CASE("Every kernel is compiled for the chips of its source, and none spills registers",
          "[cuda]") {
  const std::regex kCompiled(R"(Compiling entry function '(\w+)' for 'sm_(\w+)')");
  const std::regex kSpills(R"((\d+) bytes spill stores, (\d+) bytes spill loads)");
  std::size_t kernels = 0;
  for (const fs::path& source : Sources()) {
    CAPTURE(source);
    std::istringstream log(ReadText(source / "ptxas.log"));
    std::map<std::string, std::set<std::string>> chips_of;
    std::string kernel;
    std::smatch match;
    for (std::string line; std::getline(log, line);) {
      if (std::regex_search(line, match, kCompiled)) {
        kernel = std::string(match[1]) + " for " + std::string(match[2]);
        chips_of[match[1]].insert(match[2]);
        ++kernels;
      } else if (std::regex_search(line, match, kSpills)) {
        CAPTURE(kernel);
        CHECK(match[1] == "0");
        CHECK(match[2] == "0");
      }
    }
    CHECK(!chips_of.empty());
    const std::vector<std::string> wanted = ChipsOf(source).chips;
    for (const auto& [name, chips] : chips_of) {
      CAPTURE(name);
      CHECK(chips == std::set<std::string>(wanted.begin(), wanted.end()));
    }
  }
  CHECK(kernels > 25 * kChips.size());
}

TEST_CASE(
    "The fat binary carries machine code for its chips, and portable PTX where the build asks",
    "[cuda]") {
  const char* portable = std::getenv("FP4LAB_CUDA_PTX");  // ON or OFF, as in the build
  REQUIRE(portable != nullptr);
  for (const fs::path& source : Sources()) {
    CAPTURE(source);
    const std::string name = source.filename().string();
    for (const std::string& chip : ChipsOf(source).chips) {
      CAPTURE(chip);
      bool found = false;
      for (const fs::directory_entry& entry : fs::directory_iterator(source)) {
        const std::string file = entry.path().filename().string();
        // nvcc names the chip only where it compiles for several.
        const bool of_chip =
            file == name + ".cubin" || file.find(".compute_" + chip + ".") != std::string::npos;
        found = found || (entry.path().extension() == ".cubin" && of_chip &&
                          fs::file_size(entry.path()) > 0);
      }
      CHECK(found);
    }
    CHECK(Ptx(source, "90").empty() == (std::string(portable) == "OFF"));
    const std::string object = ReadText(source / (name + ".o"));
    CHECK(object.find(".nv_fatbin") != std::string::npos);
  }
}

}  // namespace
}  // namespace fp4lab
