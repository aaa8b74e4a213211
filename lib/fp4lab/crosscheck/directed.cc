// Runs the directed cases of every dialect through every kernel that computes it.
#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/block/quantize.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/cuda/quantize/implementation.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/judge/cases/case_family.h"

namespace fp4lab::crosscheck {
namespace {

using cuda::DeviceMatrix;
using cuda::DeviceMemory;
using cuda::ElementType;
using cuda::QuantizedSide;
using cuda::RandomBits;

DeviceMatrix OnDeviceAs(const DeviceMemory& memory, MatrixView<const float> x, bool bf16) {
  return {memory.data(), bf16 ? ElementType::kBf16 : ElementType::kFp32, x.rows, x.cols};
}

Matrix<float> Transposed(MatrixView<const float> x) {
  Matrix<float> y(x.cols, x.rows);
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) y(c, r) = x(r, c);
  }
  return y;
}

// x repeated downwards and sideways until its rows and columns are multiples of `rows` and `cols`;
// maxima and blocks stay the same.
Matrix<float> Repeated(MatrixView<const float> x, std::size_t rows, std::size_t cols) {
  std::size_t down = 1, across = 1;
  while (x.rows * down % rows != 0) ++down;
  while (x.cols * across % cols != 0) ++across;
  Matrix<float> y(x.rows * down, x.cols * across);
  for (std::size_t r = 0; r < y.rows; ++r) {
    for (std::size_t c = 0; c < y.cols; ++c) y(r, c) = x(r % x.rows, c % x.cols);
  }
  return y;
}

// Runs the call on x, uploaded to the device, and adds the counts of both sides.
void Check(const KernelCall& call, MatrixView<const float> x, bool bf16, const std::string& family,
           Crosscheck* result) {
  const DeviceMemory memory = Upload(x, bf16);
  const CallBytes got = RunCall(call, OnDeviceAs(memory, x, bf16));
  const std::string type = bf16 ? "bf16" : "fp32";
  if (call.row.on) {
    result->Add(call, call.row, "rows, " + type, family, x, ExpectedSide(call.dialect, call.row, x),
                got.row);
  }
  if (call.column.on) {
    const Matrix<float> turned = Transposed(x);
    result->Add(call, call.column, "columns, " + type, family, turned.View(),
                ExpectedSide(call.dialect, call.column, turned.View()), got.column);
  }
}

// Checks the kernel of dialects: either direction, every shape; the columnwise side with swizzled
// scales.
void CheckDialectKernel(const Dialect& d, const Case& c, bool bf16, Crosscheck* result) {
  const std::string family(c.family);
  KernelCall call{.kernel = "dialects", .dialect = d};
  call.row = {.on = true, .values = true};
  if (IsStochastic(d)) {
    call.row.bits = RandomBits::kGiven;
    call.row.given = c.random;
  }
  Check(call, c.x.View(), bf16, family, result);
  if (d.row_scaled) return;  // its amaxes are of the rows of x, not of its transpose
  call.column = call.row;
  call.column.order = d.block_rows > 0 ? ScaleOrder::k128x4 : ScaleOrder::kLinear;
  call.row = {};
  const Matrix<float> turned = Transposed(c.x.View());
  Check(call, turned.View(), bf16, family, result);
}

SideCall Side(RandomBits bits, std::uint32_t tensor, int hadamard = 0) {
  return {.on = true,
          .bits = bits,
          .random = {.seed = 2026, .step = 7, .tensor = tensor},
          .hadamard = hadamard};
}

Dialect WithRandom(Dialect d, RandomBits bits) {
  if (bits != RandomBits::kNone) d.rounding = ElementRounding::kStochastic16;
  return d;
}

// Whether a dialect of the fast kernels has the scales of NVFP4.
bool IsNvfp4(const Dialect& d) { return d.scale == FormatId::kE4M3; }

