#include <algorithm>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/error.h"
#include "fp4lab/gpu/gemm/scaled_gemm.cuh"
#include "fp4lab/gpu/gemm/wgmma.cuh"

namespace fp4lab::gpu {
namespace {

// A thread block makes kSide x kSide of the product: each of its two warpgroups has 64 rows.
constexpr int kSide = 128, kThreads = 2 * kGroup;
constexpr int kStep = static_cast<int>(kScaledStep);
constexpr int kFragments = kSide / 8;

struct Stage {
  Tile<kStep> a[2], b[2];
  float a_scales[kSide], b_scales[kSide];
};
// The stages in shared memory, and those where a thread block has 99 KiB of it: compute capability
// 12.0. They change no bits.
constexpr int kMostStages = 4, kFewStages = 3;
static_assert(kFewStages * sizeof(Stage) <= 99 * 1024);

// An operand: (count, k) in memory, or (k, count) if its kernel says that it is turned.
struct Side {
  const Bf16* x = nullptr;
  std::size_t count = 0, k = 0;
  BlockScales scales;
};

// The pieces of an operand that a thread loads, step after step: four of 16 bytes, and one scale.
template <bool kTurned>
class Loader {
 public:
  // The operand's rows from `first` on and elements from `k` on, which begins a block; `lane`: the
  // thread's number among the 128 that load scales.
  __device__ Loader(const Side& side, unsigned first, unsigned k, unsigned lane)
      : start_(side.x), end_(static_cast<unsigned>(side.k)) {
    const unsigned row = threadIdx.x / 8, column = threadIdx.x % 8 * 8;
    const unsigned count = first + (kTurned ? column : row);
    const std::size_t stride = kTurned ? side.count : side.k;
    k_ = k + (kTurned ? row : column);
    at_ = side.x + (kTurned ? k_ * stride + count : count * stride + k_);
    down_ = kRows * stride;
    advance_ = kTurned ? kStep * stride : kStep;
    place_ = Tile<kStep>::Offset(static_cast<int>(row), static_cast<int>(column));
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      inside_[i] = count + (kTurned ? i / 2 * kTile : i * kRows) < side.count;
    }
    if (side.scales.scales == nullptr) return;
    scale_inside_ = first + lane < side.count;
    scale_ = side.scales.scales + k / side.scales.block * side.scales.block_stride +
             (scale_inside_ ? first + lane : 0) / side.scales.rows * side.scales.row_stride;
    block_stride_ = side.scales.block_stride;
    block_steps_ = left_ = static_cast<unsigned>(side.scales.block / kStep);
  }

  __device__ void LoadTiles(Tile<kStep>* tiles) {
    char* const to = reinterpret_cast<char*>(tiles) + place_;
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      const bool inside = inside_[i] && k_ + (kTurned ? i % 2 * kRows : 0) < end_;
      const Bf16* const from = at_ + (kTurned ? i % 2 * down_ + i / 2 * kTile : i * down_);
      cuda::CopyChunk(to + i * kRows * Tile<kStep>::kRowBytes, inside ? from : start_, inside);
    }
    at_ += advance_;
    k_ += kStep;
  }
  __device__ void LoadScale(float* to) {
    if (scale_ == nullptr) return;
    cuda::CopyFloat(to, scale_, scale_inside_);
    if (--left_ > 0) return;
    left_ = block_steps_;
    scale_ += block_stride_;
  }

 private:
  static constexpr unsigned kRows = 32;  // of a tile, between a thread's pieces

  const Bf16 *start_, *at_;
  unsigned k_, end_, place_;  // of the first piece; place_: its bytes in a tile
  std::size_t down_, advance_;
  bool inside_[4];
  const float* scale_ = nullptr;  // of the next step
  bool scale_inside_ = false;
  std::size_t block_stride_ = 0;
  unsigned block_steps_ = 0, left_ = 0;
};

