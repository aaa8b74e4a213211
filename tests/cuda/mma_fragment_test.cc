// The registers of mma.m16n8k64 against two independent descriptions: the formulas of the PTX ISA
// ("Matrix Fragments for mma.m16n8k64", "Block Scaling for mma.sync"), and the strides of CuTe's
// layouts (include/cute/atom/mma_traits_sm120.hpp).
#include "fp4lab/cuda/gemm/mma_fragment.h"

#include <array>
#include <set>
#include <utility>

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

using cuda::FragmentElement;
using cuda::FragmentPlace;

// Calls use(place, i) with the PTX ISA's number i of the element among the lane's.
template <class Use>
void ForEachPlace(unsigned registers, const Use& use) {
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < registers * 8; ++i) use(FragmentPlace{lane, i / 8, i % 8}, i);
  }
}

TEST_CASE("a's elements lie where the PTX ISA says", "[cuda]") {
  ForEachPlace(4, [](FragmentPlace p, unsigned i) {
    const unsigned group = p.lane >> 2, in_group = p.lane % 4;
    const unsigned row = i < 8 || (i >= 16 && i < 24) ? group : group + 8;
    const unsigned col = in_group * 8 + (i & 7) + (i < 16 ? 0 : 32);
    CHECK(cuda::ElementOfA(p) == FragmentElement{row, col});
  });
}

TEST_CASE("b's elements lie where the PTX ISA says", "[cuda]") {
  ForEachPlace(2, [](FragmentPlace p, unsigned i) {
    const unsigned k = (p.lane % 4) * 8 + (i & 7) + (i < 8 ? 0 : 32);
    CHECK(cuda::ElementOfB(p) == FragmentElement{p.lane >> 2, k});
  });
}

TEST_CASE("d's elements lie where the PTX ISA says", "[cuda]") {
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned row = i < 2 ? lane >> 2 : (lane >> 2) + 8, col = lane % 4 * 2 + (i & 1);
      CHECK(cuda::ElementOfD(lane, i) == FragmentElement{row, col});
    }
  }
}

// A mode of a CuTe layout: `size` values, `stride` elements apart in a column-major matrix.
struct Digit {
  unsigned size, stride;
};
template <std::size_t kDigits>
unsigned Strided(unsigned value, const std::array<Digit, kDigits>& digits) {
  unsigned index = 0;
  for (const Digit& digit : digits) {
    index += value % digit.size * digit.stride;
    value /= digit.size;
  }
  return index;
}

TEST_CASE("a, b and the scales lie where CuTe's layouts say", "[cuda]") {
  ForEachPlace(4, [](FragmentPlace p, unsigned i) {
    const unsigned index =
        Strided<2>(p.lane, {{{4, 128}, {8, 1}}}) + Strided<3>(i, {{{8, 16}, {2, 8}, {2, 512}}});
    CHECK(cuda::ElementOfA(p) == FragmentElement{index % 16, index / 16});
  });
  ForEachPlace(2, [](FragmentPlace p, unsigned i) {
    const unsigned index =
        Strided<2>(p.lane, {{{4, 64}, {8, 1}}}) + Strided<2>(i, {{{8, 8}, {2, 256}}});
    CHECK(cuda::ElementOfB(p) == FragmentElement{index % 8, index / 8});
  });
  for (unsigned lane = 0; lane < 32; ++lane) {
    // A stride of 0 repeats CuTe's scales: a's for both thread-ids, b's for all four.
    const unsigned a_row = Strided<3>(lane, {{{2, 8}, {2, 0}, {8, 1}}});
    const unsigned b_row = Strided<2>(lane, {{{4, 0}, {8, 1}}});
    CHECK(cuda::LaneOfScaleA(a_row, lane % 4 / 2) == lane);
    CHECK(cuda::LaneOfScaleB(b_row, lane % 4) == lane);
  }
}

TEST_CASE("Each fragment element has one place; PlaceOfA and PlaceOfB find it", "[cuda]") {
  std::set<std::pair<unsigned, unsigned>> a, b, d;
  ForEachPlace(4, [&](FragmentPlace p, unsigned) {
    const FragmentElement e = cuda::ElementOfA(p);
    a.insert({e.row, e.col});
    CHECK(cuda::PlaceOfA(e) == p);
  });
  ForEachPlace(2, [&](FragmentPlace p, unsigned) {
    const FragmentElement e = cuda::ElementOfB(p);
    b.insert({e.row, e.col});
    CHECK(cuda::PlaceOfB(e) == p);
  });
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned reg = 0; reg < 4; ++reg) {
      const FragmentElement e = cuda::ElementOfD(lane, reg);
      d.insert({e.row, e.col});
    }
  }
  CHECK(a.size() == 16 * 64);
  CHECK(b.size() == 8 * 64);
  CHECK(d.size() == 16 * 8);
}

TEST_CASE("ScaleRowA and ScaleRowB invert LaneOfScaleA and LaneOfScaleB for every selector",
          "[cuda]") {
  for (unsigned thread_id = 0; thread_id < 2; ++thread_id) {
    for (unsigned row = 0; row < 16; ++row) {
      CHECK(cuda::ScaleRowA(cuda::LaneOfScaleA(row, thread_id)) == thread_id * 16 + row);
    }
  }
  for (unsigned thread_id = 0; thread_id < 4; ++thread_id) {
    for (unsigned row = 0; row < 8; ++row) {
      CHECK(cuda::ScaleRowB(cuda::LaneOfScaleB(row, thread_id)) == thread_id * 8 + row);
    }
  }
}

}  // namespace
}  // namespace fp4lab