// Checks the kernels of rows in each of their modes of rounding.
void CheckRowKernel(const Dialect& d, const Case& c, bool bf16, Crosscheck* result) {
  const std::size_t block = d.block_cols == 0 ? 8 : static_cast<std::size_t>(d.block_cols);
  if (d.block_rows > 1) return;
  const Matrix<float> x = Repeated(c.x.View(), 1, block);
  if (x.values.empty()) return;
  for (const RandomBits bits :
       {RandomBits::kNone, RandomBits::kCounter, RandomBits::kInstruction}) {
    if (bits != RandomBits::kNone && d.element != FormatId::kE2M1) continue;
    KernelCall call{.kernel = "rows", .dialect = WithRandom(d, bits), .fast = true};
    call.row = Side(bits, 1);
    call.row.values = true;
    call.row.order = bits == RandomBits::kCounter ? ScaleOrder::k128x4 : ScaleOrder::kLinear;
    Check(call, x.View(), bf16, std::string(c.family), result);
    if (bits != RandomBits::kNone || !IsNvfp4(d)) continue;
    call.row.order = ScaleOrder::k128x4;
    Check(call, x.View(), bf16, std::string(c.family), result);
  }
}

// Checks codes and scales of NVFP4 without values, for which tiles have a kernel of their own: both
// sides in either order of scales, and columns alone.
void CheckCodesAlone(KernelCall call, MatrixView<const float> x, const std::string& family,
                     Crosscheck* result) {
  call.kernel += ", codes alone";
  call.row.values = call.column.values = false;
  for (const ScaleOrder order : {ScaleOrder::kLinear, ScaleOrder::k128x4}) {
    call.row.order = call.column.order = order;
    Check(call, x, true, family, result);
  }
  call.row = {};
  Check(call, x, true, family, result);
}

// Checks the kernels of tiles, plain and transformed, in each mode of rounding.
void CheckTileKernel(const Dialect& d, const Case& c, bool bf16, Crosscheck* result) {
  if (d.element != FormatId::kE2M1 || (!bf16 && !IsNvfp4(d))) return;
  const Matrix<float> x = Repeated(c.x.View(), 128, 64);
  if (x.values.empty()) return;
  const bool square = d.block_rows > 1;
  for (const int hadamard : {0, int{d.block_cols}}) {
    for (const RandomBits bits :
         {RandomBits::kNone, RandomBits::kCounter, RandomBits::kInstruction}) {
      if ((square || !bf16) && (hadamard != 0 || bits != RandomBits::kNone)) continue;
      KernelCall call{.kernel = hadamard != 0 ? "tiles+rht" : "tiles",
                      .dialect = WithRandom(d, bits),
                      .fast = true};
      call.row = Side(bits, 2);
      call.column = Side(bits, 3, hadamard);
      call.row.values = call.column.values = bits != RandomBits::kCounter;
      if (bits == RandomBits::kInstruction || square) {
        call.row.order = call.column.order = ScaleOrder::k128x4;
      }
      Check(call, x.View(), bf16, std::string(c.family), result);
      if (IsNvfp4(d) && bf16 && !square && bits == RandomBits::kNone) {
        CheckCodesAlone(call, x.View(), std::string(c.family), result);
      }
    }
  }
}

// The bits of v, with one pattern for every NaN.
std::uint32_t CanonicalBits(float v) {
  return v != v ? 0x7FC00000u : std::bit_cast<std::uint32_t>(v);
}

