#include "fp4lab/tensor/gemm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fp4lab/tensor/gemm.cc"
#include <algorithm>
#include <cstddef>
#include <new>

#include "fp4lab/base/parallel.h"

#include <hwy/aligned_allocator.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "fp4lab/tensor/gemm_kernel-inl.h"

#ifndef FP4LAB_TENSOR_GEMM_CC_ONCE_
#define FP4LAB_TENSOR_GEMM_CC_ONCE_
namespace fp4lab {
namespace {

// Aligned memory that a thread keeps from call to call, so that small products allocate nothing.
class Scratch {
 public:
  float* Get(std::size_t size) {
    if (size > size_) {
      data_ = hwy::AllocateAligned<float>(size);
      if (data_ == nullptr) throw std::bad_alloc();
      size_ = size;
    }
    return data_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> data_;
  std::size_t size_ = 0;
};

thread_local Scratch packed_scratch;

constexpr std::size_t DivideUp(std::size_t x, std::size_t y) { return (x + y - 1) / y; }

// Multiply-adds below which a second thread costs more than it saves.
constexpr std::size_t kParallelWork = std::size_t{1} << 20;
// Floats of b packed at a time (8 MiB).
constexpr std::size_t kPackedFloats = std::size_t{1} << 21;

template <class Body>
void ForEach(bool parallel, std::size_t count, const Body& body) {
  if (parallel) return ParallelFor(count, body);
  for (std::size_t i = 0; i < count; ++i) body(i);
}

}  // namespace
}  // namespace fp4lab
#endif  // FP4LAB_TENSOR_GEMM_CC_ONCE_

HWY_BEFORE_NAMESPACE();
namespace fp4lab {
namespace HWY_NAMESPACE {

// Steps of k that are done for a whole tile of c before the next: a panel of b for so many steps
// fits a first-level cache.
inline constexpr std::size_t kDepth = 128;
inline constexpr std::size_t kMaxTileRows = 96, kMaxTileCols = 256;
inline constexpr std::size_t kPackDepth = 256;  // steps of k packed as one unit of work

// A product with c's unit stride along its rows, whose columns of c are packed in panels.
struct Product {
  MatrixView<const float> a, b;
  MatrixView<float> c;
  std::size_t block;  // 0: one
  float alpha;
  bool accumulate;
  const float* packed;  // panel p is at packed + p * kPanelCols * K
  std::size_t tile_rows, tile_cols;
  std::size_t depth;  // steps of k at a time; a multiple of `block`
};

HWY_INLINE void ComputeDepth(const Product& p, MatrixView<float> c, std::size_t row,
                             std::size_t col, std::size_t k, float* state) {
  const std::size_t depth = std::min(p.depth, p.a.cols - k);
  const bool first = k == 0, last = k + depth == p.a.cols;
  for (std::size_t j = 0; j < c.cols; j += kPanelCols) {
    const std::size_t cols = std::min(kPanelCols, c.cols - j);
    for (std::size_t i = 0; i < c.rows; i += kTileRows) {
      const std::size_t slot = first && last ? 0 : j * p.tile_rows + i * kPanelCols;
      ComputeRows({.a = p.a.data + (row + i) * p.a.row_stride + k * p.a.col_stride,
                   .a_row_stride = p.a.row_stride,
                   .a_k_stride = p.a.col_stride,
                   .b = p.packed + (col + j) * p.a.cols + k * PanelWidth(cols),
                   .depth = depth,
                   .block = p.block,
                   .state = state + slot,
                   .first = first,
                   .last = last,
                   .c = c.data + i * c.row_stride + j * c.col_stride,
                   .c_row_stride = c.row_stride,
                   .c_col_stride = c.col_stride,
                   .cols = cols,
                   .alpha = p.alpha,
                   .accumulate = p.accumulate},
                  std::min(kTileRows, c.rows - i));
    }
  }
}

// Tile `index` of c; tiles are counted along the columns first.
void ComputeTileOfC(const Product& p, std::size_t index) {
  const std::size_t across = DivideUp(p.c.cols, p.tile_cols);
  const std::size_t row = index / across * p.tile_rows, col = index % across * p.tile_cols;
  const MatrixView<float> c = p.c.Block(row, col, std::min(p.tile_rows, p.c.rows - row),
                                        std::min(p.tile_cols, p.c.cols - col));
  HWY_ALIGN float state[kMaxTileRows * kMaxTileCols];  // used as far as one tile needs it
  std::size_t k = 0;
  do {  // once for K = 0: c gets alpha * 0
    ComputeDepth(p, c, row, col, k, state);
    k += p.depth;
  } while (k < p.a.cols);
}

// Smaller tiles where there would be too few for the threads. No result depends on them.
void ChooseTiles(Product& p, bool parallel) {
  p.tile_rows = kMaxTileRows;
  p.tile_cols = kMaxTileCols;
  if (!parallel) return;
  const std::size_t wanted = 4 * static_cast<std::size_t>(Threads());
  while (DivideUp(p.c.rows, p.tile_rows) * DivideUp(p.c.cols, p.tile_cols) < wanted) {
    const std::size_t least_rows = (p.tile_cols > kPanelCols ? 4 : 2) * kTileRows;
    if (p.tile_rows > least_rows) {
      p.tile_rows /= 2;
    } else if (p.tile_cols > kPanelCols) {
      p.tile_cols /= 2;
    } else {
      return;
    }
  }
}

void PackedProduct(Product p, bool parallel) {
  const std::size_t depth = p.b.cols;
  const std::size_t panels = DivideUp(p.b.rows, kPanelCols), chunks = DivideUp(depth, kPackDepth);
  float* packed = packed_scratch.Get(panels * kPanelCols * depth + 1);
  const auto pack = [&p, packed, chunks, depth](std::size_t i) {
    const std::size_t n = i / chunks * kPanelCols, k = i % chunks * kPackDepth;
    const std::size_t cols = std::min(kPanelCols, p.b.rows - n);
    PackPanel(p.b.Block(n, k, cols, std::min(kPackDepth, depth - k)),
              packed + n * depth + k * PanelWidth(cols));
  };
  ForEach(parallel && p.b.size() > kParallelWork / 16, panels * chunks, pack);
  p.packed = packed;
  ChooseTiles(p, parallel);
  const std::size_t tiles = DivideUp(p.c.rows, p.tile_rows) * DivideUp(p.c.cols, p.tile_cols);
  ForEach(parallel, tiles, [&p](std::size_t i) { ComputeTileOfC(p, i); });
}

void GemmKernel(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
                MatrixView<float> c) {
  const std::size_t depth = a.cols;
  const auto block = static_cast<std::size_t>(options.block);
  Product p = {.a = a,
               .b = b,
               .c = c,
               .block = block >= depth ? 0 : block,
               .alpha = options.alpha,
               .accumulate = options.accumulate,
               .packed = nullptr,
               .tile_rows = 0,
               .tile_cols = 0,
               .depth = kDepth};
  if (p.block > 0) p.depth = std::max(p.block, kDepth / p.block * p.block);
  const bool parallel = Threads() > 1 && a.rows * b.rows * depth >= kParallelWork;
  const std::size_t step =
      std::max(kMaxTileCols, kPackedFloats / (depth + 1) / kMaxTileCols * kMaxTileCols);
  for (std::size_t n = 0; n < b.rows; n += step) {
    const std::size_t cols = std::min(step, b.rows - n);
    p.b = b.Block(n, 0, cols, depth);
    p.c = c.Block(0, n, c.rows, cols);
    PackedProduct(p, parallel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace fp4lab
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp4lab {
namespace {

HWY_EXPORT(GemmKernel);

template <class T>
bool HasUnitStride(MatrixView<T> x) {
  return x.rows <= 1 || x.cols <= 1 || x.row_stride == 1 || x.col_stride == 1;
}

}  // namespace

void Gemm(MatrixView<const float> a, MatrixView<const float> b, const GemmOptions& options,
          MatrixView<float> c) {
  Expects(a.cols == b.cols && c.rows == a.rows && c.cols == b.rows, "a (M, K), b (N, K), c (M, N)");
  Expects(HasUnitStride(a) && HasUnitStride(b) && HasUnitStride(c), "a unit stride in each view");
  Expects(options.block >= 0, "block >= 0");
  if (c.size() == 0) return;
  if (c.cols > 1 && c.col_stride != 1) {  // c^T = b a^T: each product commutes, so the same bits
    std::swap(a, b);
    c = c.Transposed();
  }
  HWY_DYNAMIC_DISPATCH(GemmKernel)(a, b, options, c);
}

}  // namespace fp4lab
#endif  // HWY_ONCE
