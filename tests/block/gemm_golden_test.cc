// The GEMM of two NVFP4 operands against Transformer Engine's reference, quantizers included.
#include <bit>
#include <string>

#include "fp4lab/block/quantize.h"
#include "fp4lab/dialect/gemm_alpha.h"
#include "fp4lab/tensor/gemm.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/block/cases.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/packed.h"

namespace fp4lab {
namespace {

// Groups of arrays in te_gemm_misc.npz and the tests that read them:
//   gN.1d, gN.wgrad, fp4_pair_lut_f32   this file
//   hadamard_*                          tests/transform/hadamard_test.cc
//   swz.*                               tests/block/scale_swizzle_test.cc
//   gN.rs                               no test (row-scaled NVFP4: one amax a row)
constexpr std::string_view kGroups[] = {"g0", "g1", "g2", "g3"};

Matrix<float> ReadMatrix(const NpzFile& file, const std::string& name) {
  const NpyArray a = file.Read(name);
  Matrix<float> m(a.shape.at(0), a.shape.at(1));
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    m.values[i] = a.dtype == "<u2" ? Decode(FormatId::kBF16, a.As<std::uint16_t>()[i])
                                   : std::bit_cast<float>(a.As<std::uint32_t>()[i]);
  }
  return m;
}

float ReadScalar(const NpzFile& file, const std::string& name) {
  return std::bit_cast<float>(file.Read(name).As<std::uint32_t>()[0]);
}

bool SameBytes(const std::vector<std::uint8_t>& got, const NpyArray& want) {
  const auto bytes = want.As<std::uint8_t>();
  return std::equal(got.begin(), got.end(), bytes.begin(), bytes.end());
}

// Quantizes x and compares codes, scales and amax with the arrays named prefix + "q", "s" and "a" +
// name.
Quantized CheckOperand(const NpzFile& file, MatrixView<const float> x, const std::string& prefix,
                       const std::string& name) {
  const Quantized q = Quantize(x, {.dialect = *FindDialect("nvfp4"), .amax = TensorAmax(x)});
  CHECK(SameBytes(q.codes, file.Read(prefix + "q" + name)));
  CHECK(SameBytes(q.scales, file.Read(prefix + "s" + name)));
  CHECK(q.amax == std::vector{ReadScalar(file, prefix + "a" + name)});
  return q;
}

Matrix<float> Product(const Quantized& a, const Quantized& b, bool accumulate, Matrix<float> c) {
  Matrix<float> va(a.rows, a.cols), vb(b.rows, b.cols);
  const Dialect& nvfp4 = *FindDialect("nvfp4");
  BlockScaledValues(nvfp4, a, va.View());
  BlockScaledValues(nvfp4, b, vb.View());
  const GemmOptions options{.block = 16,
                            .alpha = GemmAlpha(nvfp4, a.amax.at(0), nvfp4, b.amax.at(0)),
                            .accumulate = accumulate};
  Matrix<float> reference_c = c;
  Gemm(va.View(), vb.View(), options, c.View());
  reference::Gemm(va.View(), vb.View(), options, reference_c.View());
  CHECK(BitsOf(c) == BitsOf(reference_c));
  return c;
}

TEST_CASE("The product of two NVFP4 operands is TE's reference GEMM, bit for bit",
          "[block][tensor][golden]") {
  const NpzFile file = OpenGolden("te_gemm_misc.npz");
  for (const std::string_view group : kGroups) {
    const std::string prefix = std::string(group) + ".1d.";
    INFO(prefix);
    const Matrix<float> x = ReadMatrix(file, prefix + "x"), w = ReadMatrix(file, prefix + "w");
    const Quantized qx = CheckOperand(file, x.View(), prefix, "x");
    const Quantized qw = CheckOperand(file, w.View(), prefix, "w");
    const Matrix<float> y = Product(qx, qw, false, Matrix<float>(x.rows, w.rows));
    CHECK(BitsOf(y) == BitsOf(ReadMatrix(file, prefix + "y_fp32")));
    Matrix<float> rounded = y;
    for (float& v : rounded.values) v = RoundToBf16(v);
    CHECK(BitsOf(rounded) == BitsOf(ReadMatrix(file, prefix + "y_bf16")));
    const Matrix<float> sum = Product(qx, qw, true, ReadMatrix(file, prefix + "acc"));
    CHECK(BitsOf(sum) == BitsOf(ReadMatrix(file, prefix + "y_acc")));
  }
}

TEST_CASE("A weight gradient of Hadamard-transformed operands is TE's, bit for bit",
          "[block][tensor][golden]") {
  const NpzFile file = OpenGolden("te_gemm_misc.npz");
  for (const std::string_view group : kGroups) {
    const std::string prefix = std::string(group) + ".wgrad.";
    INFO(prefix);
    Matrix<float> dy = ReadMatrix(file, prefix + "dy"), x = ReadMatrix(file, prefix + "x");
    for (Matrix<float>* m : {&dy, &x}) {
      const MatrixView<float> columns = m->View().Transposed();
      RandomHadamard(columns, 16, kTeSignMask16, columns);
    }
    const Quantized a = CheckOperand(file, dy.View().Transposed(), prefix, "dy");
    const Quantized b = CheckOperand(file, x.View().Transposed(), prefix, "x");
    const Matrix<float> y = Product(a, b, false, Matrix<float>(a.rows, b.rows));
    CHECK(BitsOf(y) == BitsOf(ReadMatrix(file, prefix + "y_fp32")));
  }
}

TEST_CASE("A byte holds the even column's code in its low nibble", "[block][golden]") {
  const NpyArray golden = OpenGolden("te_gemm_misc.npz").Read("fp4_pair_lut_f32");
  const auto want = golden.As<std::uint32_t>();
  Quantized q{.rows = 1,
              .cols = 512,
              .scale_rows = 1,
              .scale_cols = 16,
              .scales = std::vector<std::uint8_t>(16, 127),
              .order = CodeOrder::kLowFirst};
  for (int byte = 0; byte < 256; ++byte) q.codes.push_back(static_cast<std::uint8_t>(byte));
  Matrix<float> y(1, 512);
  BlockScaledValues(*FindDialect("mxfp4.floor"), q, y.View());
  const std::vector<std::uint32_t> got = BitsOf(y);
  CHECK(std::equal(got.begin(), got.end(), want.begin(), want.end()));
}

}  // namespace
}  // namespace fp4lab
