// Quantizes any dialect, shape and direction with one thread for each block, by the formulas of
// dialect/stages.h.
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/dialect_block.cuh"
#include "fp4lab/cuda/quantize/launch.h"

namespace fp4lab::cuda {
namespace {

constexpr unsigned kThreads = 128;

template <FormatId kElement>
__device__ void StoreCodes(const SideJob& job, const Dialect& d, const TensorScale& l,
                           const BlockNumbers& n, const DialectBlock& block) {
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

__device__ void StoreScale(const SideJob& job, const DialectGrid& grid, const DialectBlock& block,
                           std::uint8_t byte) {
  if (job.side.scales == nullptr || !grid.stores_scales) return;
  if (job.side.scale_order == ScaleOrder::kLinear) {
    job.side.scales[block.i * grid.cols + block.j] = byte;
    return;
  }
  for (std::size_t r = 0; r < block.rows; ++r) {  // one byte for each row of a square block
    job.side.scales[job.ScalePlace(block.r0 + r, block.j, grid.cols)] = byte;
  }
}

template <FormatId kElement, FormatId kScale>
__global__ void __launch_bounds__(kThreads, 4) DialectKernel(Dialect d, SideJob job) {
  d.element = kElement;  // compile-time constants: the compiler drops the tables of formats
  d.scale = kScale;
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  const std::size_t id = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (id >= grid.rows * grid.cols) return;
  const DialectBlock block = BlockAt(grid, job, id);
  const TensorScale tensor = TensorScaleOfBlock(job, d, block);
  const BlockNumbers numbers = Chosen<1>(job, d, tensor, block, 0);
  StoreCodes<kElement>(job, d, tensor, numbers, block);
  StoreScale(job, grid, block, numbers.byte);
}

template <FormatId kElement, FormatId kScale>
void Launch(const Dialect& d, const SideJob& job, cudaStream_t stream) {
  const DialectGrid grid = GridOf(d, job.rows, job.cols);
  const std::size_t blocks = grid.rows * grid.cols;
  if (blocks == 0) return;
  const unsigned launched = Blocks(blocks, kThreads);
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
