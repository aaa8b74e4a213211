#include "fp4lab/judge/products/gemm_file.h"

#include <string>

#include "fp4lab/exchange/matrix_file.h"
#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/quantize/quantize.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// The values of codes times block scales; the tensor scale is left out.
Matrix<float> UnscaledAs(const Dialect& dialect, Quantized q) {
  const Format &element = FormatOf(dialect.element), &scale = FormatOf(dialect.scale);
  Matrix<float> values(q.rows, q.cols);
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const std::size_t block = r / static_cast<std::size_t>(dialect.block_rows) * q.scale_cols +
                                c / static_cast<std::size_t>(dialect.block_cols);
      values(r, c) = Decode(element, q.codes[r * q.cols + c]) * Decode(scale, q.scales[block]);
    }
  }
  return values;
}

TEST_CASE("An operand is the same from every layout of its file", "[judge]") {
  const TemporaryFolder folder;
  const Matrix<float> x = NormalMatrix(1, 34, 64);
  for (const char* name : {"nvfp4.te", "mxfp4.floor"}) {
    const Dialect& dialect = *FindDialect(name);
    const Quantized q = QuantizeAs(dialect, x.View());
    const Matrix<float> want = UnscaledAs(dialect, q);
    for (const StorageLayout& layout :
         {StorageLayout{}, StorageLayout{.codes = CodeOrder::kHighFirst},
          StorageLayout{.scales = ScaleOrder::k128x4},
          StorageLayout{.codes = CodeOrder::kBytes, .transposed = true},
          StorageLayout{.tensor_scale = TensorScaleConvention::kDivisor}}) {
      const std::string path = (folder / "x.safetensors").string();
      WriteStored(path + "#w", Store(dialect, q, layout), name, "fp4lab", dialect.scale_max);
      const GemmOperandFile file = ReadGemmOperand(path + "#w");
      INFO(name << " " << file.what);
      CHECK(file.operand.group == dialect.block_cols);
      CHECK(FloatValues(file.operand).values == want.values);
      CHECK(file.amax.has_value() == !q.amax.empty());
      if (file.amax) CHECK(*file.amax == Catch::Approx(q.amax[0]).epsilon(1e-6));
      if (file.amax && layout.tensor_scale == TensorScaleConvention::kAmax) {
        CHECK(*file.amax == q.amax[0]);
      }
    }
  }
}

TEST_CASE("Plain numbers become operands of a stated or their own format", "[judge]") {
  const TemporaryFolder folder;
  const Matrix<float> x = NormalMatrix(2, 3, 5);
  const std::string f32 = (folder / "x.npy").string(), bf16 = (folder / "y.safetensors").string();
  WriteMatrix(f32, x.View());
  WriteMatrix(bf16, x.View(), {NumberType::Kind::kFormat, FormatId::kBF16});
  const GemmOperandFile stated = ReadGemmOperand(f32, "bf16"), own = ReadGemmOperand(bf16);
  CHECK(stated.operand.codes == own.operand.codes);
  CHECK(own.what == "3x5 bfloat16");
  CHECK(!own.operand.IsScaled());
  CHECK_THAT(ErrorOf([&] { ReadGemmOperand(f32); }), ContainsSubstring("state with --operand"));
  CHECK_THAT(ErrorOf([&] { ReadGemmOperand(f32, "fp5"); }), ContainsSubstring("is not a format"));
}

TEST_CASE("Operands with K = 0 are refused by that word", "[judge]") {
  const TemporaryFolder folder;
  const Dialect& dialect = *FindDialect("nvfp4.te");
  const std::string numbers = (folder / "x.npy").string(), stored = (folder / "x.npz").string();
  const Matrix<float> x(4, 0);
  WriteMatrix(numbers, x.View());
  CHECK_THAT(ErrorOf([&] { ReadGemmOperand(numbers, "bf16"); }),
             ContainsSubstring("x.npy: has K = 0"));
  WriteStored(stored, Store(dialect, QuantizeAs(dialect, x.View()), {}), "nvfp4.te", "fp4lab",
              dialect.scale_max);
  CHECK_THAT(ErrorOf([&] { ReadGemmOperand(stored); }), ContainsSubstring("x.npz: has K = 0"));
}

TEST_CASE("Probes read from their file are the probes that were written", "[judge]") {
  const TemporaryFolder folder;
  const std::string path = (folder / "p.safetensors").string();
  for (const std::string_view operands : kProbeOperands) {
    INFO(operands);
    const ProbeSet set = MakeProbes(operands);
    WriteProbes(set, path);
    const GemmOperandFile a = ReadGemmOperand(path + "#a"), b = ReadGemmOperand(path + "#b");
    CHECK(FloatValues(a.operand).values == FloatValues(set.a).values);
    CHECK(FloatValues(b.operand).values == FloatValues(set.b).values);
    CHECK(a.operand.scales == set.a.scales);
  }
  CHECK_THAT(ErrorOf([&] { WriteProbes(MakeProbes("bf16"), (folder / "p.npy").string()); }),
             ContainsSubstring("to a .safetensors file"));
}

}  // namespace
}  // namespace fp4lab
