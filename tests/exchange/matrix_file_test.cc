// Matrices of numbers from every kind of file, with the type of their numbers.
#include "fp4lab/exchange/matrix_file.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/gguf.h"
#include "fp4lab/io/tensors/npy.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

Matrix<float> Values() {  // exact in every type from 8 bits on
  Matrix<float> x(3, 4);
  const float values[] = {0, 0.5f, 1, -1.5f, 2, 3, 4, -6, 0.25f, 8, 16, -0.0f};
  std::copy(std::begin(values), std::end(values), x.values.begin());
  return x;
}

TEST_CASE("Every type is found by the names that people and files give it", "[exchange]") {
  for (const char* name : {"bfloat16", "bf16", "BF16"}) {
    CHECK(RequireNumberType(name, "x").format == FormatId::kBF16);
  }
  for (const char* name : {"float32", "F32", "fp32", "f4"}) {
    CHECK(RequireNumberType(name, "x").kind == NumberType::Kind::kFloat32);
  }
  CHECK(RequireNumberType("F4", "x").format == FormatId::kE2M1);
  CHECK(RequireNumberType("F8_E4M3", "x").format == FormatId::kE4M3);
  CHECK(RequireNumberType("float8_e8m0fnu", "x").format == FormatId::kE8M0);
  CHECK_THAT(ErrorOf([] { RequireNumberType("F64", "--dtype"); }),
             ContainsSubstring("--dtype: \"F64\" is not a number type; one of: float32 uint8"));
  for (const NamedFormat& f : kFormats) {
    if (f.format.bits > 16) continue;
    const NumberType type = RequireNumberType(f.name, "x");
    CHECK(Name(type) == f.name);
    const std::string_view file_name = SafetensorsName(type);
    if (file_name != "U8") CHECK(FindNumberType(file_name) == type);
  }
}

TEST_CASE("What was written in any file and type is read back", "[exchange]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Values();
  for (const char* dtype : {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}) {
    for (const char* file : {"x.npy", "x.npz", "x.npz:weights", "x.safetensors", "x.bin"}) {
      CAPTURE(dtype, file);
      const std::string place = (folder / file).string();
      WriteMatrix(place, x.View(), RequireNumberType(dtype, "x"));
      const NumberFile read = ReadMatrix(place, {.shape = {3, 4}, .dtype = dtype});
      CHECK(read.values == x);
      CHECK(std::signbit(read.values(2, 3)));
      CHECK(Name(read.type) == dtype);
      CHECK(read.shape == std::vector<std::size_t>{3, 4});
    }
  }
  WriteMatrix((folder / "x.safetensors").string(), x.View(), RequireNumberType("e2m1", "x"));
  CHECK(ReadMatrix((folder / "x.safetensors").string()).values(0, 3) == -1.5f);
}

// Writes a .npy file whose header takes `length` bytes.
void WriteNpyText(const std::filesystem::path& path, std::string header, std::size_t length,
                  std::span<const float> values) {
  header.resize(length - 1, ' ');
  header += '\n';
  std::string text = "\x93NUMPY";
  text += {'\x01', '\x00', static_cast<char>(length & 0xFF), static_cast<char>(length >> 8)};
  text += header;
  text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  WriteFileAtomically(path, text);
}

// Whether the view's values lie in its file.
bool IsMapped(const NumberView& view) {
  const auto* data = reinterpret_cast<const std::byte*>(view.values.data);
  const std::span<const std::byte> file = view.content->bytes();
  return data >= file.data() && data + view.values.size() * 4 <= file.data() + file.size();
}

void CheckView(const NumberView& view, const Matrix<float>& x, bool mapped) {
  CHECK(IsMapped(view) == mapped);
  REQUIRE(view.values.rows == x.rows);
  REQUIRE(view.values.cols == x.cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    CHECK(view.values.data[i] == x.values[i]);
  }
  CHECK(reinterpret_cast<std::uintptr_t>(view.values.data) % alignof(float) == 0);
}

TEST_CASE("Binary32 is viewed where it lies in the file", "[exchange]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Values();
  for (const char* file : {"x.npy", "x.safetensors", "x.bin"}) {
    CAPTURE(file);
    const std::string place = (folder / file).string();
    WriteMatrix(place, x.View());
    NumberView view = ViewMatrix(place, {.shape = {3, 4}, .dtype = "float32"});
    CheckView(view, x, true);
    const NumberView moved = std::move(view);
    CheckView(moved, x, true);
  }
}

