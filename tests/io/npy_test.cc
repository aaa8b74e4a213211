#include "fp4lab/io/tensors/npy.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"
#include "fp4lab/io/file.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

// A temporary folder, removed with its contents.
class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "fp4lab-npy-XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    folder_ = pattern;
  }
  ~Scratch() { std::filesystem::remove_all(folder_); }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  std::filesystem::path folder_;
};

std::vector<std::byte> Bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// A version 1.0 file with this header text and these data.
std::vector<std::byte> Npy(const std::string& header, const std::string& data) {
  const std::string length{static_cast<char>(header.size() & 0xFF),
                           static_cast<char>(header.size() >> 8)};
  return Bytes(std::string("\x93NUMPY\x01\x00", 8) + length + header + data);
}

std::string WhatParsingSays(const std::vector<std::byte>& file) {
  try {
    ParseNpy(file, "a.npz#x");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST_CASE("A written .npy file is byte for byte what NumPy writes", "[io]") {
  const std::array<float, 6> values{0, 1, 2, 3, 4, 5};
  const std::vector<std::byte> file = FormatNpy(MakeNpyArray<float>({2, 3}, values));
  std::string expected("\x93NUMPY\x01\x00v\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  expected.resize(127, ' ');
  expected += '\n';
  REQUIRE(file.size() == 128 + sizeof values);
  CHECK(std::memcmp(file.data(), expected.data(), 128) == 0);
  CHECK(std::memcmp(file.data() + 128, values.data(), sizeof values) == 0);
}

TEST_CASE("What was written to .npy is read back, for every shape and type", "[io]") {
  const Scratch scratch;
  const std::array<std::uint16_t, 6> values{1, 2, 3, 40000, 5, 6};
  for (const std::vector<std::size_t>& shape :
       {std::vector<std::size_t>{6}, {2, 3}, {1, 2, 3, 1}}) {
    WriteNpy(scratch / "x.npy", MakeNpyArray<std::uint16_t>(shape, values));
    const NpyArray x = ReadNpy(scratch / "x.npy");
    CHECK(x.dtype == "<u2");
    CHECK(x.shape == shape);
    const auto read = x.As<std::uint16_t>();
    CHECK(std::equal(read.begin(), read.end(), values.begin(), values.end()));
  }
  const double scalar = 2.5;
  WriteNpy(scratch / "scalar.npy", MakeNpyArray<double>({}, {&scalar, 1}));
  CHECK(ReadNpy(scratch / "scalar.npy").As<double>()[0] == 2.5);
  WriteNpy(scratch / "none.npy", MakeNpyArray<std::int8_t>({0, 7}, {}));
  CHECK(ReadNpy(scratch / "none.npy").As<std::int8_t>().empty());
  CHECK(ReadNpy(scratch / "none.npy").dtype == "|i1");
}

TEST_CASE("A column-major array is turned to row-major", "[io]") {
  // np.save of np.asfortranarray([[0, 1, 2], [3, 4, 5]], dtype='<u2')
  const std::vector<std::byte> file =
      Npy("{'descr': '<u2', 'fortran_order': True, 'shape': (2, 3), }\n",
          std::string("\0\0\3\0\1\0\4\0\2\0\5\0", 12));
  const NpyArray x = ParseNpy(file, "x");
  for (std::uint16_t i = 0; i < 6; ++i) CHECK(x.As<std::uint16_t>()[i] == i);
}

TEST_CASE("Headers of version 2.0, double quotes and raw bytes are read", "[io]") {
  const std::string header = "{\"shape\":(1,),\"descr\":\"|V2\",\"fortran_order\":False}";
  const std::string file = std::string("\x93NUMPY\x02\x00", 8) + static_cast<char>(header.size()) +
                           std::string(3, '\0') + header + "\x34\x12";
  CHECK(ParseNpy(Bytes(file), "x").As<std::uint16_t>()[0] == 0x1234);
}

TEST_CASE("An array of another type is refused by its name", "[io]") {
  const float one = 1;
  NpyArray x = MakeNpyArray<float>({1}, {&one, 1});
  x.where = "a.npz#x";
  CHECK(x.As<float>()[0] == 1.0f);
  CHECK_THROWS_WITH(x.As<double>(), ContainsSubstring("a.npz#x") && ContainsSubstring("<f4") &&
                                        ContainsSubstring("f8"));
  CHECK_THROWS_AS(x.As<std::uint32_t>(), Error);
  CHECK_THROWS_AS(x.Text(), Error);
}

TEST_CASE("A damaged or wrong .npy file is refused in one line that names the array", "[io]") {
  const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (2,), }";
  REQUIRE(WhatParsingSays(Npy(good, "abcd")).empty());
  const auto with = [](const std::string& descr, const std::string& shape) {
    return Npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + "}", "abcd");
  };
  const std::vector<std::vector<std::byte>> bad = {
      {},
      Bytes("PK\x03\x04"),
      Bytes("\x93NUMPY"),
      Bytes(std::string("\x93NUMPY\x04\x00\x10\x00", 10)),
      Bytes(std::string("\x93NUMPY\x01\x00\xFF\xFF{}", 12)),
      Bytes(std::string("\x93NUMPY\x02\x00\xFF\xFF\xFF\xFF{}", 14)),
      Npy("", "abcd"),
      Npy("{'descr': '<u2', 'shape': (2,)}", "abcd"),
      Npy("{'descr': '<u2', 'fortran_order': Maybe, 'shape': (2,)}", "abcd"),
      Npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2,)", "abcd"),
      Npy("{'descr': '<u2', 'fortran_order': False, 'shape': (2,)} x", "abcd"),
      Npy("{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (2,)}", "abcd"),
      Npy(good, "abc"),
      Npy(good, "abcde"),
      with("'<u2", "(2,)"),
      with("'<u2\n'", "(2,)"),
      with("'>u2'", "(2,)"),
      with("'|O'", "(1,)"),
      with("'<U1'", "(1,)"),
      with("'<f1'", "(4,)"),
      with("[('a', '<u2')]", "(2,)"),
      with("'<u2'", "(-2,)"),
      with("'<u2'", "(1000000000,)"),
      with("'<u2'", "(18446744073709551618,)"),
      with("'<u2'", "(9223372036854775808, 2)"),
      with("'<u2'", "(2"),
      with("'<u2'", "2"),
  };
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const std::string what = WhatParsingSays(bad[i]);
    INFO("case " << i << ": " << what);
    CHECK_THAT(what, ContainsSubstring("a.npz#x: "));
    CHECK(what.find('\n') == std::string::npos);
  }
}

