// What public bug reports and kernels get wrong in products, and what `verify gemm` says.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/json.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"
#include "tests/support/program.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// Operands a (32x128) and b (48x128) in nvfp4.te, and their product by the program.
class Product {
 public:
  Product() {
    for (const char* name : {"a", "b"}) {
      const Matrix<float> x = NormalMatrix(name[0], name[0] == 'a' ? 32 : 48, 128);
      WriteStored(Path(std::string(name) + ".safetensors"), Quantize("nvfp4.te", x), "nvfp4.te",
                  "fp4lab", 448.0f);
    }
    const ProcessResult run =
        Run({"gemm", "a.safetensors", "b.safetensors", "--alpha", "kernel", "--out", "right.npy"});
    INFO(run.error);
    REQUIRE(run.exit_code == 0);
    right_ = ReadMatrix(Path("right.npy")).values;
  }
  const Matrix<float>& right() const { return right_; }
  std::string Path(const std::string& name) const { return folder_ / name; }
  ProcessResult Run(const std::vector<std::string>& arguments) const {
    return RunProgram(arguments, {.folder = folder_.path()});
  }
  ProcessResult Verify(const Matrix<float>& d, const std::vector<std::string>& more) const {
    WriteMatrix(Path("d.npy"), d.View());
    std::vector<std::string> arguments = {"verify", "gemm",    "a.safetensors", "b.safetensors",
                                          "d.npy",  "--under", "fp32-blocks"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Run(arguments);
  }

 private:
  TemporaryFolder folder_;
  Matrix<float> right_;
};

struct Fault {
  const char* name;
  std::function<float(const Matrix<float>& right, std::size_t r, std::size_t c)> element;
  std::string says, lacks = "\n\n";
};

TEST_CASE("Wrong products that no wrong kernel of the table gives are related to the right one",
          "[e2e]") {
  const Product p;
  const auto at = [](const Matrix<float>& d, std::size_t r, std::size_t c) {
    return d(r % 32, c % 48);
  };
  const std::vector<Fault> faults = {
      {"rows one too low", [&](auto& d, auto r, auto c) { return at(d, r + 31, c); },
       "Cause: The kernel writes every row 1 row too late, the last ones first: row 0 holds row "
       "31. (output-rows-moved)"},
      {"columns in pairs exchanged", [&](auto& d, auto r, auto c) { return at(d, r, c ^ 1); },
       "Cause: The kernel writes 48 of 48 columns of the product to other places: column 0 holds "
       "column 1. (output-columns-moved)"},
      {"the first half of the rows twice",
       [&](auto& d, auto r, auto c) { return at(d, r % 16, c); },
       "Cause: The kernel writes 16 of 32 rows of the product to other places: row 16 holds row "
       "0. (output-rows-moved)"},
      {"two products added into one", [&](auto& d, auto r, auto c) { return 2 * at(d, r, c); },
       "Cause: The kernel multiplies the product by 2 as well. (output-times)"},
      {"the sign", [&](auto& d, auto r, auto c) { return -at(d, r, c); },
       "Cause: The kernel multiplies the product by -1 as well. (output-times)"},
      {"a ReLU that was fused",
       [&](auto& d, auto r, auto c) { return std::max(at(d, r, c), 0.0f); },
       "Cause: The kernel writes 0 for negative elements. (output-relu)"},
      {"magnitudes", [&](auto& d, auto r, auto c) { return std::fabs(at(d, r, c)); },
       "Cause: The kernel drops the signs of the product. (output-magnitude)"},
      {"nothing written", [](auto&, auto, auto) { return 0.0f; },
       "Cause: The kernel writes 0 everywhere, or nothing at all. (output-of-one-number)"},
      {"one tile of garbage",
       [&](auto& d, auto r, auto c) { return r < 16 && c >= 32 ? 1e30f : at(d, r, c); },
       "outside in rows 0..15, columns 32..47 only: all 256 elements there", "Cause"},
  };
  CHECK(p.Verify(p.right(), {"--alpha", "kernel"}).exit_code == 0);
  for (const Fault& fault : faults) {
    CAPTURE(fault.name);
    Matrix<float> d(32, 48);
    for (std::size_t i = 0; i < d.values.size(); ++i) {
      d.values[i] = fault.element(p.right(), i / 48, i % 48);
    }
    const ProcessResult run = p.Verify(d, {"--alpha", "kernel"});
    CHECK(run.exit_code == 1);
    CHECK_THAT(run.output, ContainsSubstring(fault.says) && !ContainsSubstring(fault.lacks));
  }
}

TEST_CASE("A NaN of the device is named as one, and is no evidence for a reading of scales",
          "[e2e]") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return std::string(folder / name); };
  for (const char* name : {"a.safetensors", "b.safetensors"}) {
    WriteStored(path(name), Quantize("mxfp4.rceil", NormalMatrix(name[0], 16, 96)), "mxfp4.rceil",
                "fp4lab", 1.0f);
  }
  const auto run = [&](std::vector<std::string> arguments) {
    return RunProgram(arguments, {.folder = folder.path()});
  };
  REQUIRE(run({"gemm", "a.safetensors", "b.safetensors", "--out", "d.npy"}).exit_code == 0);
  Matrix<float> d = ReadMatrix(path("d.npy")).values;
  d(3, 5) = std::numeric_limits<float>::quiet_NaN();
  WriteMatrix(path("d.npy"), d.View());
  const ProcessResult judged = run({"verify", "gemm", "a.safetensors", "b.safetensors", "d.npy"});
  CHECK(judged.exit_code == 1);
  CHECK_THAT(judged.output, ContainsSubstring("outside in row 3, column 5 only") &&
                                ContainsSubstring("are finite: the device made the NaN") &&
                                !ContainsSubstring("Cause") &&
                                !ContainsSubstring("exact 0x00000000"));
}

