// The heads of multi-head latent attention on the GPU against the CPU's.
#include <algorithm>

#include "fp4lab/gpu/attention/attention.cuh"
#include "fp4lab/gpu/kernels/columns.cuh"
#include "fp4lab/gpu/kernels/latent_heads.cuh"
#include "fp4lab/nn/attention/rope.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

using View = MatrixView<float>;

std::size_t Head(const LatentShape& s) { return s.nope + s.rope; }

// The tensors of a shape on the host.
struct Latents {
  LatentShape shape;
  std::vector<float> queries, compressed, expanded;

  explicit Latents(const LatentShape& s)
      : shape(s),
        queries(s.rows * s.heads * Head(s)),
        compressed(s.rows * (s.latent + s.rope)),
        expanded(s.rows * s.heads * (s.nope + s.value)) {}

  View Queries() { return {queries.data(), shape.rows, shape.heads * Head(shape)}; }
  View Compressed() { return {compressed.data(), shape.rows, shape.latent + shape.rope}; }
  View Expanded() {
    return {expanded.data(), shape.rows, shape.heads * (shape.nope + shape.value)};
  }
  View Shared() { return Compressed().Block(0, shape.latent, shape.rows, shape.rope); }
  View Positions(std::size_t head) {
    return Queries().Block(0, head * Head(shape) + shape.nope, shape.rows, shape.rope);
  }
};

// Queries, keys and values, each (rows, heads, padded columns).
struct Padded {
  LatentShape shape;
  std::vector<float> values;

  explicit Padded(const LatentShape& s) : shape(s), values(s.rows * 3 * s.heads * s.padded) {}

  float& At(std::size_t row, std::size_t which, std::size_t head, std::size_t c) {
    return values[((row * 3 + which) * shape.heads + head) * shape.padded + c];
  }
};

Padded Joined(const RopeTable* table, Latents from) {
  const LatentShape& s = from.shape;
  if (table != nullptr) {
    for (std::size_t h = 0; h < s.heads; ++h) fp4lab::Rope(*table, from.Positions(h));
    fp4lab::Rope(*table, from.Shared());
  }
  Padded to(s);
  for (std::size_t r = 0; r < s.rows; ++r) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      for (std::size_t c = 0; c < Head(s); ++c) {
        to.At(r, 0, h, c) = from.Queries()(r, h * Head(s) + c);
        to.At(r, 1, h, c) =
            c < s.nope ? from.Expanded()(r, h * s.nope + c) : from.Shared()(r, c - s.nope);
      }
      for (std::size_t c = 0; c < s.value; ++c) {
        to.At(r, 2, h, c) = from.Expanded()(r, s.heads * s.nope + h * s.value + c);
      }
    }
  }
  return to;
}

Latents Split(const RopeTable* table, Padded from) {
  const LatentShape& s = from.shape;
  Latents to(s);
  for (std::size_t r = 0; r < s.rows; ++r) {
    for (std::size_t h = 0; h < s.heads; ++h) {
      for (std::size_t c = 0; c < Head(s); ++c) {
        to.Queries()(r, h * Head(s) + c) = from.At(r, 0, h, c);
        if (c < s.nope) to.Expanded()(r, h * s.nope + c) = from.At(r, 1, h, c);
        if (c >= s.nope) to.Shared()(r, c - s.nope) += from.At(r, 1, h, c);
      }
      for (std::size_t c = 0; c < s.value; ++c) {
        to.Expanded()(r, s.heads * s.nope + h * s.value + c) = from.At(r, 2, h, c);
      }
    }
  }
  if (table != nullptr) {
    for (std::size_t h = 0; h < s.heads; ++h) fp4lab::RopeBackward(*table, to.Positions(h));
    fp4lab::RopeBackward(*table, to.Shared());
  }
  return to;
}

const std::vector<LatentShape> kShapes = {{22, 11, 3, 16, 16, 16, 24, 32},
                                          {37, 37, 2, 5, 6, 20, 7, 20},
                                          {64, 32, 4, 32, 32, 32, 16, 64},
                                          {40, 20, 2, 48, 16, 24, 32, 64},
                                          {10, 5, 1, 96, 32, 128, 8, 128}};