TEST_CASE("Data other than aligned row-major binary32 are copied", "[exchange]") {
  const TemporaryFolder folder;
  const Matrix<float> x = Values();
  const auto view = [&](const char* file) { return ViewMatrix((folder / file).string()); };
  WriteNpyText(folder / "odd.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }",
               119, x.values);
  CheckView(view("odd.npy"), x, false);
  Matrix<float> turned(4, 3);
  for (std::size_t r = 0; r < 3; ++r) {
    for (std::size_t c = 0; c < 4; ++c) turned(c, r) = x(r, c);
  }
  const char* fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4), }";
  WriteNpyText(folder / "columns.npy", fortran, 118, turned.values);
  CheckView(view("columns.npy"), x, false);
  CHECK(ReadMatrix((folder / "columns.npy").string()).values == x);
  WriteNpyText(folder / "big.npy", "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 4), }",
               118, x.values);
  CHECK_THAT(ErrorOf([&] { view("big.npy"); }), ContainsSubstring("of type '>f4'; little-endian"));
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("x":{"dtype":"F32","shape":[3,4],"data_offsets":[1,49]}})";
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  file += header + "a";
  file.append(reinterpret_cast<const char*>(x.values.data()), 48);
  WriteFileAtomically(folder / "odd.safetensors", file);
  REQUIRE((8 + header.size() + 1) % 4 != 0);
  CheckView(ViewMatrix((folder / "odd.safetensors#x").string()), x, false);
  WriteMatrix((folder / "x.npz").string(), x.View());
  CheckView(view("x.npz"), x, false);
  WriteMatrix((folder / "b.npy").string(), x.View(), RequireNumberType("bfloat16", "x"));
  CheckView(view("b.npy"), x, false);
}

TEST_CASE("Leading dimensions are flattened into rows", "[exchange]") {
  const TemporaryFolder folder;
  const std::vector<float> values = Values().values;
  WriteNpy(folder / "x.npy", MakeNpyArray<float>({2, 3, 2}, values));
  const NumberFile file = ReadMatrix((folder / "x.npy").string());
  CHECK((file.values.rows == 6 && file.values.cols == 2));
  CHECK(file.shape == std::vector<std::size_t>{2, 3, 2});
  WriteNpy(folder / "v.npy", MakeNpyArray<float>({12}, values));
  CHECK(ReadMatrix((folder / "v.npy").string()).values.rows == 1);
}

TEST_CASE("Integers of NumPy are codes of the type that is stated", "[exchange]") {
  const TemporaryFolder folder;
  const std::string place = (folder / "x.npy").string();
  const std::array<std::uint8_t, 2> nibbles{0x7, 0xF};
  WriteNpy(place, MakeNpyArray<std::uint8_t>({1, 2}, nibbles));
  CHECK(ReadMatrix(place, {.dtype = "e2m1"}).values.values == std::vector<float>{6, -6});
  CHECK(ReadMatrix(place, {.dtype = "uint8"}).values.values == std::vector<float>{7, 15});
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place); }), ContainsSubstring("state the type"));
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place, {.dtype = "bf16"}); }),
             ContainsSubstring("cannot be codes"));
  const std::array<std::uint16_t, 2> halves{0x3F80, 0xC0E0};
  WriteNpy(place, MakeNpyArray<std::uint16_t>({1, 2}, halves));
  CHECK(ReadMatrix(place).values.values == std::vector<float>{1, -7});  // BF16
  CHECK(ReadMatrix(place, {.dtype = "float16"}).values.values ==
        std::vector<float>{1.875f, -2.4375f});
  CHECK(ReadBytes(place).size() == 4);
  const std::array<std::uint8_t, 2> bytes{0x7, 0x1F};
  WriteNpy(place, MakeNpyArray<std::uint8_t>({1, 2}, bytes));
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place, {.dtype = "e2m1"}); }),
             ContainsSubstring("byte 31 is not a code of float4_e2m1fn"));
}