TEST_CASE("Elements that read the scale byte 0x7F as 448 and as 480 are counted apart", "[e2e]") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return std::string(folder / name); };
  StoredMatrix a = Quantize("nvfp4.torchao.single-level", NormalMatrix(1, 3, 64));
  StoredMatrix b = Quantize("nvfp4.torchao.single-level", NormalMatrix(2, 3, 64));
  b.scales[0 * 4 + 1] = b.scales[1 * 4 + 2] = 0x7F;
  const auto value = [](const StoredMatrix& m, std::size_t r, std::size_t k, double largest) {
    const std::uint8_t scale = m.scales[r * 4 + k / 16];
    const unsigned code = m.codes[r * 32 + k / 2] >> (k % 2 * 4) & 0xFu;
    return Decode(FormatId::kE2M1, code) *
           (scale == 0x7F ? largest : double{Decode(FormatId::kE4M3, scale)});
  };
  Matrix<float> d(3, 3);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 3; ++c) {
      double sum = 0.0;  // the diagonal by another program
      for (std::size_t k = 0; k < 64; ++k) {
        sum += value(a, r, k, 448) * value(b, c, k, r == c ? 448 : 480);
      }
      d(r, c) = static_cast<float>(sum);
    }
  }
  WriteStored(path("a.safetensors"), a, "nvfp4.torchao.single-level", "fp4lab", 448.0f);
  WriteStored(path("b.safetensors"), b, "nvfp4.torchao.single-level", "fp4lab", 448.0f);
  WriteMatrix(path("d.npy"), d.View());
  const ProcessResult run = RunProgram(
      {"verify", "gemm", "a.safetensors", "b.safetensors", "d.npy"}, {.folder = folder.path()});
  CHECK(run.exit_code == 1);
  CHECK_THAT(
      run.output,
      ContainsSubstring("Cause of 2 elements: The kernel reads the scale byte 0x7F as 448, not as "
                        "NaN. (0x7f-as-448)") &&
          ContainsSubstring("Cause of 4 elements: The kernel reads the scale byte 0x7F as 480, not "
                            "as NaN. (0x7f-as-480)"));
}

TEST_CASE("Where alpha or the output's type was not stated, verify gemm says which fit", "[e2e]") {
  const Product p;
  Matrix<float> d = p.right();
  for (float& x : d.values) x = Decode(FormatId::kBF16, Encode(FormatId::kBF16, x));
  for (std::size_t r = 0; r < 32; ++r) {
    for (std::size_t c = 16; c < 32; ++c) d(r, c) = 12288.0f;
  }
  const ProcessResult run = p.Verify(d, {});
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.output,
             ContainsSubstring("With --alpha kernel --output bf16, 512 of 1536 elements are "
                               "outside.\n"));
  const ProcessResult json = p.Verify(d, {"--json"});
  CHECK(ParseJson(json.output, "json")["better"] ==
        Json({{"options", "--alpha kernel --output bf16"}, {"outside", 512}}));
  const ProcessResult stated = p.Verify(d, {"--alpha", "kernel", "--output", "bf16"});
  CHECK_THAT(stated.output, ContainsSubstring("outside in rows 0..31, columns 16..31 only: all 512 "
                                              "elements there") &&
                                !ContainsSubstring("With "));
}

}  // namespace
}  // namespace fp4lab
