// Small matrices on which wrong quantizers show: one for each kind of cause.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/base/random.h"
#include "fp4lab/dialect/stages.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

inline float RandomSign(float x, std::uint32_t bits) { return (bits & 1u) != 0 ? -x : x; }

// Significands of `bits` bits, exponents in [low, low + span).
inline Matrix<float> RandomMatrix(std::uint32_t seed, std::size_t rows, std::size_t cols, int bits,
                                  int low, std::uint32_t span) {
  const RandomStream stream{.seed = seed, .step = 7, .tensor = 7};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const PhiloxBlock b = stream.Block(i);
    const float significand = 1.0f + std::ldexp(static_cast<float>(b[0] >> (33 - bits)), 1 - bits);
    x.values[i] = RandomSign(std::ldexp(significand, low + static_cast<int>(b[1] % span)), b[2]);
  }
  return x;
}

// Multiples of 1/8 below 6 in blocks of 16 whose amax makes the scale a boundary of E4M3; the
// tensor's amax is 2688, so that S = 1 and everything lands on ties.
inline Matrix<float> TieMatrix(std::size_t rows, std::size_t cols) {
  const RandomStream stream{.seed = 3, .step = 7, .tensor = 7};
  Matrix<float> x(rows, cols);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const PhiloxBlock b = stream.Block(r * cols + c);
      const std::size_t block = r * 7 + c / 16;
      const auto code = static_cast<std::uint32_t>(0x28 + block % 0x30);
      const float low = Decode(FormatId::kE4M3, code), high = Decode(FormatId::kE4M3, code + 1);
      const float scale = block % 3 == 0 ? 0.5f * (low + high) : block % 3 == 1 ? low : high;
      const float v = c % 16 == 5 ? 6.0f : static_cast<float>(b[0] % 48) / 8.0f;
      x(r, c) = RandomSign(v * scale, b[2]);
    }
  }
  x(0, 5) = 2688.0f;
  return x;
}

// Zeros of both signs, zero blocks, blocks whose scale underflows, subnormals.
// Kinds change from row to row, or from tile to tile of 16x16.
inline Matrix<float> TinyMatrix(std::size_t rows, std::size_t cols, std::size_t tile_rows = 1) {
  Matrix<float> x = RandomMatrix(11, rows, cols, 8, -3, 4);
  const RandomStream stream{.seed = 5, .step = 7, .tensor = 7};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < cols; ++c) {
      const PhiloxBlock b = stream.Block(r * cols + c);
      const std::size_t kind = (r / tile_rows + c / 16) % 6;
      if (kind == 1) x(r, c) = RandomSign(0.0f, b[0]);
      if (kind == 2) x(r, c) = std::ldexp(x(r, c), -18 - static_cast<int>(r / tile_rows % 4));
      if (kind == 3) x(r, c) = RandomSign(std::bit_cast<float>(b[0] & 0x7FFFFFu), b[1]);
      if (kind == 4 && b[3] % 4 == 0) x(r, c) = RandomSign(0.0f, b[0]);
      if (kind == 5) x(r, c) = std::ldexp(x(r, c), -10 - static_cast<int>(r / tile_rows % 6));
    }
  }
  return x;
}

// The matrix with some elements replaced by a special value.
inline Matrix<float> With(Matrix<float> x, float special) {
  for (std::size_t i = 37; i < x.values.size(); i += 331) x.values[i] = special;
  return x;
}

// The matrix times 2^exponent. Far down, S overflows and decode scales are subnormal.
inline Matrix<float> Scaled(Matrix<float> x, int exponent) {
  for (float& v : x.values) v = std::ldexp(v, exponent);
  return x;
}

inline float StepsFrom(float x, int steps) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) + static_cast<std::uint32_t>(steps));
}

// Whether of(enumerator) differs between enumerators.
template <class Enumerators, class Of>
bool AnyDiffers(const Enumerators& enumerators, Of of) {
  return std::any_of(enumerators.begin(), enumerators.end(),
                     [&](auto e) { return of(e) != of(enumerators[0]); });
}

