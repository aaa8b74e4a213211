// The speed of the kernels, as a fraction of the speed of a copy that moves as many bytes.
#include <algorithm>
#include <functional>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/cuda/quantize/generate.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab::crosscheck {
namespace {

using cuda::DeviceMatrix;
using cuda::DeviceMemory;
using cuda::ElementType;
using cuda::QuantizedSide;
using cuda::RandomBits;

constexpr int kRepetitions = 9;

double Median(std::vector<double> seconds) {
  std::nth_element(seconds.begin(), seconds.begin() + kRepetitions / 2, seconds.end());
  return seconds[kRepetitions / 2];
}

// Input matrices that are large enough for every kernel, and memory for outputs.
struct Bench {
  std::size_t cols = 8192, rows;
  DeviceMemory fp32, bf16, codes[2], scales[2], amax, spare;

  explicit Bench(std::size_t bytes)
      : rows(bytes / 2 / cols / 128 * 128),
        fp32(rows * cols * 4),
        bf16(rows * cols * 2),
        codes{DeviceMemory(rows * cols), DeviceMemory(rows * cols)},
        scales{DeviceMemory(rows * cols / 16), DeviceMemory(rows * cols / 16)},
        amax(2 * sizeof(float)),
        spare(rows * cols * 2) {
    Generate(cuda::Distribution::kNormal, {.seed = 1}, Fp32());
    Generate(cuda::Distribution::kNormal, {.seed = 1}, Bf16());
    cuda::AmaxWithHadamard(Bf16(), 16, kTeSignMask16, amax.As<float>(), amax.As<float>() + 1);
  }
  DeviceMatrix Fp32() const { return {fp32.data(), ElementType::kFp32, rows, cols}; }
  DeviceMatrix Bf16() const { return {bf16.data(), ElementType::kBf16, rows, cols}; }
  QuantizedSide Side(int i, RandomBits bits = RandomBits::kNone, int hadamard = 0) const {
    return {.codes = codes[i].As<std::uint8_t>(),
            .scales = scales[i].As<std::uint8_t>(),
            .amax = amax.As<float>() + (hadamard != 0 ? 1 : 0),
            .random_bits = bits,
            .random = {.seed = 1},
            .hadamard = hadamard,
            .sign_mask = hadamard == 32 ? kTeSignMask32 : kTeSignMask16};
  }
  double Elements() const { return static_cast<double>(rows * cols); }
};

// Times kernel and copy in turn and returns the median of each.
SpeedRow Timed(const Bench& bench, const std::string& what, double bytes,
               const std::function<void()>& kernel) {
  cuda::StreamTimer timer;
  std::vector<double> seconds, copies;
  // A copy reads and writes, so it copies half of the bytes, in the largest pieces that fit the
  // memory.
  const std::size_t half = static_cast<std::size_t>(bytes / 2) / 16 * 16;
  const auto copy = [&] {
    for (std::size_t done = 0; done < half;) {
      const std::size_t piece = std::min(half - done, bench.spare.bytes());
      cuda::CopyOnDevice(bench.fp32.data(), bench.spare.data(), piece);
      done += piece;
    }
  };
  kernel();
  copy();
  for (int i = 0; i < kRepetitions; ++i) {
    timer.Start();
    kernel();
    seconds.push_back(timer.Stop());
    timer.Start();
    copy();
    copies.push_back(timer.Stop());
  }
  return {what, bytes, Median(seconds), Median(copies)};
}

struct Timing {
  std::string_view what, format;
  bool bf16 = true;
  RandomBits bits = RandomBits::kNone;
  bool row = true, column = false;
  int hadamard = 0;
};
constexpr Timing kTimings[] = {
    {"NVFP4 1x16 from BF16", "nvfp4"},
    {"NVFP4 1x16 from FP32", "nvfp4", false},
    {"NVFP4 1x16 from BF16, stochastic (counter)", "nvfp4", true, RandomBits::kCounter},
    {"NVFP4 1x16 from BF16, stochastic (cvt.rs)", "nvfp4", true, RandomBits::kInstruction},
    {"NVFP4 rows and columns from FP32", "nvfp4", false, RandomBits::kNone, true, true},
    {"NVFP4 rows and columns", "nvfp4", true, RandomBits::kNone, true, true},
    {"NVFP4 rows + RHT columns", "nvfp4", true, RandomBits::kNone, true, true, 16},
    {"NVFP4 rows + RHT columns, stochastic (counter)", "nvfp4", true, RandomBits::kCounter, true,
     true, 16},
    {"NVFP4 rows + RHT columns, stochastic (cvt.rs)", "nvfp4", true, RandomBits::kInstruction, true,
     true, 16},
    {"NVFP4 RHT columns", "nvfp4", true, RandomBits::kNone, false, true, 16},
    {"NVFP4 16x16, both directions", "nvfp4.2d", true, RandomBits::kNone, true, true},
    {"MXFP4 (floor) from BF16", "mxfp4.floor"},
    {"MXFP4 (rceil) rows + RHT columns", "mxfp4.rceil", true, RandomBits::kNone, true, true, 32},
    {"MXFP8 E4M3 (rceil) from BF16", "mxfp8_e4m3.rceil"},
    {"FP8 E4M3, one scale, from BF16", "fp8_e4m3"},
};

// The bytes that a kernel must move: it reads the elements and writes the codes and scales of each
// side.
double BytesOf(const Timing& t, const Dialect& d, double elements) {
  const double code = FormatOf(d.element).bits == 4 ? 0.5 : 1.0;
  const double block = d.block_rows == 0 ? 1e30 : static_cast<double>(d.block_rows * d.block_cols);
  const double sides = (t.row ? 1 : 0) + (t.column ? 1 : 0);
  return elements * ((t.bf16 ? 2 : 4) + sides * (code + 1 / block));
}

}  // namespace

void MeasureSpeed(const CrosscheckOptions& options, Crosscheck* result) {
  const IeeeArithmetic ieee;
  const Bench bench(options.speed_bytes);
  const double elements = bench.Elements();
  result->speeds.push_back(Timed(bench, "amax of BF16", 2 * elements,
                                 [&] { cuda::Amax(bench.Bf16(), bench.spare.As<float>()); }));
  result->speeds.push_back(Timed(bench, "amax and amax after RHT, of BF16", 2 * elements, [&] {
    cuda::AmaxWithHadamard(bench.Bf16(), 16, kTeSignMask16, bench.spare.As<float>(),
                           bench.spare.As<float>() + 1);
  }));
  for (const Timing& t : kTimings) {
    const Dialect& dialect = *FindDialect(t.format);
    const QuantizedSide row = bench.Side(0, t.bits), column = bench.Side(1, t.bits, t.hadamard);
    result->speeds.push_back(Timed(bench, std::string(t.what), BytesOf(t, dialect, elements), [&] {
      cuda::Quantize(t.bf16 ? bench.Bf16() : bench.Fp32(), dialect, t.row ? &row : nullptr,
                     t.column ? &column : nullptr);
    }));
  }
}

}  // namespace fp4lab::crosscheck
