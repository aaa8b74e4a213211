// Helpers for tests of operands on the GPU: an operand and a linear, on the GPU and on the CPU.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "fp4lab/gpu/engine/linear.cuh"
#include "fp4lab/gpu/engine/operand/observe_operand.cuh"
#include "fp4lab/gpu/engine/operand/operand.cuh"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/operand.h"
#include "fp4lab/transform/hadamard.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {

inline constexpr RandomStream kRandom{42, 7, 100};

// Blocks of widely different magnitude, zeros, tiny and huge values; with `specials` NaN and Inf
// too.
inline std::vector<float> Values(std::size_t size, bool specials) {
  std::vector<float> x = Normal(11, size);
  for (std::size_t i = 0; i < size; ++i) {
    x[i] = std::ldexp(x[i], static_cast<int>(i / 48 % 23) - 12);
  }
  const auto fill = [&](std::size_t first, std::size_t count, float value) {
    for (std::size_t i = first; i < std::min(first + count, size); ++i) x[i] = value;
  };
  fill(320, 32, 0.0f);
  fill(321, 1, -0.0f);
  fill(640, 32, 0x1p-130f);
  fill(1000, 1, 0x1p-133f);
  if (specials) {
    fill(1100, 1, std::nanf(""));
    fill(1101, 1, -std::nanf(""));
    fill(1300, 1, INFINITY);
    fill(1500, 1, -INFINITY);
  }
  return x;
}

// Device memory and arguments of the tested calls; `amax` has one element for each operand of a
// linear.
struct Memory {
  DeviceArray<std::uint32_t> amax = ToDevice(std::vector<std::uint32_t>(kLinearOperands, 0));
  DeviceArray<float> alpha = Poisoned<float>(3);
  DeviceCall Call() const { return {LinearCall{.random = kRandom}, amax.data(), alpha.data()}; }
};

struct Expected {
  std::vector<float> values;  // in the memory order of x
  std::vector<float> amax;
};

// The gradient operand of this direction: wgrad's along the rows, dgrad's otherwise.
inline LinearOperand OperandAt(const Place& place) {
  return place.along_rows ? kWgradGrad : kDgradGrad;
}

inline Expected OnCpu(const OperandRecipe& recipe, const Place& place, std::vector<float> x) {
  MatrixView<float> view(x.data(), place.rows, place.cols);
  if (place.along_rows) view = view.Transposed();
  if (recipe.hadamard != 0) RandomHadamard(view, TransformOf(recipe, {kRandom}), view);
  DialectOptions options{.source = RandomSourceOf(recipe, OperandAt(place), {.random = kRandom})};
  options.amax = TensorAmaxes(*recipe.format, view, {});
  fp4lab::QuantizeToValues(*recipe.format, view, options, view);
  return {std::move(x), options.amax};
}