// Block maxima whose scale byte under `formula` is not that of nvfp4.te.
inline std::vector<float> ScaleHazards(float amax, BlockScale formula) {
  Dialect d = *FindDialect("nvfp4.te");
  const TensorScale tensor = TensorScaleOf(d, amax);
  std::vector<float> hazards;
  for (std::uint32_t code = 0x30; code < 0x7D; ++code) {
    const float tie = 0.5f * (Decode(FormatId::kE4M3, code) + Decode(FormatId::kE4M3, code + 1));
    for (int step = -3; step <= 3; ++step) {
      const float b = StepsFrom(tie * 6.0f / tensor.encode, step);
      const auto byte = [&](BlockScale f) {
        d.block_scale = f;
        return ScaleByteOf(d, b, ScaleBefore(d, b, tensor));
      };
      if (byte(formula) != byte(BlockScale::kFolded)) hazards.push_back(b);
    }
  }
  return hazards;
}

// Elements whose codes differ between the formulas of the factor, under `amax` and block amax `b`.
inline std::vector<float> FactorHazards(float amax, float b) {
  constexpr std::array kFactors = {Factor::kReciprocal,       Factor::kEncodeOverScale,
                                   Factor::kEncodeTimesRcp,   Factor::kDivideByProduct,
                                   Factor::kDivideByQuotient, Factor::kRcpTensorScaleOverScale,
                                   Factor::kTwoSteps};
  Dialect d = *FindDialect("nvfp4.te");
  const TensorScale tensor = TensorScaleOf(d, amax);
  const BlockNumbers n = NumbersFrom(d, b, ScaleBefore(d, b, tensor), tensor);
  std::vector<float> hazards;
  for (const float tie : {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f}) {
    for (int step = -3; step <= 3; ++step) {
      const float x = StepsFrom(tie / n.factor, step);
      const bool differ = AnyDiffers(kFactors, [&](Factor f) {
        d.factor = f;
        const float e = FactorOf(d, b, n.scale, n.byte, tensor);
        return CodeOf(d, x, n.scale, Scaled(d, x, e, tensor), 0);
      });
      if (differ) hazards.push_back(x);
    }
  }
  return hazards;
}

// Blocks (tiles, for square blocks) on which formulas that agree in real numbers give other bytes.
inline Matrix<float> HazardMatrix(float amax) {
  std::vector<float> maxima = {amax};
  for (const BlockScale formula :
       {BlockScale::kTimesSixth, BlockScale::kDivideFirst, BlockScale::kDivideByTensorScale,
        BlockScale::kDivideByBoth, BlockScale::kOverDecode}) {
    const std::vector<float> hazards = ScaleHazards(amax, formula);
    maxima.insert(maxima.end(), hazards.begin(),
                  hazards.begin() + std::min<std::ptrdiff_t>(3, std::ssize(hazards)));
  }
  constexpr std::size_t kRows = 16;
  Matrix<float> x(kRows * maxima.size(), 32);
  for (std::size_t k = 0; k < maxima.size(); ++k) {
    std::vector<float> elements = FactorHazards(amax, maxima[k]);
    elements.push_back(0.5f * maxima[k]);
    for (std::size_t i = 0; i < kRows * x.cols; ++i) {
      const bool first = i % 16 == 3;
      x.values[k * kRows * x.cols + i] = first ? maxima[k] : elements[i % elements.size()];
    }
  }
  return x;
}

inline std::vector<Matrix<float>> DirectedInputs() {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<Matrix<float>> inputs;
  inputs.push_back(TieMatrix(150, 72));
  inputs.push_back(RandomMatrix(1, 150, 72, 8, -4, 5));
  inputs.push_back(TinyMatrix(150, 72));
  inputs.push_back(RandomMatrix(2, 144, 160, 24, -4, 5));
  inputs.push_back(With(RandomMatrix(3, 48, 64, 8, -4, 5), kNan));
  inputs.push_back(With(RandomMatrix(4, 48, 64, 8, -4, 5), -kInf));
  inputs.push_back(Scaled(RandomMatrix(5, 48, 64, 8, -4, 5), -125));
  inputs.push_back(Scaled(RandomMatrix(6, 48, 64, 24, -4, 5), 20));
  inputs.push_back(TinyMatrix(144, 96, 16));
  inputs.push_back(With(TinyMatrix(144, 96, 16), kNan));
  for (const float amax : {1.2345678f, 5.21875f, 3.1415927f}) {
    inputs.push_back(HazardMatrix(amax));
  }
  inputs.push_back(RandomMatrix(7, 256, 256, 8, 1, 6));
  inputs.push_back(RandomMatrix(8, 256, 256, 8, -9, 3));
  inputs.push_back(RandomMatrix(9, 80, 96, 8, -4, 5));
  inputs.back().values.back() = 7.75f;  // the largest, in the last row
  return inputs;
}

}  // namespace fp4lab
