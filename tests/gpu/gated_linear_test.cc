// Gated linear attention on the GPU against the CPU's: the same bits.
#include "fp4lab/gpu/attention/gated_linear.cuh"

#include "fp4lab/gpu/kernels/columns.cuh"
#include "fp4lab/nn/activation.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

using View = MatrixView<float>;

// Queries, keys and values side by side, with columns of something else behind them.
struct Tensors {
  static constexpr std::size_t kElse = 3;
  GatedLinearShape shape;
  std::vector<float> mixed, z;

  explicit Tensors(const GatedLinearShape& s)
      : shape(s), mixed(s.Rows() * Stride()), z(s.Rows() * s.Keys()) {}

  std::size_t Stride() const { return 2 * shape.Keys() + shape.Values() + kElse; }
  View Part(std::size_t first, std::size_t cols) {
    return View(mixed.data(), shape.Rows(), Stride()).Block(0, first, shape.Rows(), cols);
  }
  View Q() { return Part(0, shape.Keys()); }
  View K() { return Part(shape.Keys(), shape.Keys()); }
  View V() { return Part(2 * shape.Keys(), shape.Values()); }
  View Z() { return View(z.data(), shape.Rows(), shape.Keys()); }
};

std::vector<float> Copied(const View& x) {
  std::vector<float> copy;
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) copy.push_back(x(r, c));
  }
  return copy;
}

template <class T>
void CheckShape(const GatedLinearShape& s) {
  CAPTURE(s.batch, s.sequence, s.heads, s.key_dim, s.value_dim);
  Tensors in(s), d(s), want_d(s);
  in.mixed = Normal(1, in.mixed.size());
  in.z = Normal(2, in.z.size(), 3.0);
  in.z.front() = 200.0f;
  in.z.back() = -200.0f;
  std::vector<float> dout = Normal(3, s.Rows() * s.Values()), want(dout.size());
  const std::size_t keys = s.Keys();
  const auto mixed = ToDevice(in.mixed), z = ToDevice(in.z), device_dout = ToDevice(dout);
  auto kept = Poisoned<float>(in.z.size()), slope = Poisoned<float>(in.z.size()),
       out = Poisoned<float>(dout.size()), values = Poisoned<float>(dout.size()),
       states = Poisoned<float>(GatedLinearStates(s));
  auto d_mixed = Poisoned<T>(in.mixed.size()), d_z = Poisoned<T>(in.z.size());
  MakeDecays(z.data(), in.z.size(), kept.data(), slope.data(), nullptr);
  const DeviceGatedLinear inputs{mixed.data(), mixed.data() + keys, mixed.data() + 2 * keys,
                                 in.Stride(), kept.data()};
  GatedLinearAttention(s, inputs, out.data(), nullptr);
  T* const to = d_mixed.data();
  GatedLinearAttentionBackward(
      s, inputs, device_dout.data(), {slope.data(), states.data(), values.data()},
      DeviceGatedLinearGradients<T>{to, to + keys, to + 2 * keys, in.Stride(), d_z.data()},
      nullptr);
  d.mixed = FloatsOf(d_mixed);
  d.z = FloatsOf(d_z);

  const GatedLinearInputs cpu{in.Q(), in.K(), in.V(), in.Z()};
  fp4lab::GatedLinearAttention(s, cpu, View(want.data(), s.Rows(), s.Values()));
  fp4lab::GatedLinearAttentionBackward(s, cpu, View(dout.data(), s.Rows(), s.Values()),
                                       {want_d.Q(), want_d.K(), want_d.V(), want_d.Z()});
  CHECK(Different(ToHost(out), want) == 0);
  CHECK(Different(Copied(d.Q()), RoundedTo<T>(Copied(want_d.Q()))) == 0);
  CHECK(Different(Copied(d.K()), RoundedTo<T>(Copied(want_d.K()))) == 0);
  CHECK(Different(Copied(d.V()), RoundedTo<T>(Copied(want_d.V()))) == 0);
  CHECK(Different(d.z, RoundedTo<T>(want_d.z)) == 0);
  // Nothing else is written.
  CHECK(std::isnan(d.Part(in.Stride() - 1, 1)(s.Rows() - 1, 0)));
}

