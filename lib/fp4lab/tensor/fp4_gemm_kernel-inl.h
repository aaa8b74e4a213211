// The inner loop of the FP4 GEMM: block sums in integers, a tile of c in registers.
// Include it after <hwy/highway.h>, from a .cc file that foreach_target.h compiles per target.
#if defined(FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)  // NOLINT
#ifdef FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
#undef FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
#else
#define FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "fp4lab/base/divide_up.h"

#include <hwy/highway.h>

#include "fp4lab/tensor/fp4_gemm_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// The work of one register tile: kRows x (kVectors * kLanes) elements of c over `blocks` blocks of
// k.
struct Fp4Work {
  const std::uint8_t* a;  // codes of the first row; a quad is four steps of k
  // Bytes from row to row, and from quad to quad; for squares, half of those from octet to octet.
  std::size_t a_row_stride, a_quad_stride;
  const float* a_scales;
  std::size_t a_scale_row_stride, a_scale_block_stride;
  const std::uint8_t* b;  // a packed panel, see PackFp4Panel
  std::size_t blocks;
  TileOutput to;
};

template <class DotsUsed, std::size_t kRows, std::size_t kVectors>
struct Fp4Tile : SumTile<kRows, kVectors, kFp4PanelCols> {
  HWY_INLINE Fp4Tile() {}

  using SumTile<kRows, kVectors, kFp4PanelCols>::ForEach;
  using SumTile<kRows, kVectors, kFp4PanelCols>::sum;

  static constexpr std::size_t kWidth = kVectors * kLanes * 4;  // bytes of a line of the panel
  using Dot = Fp4IntVec[kRows][kVectors];
  using Rows = const std::uint8_t* const[kRows];

  // dot = the sums of one block. The panel holds what DotsUsed::Start makes of their starts.
  template <std::size_t kQuads>
  static HWY_INLINE void Multiply(const Fp4Work& w, const Rows& rows, std::size_t at,
                                  const std::uint8_t* b, Dot* dot) {
    ForEach([&](auto i, auto j, auto)
                HWY_ATTR { (*dot)[i][j] = LoadDotBytes(b + kQuads * kWidth + 4 * j * kLanes); });
    Repeat<kQuads>([&](auto) HWY_ATTR {
      Fp4IntVec bytes[kVectors];
      Repeat<kVectors>([&](auto j) HWY_ATTR { bytes[j] = LoadDotBytes(b + 4 * j * kLanes); });
      Repeat<kRows>([&](auto i) HWY_ATTR {
        const Fp4IntVec codes = BroadcastQuad(rows[i] + at);
        Repeat<kVectors>(
            [&](auto j) HWY_ATTR { (*dot)[i][j] = DotsUsed::Add((*dot)[i][j], codes, bytes[j]); });
      });
      at += w.a_quad_stride;
      b += kWidth;
    });
  }

  // The same by squares of two rows and two columns; an odd last row has a row of zeros below it.
  template <std::size_t kQuads>
  static HWY_INLINE void MultiplySquares(const Fp4Work& w, const Rows& rows, std::size_t at,
                                         const std::uint8_t* b, Dot* dot) {
    constexpr std::size_t kRowPairs = DivideUp(kRows, std::size_t{2}), kColPairs = 2 * kVectors;
    Fp4IntVec square[kRowPairs][kColPairs];
    Repeat<kVectors>([&](auto j) HWY_ATTR {
      const Fp4IntVec start = LoadDotBytes(b + kQuads * kWidth + 4 * j * kLanes);
      Repeat<kRowPairs>([&](auto i) HWY_ATTR {
        square[i][2 * j] = DotsUsed::FirstRow(start, start);
        square[i][2 * j + 1] = DotsUsed::LastRow(start, start);
      });
    });
    Repeat<kQuads / 2>([&](auto) HWY_ATTR {
      Fp4IntVec octets[kColPairs];
      Repeat<kColPairs>([&](auto j) HWY_ATTR { octets[j] = LoadDotBytes(b + 16 * j); });
      Repeat<kRowPairs>([&](auto i) HWY_ATTR {
        const Fp4IntVec codes = LoadDotBytes(rows[2 * i] + at);
        Repeat<kColPairs>([&](auto j) HWY_ATTR {
          square[i][j] = DotsUsed::AddSquare(square[i][j], codes, octets[j]);
        });
      });
      at += 2 * w.a_quad_stride;
      b += 2 * kWidth;
    });
    ForEach([&](auto i, auto j, auto) HWY_ATTR {
      const Fp4IntVec left = square[i / 2][2 * j], right = square[i / 2][2 * j + 1];
      (*dot)[i][j] = i % 2 == 0 ? DotsUsed::FirstRow(left, right) : DotsUsed::LastRow(left, right);
    });
  }

