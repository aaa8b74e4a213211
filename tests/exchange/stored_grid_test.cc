// Arrays of the right size in a grid that is not the layout's.
#include "fp4lab/exchange/stored_grid.h"

#include <string>
#include <vector>

#include "fp4lab/exchange/stored_file.h"
#include "fp4lab/io/temporary_folder.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/values.h"

namespace fp4lab {
namespace {

using Catch::Matchers::ContainsSubstring;
using Dims = std::vector<std::size_t>;

StoredMatrix Shape(std::size_t rows, std::size_t cols, const StorageLayout& layout) {
  return ShapeOf(*FindDialect("nvfp4.te"), rows, cols, layout);
}

TEST_CASE("Codes in another grid than the layout's are refused", "[exchange]") {
  const StoredMatrix m = Shape(48, 64, {});  // 48 rows of 32 bytes
  const std::size_t bytes = 48 * 32;
  for (const Dims& fine :
       {Dims{48, 32}, Dims{48, 64}, Dims{bytes}, Dims{1, bytes}, Dims{bytes, 1}, Dims{4, 12, 32},
        Dims{48, 4, 8}, Dims{2, 24, 4, 8}, Dims{1, 48, 32}, Dims{}}) {
    CAPTURE(fine);
    CHECK_NOTHROW(CheckCodesGrid(m, fine, bytes, "codes"));
  }
  for (const Dims& other : {Dims{32, 48}, Dims{64, 24}, Dims{96, 16}, Dims{32, 6, 8},
                            Dims{64, 2, 12}, Dims{1, 32, 48}, Dims{4, 8, 48}}) {
    CAPTURE(other);
    CHECK_THAT(ErrorOf([&] { CheckCodesGrid(m, other, bytes, "codes.npy"); }),
               ContainsSubstring("codes.npy: is " + std::to_string(other[0]) + "x") &&
                   ContainsSubstring("are 48x32 bytes: reshape the array"));
  }
  const StoredMatrix t = Shape(48, 64, {.transposed = true});  // 64 rows of 24 bytes
  CHECK_NOTHROW(CheckCodesGrid(t, Dims{64, 24}, bytes, "codes"));
  CHECK_THROWS(CheckCodesGrid(t, Dims{48, 32}, bytes, "codes"));
}

TEST_CASE("Scales in another grid than the layout's are refused", "[exchange]") {
  const StoredMatrix linear = Shape(48, 64, {});  // 48x4 scales
  CHECK_NOTHROW(CheckScalesGrid(linear, Dims{48, 4}, 192, "scales"));
  CHECK_NOTHROW(CheckScalesGrid(linear, Dims{192}, 192, "scales"));
  CHECK_THAT(ErrorOf([&] {
               CheckScalesGrid(linear, Dims{4, 48}, 192, "s");
             }),
             ContainsSubstring("s: is 4x48; scales of this matrix in the order linear are 48x4"));
  const StoredMatrix tiled = Shape(200, 128, {.scales = ScaleOrder::k128x4});  // 256x8 with padding
  for (const Dims& fine : {Dims{256, 8}, Dims{4, 512}, Dims{2048}, Dims{2, 2, 32, 4, 4}}) {
    CAPTURE(fine);
    CHECK_NOTHROW(CheckScalesGrid(tiled, fine, 2048, "scales"));
  }
  CHECK_THROWS(CheckScalesGrid(tiled, Dims{8, 256}, 2048, "scales"));
  CHECK_THROWS(CheckScalesGrid(tiled, Dims{8, 16, 16}, 2048, "scales"));
  const StoredMatrix padded = Shape(200, 128, {.scales = ScaleOrder::kPadded});
  CHECK_NOTHROW(CheckScalesGrid(padded, Dims{256, 8}, 2048, "scales"));
  CHECK_THROWS(CheckScalesGrid(padded, Dims{4, 512}, 2048, "scales"));
}

TEST_CASE("Files with codes or scales in another grid are refused", "[exchange]") {
  const TemporaryFolder folder;
  const Matrix<float> x = NormalMatrix(1, 48, 64);
  const Dialect& te = *FindDialect("nvfp4.te");
  for (const char* convention : {"fp4lab", "modelopt"}) {
    const std::string path = (folder / "q.safetensors").string();
    WriteStored(path, Store(te, QuantizeAs(te, x.View()), {}), te.name, convention, te.scale_max);
    const std::string scales = std::string(convention) == "fp4lab" ? "scales" : "weight_scale";
    SafetensorsFile file = ReadSafetensors(path);
    file.tensors.at(scales).shape = {4, 48};
    WriteSafetensors(path, file);
    CHECK_THAT(ErrorOf([&] { ReadStored(path); }), ContainsSubstring("is 4x48; scales of"));
  }
}

}  // namespace
}  // namespace fp4lab
