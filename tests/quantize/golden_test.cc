// The dialects of Transformer Engine against its own PyTorch reference, bit for bit
// (tests/golden/README.md).
#include "tests/support/golden.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>

#include "fp4lab/dialect/stages.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

Matrix<float> ReadMatrix(const NpyArray& a, const std::string& dtype) {
  Matrix<float> m(a.shape.at(0), a.shape.at(1));
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    m.values[i] = dtype == "fp32" ? std::bit_cast<float>(a.As<std::uint32_t>()[i])
                                  : Decode(dtype == "bf16" ? FormatId::kBF16 : FormatId::kFP16,
                                           a.As<std::uint16_t>()[i]);
  }
  return m;
}

struct Golden {
  NpyArray codes, scales;
  float amax;
};

Golden ReadGolden(const NpzFile& file, const std::string& prefix, bool transposed) {
  const std::string t = transposed ? "t" : "";
  return {file.Read(prefix + ".qx" + t), file.Read(prefix + ".sx" + t),
          std::bit_cast<float>(file.Read(prefix + ".amax" + t).As<std::uint32_t>()[0])};
}

struct Differences {
  std::size_t codes = 0, scales = 0, zero_signs = 0;
};

// The recorded scales of square blocks are repeated for every row; some rows of them are padding.
Differences Compare(const Dialect& dialect, const Quantized& q, const Golden& golden) {
  Differences d;
  const auto scales = golden.scales.As<std::uint8_t>();
  const std::size_t scale_cols = golden.scales.shape.at(1);
  REQUIRE(scale_cols == q.scale_cols);
  REQUIRE(golden.scales.shape.at(0) >= q.rows);
  const auto block_rows = static_cast<std::size_t>(dialect.block_rows);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const std::size_t r = i / scale_cols / block_rows, c = i % scale_cols;
    d.scales += q.scales[r * scale_cols + c] != scales[i];
  }
  const auto codes = golden.codes.As<std::uint8_t>();
  const std::size_t row_bytes = golden.codes.shape.at(1);
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const std::uint8_t want = codes[r * row_bytes + c / 2] >> (c % 2 * 4) & 0xF;
      const std::uint8_t got = q.codes[r * q.cols + c];
      const bool both_zero = (got & 7) == 0 && (want & 7) == 0;
      d.codes += got != want && !both_zero;
      d.zero_signs += got != want && both_zero;
    }
  }
  return d;
}

bool SameNumber(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));  // payloads and signs of NaN vary: not comparable
}

bool HasNan(const Matrix<float>& x) {
  return std::any_of(x.values.begin(), x.values.end(), [](float v) { return std::isnan(v); });
}

// Compares the rowwise and the columnwise copy of x; returns the sum of their differences.
Differences CompareCopies(const Dialect& dialect, const NpzFile& file, const std::string& prefix,
                          const Matrix<float>& x) {
  Differences sum;
  for (const bool transposed : {false, true}) {
    const Golden golden = ReadGolden(file, prefix, transposed);
    const Quantized q = QuantizeAs(dialect, transposed ? x.View().Transposed() : x.View());
    CHECK(SameNumber(q.amax.at(0), golden.amax));
    const Differences d = Compare(dialect, q, golden);
    sum = {sum.codes + d.codes, sum.scales + d.scales, sum.zero_signs + d.zero_signs};
  }
  return sum;
}

const Dialect& Row(const std::string& name) {
  INFO(name);
  const Dialect* row = FindDialect(name);
  REQUIRE(row != nullptr);
  return *row;
}

// The dialect of Transformer Engine's kernels with the stages in which their Python reference
// differs: S for amax = 0, the sign of zero, NaN.
Dialect AsReference(Dialect d) {
  const Dialect& reference = Row("nvfp4.te.reference");
  d.tensor_scale = reference.tensor_scale;
  d.factor = reference.factor;
  d.keeps_negative_zero = reference.keeps_negative_zero;
  d.nan = reference.nan;
  d.nan_scale = reference.nan_scale;
  d.nan_code = reference.nan_code;
  return d;
}