TEST_CASE("A shape that is a number, not a tuple, is refused with the tuple", "[io]") {
  for (const std::string shape : {"(2)", "2", "( 2 )"}) {
    const std::string what = WhatParsingSays(
        Npy("{'descr': '<u2', 'fortran_order': False, 'shape': " + shape + "}", "abcd"));
    CHECK_THAT(what,
               ContainsSubstring("states the shape 2, a number") && ContainsSubstring("(2,)"));
  }
}

TEST_CASE("Every cut of a .npy file is refused", "[io]") {
  const std::array<float, 2> values{1, 2};
  const std::vector<std::byte> file = FormatNpy(MakeNpyArray<float>({2}, values));
  for (std::size_t size = 0; size < file.size(); ++size) {
    CHECK_THROWS_AS(ParseNpy(std::span(file).first(size), "x"), Error);
  }
  CHECK_NOTHROW(ParseNpy(file, "x"));
}

TEST_CASE("An .npz file lists its arrays and reads each", "[io][golden]") {
  const NpzFile file = OpenGolden("casts.npz");
  const std::vector<std::string> names = file.Names();
  CHECK(names.size() == 23);
  CHECK(names.front() == "sweep_f32_bits");
  for (const std::string& name : names) {
    CHECK(file.Has(name));
    CHECK_FALSE(file.Read(name).bytes.empty());
  }
  const NpyArray sweep = file.Read("sweep_f32_bits");
  CHECK(sweep.shape == std::vector<std::size_t>{7894});
  CHECK(sweep.As<std::uint32_t>().size() == 7894);
  CHECK(file.Read("ml_dtypes_version").Text() == "0.6.0");
  CHECK_FALSE(file.Has("sweep"));
  CHECK_THROWS_WITH(file.Read("sweep"), ContainsSubstring("casts.npz#sweep: no such array"));
}

TEST_CASE("The golden files are the ones whose digests are committed", "[io][golden]") {
  std::istringstream lines(ReadFile(GoldenPath("SHA256SUMS")));
  std::string digest, name;
  int files = 0;
  while (lines >> digest >> name) {
    INFO(name);
    CHECK(Sha256OfFile(GoldenPath(name)) == digest);
    ++files;
  }
  CHECK(files >= 6);
}

TEST_CASE("Every array of the golden files can be read", "[io][golden]") {
  for (const char* name : {"te_bf16_core.npz", "te_fp32_core.npz", "te_edge.npz",
                           "te_gemm_misc.npz", "te_sr_host.npz"}) {
    const NpzFile file = OpenGolden(name);
    for (const std::string& array : file.Names()) CHECK_NOTHROW(file.Read(array));
  }
  CHECK(GoldenIndex(OpenGolden("te_bf16_core.npz")).size() == 21);
}

TEST_CASE("A missing, cut or damaged .npz is refused by name", "[io]") {
  const Scratch scratch;
  CHECK_THROWS_WITH(NpzFile(scratch / "none.npz"), ContainsSubstring("none.npz: cannot be read"));
  std::string content = ReadFile(GoldenPath("casts.npz"));
  WriteFileAtomically(scratch / "cut.npz", std::string_view(content).substr(0, 20000));
  CHECK_THROWS_WITH(NpzFile(scratch / "cut.npz"), ContainsSubstring("cut.npz: cannot be read"));
  WriteFileAtomically(scratch / "text.npz", std::string_view("no archive"));
  CHECK_THROWS_AS(NpzFile(scratch / "text.npz"), Error);
  content[5000] = static_cast<char>(content[5000] ^ 0x55);  // inside sweep_f32_bits's data
  WriteFileAtomically(scratch / "damaged.npz", content);
  const NpzFile damaged(scratch / "damaged.npz");
  CHECK_THROWS_WITH(damaged.Read("sweep_f32_bits"),
                    ContainsSubstring("damaged.npz#sweep_f32_bits: is damaged"));
}

}  // namespace
}  // namespace fp4lab
