#include "fp4lab/judge/packs/pack.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "fp4lab/base/version.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

Matrix<float> Bf16Matrix(std::uint64_t seed, std::size_t rows, std::size_t cols) {
  Matrix<float> x = NormalMatrix(seed, rows, cols);
  for (float& v : x.values) v = Decode(FormatId::kBF16, Encode(FormatId::kBF16, v));
  return x;
}

template <class T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor& tensor = file.tensors.at(name);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST_CASE("A pack reads back as it was made, for every dialect", "[judge]") {
  const Matrix<float> x = NormalMatrix(1, 18, 48);
  std::vector<std::uint16_t> random(x.values.size());
  for (std::size_t i = 0; i < random.size(); ++i) random[i] = static_cast<std::uint16_t>(i * 37);
  for (const Dialect& dialect : Dialects()) {
    CAPTURE(dialect.name);
    PackOptions options;
    if (IsStochastic(dialect)) options.quantize.random = random;
    options.layouts = {{.codes = DefaultCodeOrder(dialect.element)}};
    const SafetensorsFile file = MakePack(dialect, x.View(), options);
    const Pack pack = ReadPack(ParseSafetensors(FormatSafetensors(file), "pack"), "pack");
    CHECK(pack.dialect == dialect);
    CHECK(pack.version == kVersion);
    CHECK(pack.input == x);
    CHECK(pack.answer == QuantizeAs(dialect, x.View(), options.quantize));
  }
}

TEST_CASE("The intermediates of a pack follow from each other", "[judge]") {
  const Matrix<float> x = NormalMatrix(2, 5, 40);
  const Dialect& dialect = *FindDialect("nvfp4.te");
  const SafetensorsFile file = MakePack(dialect, x.View(), {});
  const float encode = Values<float>(file, "encode")[0], decode = Values<float>(file, "decode")[0];
  CHECK(encode == 2688.0f / Values<float>(file, "amax")[0]);
  CHECK(decode == 1.0f / encode);
  const auto amax = Values<float>(file, "block_amax"), before = Values<float>(file, "scale_before");
  const auto value = Values<float>(file, "scale_value"), factor = Values<float>(file, "factor");
  const auto scale = Values<std::uint8_t>(file, "scale"),
             codes = Values<std::uint8_t>(file, "codes");
  const auto scaled = Values<float>(file, "scaled");
  REQUIRE(amax.size() == 5 * 3);
  for (std::size_t i = 0; i < amax.size(); ++i) {
    CHECK(before[i] == amax[i] * (encode * (1.0f / 6.0f)));
    CHECK(scale[i] == Encode(FormatId::kE4M3, before[i]));
    CHECK(value[i] == Decode(FormatId::kE4M3, scale[i]));
    CHECK(factor[i] == 1.0f / (value[i] * decode));
  }
  for (std::size_t i = 0; i < codes.size(); ++i) {
    CHECK(scaled[i] == x.values[i] * factor[i / 40 * 3 + i % 40 / 16]);
    CHECK(codes[i] == Encode(FormatId::kE2M1, scaled[i]));
  }
}

TEST_CASE("A pack holds the bytes of every layout asked for, and the transformed input",
          "[judge]") {
  const Matrix<float> x = Bf16Matrix(3, 16, 64);
  const Dialect& dialect = *FindDialect("nvfp4.te");
  const StorageLayout swizzled{.codes = CodeOrder::kHighFirst, .scales = ScaleOrder::k128x4};
  const StorageLayout turned{.transposed = true,
                             .tensor_scale = TensorScaleConvention::kMultiplier};
  const PackOptions options{
      .hadamard = 16, .sign_mask = kTeSignMask16, .layouts = {swizzled, turned}};
  const SafetensorsFile file = MakePack(dialect, x.View(), options);
  const Matrix<float> transformed = QuantizerInput(x.View(), 16, kTeSignMask16);
  const Quantized q = QuantizeAs(dialect, transformed.View());
  const StoredMatrix first = Store(dialect, q, swizzled), second = Store(dialect, q, turned);
  CHECK(Values<std::uint8_t>(file, "high-first.128x4.amax.codes") == first.codes);
  CHECK(Values<std::uint8_t>(file, "high-first.128x4.amax.scales") == first.scales);
  CHECK(Values<std::uint8_t>(file, "low-first.linear.multiplier.transposed.codes") == second.codes);
  CHECK(Values<float>(file, "low-first.linear.multiplier.transposed.tensor_scale") ==
        second.tensor_scale);
  CHECK(file.tensors.at("input").dtype == "BF16");
  const auto bits = Values<std::uint16_t>(file, "transformed");
  CHECK(std::bit_cast<float>(std::uint32_t{bits[5]} << 16) == transformed.values[5]);
  const Pack pack = ReadPack(file, "pack");
  CHECK(pack.hadamard == 16);
  CHECK(pack.sign_mask == kTeSignMask16);
  CHECK(pack.answer == q);
}

TEST_CASE("A changed pack is refused with the tensor's name", "[judge]") {
  const Matrix<float> x = NormalMatrix(4, 4, 32);
  const SafetensorsFile right = MakePack(*FindDialect("nvfp4.te"), x.View(), {});
  const auto error = [&](const SafetensorsFile& file) {
    return ErrorOf([&] { ReadPack(file, "golden"); });
  };
  CHECK(error(right) == "no error");
  for (const auto& [name, tensor] : right.tensors) {
    SafetensorsFile file = right;
    file.tensors[name].bytes.Change().back() ^= std::byte{1};
    CHECK(error(file).find("golden#" + name + ": its SHA-256 is ") == 0);
    file = right;
    file.tensors.erase(name);
    CHECK(error(file) == "golden: lacks the tensor \"" + name + "\" that it has a hash of");
  }
  SafetensorsFile file = right;
  file.metadata["dialect"] = "nvfp4.modelopt";
  CHECK(error(file) == "golden#__metadata__: was changed after the pack was made");
  file = right;
  std::swap(file.tensors["codes"].shape[0], file.tensors["codes"].shape[1]);
  CHECK(error(file) == "golden#__metadata__: was changed after the pack was made");
  file = right;
  file.tensors["more"] = file.tensors["amax"];
  CHECK(error(file).find("has no \"sha256.more\"") != std::string::npos);
  file = {};
  CHECK(error(file) == "golden: is not a golden pack: its __metadata__ has no \"format\"");
}

}  // namespace
}  // namespace fp4lab
