#include "fp4lab/cuda/quantize/quantize.h"

#include <optional>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/cuda/device/check.cuh"
#include "fp4lab/cuda/quantize/implementation.h"
#include "fp4lab/cuda/quantize/launch.h"
#include "fp4lab/cuda/quantize/sides.h"

namespace fp4lab::cuda {
namespace {

// Sets the scales to 0 if their 128x4 tiles have padding, which no kernel writes.
void ClearScales(const Dialect& d, const QuantizedSide& side, std::size_t rows, std::size_t cols,
                 StreamHandle stream) {
  if (side.scales == nullptr || side.scale_order == ScaleOrder::kLinear || d.block_rows == 0) {
    return;
  }
  const std::size_t scale_cols =
      (cols + static_cast<std::size_t>(d.block_cols) - 1) / static_cast<std::size_t>(d.block_cols);
  if (rows % 128 == 0 && scale_cols % 4 == 0) return;
  Check(cudaMemsetAsync(side.scales, 0, ScaleBytes(side.scale_order, rows, scale_cols),
                        NativeStream(stream)),
        "clearing scales");
}

void CheckSide(const DeviceMatrix& x, const Dialect& d, const QuantizedSide& side,
               bool transposed) {
  const std::size_t cols = transposed ? x.rows : x.cols;
  Expects(!HasTensorScale(d) || side.amax != nullptr, "the format needs the tensor's amax");
  Expects(side.scale_order == ScaleOrder::kLinear || side.scale_order == ScaleOrder::k128x4,
          "scales are linear or in tiles of 128x4");
  Expects(IsStochastic(d) == (side.random_bits != RandomBits::kNone),
          "stochastic rounding, and nothing else, takes random bits");
  Expects(side.random_bits != RandomBits::kGiven || side.given != nullptr,
          "the random bits are given");
  Expects(side.random_bits != RandomBits::kInstruction || cols % 4 == 0,
          "a word of random bits serves four columns");
  Expects(
      side.hadamard == 0 || ((side.hadamard == 16 || side.hadamard == 32) && d.block_rows == 1 &&
                             cols % static_cast<std::size_t>(side.hadamard) == 0),
      "the Hadamard transform is of 16 or 32, along blocks of one row, in whole groups");
}

// Device memory that is allocated and freed in order with the stream's work.
class StreamMemory {
 public:
  StreamMemory(std::size_t bytes, StreamHandle stream) : stream_(stream) {
    Check(cudaMallocAsync(&data_, bytes, NativeStream(stream)), "allocating device memory");
  }
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;
  ~StreamMemory() { cudaFreeAsync(data_, NativeStream(stream_)); }
  template <class T>
  T* As() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  StreamHandle stream_;
};

void QuantizeSide(const DeviceMatrix& x, const Dialect& d, const QuantizedSide& side,
                  bool transposed, StreamHandle stream) {
  CheckSide(x, d, side, transposed);
  if (x.rows == 0 || x.cols == 0) return;
  const std::size_t rows = transposed ? x.cols : x.rows, cols = transposed ? x.rows : x.cols;
  ClearScales(d, side, rows, cols, stream);
  if (side.hadamard == 0) return LaunchDialect(x, d, side, transposed, stream);
  const StreamMemory memory(x.rows * x.cols * sizeof(std::uint16_t), stream);
  LaunchHadamard(x, transposed, side.hadamard, side.sign_mask, memory.As<std::uint16_t>(), nullptr,
                 nullptr, stream);
  LaunchDialect({memory.As<void>(), ElementType::kBf16, x.rows, x.cols}, d, side, transposed,
                stream);
}

void Clear(float* amax, std::size_t count, StreamHandle stream) {
  if (amax == nullptr || count == 0) return;
  Check(cudaMemsetAsync(amax, 0, count * sizeof(float), NativeStream(stream)), "clearing the amax");
}

void CheckGroups(const DeviceMatrix& x, int hadamard) {
  Expects((hadamard == 16 || hadamard == 32) && x.rows % static_cast<std::size_t>(hadamard) == 0,
          "the Hadamard transform is of 16 or 32 rows, in whole groups");
}

// The dialect in which a side is quantized: d, with stochastic rounding of 16 bits in place of RNE
// if the side has random bits.
Dialect OfSide(Dialect d, const QuantizedSide& side) {
  const bool nearest = d.rounding == ElementRounding::kNearestEven;
  if (nearest && side.random_bits != RandomBits::kNone) {
    d.rounding = ElementRounding::kStochastic16;
  }
  return d;
}

}  // namespace

void PrepareSides(const DeviceQuantization& call) {
  const DeviceMatrix& x = call.x;
  for (const QuantizedSide* side : {call.row, call.column}) {
    if (side == nullptr) continue;
    const bool transposed = side == call.column;
    CheckSide(x, OfSide(call.dialect, *side), *side, transposed);
    ClearScales(call.dialect, *side, transposed ? x.cols : x.rows, transposed ? x.rows : x.cols,
                call.stream);
  }
}

void QuantizeSide(const DeviceQuantization& call, const QuantizedSide& side) {
  QuantizeSide(call.x, OfSide(call.dialect, side), side, &side == call.column, call.stream);
}

void Quantize(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
              const QuantizedSide* column, StreamHandle stream) {
  const IeeeArithmetic ieee;
  Expects(CanQuantizeAs(dialect), "a dialect with one answer, of E2M1, E4M3 or E5M2 elements");
  const DeviceQuantization call{x, dialect, row, column, stream};
  FirstThatCan(QuantizeImplementations(), call)->make(call);  // the last row can make all
}

void QuantizeAs(const DeviceMatrix& x, const Dialect& dialect, const QuantizedSide* row,
                const QuantizedSide* column, StreamHandle stream) {
  const IeeeArithmetic ieee;
  Expects(CanQuantizeAs(dialect), "a dialect with one answer, of E2M1, E4M3 or E5M2 elements");
  for (const QuantizedSide* side : {row, column}) {
    if (side != nullptr) QuantizeSide(x, dialect, *side, side == column, stream);
  }
}

void Amax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream) {
  Clear(amax, 1, stream);
  LaunchAmax(x, amax, keeps_nan, stream);
}