// "46_2d_mse_256_fm" -> "nvfp4.te.4over6.mse.256.2d.fast-error"
std::string FourOverSixName(const std::string& mode) {
  const std::string dimension = mode.substr(3, 2), metric = mode.substr(6, 3),
                    bound = mode.substr(10, 3), path = mode.substr(14);
  return "nvfp4.te.4over6." + metric + "." + bound + (dimension == "2d" ? ".2d" : "") +
         (path == "fm" ? ".fast-error" : "");
}

int CheckReference(const std::string& name) {
  const NpzFile file = OpenGolden(name);
  int compared = 0;
  for (const Json& entry : GoldenIndex(file)) {
    const std::string id = entry["id"];
    const Matrix<float> x = ReadMatrix(file.Read(id + ".x"), entry["dtype"]);
    for (const auto& [mode, fields] : entry["modes"].items()) {
      if (mode != "1d" && mode != "2d") continue;  // tests/block has the transforms
      INFO(name << " " << id << " " << entry["kind"] << " " << mode);
      const Dialect& row = Row(mode == "1d" ? "nvfp4.te.reference" : "nvfp4.te.reference.2d");
      const Differences d = CompareCopies(row, file, id + "." + mode, x);
      CHECK(d.scales == 0);
      CHECK(d.codes == 0);
      CHECK(d.zero_signs == 0);
      ++compared;
    }
  }
  return compared;
}

TEST_CASE("nvfp4.te.reference is Transformer Engine's reference without any exception",
          "[quantize][golden]") {
  CHECK(CheckReference("te_bf16_core.npz") == 40);
  CHECK(CheckReference("te_fp32_core.npz") == 24);
  CHECK(CheckReference("te_edge.npz") == 138);
}

TEST_CASE("nvfp4.te and nvfp4.te.2d differ from the reference in signs of zero and NaN only",
          "[quantize][golden]") {
  std::map<std::string, int> nan_cases;
  std::size_t zero_signs = 0;
  for (const std::string file_name : {"te_bf16_core.npz", "te_fp32_core.npz", "te_edge.npz"}) {
    const NpzFile file = OpenGolden(file_name);
    for (const Json& entry : GoldenIndex(file)) {
      const std::string id = entry["id"];
      const Matrix<float> x = ReadMatrix(file.Read(id + ".x"), entry["dtype"]);
      for (const std::string mode : {"1d", "2d"}) {
        if (!entry["modes"].contains(mode)) continue;
        INFO(file_name << " " << id << " " << entry["kind"] << " " << mode);
        if (HasNan(x)) {
          ++nan_cases[entry["kind"]];
          continue;
        }
        const Dialect& row = Row(mode == "1d" ? "nvfp4.te" : "nvfp4.te.2d");
        const Differences d = CompareCopies(row, file, id + "." + mode, x);
        CHECK(d.scales == 0);
        CHECK(d.codes == 0);
        zero_signs += d.zero_signs;
      }
    }
  }
  CHECK(zero_signs == 38728);
  CHECK(nan_cases == std::map<std::string, int>{{"nan", 6}});
}

TEST_CASE("Four over six is Transformer Engine's in all sixteen modes", "[quantize][golden]") {
  const NpzFile file = OpenGolden("te_4over6.npz");
  int compared = 0;
  for (const Json& entry : GoldenIndex(file)) {
    const std::string id = entry["id"];
    const Matrix<float> x = ReadMatrix(file.Read(id + ".x"), entry["dtype"]);
    for (const auto& [mode, fields] : entry["modes"].items()) {
      const std::string name = FourOverSixName(mode);
      INFO(id << " " << entry["kind"] << " " << mode << " " << name);
      const Differences d = CompareCopies(AsReference(Row(name)), file, id + "." + mode, x);
      CHECK(d.scales == 0);
      CHECK(d.codes == 0);
      CHECK(d.zero_signs == 0);
      ++compared;
    }
  }
  CHECK(compared == 11 * 16);
}

}  // namespace
}  // namespace fp4lab
