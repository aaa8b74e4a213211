// Tiles of NVFP4 from FP32, RNE: both directions in one pass, 1D and square blocks. The columns are
// read from shared memory as floats. There is no Hadamard transform, because it takes BF16.
#include "fp4lab/cuda/tiles/tile_kernel.cuh"

namespace fp4lab::cuda {
namespace {

constexpr int kRows = 16;
constexpr int kLoads = kRows / 4;
constexpr int kStride = kTileCols + 2;  // floats; reads of columns have no bank conflicts
constexpr int kThreads = 32 * kTileRows / kRows;
using Fp32Scaler = Scaler<Scaling::kNvfp4, FormatId::kE2M1>;

struct Fp32Memory {
  alignas(16) float tile[kTileRows * kStride];
  alignas(16) std::uint8_t codes[kTileCols * kStageStride];
  alignas(16) std::uint8_t scales[kTileCols * (kTileRows / kRows)];
  float row_factors[kScaleBytes], column_factors[kScaleBytes];
};

// Quantizes the 16 x 64 elements of a warp.
template <TileMode kMode>
class Fp32Warp {
 public:
  __device__ Fp32Warp(const TileJob& job, std::size_t r0, std::size_t c0, Fp32Memory* shared)
      : job_(job), r0_(r0), c0_(c0), shared_(shared) {
    const float* const x = static_cast<const float*>(static_cast<const void*>(job.x));
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const auto* const in = reinterpret_cast<const float4*>(x + (r0_ + Row(i)) * job.cols + Col());
      low_[i] = in[0];
      high_[i] = in[1];
    }
  }

  __device__ void Share() const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      auto* const out = reinterpret_cast<float2*>(Tile() + Row(i) * kStride + 8 * (Lane() % 8));
      out[0] = {low_[i].x, low_[i].y};
      out[1] = {low_[i].z, low_[i].w};
      out[2] = {high_[i].x, high_[i].y};
      out[3] = {high_[i].z, high_[i].w};
    }
    __syncwarp();
  }

  __device__ void QuantizeRows(const Fp32Scaler& scaler) {
    if constexpr (kMode == TileMode::kSquare) FindSquareScale(scaler);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) QuantizeRow(scaler, i);
  }

  __device__ void QuantizeColumns(const Fp32Scaler& scaler) const {
#pragma unroll 1
    for (int b = 0; b < kTileCols / 16; ++b) QuantizeColumn(scaler, b);
  }

 private:
  __device__ static int Lane() { return static_cast<int>(threadIdx.x % 32); }
  __device__ static int Warp() { return static_cast<int>(threadIdx.x / 32); }
  __device__ static int Row(int i) { return 4 * i + Lane() / 8; }
  __device__ std::size_t Col() const { return c0_ + static_cast<std::size_t>(8 * (Lane() % 8)); }
  __device__ float* Tile() const { return shared_->tile + Warp() * kRows * kStride; }

  __device__ void FindSquareScale(const Fp32Scaler& scaler) {
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      bool nan = false;
      largest = fmaxf(largest, LargestOf(EightOf(low_[i], high_[i]), &nan));
    }
    for (const int step : {1, 8, 16}) {
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    }
    square_byte_ = scaler.Byte(largest);
  }

  __device__ void QuantizeRow(const Fp32Scaler& scaler, int i) const {
    const Eight e = EightOf(low_[i], high_[i]);
    bool nan = false;
    float largest = LargestOf(e, &nan);
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    const std::uint32_t byte = kMode == TileMode::kSquare ? square_byte_ : scaler.Byte(largest);
    const std::size_t row = r0_ + Row(i);
    const std::uint32_t codes = E2m1Codes<RandomBits::kNone>(e, Both(scaler.Factor(byte)), nan, {});
    const std::size_t octet = (row * job_.cols + Col()) / 8;
    if (job_.row.codes != nullptr) reinterpret_cast<std::uint32_t*>(job_.row.codes)[octet] = codes;
    if (job_.row.values != nullptr) {
      reinterpret_cast<uint4*>(job_.row.values)[octet] =
          E2m1Values(codes, Both(scaler.Value(byte)));
    }
    if (job_.row.scales != nullptr && Lane() % 2 == 0) {
      StoreRowScale<kRows, kMode>(job_, row, Col() / kRows, static_cast<std::uint32_t>(octet),
                                  byte);
    }
  }

  // Four elements of a column of the warp, from row 4 * (Lane() % 4) on.
  __device__ float4 Four(int col) const {
    const float* const x = Tile() + 4 * (Lane() % 4) * kStride + col;
    return {x[0], x[kStride], x[2 * kStride], x[3 * kStride]};
  }

  __device__ void QuantizeColumn(const Fp32Scaler& scaler, int b) const {
    const int col = 16 * b + Lane() / 4;
    const Eight e = EightOf(Four(col), Four(col + 8));
    Halves<float> largest = Both(0.0f);
    bool nan = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      largest = {fmaxf(largest.low, fabsf(e.x[i])), fmaxf(largest.high, fabsf(e.x[4 + i]))};
      nan = nan || e.x[i] != e.x[i] || e.x[4 + i] != e.x[4 + i];
    }