TEST_CASE("Packed nibbles in U8 and F4 tensors are two numbers a byte", "[exchange]") {
  const TemporaryFolder folder;
  SafetensorsFile file;
  const std::vector<std::byte> bytes{std::byte{0x21}, std::byte{0xF7}};
  file.tensors["a"] = {"U8", {1, 2}, bytes};
  file.tensors["b"] = {"F4", {2, 2}, bytes};
  WriteSafetensors(folder / "x.safetensors", file);
  const std::string place = (folder / "x.safetensors").string();
  const std::vector<float> expected{0.5f, 1, 6, -6};
  CHECK(ReadMatrix(place + "#a", {.dtype = "e2m1"}).values.values == expected);
  CHECK(ReadMatrix(place + "#b").values.values == expected);
  CHECK(ReadMatrix(place + "#b").values.rows == 2);
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place); }),
             ContainsSubstring("holds 2 tensors; name one, as in file#name: a, b"));
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place + ":c"); }), ContainsSubstring("has no tensor c"));
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place + "#b", {.dtype = "bf16"}); }),
             ContainsSubstring("holds F4, not bf16"));
}

TEST_CASE("Plain tensors of GGUF are read, quantized ones are not numbers", "[exchange]") {
  const TemporaryFolder folder;
  GgufFile file;
  file.tensors["n"] = {
      kGgmlBf16,
      {1, 2},
      std::vector<std::byte>{std::byte{0}, std::byte{0x40}, std::byte{0x80}, std::byte{0xBF}}};
  file.tensors["q"] = {kGgmlMxfp4, {1, 32}, std::vector<std::byte>(17)};
  WriteGguf(folder / "x.gguf", file);
  const std::string place = (folder / "x.gguf").string();
  CHECK(ReadMatrix(place + "#n").values.values == std::vector<float>{2, -1});
  CHECK_THAT(ErrorOf([&] { ReadMatrix(place + "#q"); }), ContainsSubstring("fp4lab dequantize"));
}

TEST_CASE("A raw file must have exactly the bytes of the stated shape and type", "[exchange]") {
  const TemporaryFolder folder;
  const std::string place = (folder / "x.bin").string();
  WriteFileAtomically(place, std::string_view("12345678"));
  CHECK(ReadMatrix(place, {.shape = {2, 2}, .dtype = "bf16"}).values.rows == 2);
  CHECK(ReadMatrix(place, {.shape = {2, 8}, .dtype = "e2m1"}).values.cols == 8);
  CHECK(ErrorOf([&] {
          ReadMatrix(place, {.shape = {2, 3}, .dtype = "bf16"});
        }) == place + ": has 8 bytes; 2x3 of bfloat16 take 12");
  CHECK_THAT(ErrorOf([&] {
               ReadMatrix(place, {.shape = {2, 2}});
             }),
             ContainsSubstring("--shape 128x256 --dtype bfloat16"));
  CHECK_THAT(
      ErrorOf([&] {
        ReadMatrix(place, {.shape = {std::size_t{1} << 40, std::size_t{1} << 40}, .dtype = "bf16"});
      }),
      ContainsSubstring("too many"));
}

TEST_CASE("A shape that the file does not have is refused", "[exchange]") {
  const TemporaryFolder folder;
  const std::string place = (folder / "x.npy").string();
  WriteMatrix(place, Values().View());
  CHECK_THAT(ErrorOf([&] {
               ReadMatrix(place, {.shape = {4, 3}});
             }),
             ContainsSubstring("has the shape 3x4, not 4x3"));
}

TEST_CASE("Shapes and places are read as they are written", "[exchange]") {
  CHECK(ParseShape("128x256", "--shape") == std::vector<std::size_t>{128, 256});
  CHECK(ParseShape("7", "--shape") == std::vector<std::size_t>{7});
  for (const char* bad : {"", "x", "12x", "x12", "-1x2", "1 x 2", "12y3", "99999999999999999999"}) {
    CHECK_THAT(ErrorOf([&] { ParseShape(bad, "--shape"); }), ContainsSubstring("is not a shape"));
  }
  CHECK(SplitPlace("a/b.npz:x.y").name == "x.y");
  CHECK(SplitPlace("a/b.NPZ").ending == ".npz");
  CHECK(SplitPlace("a/b.npz#x:y").name == "x:y");
  CHECK(SplitPlace("c:b.bin").path == "c:b.bin");
  CHECK(SplitPlace("m.safetensors:blk:0").name == "blk:0");
}

}  // namespace
}  // namespace fp4lab
