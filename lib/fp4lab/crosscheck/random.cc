// Runs large matrices, which host and device generate by counter, through the fast kernels.
#include <bit>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/cuda/quantize/generate.h"

namespace fp4lab::crosscheck {
namespace {

using cuda::DeviceMatrix;
using cuda::DeviceMemory;
using cuda::Distribution;
using cuda::ElementType;
using cuda::RandomBits;

struct RandomCheck {
  std::string_view format;
  bool bf16 = true;
  RandomBits bits = RandomBits::kNone;
  bool column = false;  // quantize both sides, by the kernels of tiles
  bool hadamard = false;
};
constexpr RandomCheck kRandomChecks[] = {
    {"nvfp4", false},
    {"nvfp4"},
    {"nvfp4", true, RandomBits::kCounter},
    {"nvfp4", true, RandomBits::kInstruction},
    {"mxfp4.floor", false},
    {"mxfp4.floor"},
    {"mxfp4.ceil"},
    {"mxfp4.rceil", true, RandomBits::kCounter},
    {"mxfp4.even"},
    {"mxfp8_e4m3.rceil"},
    {"mxfp8_e5m2.floor", false},
    {"fp8_e4m3"},
    {"fp8_e5m2", false},
    {"nvfp4", false, RandomBits::kNone, true},
    {"nvfp4.2d", false, RandomBits::kNone, true},
    {"nvfp4", true, RandomBits::kNone, true},
    {"nvfp4", true, RandomBits::kCounter, true},
    {"nvfp4", true, RandomBits::kNone, true, true},
    {"nvfp4", true, RandomBits::kCounter, true, true},
    {"nvfp4", true, RandomBits::kInstruction, true, true},
    {"nvfp4.2d", true, RandomBits::kNone, true},
    {"mxfp4.floor", true, RandomBits::kNone, true},
    {"mxfp4.rceil", true, RandomBits::kNone, true, true},
    {"mxfp4.ceil", true, RandomBits::kCounter, true, true},
    {"mxfp4.floor.2d", true, RandomBits::kNone, true},
};

// The matrix that cuda::Generate writes in device memory.
Matrix<float> Generated(Distribution distribution, const RandomStream& stream, std::size_t side,
                        bool bf16) {
  Matrix<float> x(side, side);
  ParallelFor(side, [&](std::size_t r) {
    for (std::size_t c = 0; c < side; ++c) {
      const std::uint32_t bits = GeneratedBits(distribution, stream, r * side + c);
      x(r, c) = std::bit_cast<float>(bf16 ? bits & 0xFFFF0000u : bits);
    }
  });
  return x;
}

KernelCall CallOf(const RandomCheck& check, std::uint32_t number) {
  KernelCall call{.kernel = !check.column    ? "rows"
                            : check.hadamard ? "tiles+rht"
                                             : "tiles",
                  .dialect = *FindDialect(check.format),
                  .fast = true};
  if (check.bits != RandomBits::kNone) call.dialect.rounding = ElementRounding::kStochastic16;
  call.row = {.on = true, .bits = check.bits, .random = {.seed = 11, .tensor = number}};
  if (check.column) {
    call.column = call.row;
    call.column.random.step = 1;
    call.column.hadamard = check.hadamard ? int{call.dialect.block_cols} : 0;
  }
  return call;
}

void AddSide(const KernelCall& call, const SideCall& side, const std::string& input,
             const std::string& family, MatrixView<const float> x, const SideBytes& got,
             Crosscheck* result) {
  result->Add(call, side, input, family, x, ExpectedSideFast(call.dialect, side, x), got);
}

}  // namespace

void CheckRandom(const CrosscheckOptions& options, Crosscheck* result) {
  const IeeeArithmetic ieee;
  for (const cuda::NamedDistribution& named : cuda::kDistributions) {
    const RandomStream stream{.seed = 4, .tensor = static_cast<std::uint32_t>(named.distribution)};
    const std::string family = "random: " + std::string(named.name);
    for (const bool bf16 : {false, true}) {
      const Matrix<float> x = Generated(named.distribution, stream, options.side, bf16);
      const DeviceMemory memory(x.values.size() * (bf16 ? 2 : 4));
      const DeviceMatrix on_device{memory.data(), bf16 ? ElementType::kBf16 : ElementType::kFp32,
                                   x.rows, x.cols};
      Generate(named.distribution, stream, on_device);
      std::uint32_t number = 0;
      for (const RandomCheck& check : kRandomChecks) {
        ++number;
        if (check.bf16 != bf16) continue;
        const KernelCall call = CallOf(check, number);
        const CallBytes got = RunCall(call, on_device);
        const std::string type = bf16 ? "bf16" : "fp32";
        AddSide(call, call.row, "rows, " + type, family, x.View(), got.row, result);
        if (!call.column.on) continue;
        AddSide(call, call.column, "columns, " + type, family, x.View().Transposed(), got.column,
                result);
      }
    }
  }
}

}  // namespace fp4lab::crosscheck