TEST_CASE("Gated linear attention on the GPU gives the CPU's bits, forward and backward", "[gpu]") {
  if (NoGpu()) return;
  for (const GatedLinearShape& s : std::vector<GatedLinearShape>{{1, 1, 1, 1, 1},
                                                                 {2, 5, 2, 4, 16},
                                                                 {1, 70, 3, 16, 33},
                                                                 {3, 64, 2, 32, 64},
                                                                 {2, 100, 2, 64, 128},
                                                                 {1, 33, 2, 65, 8},
                                                                 {1, 40, 1, 130, 100},
                                                                 {2, 19, 1, 9, 200},
                                                                 {1, 19, 2, 8, 500}}) {
    CheckShape<float>(s);
    CheckShape<Bf16>(s);
  }
}

TEST_CASE("More states of gated linear attention than are kept at a time change no bit", "[gpu]") {
  if (NoGpu()) return;
  const GatedLinearShape s{40, 512, 4, 64, 128};
  GatedLinearShape one = s;
  one.batch = 1;
  CHECK(GatedLinearStates(s) < s.batch * GatedLinearStates(one));
  CheckShape<float>(s);
}

template <class T>
void CheckGate(std::size_t rows, std::size_t cols) {
  CAPTURE(rows, cols);
  const std::size_t stride = cols + 7, first = 5;
  std::vector<float> wide = Normal(1, rows * stride, 4.0), up = Normal(2, rows * cols),
                     dy = Normal(3, rows * cols);
  wide[first] = 100.0f;
  wide[first + stride] = -200.0f;
  const auto device = ToDevice(wide), device_up = ToDevice(up), device_dy = ToDevice(dy);
  auto y = Poisoned<T>(up.size()), dwide = Poisoned<T>(wide.size());
  auto dup = Poisoned<float>(up.size());
  const Columns<const float> gate{device.data() + first, stride, cols};
  GateColumns(rows, gate, device_up.data(), y.data(), nullptr);
  GateColumnsBackward(rows, gate, device_up.data(), device_dy.data(),
                      Columns<T>{dwide.data() + first, stride, cols}, dup.data(), nullptr);
  const auto gates = [&](std::vector<float>& x) {
    return View(x.data(), rows, stride).Block(0, first, rows, cols);
  };
  const auto whole = [&](std::vector<float>& x) { return View(x.data(), rows, cols); };
  std::vector<float> want(up.size()), want_dwide(wide.size()), want_dup(up.size());
  Swiglu(gates(wide), whole(up), whole(want));
  SwigluBackward(gates(wide), whole(up), whole(dy), gates(want_dwide), whole(want_dup));
  std::vector<float> got_dwide = FloatsOf(dwide);
  CHECK(Different(FloatsOf(y), RoundedTo<T>(want)) == 0);
  CHECK(Different(Copied(gates(got_dwide)), RoundedTo<T>(Copied(gates(want_dwide)))) == 0);
  CHECK(Different(ToHost(dup), want_dup) == 0);
}

TEST_CASE("The gate of gated linear attention on the GPU gives the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const auto& [rows, cols] :
       std::vector<std::pair<std::size_t, std::size_t>>{{2, 1}, {37, 100}, {130, 64}}) {
    CheckGate<float>(rows, cols);
    CheckGate<Bf16>(rows, cols);
  }
}

TEST_CASE("Partial sums of heads fold to those of rows on the GPU, and sums add", "[gpu]") {
  if (NoGpu()) return;
  constexpr std::size_t kCount = 23, kCols = 33, kChunks = 6;
  const std::vector<float> partials = Normal(1, kCount * kCols);
  std::vector<float> want(kChunks * kCols);
  for (std::size_t i = 0; i < kCount; ++i) {
    for (std::size_t c = 0; c < kCols; ++c) {
      want[i % kChunks * kCols + c] += partials[i * kCols + c];
    }
  }
  const auto device = ToDevice(partials);
  auto to = Poisoned<float>(want.size());
  FoldPartials(device.data(), kCount, kCols, kChunks, to.data(), nullptr);
  CHECK(Different(ToHost(to), want) == 0);
  AddTo(device.data(), want.size(), to.data(), nullptr);
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += partials[i];
  CHECK(Different(ToHost(to), want) == 0);
}

}  // namespace
}  // namespace fp4lab::gpu
