// A checkpoint against what was quantized: equal bytes, other readings, and causes.
#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "fp4lab/checkpoint/check.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/checkpoint/files.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

OriginalVerdict Compare(const SafetensorsFile& file, const Matrix<float>& x) {
  const TemporaryFolder folder;
  WriteSafetensors(folder / "q.safetensors", file);
  WriteNpy(folder / "x.npy", MakeNpyArray<float>({x.rows, x.cols}, x.values));
  const CheckReport report =
      CheckCheckpoint(folder / "q.safetensors", {.original = folder / "x.npy"});
  REQUIRE(report.matrices.size() == 1);
  REQUIRE(report.matrices[0].original.has_value());
  return *report.matrices[0].original;
}

TEST_CASE("Equal bytes name their formula", "[checkpoint]") {
  const Matrix<float> x = Weights(1, 256, 128);
  SafetensorsFile file;
  AddModelOpt(&file, "l", x);
  const OriginalVerdict v = Compare(file, x);
  CHECK_FALSE(v.dialect.empty());
  CHECK(v.cause.empty());
  CHECK(v.readings.front().as_stated);
  CHECK(v.readings.front().sqnr_db > 19);
  CHECK(v.readings.front().factor == Catch::Approx(1).margin(0.01));
  CHECK(v.readings.size() == 6);  // three orders of nibbles, linear and 128x4
  for (std::size_t i = 1; i < v.readings.size(); ++i) CHECK(v.readings[i].sqnr_db < 12);
}

TEST_CASE("One code that differs is not equal, and is no cause", "[checkpoint]") {
  const Matrix<float> x = Weights(1, 600, 128);
  SafetensorsFile file;
  AddModelOpt(&file, "l", x);
  auto bytes = file.tensors["l.weight"].bytes.Change();
  bytes[bytes.size() - 1] ^= std::byte{1};
  const OriginalVerdict v = Compare(file, x);
  CHECK(v.dialect.empty());
  CHECK_FALSE(v.nearest.empty());
  CHECK(v.cause.empty());
}

TEST_CASE("Parts with a number each are equal as well", "[checkpoint]") {
  const Matrix<float> x = Weights(4, 256, 128);
  SafetensorsFile file;
  Matrix<float> half(128, 128);
  std::vector<std::uint8_t> codes, scales;
  std::vector<float> numbers;
  for (std::size_t part = 0; part < 2; ++part) {
    std::copy_n(x.values.begin() + static_cast<std::ptrdiff_t>(part * half.values.size()),
                half.values.size(), half.values.begin());
    const StoredMatrix m =
        Quantize("nvfp4.modelopt", half, {.tensor_scale = TensorScaleConvention::kMultiplier});
    codes.insert(codes.end(), m.codes.begin(), m.codes.end());
    scales.insert(scales.end(), m.scales.begin(), m.scales.end());
    numbers.push_back(m.tensor_scale[0]);
  }
  file.tensors["l.weight"] = TensorOf("U8", {2, 128, 64}, codes);
  file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {2, 128, 8}, scales);
  file.tensors["l.weight_scale_2"] = NumbersTensor({2}, numbers);
  const OriginalVerdict v = Compare(file, x);
  CAPTURE(v.nearest, v.share_of_codes, v.cause, v.problem);
  CHECK_FALSE(v.dialect.empty());
}

// ModelOpt's names over bytes in another layout, or wrong ones.
struct Cause {
  const char* text;
  std::function<void(Matrix<float>*, SafetensorsFile*)> make;
};

SafetensorsFile Stored(const Matrix<float>& x, StorageLayout layout) {
  layout.tensor_scale = TensorScaleConvention::kMultiplier;
  const StoredMatrix m = Quantize("nvfp4.modelopt", x, layout);
  SafetensorsFile file;
  file.tensors["l.weight"] = TensorOf("U8", {x.rows, x.cols / 2}, m.codes);
  file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {x.rows, x.cols / 16}, m.scales);
  file.tensors["l.weight_scale_2"] = NumbersTensor({}, m.tensor_scale);
  return file;
}

float ReadNumber(const SafetensorsFile& f) {
  float number = 0;
  std::memcpy(&number, f.tensors.at("l.weight_scale_2").bytes.data(), sizeof number);
  return number;
}

