// Written .npz files: they are read back, have the same bytes every time, and look like NumPy's.
#include <algorithm>
#include <array>
#include <cstring>

#include "fp4lab/io/file.h"
#include "fp4lab/io/temporary_folder.h"
#include "fp4lab/io/tensors/npy.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;

std::map<std::string, NpyArray> Arrays() {
  const std::array<float, 6> x{0, 1, 2, 3, 4, 5};
  const std::vector<std::uint8_t> q(5000, 7);
  return {{"x", MakeNpyArray<float>({2, 3}, x)},
          {"model.codes", MakeNpyArray<std::uint8_t>({50, 100}, q)},
          {"none", MakeNpyArray<float>({0, 4}, {})}};
}

TEST_CASE("What was written to .npz is read back, stored or deflated", "[io]") {
  const TemporaryFolder folder;
  for (const bool deflate : {false, true}) {
    WriteNpz(folder / "a.npz", Arrays(), deflate);
    const NpzFile file(folder / "a.npz");
    CHECK(file.Names() == std::vector<std::string>{"model.codes", "none", "x"});
    for (const auto& [name, array] : Arrays()) {
      const NpyArray read = file.Read(name);
      CHECK(read.dtype == array.dtype);
      CHECK(read.shape == array.shape);
      CHECK(read.bytes == array.bytes);
    }
  }
  CHECK(FormatNpz(Arrays(), true).size() < FormatNpz(Arrays(), false).size() / 2);
}

TEST_CASE("The same arrays give the same .npz bytes", "[io]") {
  for (const bool deflate : {false, true}) {
    CHECK(FormatNpz(Arrays(), deflate) == FormatNpz(Arrays(), deflate));
  }
  const std::vector<std::byte> file = FormatNpz(Arrays());
  std::uint16_t time = 1, date = 0;  // MS-DOS time and date of the first entry
  std::memcpy(&time, file.data() + 10, 2);
  std::memcpy(&date, file.data() + 12, 2);
  CHECK((time == 0 && date == 0x21));  // 1980-01-01
}

TEST_CASE("An .npz in memory is read as the file is", "[io]") {
  const std::vector<std::byte> bytes = FormatNpz(Arrays(), true);
  const NpzFile file(bytes, "memory");
  CHECK(file.Read("x").As<float>()[5] == 5.0f);
  CHECK_THAT(ErrorOf([&] { file.Read("y"); }), ContainsSubstring("memory#y: no such array"));
  CHECK_THAT(ErrorOf([&] { NpzFile(std::span(bytes).first(bytes.size() - 1), "cut"); }),
             ContainsSubstring("cut: cannot be read as .npz"));
  CHECK_THAT(ErrorOf([&] { NpzFile({}, "empty"); }), ContainsSubstring("empty: "));
}

}  // namespace
}  // namespace fp4lab