template <class T>
void CheckOperand(const OperandRecipe& recipe, const Place& place, std::vector<float> x) {
  x = RoundedTo<T>(std::move(x));
  const Memory memory;
  const auto device = ToDeviceAs<T>(x);
  auto out = Poisoned<T>(x.size());
  RowScales rows;
  const LinearOperand operand = OperandAt(place);
  const Operand<T> made = Prepare(recipe, operand, memory.Call(), place, device.data(),
                                  memory.amax.data() + operand, out.data(), &rows);
  const Expected want = OnCpu(recipe, place, x);
  CHECK(made.values == out.data());
  if (made.scales.scales != nullptr) {
    Matrix<float> values(place.rows, place.cols);
    values.values = FloatsOf(out);
    MultiplyByScales(made.scales, ScaleShapeOf(*recipe.format, place), nullptr,
                     place.along_rows ? values.View().Transposed() : values.View());
    CHECK(Different(values.values, want.values) == 0);
  } else {
    CHECK(Different(FloatsOf(out), RoundedTo<T>(want.values)) == 0);
  }
  CHECK(Different(FloatsOf(device), x) == 0);
  const OperandPlan plan = PlanOf(recipe);
  if (plan.has_tensor_amax) {
    const float amax = std::bit_cast<float>(ToHost(memory.amax)[operand]);
    CHECK(Different({amax}, want.amax) == 0);
  }
  CHECK((made.row_decode != nullptr) == plan.has_row_scales);
  if (!plan.has_row_scales) return;
  std::vector<float> decode(want.amax.size()), got(want.amax.size());
  std::transform(want.amax.begin(), want.amax.end(), decode.begin(),
                 [&](float amax) { return OperandDecode(*recipe.format, amax); });
  REQUIRE(cudaMemcpy(got.data(), made.row_decode, got.size() * sizeof(float),
                     cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(Different(got, decode) == 0);
}

inline void CheckOperandOfBoth(const OperandRecipe& recipe, const Place& place,
                               const std::vector<float>& x) {
  CAPTURE(place.rows, place.cols, place.along_rows, recipe.hadamard);
  CheckOperand<Bf16>(recipe, place, x);
  CheckOperand<float>(recipe, place, x);
}

// The results of one linear, forward and backward, with numbers already in y and dw.
struct Products {
  std::vector<float> y, dx, dw;
};

struct LinearData {
  std::size_t tokens = 64, in = 96, out = 32;
  std::vector<float> x = RoundedTo<Bf16>(Normal(1, tokens*in)), w = Normal(2, out*in, 0.1),
                     dy = RoundedTo<Bf16>(Normal(3, tokens*out, 1e-4)), y = Normal(4, tokens*out),
                     dw = Normal(5, out*in, 1e-3);
};

// Amax histories for delayed scaling, 2 floats an operand, of which one use of the linear reads and
// writes no more. The amax in use is 2, so that some elements saturate.
inline std::vector<float> Histories() {
  std::vector<float> numbers(2 * kLinearOperands);
  for (std::size_t k = 0; k < kLinearOperands; ++k) numbers[2 * k] = 2.0f;
  return numbers;
}

inline Products OnCpu(const LinearRecipe& recipe, const LinearData& data,
                      const OperandObserver* observer = nullptr) {
  const std::size_t tokens = data.tokens, in = data.in, out_features = data.out;
  Products out{data.y, std::vector<float>(tokens * in), data.dw};
  const MatrixView<const float> x(data.x.data(), tokens, in),
      dy(data.dy.data(), tokens, out_features);
  fp4lab::LinearWeight weight;
  weight.w = {data.w.data(), out_features, in};
  fp4lab::LinearScratch scratch;
  std::vector<float> histories = Histories();
  const LinearCall call{kRandom, observer, {histories.data(), 2, true}};
  fp4lab::LinearForward(recipe, call, {x}, &weight, &scratch, Write::kAccumulate,
                        {out.y.data(), tokens, out_features});
  fp4lab::LinearBackward(recipe, call, {x}, &weight, {dy}, &scratch, {out.dx.data(), tokens, in},
                         {out.dw.data(), out_features, in});
  return out;
}

// Runs the linear twice and compares both results. The observer sees the first run; the second one
// has the first one's weight operands and may replace x.
template <class D, class T = Bf16>
Products OnDevice(const LinearRecipe& recipe, const LinearData& data,
                  const OperandObserver* observer) {
  const std::size_t tokens = data.tokens, in = data.in, out_features = data.out;
  const std::size_t widest = std::max(in, out_features);
  Gemms gemms(nullptr);
  auto x = ToDeviceAs<T>(data.x), dy = ToDeviceAs<T>(data.dy);
  const auto w = ToDevice(data.w), c = ToDevice(data.y);
  const auto weight_amax = Poisoned<std::uint32_t>(2);
  const auto histories = ToDevice(Histories());
  DeviceWeight<T> weight;
  weight.w = w.data();
  weight.out = out_features;
  weight.in = in;
  weight.amax = weight_amax.data();
  DeviceScratch<T> scratch;
  scratch.a = Poisoned<T>(tokens * widest);
  scratch.b = Poisoned<T>(tokens * widest);
  Products out;
  for (int i = 0; i < 2; ++i) {
    const Memory memory;
    DeviceCall call = memory.Call();
    call.gemms = &gemms;
    call.observer = i == 0 ? observer : nullptr;
    call.histories = {histories.data(), 2, true};
    auto y = Poisoned<float>(tokens * out_features);
    auto dx = Poisoned<D>(tokens * in);
    auto dw = ToDevice(data.dw);
    const InputHolds holds = LinearForward(recipe, call, tokens, true, AmaxPlaces{}, x.data(),
                                           i > 0, &weight, &scratch, c.data(), y.data());
    LinearBackward(recipe, call, tokens, AmaxPlaces{}, x.data(), holds, &weight, dy.data(),
                   &scratch, dx.data(), dw.data());
    Products now{ToHost(y), FloatsOf(dx), ToHost(dw)};
    if (i > 0) {
      CHECK(Different(now.y, out.y) == 0);
      CHECK(Different(now.dx, out.dx) == 0);
      CHECK(Different(now.dw, out.dw) == 0);
    }
    out = std::move(now);
  }
  return out;
}

// An operand as an observer sees it, with the amaxes of its tensor.
struct Seen {
  std::vector<float> before, values, amax;
};
using SeenOperands = std::map<LinearOperand, Seen>;

inline OperandObserver Into(SeenOperands* seen) {
  return [seen](const ObservedOperand& operand) {
    const auto flat = [](MatrixView<const float> x) {
      std::vector<float> all;
      for (std::size_t r = 0; r < x.rows; ++r) {
        for (std::size_t c = 0; c < x.cols; ++c) all.push_back(x(r, c));
      }
      return all;
    };
    (*seen)[operand.operand] = {flat(operand.before), flat(operand.values), operand.options.amax};
  };
}

// Returns the largest distance of y, dx and dw to the CPU's. Checks that the operands have the
// CPU's bits, rounded to BF16 unless the recipe has wide operands (values beyond BF16 other than
// subnormals).
inline double CheckLinear(const LinearRecipe& recipe, const LinearData& data) {
  SeenOperands on_cpu, on_device;
  const OperandObserver see_cpu = Into(&on_cpu), see_device = Into(&on_device);
  const Products want = OnCpu(recipe, data, &see_cpu);
  const Products got = OnDevice<float>(recipe, data, &see_device);
  if (HasWideOperands(recipe) || recipe.dgrad.a.side) {  // dx is rounded after the product
    CHECK(Different(OnDevice<Bf16>(recipe, data, nullptr).dx, RoundedTo<Bf16>(got.dx)) == 0);
  }
  CHECK(on_device.size() == on_cpu.size());
  for (const auto& [operand, seen] : on_cpu) {
    CAPTURE(OperandName(operand));
    const Seen& other = on_device[operand];
    CHECK(Different(other.before, seen.before) == 0);
    CHECK(Different(other.values,
                    HasWideOperands(recipe) ? seen.values : RoundedTo<Bf16>(seen.values)) == 0);
    CHECK(Different(other.amax, seen.amax) == 0);
  }
  double worst = 0.0;
  for (const auto& [a, b] :
       {std::pair(&got.y, &want.y), {&got.dx, &want.dx}, {&got.dw, &want.dw}}) {
    worst = std::max(worst, Distance(*a, *b));
  }
  CHECK(worst < 1e-5);
  return worst;
}

// Seconds to make an operand of a BF16 matrix of 8192x4096, the mean of ten.
class OperandTimer {
 public:
  double operator()(const OperandRecipe& recipe, bool along_rows) {
    Run(recipe, along_rows, 2);
    return Run(recipe, along_rows, 10) / 10;
  }

 private:
  static constexpr std::size_t kRows = 8192, kCols = 4096;

  double Run(const OperandRecipe& recipe, bool along_rows, int count) {
    const auto start = std::chrono::steady_clock::now();
    const Place place{kRows, kCols, along_rows};
    const LinearOperand operand = OperandAt(place);
    for (int i = 0; i < count; ++i) {
      Prepare(recipe, operand, memory_.Call(), place, x_.data(), memory_.amax.data() + operand,
              out_.data(), &rows_);
    }
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  DeviceArray<Bf16> x_ = ToDeviceAs<Bf16>(Normal(1, kRows* kCols));
  DeviceArray<Bf16> out_ = Poisoned<Bf16>(kRows * kCols);
  Memory memory_;
  RowScales rows_;
};

}  // namespace fp4lab::gpu
