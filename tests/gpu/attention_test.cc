// Attention on the GPU against the CPU's.
#include "fp4lab/gpu/attention/attention.cuh"

#include "fp4lab/nn/attention/rope.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

constexpr float kTheta = 10000.0f;

struct Answers {
  std::vector<float> out, d_qkv;
};

Answers OnCpu(const AttentionShape& s, std::vector<float> qkv, std::vector<float> dout) {
  const std::size_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim, width = q + 2 * kv;
  Answers answers{std::vector<float>(s.Rows() * q), std::vector<float>(s.Rows() * width)};
  std::vector<float> statistics(s.StatisticsSize());
  const auto part = [&](std::vector<float>& x, std::size_t first, std::size_t cols) {
    return MatrixView<float>(x.data(), s.Rows(), width).Block(0, first, s.Rows(), cols);
  };
  MatrixView<float> out(answers.out.data(), s.Rows(), q), grad(dout.data(), s.Rows(), q);
  fp4lab::Attention(s, part(qkv, 0, q), part(qkv, q, kv), part(qkv, q + kv, kv), out, statistics);
  fp4lab::AttentionBackward(
      s, part(qkv, 0, q), part(qkv, q, kv), part(qkv, q + kv, kv), out, statistics, grad,
      {part(answers.d_qkv, 0, q), part(answers.d_qkv, q, kv), part(answers.d_qkv, q + kv, kv)});
  return answers;
}

template <class A>
Answers OnGpu(const AttentionShape& s, const std::vector<float>& qkv,
              const std::vector<float>& dout) {
  const auto device_qkv = ToDeviceAs<A>(qkv), device_dout = ToDeviceAs<A>(dout);
  auto out = Poisoned<A>(dout.size()), d_qkv = Poisoned<A>(qkv.size());
  auto statistics = Poisoned<float>(s.StatisticsSize() / 2),
       dots = Poisoned<float>(s.StatisticsSize() / 2);
  Attention(s, device_qkv.data(), out.data(), statistics.data(), nullptr);
  if constexpr (std::is_same_v<A, float>) {
    AttentionBackward(s, device_qkv.data(), out.data(), statistics.data(), device_dout.data(),
                      dots.data(), d_qkv.data(), nullptr);
  } else {
    const RopeTable angles = MakeRopeTable(s.sequence, s.head_dim, kTheta);
    const auto cos = ToDevice(angles.cos.values), sin = ToDevice(angles.sin.values);
    AttentionBackward(s, device_qkv.data(), out.data(), statistics.data(), device_dout.data(),
                      cos.data(), sin.data(), dots.data(), d_qkv.data(), nullptr);
    Check(cudaDeviceSynchronize(), "test");
  }
  return {FloatsOf(out), FloatsOf(d_qkv)};
}

// Checks the relative distances of the outputs and of the gradients of queries, keys and values,
// and that a second run gives the same bits.
template <class A>
void CheckShape(const AttentionShape& s, double tolerance) {
  CAPTURE(s.batch, s.sequence, s.heads, s.kv_heads, s.head_dim, s.window);
  const std::size_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim, width = q + 2 * kv;
  const std::vector<float> qkv = RoundedTo<A>(Normal(1, s.Rows() * width));
  const std::vector<float> dout = RoundedTo<A>(Normal(2, s.Rows() * q));
  Answers want = OnCpu(s, qkv, dout);
  const Answers got = OnGpu<A>(s, qkv, dout);
  if constexpr (!std::is_same_v<A, float>) {  // the BF16 backward undoes RoPE, too
    fp4lab::RopeBackward(
        MakeRopeTable(s.sequence, s.head_dim, kTheta),
        MatrixView<float>(want.d_qkv.data(), s.Rows(), width).Block(0, 0, s.Rows(), q + kv));
  }
  CHECK(Distance(got.out, want.out) < tolerance);
  const auto columns = [&](const std::vector<float>& x, std::size_t first, std::size_t count) {
    std::vector<float> part;
    for (std::size_t r = 0; r < s.Rows(); ++r) {
      for (std::size_t c = 0; c < count; ++c) part.push_back(x[r * width + first + c]);
    }
    return part;
  };
  for (const auto& [name, first, count] :
       {std::tuple{"queries", std::size_t{0}, q}, {"keys", q, kv}, {"values", q + kv, kv}}) {
    CAPTURE(name);
    CHECK(Distance(columns(got.d_qkv, first, count), columns(want.d_qkv, first, count)) <
          tolerance);
  }
  const Answers again = OnGpu<A>(s, qkv, dout);
  CHECK(Different(again.out, got.out) == 0);
  CHECK(Different(again.d_qkv, got.d_qkv) == 0);
}

TEST_CASE("Attention in binary32 on the GPU agrees with the CPU to 1e-5", "[gpu]") {
  if (NoGpu()) return;
  CheckShape<float>({2, 37, 4, 2, 16}, 1e-5);
  CheckShape<float>({1, 128, 2, 2, 30}, 1e-5);
  CheckShape<float>({1, 64, 2, 1, 200}, 1e-5);
  for (const std::size_t window : {2, 5, 36, 37, 500}) {
    CheckShape<float>({2, 37, 4, 2, 16, window}, 1e-5);
  }
}

TEST_CASE("Attention on tensor cores agrees with the CPU to 1e-2, on the same BF16 inputs",
          "[gpu]") {
  if (NoGpu()) return;
  for (const std::size_t head_dim : {16, 32, 64, 128}) {
    CheckShape<Bf16>({2, 64, 2, 2, head_dim}, 1e-2);
    CheckShape<Bf16>({1, 100, 4, 2, head_dim}, 1e-2);
    CheckShape<Bf16>({1, 257, 2, 1, head_dim}, 1e-2);
    CheckShape<Bf16>({3, 5, 2, 1, head_dim}, 1e-2);
    CheckShape<Bf16>({1, 512, 1, 1, head_dim}, 1e-2);
    for (const std::size_t window : {2, 9, 63, 64, 65, 128, 200, 1000}) {
      CheckShape<Bf16>({1, 257, 4, 2, head_dim, window}, 1e-2);
    }
  }
}

}  // namespace
}  // namespace fp4lab::gpu