// c (64, kSide) = a b for 16 elements from `k` on, added to c if `adds`. a: the warpgroup's tile;
// b: two tiles.
template <bool kATurned, bool kBTurned>
__device__ inline void MultiplyStep(const Tile<kStep>& a, const Tile<kStep>* b, int k, bool adds,
                                    FragmentC (&c)[kFragments]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  const std::uint64_t left = kATurned ? a.Descriptor(k, 0) : a.Descriptor(0, k);
  const std::uint64_t right = kBTurned ? b->Descriptor(k, 0) : b->Descriptor(0, k);
  MultiplyWide<kATurned, kBTurned>(left, right, adds, c);
#else
  const int lane = threadIdx.x % 32, warp = threadIdx.x % kGroup / 32;
  if (!adds) {
#pragma unroll
    for (FragmentC& fragment : c) fragment = {};
  }
  FragmentA rows;
  if constexpr (kATurned) {
    LoadMatricesTransposed(a.Address() + Tile<kStep>::Offset(k + lane / 16 * 8 + lane % 8,
                                                             warp * 16 + lane / 8 % 2 * 8),
                           rows.x);
  } else {
    LoadMatrices(a.Address() + Tile<kStep>::Offset(warp * 16 + lane % 16, k + lane / 16 * 8),
                 rows.x);
  }
#pragma unroll
  for (int n = 0; n < kSide; n += 16) {
    const Tile<kStep>& tile = b[n / kTile];
    const int at = n % kTile;
    FragmentB2 columns;
    if constexpr (kBTurned) {
      LoadMatricesTransposed(
          tile.Address() + Tile<kStep>::Offset(k + lane / 8 % 2 * 8 + lane % 8, at + lane / 16 * 8),
          columns.x);
    } else {
      LoadMatrices(
          tile.Address() + Tile<kStep>::Offset(at + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8),
          columns.x);
    }
    Multiply(rows, columns, c + n / 8);
  }
#endif
}

struct Product {
  Side a, b;
  unsigned period;  // steps that share their scales
  unsigned steps;   // of a split; a multiple of period
  const float *alpha, *c;
};

template <class D>
__device__ inline void StorePair(float x, float y, float alpha, const float* c, D* d) {
  x *= alpha, y *= alpha;
  if (c != nullptr) x += c[0], y += c[1];
  Store(d, x);
  Store(d + 1, y);
}

// Split blockIdx.z of the reduction. D: the result, or partial sums (splits, m, n) in binary32.
template <int kStages, bool kATurned, bool kBTurned, class D>
__global__ void __launch_bounds__(kThreads) ScaledKernel(const __grid_constant__ Product p, D* d) {
  extern __shared__ Stage stages[];
  const unsigned lane = threadIdx.x % kSide;
  const bool is_first = threadIdx.x < kSide;  // this half loads the scales of a, the other b's
  const unsigned row0 = blockIdx.y * kSide, column0 = blockIdx.x * kSide;
  const unsigned k0 = blockIdx.z * p.steps * kStep;
  const unsigned steps = min(p.steps, (static_cast<unsigned>(p.a.k) - k0 + kStep - 1) / kStep);
  Loader<kATurned> left(p.a, row0, k0, lane);
  Loader<kBTurned> right(p.b, column0, k0, lane);
  for (Stage* stage = stages; stage < stages + kStages; ++stage) {
    if (p.a.scales.scales == nullptr && is_first) stage->a_scales[lane] = 1.0f;
    if (p.b.scales.scales == nullptr && !is_first) stage->b_scales[lane] = 1.0f;
  }
  const auto load = [&](unsigned step) {
    if (step < steps) {
      Stage& stage = stages[step % kStages];
      left.LoadTiles(stage.a);
      right.LoadTiles(stage.b);
      is_first ? left.LoadScale(stage.a_scales + lane) : right.LoadScale(stage.b_scales + lane);
    }
    cuda::CommitCopies();
  };
  for (unsigned step = 0; step + 1 < kStages; ++step) load(step);

  const int group = static_cast<int>(threadIdx.x) / kGroup, t = threadIdx.x % 4;
  const int row = static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + threadIdx.x % 32 / 4;
  FragmentC sums[kFragments] = {}, block[kFragments] = {};
  for (unsigned step = 0, of_block = 0; step < steps; ++step) {
    WaitForLoads<kStages - 2>();
    const Stage& stage = stages[step % kStages];
    BeginProducts(block);
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      MultiplyStep<kATurned, kBTurned>(stage.a[group], stage.b, k, of_block > 0 || k > 0, block);
    }
    load(step + kStages - 1);  // over the stage that all have read in the last step
    FinishProducts(block);
    if (++of_block < p.period && step + 1 < steps) continue;
    of_block = 0;
    const float upper = stage.a_scales[group * kTile + row];
    const float lower = stage.a_scales[group * kTile + row + 8];
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const float2 pair = *reinterpret_cast<const float2*>(stage.b_scales + i * 8 + 2 * t);
      sums[i].x[0] = __fmaf_rn(block[i].x[0] * pair.x, upper, sums[i].x[0]);
      sums[i].x[1] = __fmaf_rn(block[i].x[1] * pair.y, upper, sums[i].x[1]);
      sums[i].x[2] = __fmaf_rn(block[i].x[2] * pair.x, lower, sums[i].x[2]);
      sums[i].x[3] = __fmaf_rn(block[i].x[3] * pair.y, lower, sums[i].x[3]);
    }
  }

  const float alpha = p.alpha != nullptr ? *p.alpha : 1.0f;
  const std::size_t n = p.b.count;
  d += blockIdx.z * p.a.count * n;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::size_t r = row0 + static_cast<unsigned>(group * kTile + row + 8 * half);
    if (r >= p.a.count) continue;