  // One block: sum(i, j) = fma(dot(i, j), sa(i) * sb(j), sum(i, j)).
  template <std::size_t kQuads>
  HWY_INLINE void AddBlock(const Fp4Work& w, const Rows& rows, std::size_t at,
                           const float* a_scales, const std::uint8_t* b) {
    Dot dot;
    if constexpr (kSquares<DotsUsed>) {
      MultiplySquares<kQuads>(w, rows, at, b, &dot);
    } else {
      Multiply<kQuads>(w, rows, at, b, &dot);
    }
    const float* const b_scales = reinterpret_cast<const float*>(b + (kQuads + 1) * kWidth);
    GemmVec sb[kVectors];
    Repeat<kVectors>([&](auto j) HWY_ATTR { sb[j] = hn::Load(GemmTag(), b_scales + j * kLanes); });
    Repeat<kRows>([&](auto i) HWY_ATTR {
      const GemmVec sa = hn::Set(GemmTag(), a_scales[i * w.a_scale_row_stride]);
      Repeat<kVectors>([&](auto j) HWY_ATTR {
        const GemmVec whole = hn::ConvertTo(GemmTag(), DotsUsed::Whole(dot[i][j]));
        sum[i][j] = AddExact(whole, hn::Mul(sa, sb[j]), sum[i][j]);
      });
    });
  }
};

template <class DotsUsed, std::size_t kQuads, std::size_t kRows, std::size_t kVectors>
HWY_NOINLINE void ComputeFp4Tile(const Fp4Work& w) {
  Fp4Tile<DotsUsed, kRows, kVectors> tile;
  tile.Start(w.to);
  const std::uint8_t* rows[kRows];
  Repeat<kRows>([&](auto i) HWY_ATTR { rows[i] = w.a + i * w.a_row_stride; });
  std::size_t at = 0;
  const float* a_scales = w.a_scales;
  const std::uint8_t* b = w.b;
  for (std::size_t i = 0; i < w.blocks; ++i) {
    tile.template AddBlock<kQuads>(w, rows, at, a_scales, b);
    at += kQuads * w.a_quad_stride;
    a_scales += w.a_scale_block_stride;
    b += (kQuads + 2) * kVectors * kLanes * 4;
  }
  tile.Finish(w.to);
}

using ComputeFp4TileFunction = void (*)(const Fp4Work&);

template <class DotsUsed, std::size_t kQuads, std::size_t kVectors, std::size_t... kRows>
constexpr std::array<ComputeFp4TileFunction, sizeof...(kRows)> Fp4TilesOf(
    std::index_sequence<kRows...>) {
  return {ComputeFp4Tile<DotsUsed, kQuads, kRows + 1, kVectors>...};
}
template <class DotsUsed, std::size_t kQuads, std::size_t... kVectors>
constexpr auto Fp4Tiles(std::index_sequence<kVectors...>) {
  return std::array{
      Fp4TilesOf<DotsUsed, kQuads, kVectors + 1>(std::make_index_sequence<kFp4TileRows>())...};
}

// The tile function for blocks of 16 or 32 and `rows` rows by up to `cols` columns.
template <class DotsUsed>
ComputeFp4TileFunction Fp4TileFunction(std::size_t block, std::size_t rows, std::size_t cols) {
  static constexpr std::array kTiles = {
      Fp4Tiles<DotsUsed, 4>(std::make_index_sequence<kFp4TileVectors>()),
      Fp4Tiles<DotsUsed, 8>(std::make_index_sequence<kFp4TileVectors>())};
  return kTiles[block == 32 ? 1 : 0][DivideUp(cols, kLanes) - 1][rows - 1];
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#endif  // FP4LAB_TENSOR_FP4_GEMM_KERNEL_INL_H_