template <class A, class T>
void CheckHeads(const LatentShape& s, bool turns) {
  CAPTURE(s.rows, s.heads, s.nope, s.rope, s.value, s.latent, s.padded, turns);
  const RopeTable table = MakeRopeTable(s.positions, s.rope, 10000.0f);
  const auto cos = ToDevice(table.cos.values), sin = ToDevice(table.sin.values);
  const float *const c = turns ? cos.data() : nullptr, *const d = turns ? sin.data() : nullptr;
  Latents in(s);
  in.queries = Normal(1, in.queries.size());
  in.compressed = Normal(2, in.compressed.size());
  in.expanded = Normal(3, in.expanded.size());
  const auto queries = ToDevice(in.queries), compressed = ToDevice(in.compressed),
             expanded = ToDevice(in.expanded);
  Padded want = Joined(turns ? &table : nullptr, in), grad(s);
  auto qkv = Poisoned<A>(want.values.size());
  JoinHeads(s, c, d, queries.data(), compressed.data(), expanded.data(), qkv.data(), nullptr);
  CHECK(Different(FloatsOf(qkv), RoundedTo<A>(want.values)) == 0);

  grad.values = RoundedTo<A>(Normal(4, grad.values.size()));
  const auto d_qkv = ToDeviceAs<A>(grad.values);
  auto d_queries = Poisoned<T>(in.queries.size()), d_compressed = Poisoned<T>(in.compressed.size()),
       d_expanded = Poisoned<T>(in.expanded.size());
  SplitHeads(s, c, d, d_qkv.data(), d_queries.data(), d_compressed.data(), d_expanded.data(),
             nullptr);
  const Latents want_d = Split(turns ? &table : nullptr, grad);
  CHECK(Different(FloatsOf(d_queries), RoundedTo<T>(want_d.queries)) == 0);
  CHECK(Different(FloatsOf(d_expanded), RoundedTo<T>(want_d.expanded)) == 0);
  std::vector<float> got = FloatsOf(d_compressed), want_shared = RoundedTo<T>(want_d.compressed);
  for (std::size_t i = 0; i < got.size(); ++i) {  // the latent's columns are not written
    if (i % (s.latent + s.rope) >= s.latent) continue;
    CHECK(std::isnan(got[i]));
    got[i] = want_shared[i] = 0.0f;
  }
  CHECK(Different(got, want_shared) == 0);
}

TEST_CASE("Heads of latent attention on the GPU are joined and split with the CPU's bits",
          "[gpu]") {
  if (NoGpu()) return;
  for (const LatentShape& s : kShapes) {
    for (const bool turns : {true, false}) {
      CheckHeads<float, float>(s, turns);
      CheckHeads<float, Bf16>(s, turns);
      CheckHeads<Bf16, Bf16>(s, turns);
    }
  }
}

