// Every dialect, any shape, either direction: one thread a block, the formulas of dialect/stages.h.
#include "fp4lab/cuda/check.cuh"
#include "fp4lab/cuda/launch.h"
#include "fp4lab/cuda/side.cuh"
#include "fp4lab/dialect/adaptive.h"
#include "fp4lab/dialect/stages.h"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 128;

// Blocks of the grid; one scale for the tensor is a grid of pieces of a row that store none.
struct Grid {
  std::size_t block_rows, block_cols, rows, cols;
  bool stores_scales;
};

__host__ __device__ Grid GridOf(const Dialect& d, std::size_t rows, std::size_t cols) {
  Grid g{};
  g.stores_scales = d.block_rows > 0;
  g.block_rows = g.stores_scales ? static_cast<std::size_t>(d.block_rows) : 1;
  g.block_cols = g.stores_scales ? static_cast<std::size_t>(d.block_cols) : 16;
  g.rows = (rows + g.block_rows - 1) / g.block_rows;
  g.cols = (cols + g.block_cols - 1) / g.block_cols;
  return g;
}

struct Block {
  std::size_t r0, c0, rows, cols;
};

__device__ float BlockAmax(const SideJob& job, const Block& block, bool keeps_nan) {
  float amax = 0.0f;
  bool nan = false;
  for (std::size_t r = 0; r < block.rows; ++r) {
    for (std::size_t c = 0; c < block.cols; ++c) {
      const float magnitude = Magnitude(job.Element(block.r0 + r, block.c0 + c));
      if (magnitude > amax) amax = magnitude;
      nan = nan || magnitude != magnitude;
    }
  }
  return nan && keeps_nan ? __uint_as_float(0x7FC00000u) : amax;
}

__device__ BlockNumbers Chosen(const SideJob& job, const Dialect& d, const Level& l,
                               const Block& block) {
  const float b = BlockAmax(job, block, d.nan != NanRule::kElement);
  const float t = ScaleBefore(d, b, l);
  const BlockNumbers six = NumbersFrom(d, b, t, l);
  if (d.adaptive == Adaptive::kNo) return six;
  const BlockNumbers four = NumbersFrom(d, b, t * 1.5f, l);
  const auto at = [&](std::size_t r, std::size_t c) {
    return job.Element(block.r0 + r, block.c0 + c);
  };
  const float error_of_four = AdaptiveBlockError(d, four, l, block.rows, block.cols, at);
  const float error_of_six = AdaptiveBlockError(d, six, l, block.rows, block.cols, at);
  return error_of_four < error_of_six ? four : six;
}

template <FormatId kElement>
__device__ void StoreCodes(const SideJob& job, const Dialect& d, const Level& l,
                           const BlockNumbers& n, const Block& block) {
  constexpr bool kPacked = kElement == FormatId::kE2M1;
  const std::size_t row_bytes = kPacked ? (job.cols + 1) / 2 : job.cols;
  for (std::size_t r = 0; r < block.rows; ++r) {
    std::uint32_t low = 0;
    for (std::size_t c = 0; c < block.cols; ++c) {
      const std::size_t row = block.r0 + r, col = block.c0 + c;
      const std::uint32_t code = QuantizedElement(d, n, l, job.Element(block.r0 + r, block.c0 + c),
                                                  job.template Random<kElement>(row, col));
      if (job.side.values != nullptr) {
        job.side.values[job.Place(row, col)] = Bf16Bits(Decode(kElement, code) * n.scale);
      }
      if (job.side.codes == nullptr) continue;
      std::uint8_t* const out = job.side.codes + row * row_bytes;
      if constexpr (kPacked) {
        if (col % 2 == 0) low = code;
        if (col % 2 == 1 || col + 1 == job.cols) {
          out[col / 2] = static_cast<std::uint8_t>(col % 2 == 1 ? low | code << 4 : low);
        }
      } else {
        out[col] = static_cast<std::uint8_t>(code);
      }
    }
  }
}

__device__ void StoreScale(const SideJob& job, const Grid& grid, std::size_t i, std::size_t j,
                           const Block& block, std::uint8_t byte) {
  if (job.side.scales == nullptr || !grid.stores_scales) return;
  if (job.side.scale_order == ScaleOrder::kLinear) {
    job.side.scales[i * grid.cols + j] = byte;
    return;
  }
  for (std::size_t r = 0; r < block.rows; ++r) {  // one for each row of a square block
    job.side.scales[job.ScalePlace(block.r0 + r, j, grid.cols)] = byte;
  }
}

template <FormatId kElement, FormatId kScale>
__global__ void __launch_bounds__(kThreads, 4) DialectKernel(Dialect d, SideJob job) {
  d.element = kElement;  // known to the compiler: the tables of formats vanish
  d.scale = kScale;
  const Grid grid = GridOf(d, job.rows, job.cols);
  const std::size_t id = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (id >= grid.rows * grid.cols) return;
  // Neighbours in memory go to neighbouring threads.
  const std::size_t i = job.transposed ? id % grid.rows : id / grid.cols;
  const std::size_t j = job.transposed ? id / grid.rows : id % grid.cols;
  Block block;
  block.r0 = i * grid.block_rows;
  block.c0 = j * grid.block_cols;
  block.rows = min(grid.block_rows, job.rows - block.r0);
  block.cols = min(grid.block_cols, job.cols - block.c0);
  const Level level =
      HasLevelTwo(d) ? LevelOf(d, job.side.amax[d.row_scaled ? block.r0 : 0]) : Level{};
  const BlockNumbers numbers = Chosen(job, d, level, block);
  StoreCodes<kElement>(job, d, level, numbers, block);
  StoreScale(job, grid, i, j, block, numbers.byte);
}

template <FormatId kElement, FormatId kScale>
void Launch(const Dialect& d, const SideJob& job, cudaStream_t stream) {
  const Grid grid = GridOf(d, job.rows, job.cols);
  const std::size_t blocks = grid.rows * grid.cols;
  if (blocks == 0) return;
  const auto launched = static_cast<unsigned>((blocks + kThreads - 1) / kThreads);
  DialectKernel<kElement, kScale><<<launched, kThreads, 0, stream>>>(d, job);
  CheckLaunch("the kernel of dialects");
}

}  // namespace

void LaunchDialect(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide& side,
                   bool transposed, StreamHandle stream) {
  const SideJob job = JobOf(x, side, transposed);
  const cudaStream_t native = NativeStream(stream);
  if (dialect.element == FormatId::kE4M3) {
    Launch<FormatId::kE4M3, FormatId::kE8M0>(dialect, job, native);
  } else if (dialect.element == FormatId::kE5M2) {
    Launch<FormatId::kE5M2, FormatId::kE8M0>(dialect, job, native);
  } else if (dialect.scale == FormatId::kE8M0) {
    Launch<FormatId::kE2M1, FormatId::kE8M0>(dialect, job, native);
  } else {
    Launch<FormatId::kE2M1, FormatId::kE4M3>(dialect, job, native);
  }
}

}  // namespace fp4lab::cuda