#pragma unroll
    for (int i = 0; i < kFragments; ++i) {
      const std::size_t column = column0 + static_cast<unsigned>(i * 8 + 2 * t);
      if (column >= n) continue;
      const std::size_t at = r * n + column;
      StorePair(sums[i].x[2 * half], sums[i].x[2 * half + 1], alpha,
                p.c != nullptr ? p.c + at : nullptr, d + at);
    }
  }
}

// d = alpha * the sum of the splits, in their order, + c.
template <class D>
__global__ void __launch_bounds__(kThreads)
    AddSplitsKernel(const float* partial, unsigned splits, std::size_t size, const float* alpha,
                    const float* c, D* d) {
  const std::size_t i = 2 * (std::size_t{blockIdx.x} * kThreads + threadIdx.x);
  if (i >= size) return;
  float2 sum = *reinterpret_cast<const float2*>(partial + i);
  for (unsigned split = 1; split < splits; ++split) {
    const float2 more = *reinterpret_cast<const float2*>(partial + split * size + i);
    sum.x += more.x, sum.y += more.y;
  }
  StorePair(sum.x, sum.y, alpha != nullptr ? *alpha : 1.0f, c != nullptr ? c + i : nullptr, d + i);
}

// The number of splits of the reduction, each of at least eight blocks, that takes the least time
// on 132 multiprocessors, where every split costs 3% more. It does not depend on the GPU, so that
// all add in one order.
std::size_t SplitsOf(std::size_t tiles, std::size_t blocks, std::size_t most) {
  constexpr std::size_t kProcessors = 132, kLeastBlocks = 8;
  std::size_t best = 1;
  const auto cost = [&](std::size_t splits) {
    return static_cast<double>(DivideUp(tiles * splits, kProcessors)) /
           static_cast<double>(splits) * (1.0 + 0.03 * static_cast<double>(splits));
  };
  for (std::size_t splits = 2; splits <= most && splits * kLeastBlocks <= blocks; ++splits) {
    if (cost(splits) < cost(best)) best = splits;
  }
  return best;
}

template <int kStages, class D>
void LaunchWith(bool a_turned, bool b_turned, const Product& product, dim3 grid, D* d,
                cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    constexpr std::size_t kShared = kStages * sizeof(Stage);
    AllowShared(kernel, kShared);
    kernel<<<grid, kThreads, kShared, stream>>>(product, d);
  };
  if (a_turned) {
    b_turned ? launch(ScaledKernel<kStages, true, true, D>)
             : launch(ScaledKernel<kStages, true, false, D>);
  } else {
    b_turned ? launch(ScaledKernel<kStages, false, true, D>)
             : launch(ScaledKernel<kStages, false, false, D>);
  }
  CheckLaunch("MultiplyScaled");
}