TEST_CASE("Copies of columns on the GPU round, drop columns and fill with zeros", "[gpu]") {
  if (NoGpu()) return;
  constexpr std::size_t kRows = 37, kFrom = 40, kTo = 70;
  const std::vector<float> x = Normal(1, kRows * kFrom);
  const auto from = ToDevice(x);
  for (const auto& [take, give] :
       std::vector<std::pair<std::size_t, std::size_t>>{{33, 33}, {40, 64}, {5, 3}}) {
    CAPTURE(take, give);
    auto to = Poisoned<Bf16>(kRows * kTo);
    CopyColumns(kRows, Columns<const float>{from.data(), kFrom, take},
                Columns<Bf16>{to.data(), kTo, give}, nullptr);
    const std::vector<float> got = FloatsOf(to), rounded = RoundedTo<Bf16>(x);
    std::size_t wrong = 0;
    for (std::size_t r = 0; r < kRows; ++r) {
      for (std::size_t c = 0; c < kTo; ++c) {
        const float value = got[r * kTo + c];
        const bool right = c >= give   ? std::isnan(value)
                           : c >= take ? value == 0.0f
                                       : value == rounded[r * kFrom + c];
        wrong += right ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}

// Attention of padded heads against the CPU's of heads as they are: the results, and the gradients
// of queries, keys and values.
template <class A>
void CheckAttention(const LatentShape& s, std::size_t window, double tolerance) {
  CAPTURE(s.nope, s.rope, s.value, s.padded, window);
  AttentionShape shape{.batch = s.rows / s.positions,
                       .sequence = s.positions,
                       .heads = s.heads,
                       .kv_heads = s.heads,
                       .head_dim = Head(s),
                       .window = window,
                       .value_dim = s.value};
  Padded in(s), got_d(s);
  const std::size_t value = s.heads * s.value;
  const std::vector<float> random = RoundedTo<A>(Normal(1, in.values.size()));
  std::vector<float> dout = RoundedTo<A>(Normal(2, s.rows * value)), out(dout.size());
  Matrix<float> q(s.rows, s.heads * Head(s)), k = q, v(s.rows, value), dq = q, dk = q, dv = v;
  const auto width = [&](std::size_t which) { return which == 2 ? s.value : Head(s); };
  const auto for_all = [&](auto&& use) {
    for (std::size_t r = 0; r < s.rows; ++r) {
      for (std::size_t which = 0; which < 3; ++which) {
        for (std::size_t h = 0; h < s.heads; ++h) {
          for (std::size_t c = 0; c < width(which); ++c) use(r, which, h, c);
        }
      }
    }
  };
  Matrix<float>* const tensors[] = {&q, &k, &v};
  std::size_t next = 0;
  for_all([&](std::size_t r, std::size_t which, std::size_t h, std::size_t c) {
    in.At(r, which, h, c) = (*tensors[which])(r, h * width(which) + c) = random[next++];
  });
  std::vector<float> statistics(shape.StatisticsSize());
  View out_view(out.data(), s.rows, value), dout_view(dout.data(), s.rows, value);
  fp4lab::Attention(shape, q.View(), k.View(), v.View(), out_view, statistics);
  fp4lab::AttentionBackward(shape, q.View(), k.View(), v.View(), out_view, statistics, dout_view,
                            {dq.View(), dk.View(), dv.View()});

  shape.scale = shape.Scale();
  shape.head_dim = s.padded;
  shape.value_dim = 0;
  const auto qkv = ToDeviceAs<A>(in.values), heads_gradient = ToDeviceAs<A>(dout);
  auto padded_out = Poisoned<A>(s.rows * s.heads * s.padded),
       padded_dout = Poisoned<A>(s.rows * s.heads * s.padded), heads = Poisoned<A>(dout.size()),
       d_qkv = Poisoned<A>(in.values.size());
  auto device_statistics = Poisoned<float>(statistics.size() / 2),
       dots = Poisoned<float>(statistics.size() / 2);
  Attention(shape, qkv.data(), padded_out.data(), device_statistics.data(), nullptr);
  CopyColumns(s.rows * s.heads, Columns<const A>{padded_out.data(), s.padded, s.value},
              Columns<A>{heads.data(), s.value, s.value}, nullptr);
  CopyColumns(s.rows * s.heads, Columns<const A>{heads_gradient.data(), s.value, s.value},
              Columns<A>{padded_dout.data(), s.padded, s.padded}, nullptr);
  if constexpr (std::is_same_v<A, float>) {
    AttentionBackward(shape, qkv.data(), padded_out.data(), device_statistics.data(),
                      padded_dout.data(), dots.data(), d_qkv.data(), nullptr);
  } else {
    AttentionBackward(shape, qkv.data(), padded_out.data(), device_statistics.data(),
                      padded_dout.data(), nullptr, nullptr, dots.data(), d_qkv.data(), nullptr);
  }
  CHECK(Distance(FloatsOf(heads), out) < tolerance);
  got_d.values = FloatsOf(d_qkv);
  std::vector<float> got[3], want[3];
  const Matrix<float>* const gradients[] = {&dq, &dk, &dv};
  for_all([&](std::size_t r, std::size_t which, std::size_t h, std::size_t c) {
    got[which].push_back(got_d.At(r, which, h, c));
    want[which].push_back((*gradients[which])(r, h * width(which) + c));
  });
  for (std::size_t which = 0; which < 3; ++which) {
    CAPTURE(which);
    CHECK(Distance(got[which], want[which]) < tolerance);
  }
}

TEST_CASE("Attention of padded heads on the GPU is the CPU's of heads as they are", "[gpu]") {
  if (NoGpu()) return;
  for (const LatentShape& s : kShapes) {
    for (const std::size_t window : {0, 7}) {
      CheckAttention<float>(s, window, 1e-5);
      if (HasTensorCoreAttention(s.padded)) CheckAttention<Bf16>(s, window, 1e-2);
    }
  }
}

}  // namespace
}  // namespace fp4lab::gpu