TEST_CASE("The causes of a difference", "[checkpoint]") {
  const std::vector<Cause> causes = {
      {"codes high-first and scales linear",
       [](auto* x, auto* f) { *f = Stored(*x, {.codes = CodeOrder::kHighFirst}); }},
      {"codes split-halves",
       [](auto* x, auto* f) { *f = Stored(*x, {.codes = CodeOrder::kSplitHalves}); }},
      {"codes low-first and scales 128x4",
       [](auto* x, auto* f) { *f = Stored(*x, {.scales = ScaleOrder::k128x4}); }},
      {"codes high-first and scales 128x4",
       [](auto* x, auto* f) {
         *f = Stored(*x, {.codes = CodeOrder::kHighFirst, .scales = ScaleOrder::k128x4});
       }},
      {"the other of multiplier and divisor",
       [](auto* x, auto* f) {
         *f = Stored(*x, {});
         const float m = ReadNumber(*f);
         f->tensors["l.weight_scale_2"] = NumbersTensor({}, {1 / m});
       }},
      {"the tensor scale is that of another tensor",
       [](auto* x, auto* f) {
         *f = Stored(*x, {});
         f->tensors["l.weight_scale_2"] = NumbersTensor({}, {ReadNumber(*f) * 1.75f});
       }},
      {"rows 0..127 are right; rows 128..255 are 0.50",
       [](auto* x, auto* f) {
         *f = Stored(*x, {});
         for (std::size_t i = x->values.size() / 2; i < x->values.size(); ++i) x->values[i] *= 2;
       }},
      {"rows 0..127 are right; rows 128..255 are 0.42",  // joined under the first half's number
       [](auto* x, auto* f) {
         Matrix<float> first(128, 128), second(128, 128);
         std::copy_n(x->values.begin(), first.values.size(), first.values.begin());
         std::copy_n(x->values.end() - 128 * 128, second.values.size(), second.values.begin());
         for (float& v : second.values) v *= 2;
         std::copy(second.values.begin(), second.values.end(), x->values.end() - 128 * 128);
         *f = Stored(first, {});
         SafetensorsFile other = Stored(second, {});
         for (const char* part : {"l.weight", "l.weight_scale"}) {
           SafetensorsTensor& t = f->tensors[part];
           std::vector<std::byte> bytes(t.bytes.begin(), t.bytes.end());
           bytes.insert(bytes.end(), other.tensors[part].bytes.begin(),
                        other.tensors[part].bytes.end());
           t.shape[0] = 256;
           t.bytes = ByteArray(bytes);
         }
         f->tensors["l.weight_scale_2"] = NumbersTensor({}, {ReadNumber(*f)});
       }},
      {"the rows are interleaved",
       [](auto* x, auto* f) {
         Matrix<float> y = *x;
         for (std::size_t r = 0; r < y.rows; ++r) {
           for (std::size_t c = 0; c < y.cols; ++c) y(r, c) = (*x)(r % 2 * 128 + r / 2, c);
         }
         *f = Stored(y, {});
       }},
      {"no reading of the bytes is near the original",
       [](auto* x, auto* f) {
         *f = Stored(*x, {});
         *x = Weights(99, x->rows, x->cols);
       }},
  };
  for (const Cause& cause : causes) {
    Matrix<float> x = Weights(2, 256, 128);
    SafetensorsFile file;
    cause.make(&x, &file);
    CAPTURE(cause.text);
    CHECK_THAT(Compare(file, x).cause, ContainsSubstring(cause.text));
  }
}