template <class D>
void Launch(bool a_turned, bool b_turned, const Product& product, dim3 grid, D* d,
            cudaStream_t stream) {
  cuda::MostSharedMemory() >= kMostStages * sizeof(Stage)
      ? LaunchWith<kMostStages>(a_turned, b_turned, product, grid, d, stream)
      : LaunchWith<kFewStages>(a_turned, b_turned, product, grid, d, stream);
}

}  // namespace

bool TakesScales(std::size_t a_block, std::size_t b_block, std::size_t a_cols, std::size_t b_cols) {
  if (a_block % kScaledStep != 0 || b_block % kScaledStep != 0) return false;
  const std::size_t longer = std::max(a_block, b_block), shorter = std::min(a_block, b_block);
  if (shorter != 0 && longer % shorter != 0) return false;
  return a_cols % 8 == 0 && b_cols % 8 == 0;
}

template <class D>
void MultiplyScaled(const GemmProblem<Bf16, D>& problem, float* workspace,
                    std::size_t workspace_floats, cudaStream_t stream) {
  const GemmProblem<Bf16, D>& g = problem;
  if (g.m == 0 || g.n == 0) return;
  const std::size_t a_block = g.a_scales.scales != nullptr ? g.a_scales.block : 0;
  const std::size_t b_block = g.b_scales.scales != nullptr ? g.b_scales.block : 0;
  Expects(g.batch == 1 && g.n % 2 == 0 &&
              TakesScales(a_block, b_block, g.a_transposed ? g.m : g.k, g.b_transposed ? g.k : g.n),
          "MultiplyScaled: blocks of whole steps, rows of whole words");
  const std::size_t longer = std::max(a_block, b_block), shorter = std::min(a_block, b_block);
  Product product{{g.a, g.m, g.k, g.a_scales}, {g.b, g.n, g.k, g.b_scales}};
  product.period = static_cast<unsigned>((shorter != 0 ? shorter : longer) / kScaledStep);
  const std::size_t blocks = DivideUp(g.k, longer), size = g.m * g.n;
  const dim3 tiles(static_cast<unsigned>(DivideUp(g.n, std::size_t{kSide})),
                   static_cast<unsigned>(DivideUp(g.m, std::size_t{kSide})));
  Expects(tiles.y <= 65535 && g.n < 1u << 31 && g.k < 1u << 31,
          "MultiplyScaled: fewer than 2^23 rows and 2^31 columns");
  std::size_t splits = SplitsOf(std::size_t{tiles.x} * tiles.y, blocks,
                                std::min<std::size_t>(16, workspace_floats / size));
  const std::size_t blocks_of_split = DivideUp(blocks, splits);
  if (splits > 1) splits = DivideUp(blocks, blocks_of_split);
  product.steps = static_cast<unsigned>(blocks_of_split * longer / kScaledStep);
  const dim3 grid(tiles.x, tiles.y, static_cast<unsigned>(splits));
  const bool b_turned = !g.b_transposed;
  if (splits == 1) {
    product.alpha = g.alpha;
    product.c = g.c;
    return Launch(g.a_transposed, b_turned, product, grid, g.d, stream);
  }
  product.alpha = product.c = nullptr;
  Launch(g.a_transposed, b_turned, product, grid, workspace, stream);
  AddSplitsKernel<<<static_cast<unsigned>(DivideUp(size, std::size_t{2 * kThreads})), kThreads, 0,
                    stream>>>(workspace, static_cast<unsigned>(splits), size, g.alpha, g.c, g.d);
  CheckLaunch("MultiplyScaled");
}

template void MultiplyScaled(const GemmProblem<Bf16>&, float*, std::size_t, cudaStream_t);
template void MultiplyScaled(const GemmProblem<Bf16, Bf16>&, float*, std::size_t, cudaStream_t);

}  // namespace fp4lab::gpu