void RowAmax(const DeviceMatrix& x, float* amax, bool keeps_nan, StreamHandle stream) {
  Clear(amax, x.rows, stream);
  LaunchRowAmax(x, amax, keeps_nan, stream);
}

void AmaxWithHadamard(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask, float* amax,
                      float* transformed, StreamHandle stream) {
  const IeeeArithmetic ieee;
  CheckGroups(x, hadamard);
  Clear(amax, 1, stream);
  Clear(transformed, 1, stream);
  if (x.type == ElementType::kBf16 && FitsTileShape(x)) {
    LaunchTileAmax(x, hadamard, sign_mask, amax, transformed, stream);
  } else {
    LaunchHadamard(x, true, hadamard, sign_mask, nullptr, amax, transformed, stream);
  }
}

void HadamardColumns(const DeviceMatrix& x, int hadamard, std::uint32_t sign_mask,
                     std::uint16_t* out, StreamHandle stream) {
  const IeeeArithmetic ieee;
  CheckGroups(x, hadamard);
  LaunchHadamard(x, true, hadamard, sign_mask, out, nullptr, nullptr, stream);
}

void Dequantize(const Dialect& dialect, const std::uint8_t* codes, const std::uint8_t* scales,
                const float* amax, std::size_t rows, std::size_t cols, ElementType type, void* out,
                StreamHandle stream) {
  const IeeeArithmetic ieee;
  Expects(WhyNotFast(dialect).empty() && HasElement(dialect.element), "a dialect of tuned kernels");
  Expects(!HasTensorScale(dialect) || amax != nullptr, "the format needs the tensor's amax");
  LaunchDequantize(dialect, codes, scales, amax, rows, cols, type, out, stream);
}

}  // namespace fp4lab::cuda