TEST_CASE("FP8 with a scale a tensor, a row and a block, as numbers and as bytes", "[checkpoint]") {
  const Matrix<float> x = Weights(6, 300, 200);
  const auto file_of = [&](const char* dialect, std::vector<std::size_t> grid) {
    const StoredMatrix m =
        Quantize(dialect, x,
                 {.codes = CodeOrder::kBytes, .tensor_scale = TensorScaleConvention::kMultiplier});
    SafetensorsFile file;
    file.tensors["l.weight"] = TensorOf("F8_E4M3", {300, 200}, m.codes);
    file.tensors["l.weight_scale"] = m.scales.empty() ? NumbersTensor(grid, m.tensor_scale)
                                                      : TensorOf("F8_E8M0", grid, m.scales);
    return file;
  };
  CHECK(Compare(file_of("fp8_e4m3", {}), x).dialect == "fp8_e4m3");
  CHECK(Compare(file_of("fp8_e4m3.row", {300, 1}), x).dialect == "fp8_e4m3.row");
  CHECK(Compare(file_of("fp8_e4m3.1x128.e8m0", {300, 2}), x).dialect == "fp8_e4m3.1x128.e8m0");
  SafetensorsFile blocks = file_of("fp8_e4m3.128x128.e8m0", {3, 2});
  CHECK(Compare(blocks, x).dialect == "fp8_e4m3.128x128.e8m0");
  std::vector<float> numbers;  // the same scales in binary32
  for (const std::byte b : blocks.tensors["l.weight_scale"].bytes) {
    numbers.push_back(Decode(FormatId::kE8M0, static_cast<std::uint32_t>(b)));
  }
  blocks.tensors["l.weight_scale"] = NumbersTensor({3, 2}, numbers);
  CHECK(Compare(blocks, x).dialect == "fp8_e4m3.128x128.e8m0");

  Dialect d = *FindDialect("fp8_e4m3.128x128.e8m0");
  d.tensor_scale = TensorScaleRule::kNone;
  d.block_scale = BlockScale::kNoTensorScale;
  d.scale_encoding = ScaleEncoding::kBinary32;
  d.factor = Factor::kDivideByScale;
  const Quantized q = QuantizeAs(d, x.View());
  SafetensorsFile binary32;
  binary32.tensors["l.weight"] = TensorOf("F8_E4M3", {300, 200}, q.codes);
  binary32.tensors["l.weight_scale_inv"] = NumbersTensor({3, 2}, q.scale_values);
  const OriginalVerdict equal = Compare(binary32, x);
  CHECK(equal.dialect == "fp8_e4m3.128x128.fp32");
  CHECK(equal.cause.empty());
  std::vector<float> doubled = q.scale_values;
  for (float& scale : doubled) scale *= 2;
  binary32.tensors["l.weight_scale_inv"] = NumbersTensor({3, 2}, doubled);
  const OriginalVerdict wrong = Compare(binary32, x);
  CHECK(wrong.dialect.empty());
  CHECK_THAT(wrong.cause, ContainsSubstring("times the original"));
}

TEST_CASE("Decoded values: right, without the tensor scale, in parts, and wrong", "[checkpoint]") {
  const Matrix<float> x = Weights(5, 64, 128);
  SafetensorsFile file;
  const StoredMatrix m =
      Quantize("nvfp4.compressed-tensors", x, {.tensor_scale = TensorScaleConvention::kDivisor});
  file.tensors["l.weight_packed"] = TensorOf("U8", {64, 64}, m.codes);
  file.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {64, 8}, m.scales);
  file.tensors["l.weight_global_scale"] = NumbersTensor({1}, m.tensor_scale);
  const auto compare = [&](const Matrix<float>& values) {
    const TemporaryFolder folder;
    WriteSafetensors(folder / "q.safetensors", file);
    WriteNpy(folder / "v.npy", MakeNpyArray<float>({values.rows, values.cols}, values.values));
    return *CheckCheckpoint(folder / "q.safetensors", {.values = folder / "v.npy"})
                .matrices[0]
                .values;
  };
  const Matrix<float> right = StoredValues(m, 448.0f, "m");
  CHECK(compare(right).different == 0);
  Matrix<float> narrow = right;
  for (float& v : narrow.values) v = Decode(FormatId::kBF16, Encode(FormatId::kBF16, v));
  CHECK(compare(narrow).different == 0);
  const auto times = [&](float factor, std::size_t from = 0) {
    Matrix<float> y = right;
    for (std::size_t i = from * y.cols; i < y.values.size(); ++i) y.values[i] *= factor;
    return y;
  };
  const float d = m.tensor_scale[0];
  CHECK_THAT(compare(times(d)).cause, ContainsSubstring("the tensor scale is left out"));
  CHECK_THAT(compare(times(d * d)).cause, ContainsSubstring("the other of multiplier and divisor"));
  CHECK_THAT(compare(times(1 / d)).cause, ContainsSubstring("multiplied in twice"));
  CHECK(compare(times(1.5f)).factor == Catch::Approx(1.5));
  CHECK(compare(times(3.0f, 32)).cause ==
        "rows 0..31 are right; rows 32..63 are 3 times the decoded");
  const ValuesVerdict wrong = compare(Weights(9, 64, 128));
  CHECK(wrong.different > 8000);
  CHECK(wrong.factor == 0);
}

