// The descriptors and layouts of tcgen05.mma, decoded by the field tables of the PTX ISA. No chip
// has run them: the tests do not settle questions that a table leaves open.
#include "fp4lab/cuda/gemm/tcgen05_descriptor.h"

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "fp4lab/block/scale_swizzle.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using cuda::BlockScaling;

std::uint64_t Bits(std::uint64_t value, int first, int last) {
  return value >> first & ((std::uint64_t{1} << (last - first + 1)) - 1);
}

TEST_CASE("The instruction descriptor has the fields of kind::mxf4 and kind::mxf4nvf4", "[cuda]") {
  for (const BlockScaling scaling : {BlockScaling::kNvfp4, BlockScaling::kMxfp4}) {
    for (const std::uint32_t n : {8u, 128u, 256u}) {
      for (const std::uint32_t id : {0u, 2u}) {
        const std::uint32_t d = cuda::InstructionDescriptor(scaling, 128, n, id);
        CHECK(Bits(d, 0, 3) == 0);   // reserved; bit 2: dense
        CHECK(Bits(d, 4, 5) == id);  // id of b's scales
        CHECK(Bits(d, 6, 6) == 0);
        CHECK(Bits(d, 7, 9) == 1);    // a: E2M1
        CHECK(Bits(d, 10, 11) == 1);  // b: E2M1
        CHECK(Bits(d, 12, 16) == 0);  // reserved, negation, transposition
        CHECK(Bits(d, 17, 22) == n >> 3);
        CHECK(Bits(d, 23, 23) == (scaling == BlockScaling::kMxfp4 ? 1u : 0u));
        CHECK(Bits(d, 24, 26) == 0);
        CHECK(Bits(d, 27, 28) == 1);   // m = 128
        CHECK(Bits(d, 29, 30) == id);  // id of a's scales
        CHECK(Bits(d, 31, 31) == 0);   // k = 64
      }
    }
  }
}

// A shared memory descriptor, decoded by table 40 of the PTX ISA, in bytes.
struct Matrix {
  std::uint32_t start, leading, stride;
};
Matrix Decoded(std::uint64_t d) {
  CHECK(Bits(d, 14, 15) == 0);
  CHECK(Bits(d, 30, 31) == 0);
  CHECK(Bits(d, 46, 48) == 1);
  CHECK(Bits(d, 49, 63) == 0);  // base offset, relative mode, no swizzle
  return {static_cast<std::uint32_t>(Bits(d, 0, 13)) << 4,
          static_cast<std::uint32_t>(Bits(d, 16, 29)) << 4,
          static_cast<std::uint32_t>(Bits(d, 32, 45)) << 4};
}

// The address of byte `byte` of row `row` in the canonical K-major layout without swizzle,
// ((8, m), 2) : ((1, stride), leading) in units of 16 bytes.
std::uint32_t CanonicalAddress(const Matrix& m, std::uint32_t row, std::uint32_t byte) {
  return m.start + row % 8 * 16 + row / 8 * m.stride + byte / 16 * m.leading + byte % 16;
}

TEST_CASE("A tile in shared memory is found where its descriptor points", "[cuda]") {
  constexpr std::uint32_t kBase = 0x2400, kRowBytes = 64;
  std::vector<std::uint8_t> shared(0x8000, 0xEE);
  std::set<std::uint32_t> places;
  const auto value = [](std::uint32_t row, std::uint32_t byte) {
    return static_cast<std::uint8_t>(row * 37 + byte * 101 + row / 7);
  };
  for (std::uint32_t row = 0; row < 128; ++row) {
    for (std::uint32_t byte = 0; byte < kRowBytes; ++byte) {
      const std::uint32_t place = cuda::TileOffset(row, byte);
      places.insert(place);
      shared[kBase + place] = value(row, byte);
    }
  }
  CHECK(places.size() == 128 * kRowBytes);
  CHECK(*places.rbegin() == 128 * kRowBytes - 1);
  std::size_t different = 0;
  for (std::uint32_t step = 0; step < 2; ++step) {  // an instruction takes 64 k, 32 bytes
    const Matrix m = Decoded(cuda::SharedMatrix(kBase + cuda::TileOffset(0, step * 32),
                                                cuda::kTileLeading, cuda::kTileStride));
    CHECK(m.start % 16 == 0);
    for (std::uint32_t row = 0; row < 128; ++row) {
      for (std::uint32_t byte = 0; byte < 32; ++byte) {
        const bool same = shared[CanonicalAddress(m, row, byte)] == value(row, step * 32 + byte);
        different += same ? 0 : 1;
      }
    }
  }
  CHECK(different == 0);
}

// tcgen05.cp.32x128b.warpx4 copies 32 rows of 16 bytes to 32 lanes, each to four 4-byte columns.
TEST_CASE("tcgen05.cp places 128x4 scales where tcgen05.mma reads them", "[cuda]") {
  constexpr std::uint32_t kBase = 0x1000;
  const Matrix m = Decoded(cuda::SharedScales(kBase));
  std::array<std::array<std::array<int, 4>, 4>, 32> tensor = {};  // lane, column, byte
  std::vector<int> shared(kBase + 512, -1);
  for (std::uint32_t row = 0; row < 128; ++row) {
    for (std::uint32_t group = 0; group < 4; ++group) {
      shared[kBase + Offset128x4(row, group, 4u)] = static_cast<int>(row * 4 + group);
    }
  }
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t byte = 0; byte < 16; ++byte) {
      tensor[lane][byte / 4][byte % 4] = shared[CanonicalAddress(m, lane, byte)];
    }
  }
  for (std::uint32_t row = 0; row < 128; ++row) {
    for (std::uint32_t group = 0; group < 4; ++group) {
      const cuda::ScalePlace p = cuda::PlaceOfScale(row, group);
      CHECK(tensor[p.lane][p.column][p.byte] == static_cast<int>(row * 4 + group));
    }
  }
}

TEST_CASE("Addresses of tensor memory hold lane and column", "[cuda]") {
  const std::uint32_t base = 0x00000040;  // as an allocation returns it
  CHECK(cuda::TensorAddress(base, 96, 136) == (96u << 16 | 0xC8u));
}

}  // namespace
}  // namespace fp4lab