// Checks the kernel of decoding on the codes and scales of the CPU.
void CheckDecoding(const Dialect& d, const Case& c, Crosscheck* result) {
  QuantizeOptions options{.dialect = d};
  if (HasTensorScale(d)) options.amax = TensorAmax(c.x.View());
  const Quantized q = Quantize(c.x.View(), options);
  Matrix<float> expected(c.x.rows, c.x.cols), got(c.x.rows, c.x.cols);
  Dequantize(d, q, expected.View());
  const float tensor_amax = q.amax.empty() ? 0.0f : q.amax[0];
  const DeviceMemory codes = cuda::OnDevice(std::span<const std::uint8_t>(q.codes));
  const DeviceMemory scales = cuda::OnDevice(std::span<const std::uint8_t>(q.scales));
  const DeviceMemory amax = cuda::OnDevice(std::span<const float>(&tensor_amax, 1));
  const DeviceMemory out(got.values.size() * sizeof(float));
  cuda::Dequantize(d, codes.As<std::uint8_t>(), scales.As<std::uint8_t>(), amax.As<float>(), q.rows,
                   q.cols, ElementType::kFp32, out.data());
  out.CopyTo(std::as_writable_bytes(std::span<float>(got.values)));
  CheckRow& row = result->rows[{"decoding", std::string(d.name), "to fp32", std::string(c.family)}];
  ++row.calls;
  row.elements += got.values.size();
  row.bytes += got.values.size() * sizeof(float);
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    if (CanonicalBits(got.values[i]) != CanonicalBits(expected.values[i])) row.different += 4;
  }
}

}  // namespace

std::vector<Dialect> ServedDialects(const std::vector<std::string>& names) {
  std::vector<Dialect> served;
  for (const std::string& name : names) Expects(FindDialect(name) != nullptr, "known dialects");
  for (const Dialect& d : Dialects()) {
    const bool asked = names.empty() || std::any_of(names.begin(), names.end(), [&](const auto& n) {
                         return FindDialect(n)->name == d.name;
                       });
    if (asked && cuda::CanQuantizeAs(d)) served.push_back(d);
  }
  return served;
}

namespace {

using DeviceKernel = Implementation<cuda::DeviceQuantization>;

// Whether the kernel makes rows, or rows and columns, of a BF16 matrix in the dialect.
bool Serves(const DeviceKernel& kernel, const Dialect& d) {
  const DeviceMatrix x{nullptr, ElementType::kBf16, 128, 64};
  const QuantizedSide side;
  return kernel.why_not({x, d, &side, nullptr}).empty() ||
         kernel.why_not({x, d, &side, &side}).empty();
}

struct KernelCheck {
  std::string_view kernel;
  void (*check)(const Dialect& d, const Case& c, bool bf16, Crosscheck* result);
};
constexpr std::array kChecks = {
    KernelCheck{"tiles", CheckTileKernel},
    KernelCheck{"rows", CheckRowKernel},
    KernelCheck{"dialects", CheckDialectKernel},
};

const KernelCheck& CheckOf(const DeviceKernel& kernel) {
  const auto* const check = std::find_if(kChecks.begin(), kChecks.end(), [&](const KernelCheck& c) {
    return c.kernel == kernel.name;
  });
  Expects(check != kChecks.end(), "every kernel of cuda/quantize/implementation.h has a check");
  return *check;
}

// The kernels that are checked in the dialect: that of every dialect, and the fast kernels in the
// first row of the table with their formulas, rounded to nearest; their checks add random bits.
std::vector<DeviceKernel> CheckedKernels(const Dialect& d) {
  const auto all = cuda::QuantizeImplementations();
  const bool fast = d.rounding == ElementRounding::kNearestEven && Canonical(d).name == d.name;
  std::vector<DeviceKernel> kernels;
  for (const DeviceKernel& kernel : all) {
    const bool is_last = &kernel == &all.back();
    if (is_last || (fast && Serves(kernel, d))) kernels.push_back(kernel);
  }
  return kernels;
}

}  // namespace

void CheckDirected(const CrosscheckOptions& options, Crosscheck* result) {
  const IeeeArithmetic ieee;
  for (const Dialect& d : ServedDialects(options.dialects)) {
    const std::vector<DeviceKernel> kernels = CheckedKernels(d);
    for (const Case& c : MakeCases(d, {.level = options.level})) {
      if (kernels.size() > 1) CheckDecoding(d, c, result);
      for (const bool bf16 : {false, true}) {
        if (bf16 && !c.is_bf16) continue;
        for (const DeviceKernel& kernel : kernels) CheckOf(kernel).check(d, c, bf16, result);
      }
    }
  }
}

}  // namespace fp4lab::crosscheck