TEST_CASE("Two quantized checkpoints: converted, times a factor, requantized", "[checkpoint]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Weights(6, 128, 256);
  Matrix<float> twice = x;
  for (float& v : twice.values) v *= 2;
  const auto write = [&](const char* name, const SafetensorsFile& file) {
    WriteSafetensors(folder / name, file);
    return folder / name;
  };
  const auto modelopt = [](const Matrix<float>& values) {
    SafetensorsFile file;
    AddModelOpt(&file, "l", values);
    return file;
  };
  // The same codes and scales under other names, the number as a divisor.
  const StoredMatrix m =
      Quantize("nvfp4.modelopt", x, {.tensor_scale = TensorScaleConvention::kMultiplier});
  const StoredMatrix divisor =
      Convert(m, {.tensor_scale = TensorScaleConvention::kDivisor}, 448.0f, "m");
  SafetensorsFile other;
  other.tensors["l.weight_packed"] = TensorOf("U8", {128, 128}, divisor.codes);
  other.tensors["l.weight_scale"] = TensorOf("F8_E4M3", {128, 16}, divisor.scales);
  other.tensors["l.weight_global_scale"] = NumbersTensor({1}, divisor.tensor_scale);
  const auto q = write("q.safetensors", modelopt(x));
  const auto converted = write("converted.safetensors", other);
  const auto large = write("large.safetensors", modelopt(twice));
  CHECK(FindingsOf(CheckCheckpoint(converted, {.values = q})).empty());
  CHECK(FindingsOf(CheckCheckpoint(q, {.values = converted})).empty());
  const ValuesVerdict factor = *CheckCheckpoint(q, {.values = large}).matrices[0].values;
  CHECK(factor.tensor == "l");
  CHECK(factor.cause == "the values are 2 times what the matrix decodes to");

  // NVFP4 of what an FP8 checkpoint decodes to, in blocks that the last rows do not fill.
  const Matrix<float> wide = Weights(7, 200, 256);
  const StoredMatrix fp8 = Quantize("fp8_e4m3.128x128.fp32", wide, {.codes = CodeOrder::kBytes});
  SafetensorsFile deepseek;
  deepseek.tensors["l.weight"] = TensorOf("F8_E4M3", {200, 256}, fp8.codes);
  deepseek.tensors["l.weight_scale_inv"] = TensorOf("F32", {2, 2}, fp8.scales);
  const auto source = write("fp8.safetensors", deepseek);
  const auto requantized = write("r.safetensors", modelopt(StoredValues(fp8, 448.0f, "fp8")));
  CHECK_FALSE(
      CheckCheckpoint(requantized, {.original = source}).matrices[0].original->dialect.empty());
  CHECK(CheckCheckpoint(write("x.safetensors", modelopt(wide)), {.original = source})
            .matrices[0]
            .original->dialect.empty());
  CHECK(CheckCheckpoint(requantized, {.original = q}).matrices[0].original->problem ==
        "l is 128x256; the matrix is 200x256");
}

TEST_CASE("Originals of another name, shape or order", "[checkpoint]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Weights(3, 64, 128);
  SafetensorsFile file, original;
  AddModelOpt(&file, "layers.0.a", x);
  AddModelOpt(&file, "layers.0.b", x);
  AddModelOpt(&file, "layers.0.c", x);
  AddModelOpt(&file, "layers.0.d", x);
  Matrix<float> turned(128, 64);
  for (std::size_t r = 0; r < 64; ++r) {
    for (std::size_t c = 0; c < 128; ++c) turned(c, r) = x(r, c);
  }
  original.tensors["model.layers.0.a.weight"] = NumbersTensor({64, 128}, x.values);
  original.tensors["layers.0.b"] = NumbersTensor({128, 64}, turned.values);
  original.tensors["layers.0.c.weight"] = NumbersTensor({64, 64}, std::vector<float>(4096));
  WriteSafetensors(folder / "q.safetensors", file);
  WriteSafetensors(folder / "x.safetensors", original);
  const CheckReport report =
      CheckCheckpoint(folder / "q.safetensors", {.original = folder / "x.safetensors"});
  REQUIRE(report.matrices.size() == 4);
  CHECK(report.matrices[0].original->tensor == "model.layers.0.a.weight");
  CHECK_FALSE(report.matrices[0].original->dialect.empty());
  CHECK_FALSE(report.matrices[1].original->dialect.empty());
  CHECK_THAT(report.matrices[2].original->problem,
             ContainsSubstring("is 64x64; the matrix is 64x128"));
  CHECK_THAT(report.matrices[3].original->problem, ContainsSubstring("no tensor of this name"));
  CHECK(FindingsOf(report) ==
        std::vector<std::string>{"original@layers.0.c", "original@layers.0.d"});
}

}  // namespace
}  // namespace fp4lab