#pragma unroll
    for (int step = 1; step < 4; step *= 2) {
      largest.low = fmaxf(largest.low, __shfl_xor_sync(0xFFFFFFFFu, largest.low, step));
      largest.high = fmaxf(largest.high, __shfl_xor_sync(0xFFFFFFFFu, largest.high, step));
    }
    Halves<std::uint32_t> byte{scaler.Byte(largest.low), scaler.Byte(largest.high)};
    if constexpr (kMode == TileMode::kSquare) {
      byte = Both(__shfl_sync(0xFFFFFFFFu, square_byte_, 2 * b));
    }
    const std::uint32_t codes = E2m1Codes<RandomBits::kNone>(
        e, {scaler.Factor(byte.low), scaler.Factor(byte.high)}, nan, {});
    Stage(col, codes, byte.low);
    Stage(col + 8, codes >> 16, byte.high);
    if (job_.column.values == nullptr) return;
    const uint4 v = E2m1Values(codes, {scaler.Value(byte.low), scaler.Value(byte.high)});
    StoreValues(col, v.x, v.y);
    StoreValues(col + 8, v.z, v.w);
  }

  __device__ void Stage(int col, std::uint32_t codes, std::uint32_t byte) const {
    *reinterpret_cast<std::uint16_t*>(shared_->codes + col * kStageStride + 8 * Warp() +
                                      2 * (Lane() % 4)) = static_cast<std::uint16_t>(codes);
    if (Lane() % 4 == 0) {
      shared_->scales[col * (kTileRows / kRows) + Warp()] = static_cast<std::uint8_t>(byte);
    }
  }

  __device__ void StoreValues(int col, std::uint32_t first, std::uint32_t second) const {
    std::uint16_t* const out = job_.column.values +
                               (r0_ + static_cast<std::size_t>(4 * (Lane() % 4))) * job_.cols +
                               c0_ + static_cast<std::size_t>(col);
    out[0] = static_cast<std::uint16_t>(first);
    out[job_.cols] = static_cast<std::uint16_t>(first >> 16);
    out[2 * job_.cols] = static_cast<std::uint16_t>(second);
    out[3 * job_.cols] = static_cast<std::uint16_t>(second >> 16);
  }

  const TileJob& job_;
  std::size_t r0_, c0_;
  Fp32Memory* shared_;
  float4 low_[kLoads], high_[kLoads];
  std::uint32_t square_byte_ = 0;
};

template <TileMode kMode>
__global__ void __launch_bounds__(kThreads, 3) Fp32TileKernel(TileJob job) {
  extern __shared__ __align__(16) std::uint8_t memory[];
  auto* const shared = reinterpret_cast<Fp32Memory*>(memory);
  const auto across = static_cast<unsigned>(job.cols / kTileCols);
  const std::size_t r0 = std::size_t{blockIdx.x / across} * kTileRows;
  const std::size_t c0 = std::size_t{blockIdx.x % across} * kTileCols;
  Fp32Warp<kMode> part(job, r0 + threadIdx.x / 32 * kRows, c0, shared);
  const Fp32Scaler rows(job.rule, job.row.amax, shared->row_factors);
  const Fp32Scaler columns(job.rule, job.column.amax, shared->column_factors);
  __syncthreads();  // the tables are ready
  part.Share();
  part.QuantizeRows(rows);
  part.QuantizeColumns(columns);
  __syncthreads();
  StoreColumnSide<kRows, kMode>(job, r0, c0, shared->codes, shared->scales);
}

template <TileMode kMode>
void Launch(const TileJob& job, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(job.rows / kTileRows * (job.cols / kTileCols));
  Fp32TileKernel<kMode><<<blocks, kThreads, sizeof(Fp32Memory), stream>>>(job);
  CheckLaunch("the kernel of FP32 tiles");
}

}  // namespace

static_assert(sizeof(Fp32Memory) <= 48 * 1024, "shared memory that needs no leave");

void LaunchFp32Tiles(const TileJob& job, TileMode mode, cudaStream_t stream) {
  mode == TileMode::kSquare ? Launch<TileMode::kSquare>(job, stream)
                            : Launch<TileMode::kPlain>(job, stream);
}

}  // namespace fp4lab::cuda
