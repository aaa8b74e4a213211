// Every kernel of a training step against the CPU's function: the same bits if both sum in the same
// order.
#include <map>

#include "fp4lab/gpu/engine/tokens.h"
#include "fp4lab/gpu/kernels/kernels.cuh"
#include "fp4lab/gpu/optimizer/adamw.cuh"
#include "fp4lab/gpu/quantize/delayed_scaling.cuh"
#include "fp4lab/gpu/quantize/quantize.cuh"
#include "fp4lab/nn/attention/rope.h"
#include "fp4lab/nn/embedding.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/nn/rmsnorm.h"
#include "tests/gpu/device.h"

namespace fp4lab::gpu {
namespace {

struct Size {
  std::size_t rows, cols;
};
const std::vector<Size> kSizes = {{1, 16},  {37, 100}, {130, 64},  {515, 257}, {50, 256},
                                  {7, 512}, {40, 768}, {20, 1028}, {33, 1600}, {70, 128}};

template <class X>
MatrixView<X> View(std::vector<std::remove_const_t<X>>& x, std::size_t rows, std::size_t cols) {
  return {x.data(), rows, cols};
}

TEST_CASE("Amax histories on the GPU advance as on the CPU", "[gpu]") {
  if (NoGpu()) return;
  constexpr std::size_t kStride = 1100;
  std::vector<DelayedScaling> scalings;
  for (const std::uint16_t length : {0, 1, 2, 3, 255, 256, 257, 512, 1024, 1099}) {
    scalings.push_back({length, false});
    scalings.push_back({length, true});
  }
  std::vector<float> numbers = Normal(1, scalings.size() * kStride);
  for (float& x : numbers) x = std::fabs(x);
  numbers[4 * kStride + 1] = 0.0f;      // no amax in the step
  numbers[6 * kStride + 1] = INFINITY;  // an infinite amax or maximum keeps the scale
  numbers[7 * kStride + 1] = INFINITY;
  const auto device = ToDevice(numbers);
  const auto device_scalings = ToDevice(scalings);
  for (int step = 0; step < 3; ++step) {
    AdvanceAmaxHistories(device_scalings.data(), scalings.size(), device.data(), kStride, nullptr);
    for (std::size_t i = 0; i < scalings.size(); ++i) {
      AdvanceAmaxHistory(scalings[i], &numbers[i * kStride]);
    }
    CHECK(ToHost(device) == numbers);
  }
}

TEST_CASE("Delayed scaling uses the recorded amax and records the current one", "[gpu]") {
  if (NoGpu()) return;
  const auto history = ToDevice(std::vector<float>{5.0f, 2.0f});
  const auto amax = ToDevice(std::vector<float>{3.0f});
  const auto take = [&](bool records) {
    TakeDelayedAmax(history.data(), records, reinterpret_cast<std::uint32_t*>(amax.data()),
                    nullptr);
  };
  take(false);
  CHECK(ToHost(amax) == std::vector{5.0f});
  CHECK(ToHost(history) == std::vector{5.0f, 2.0f});
  take(true);
  CHECK(ToHost(history) == std::vector{5.0f, 5.0f});
}

template <class T>
void CheckRmsNorm(std::size_t rows, std::size_t cols) {
  std::vector<float> x = Normal(1, rows * cols, 2.0), gain = Normal(2, cols);
  std::vector<float> dy = Normal(3, rows * cols), dx = Normal(4, rows * cols);
  const auto device_x = ToDevice(x), device_gain = ToDevice(gain), device_dy = ToDevice(dy);
  auto device_dx = ToDevice(dx);
  auto y = Poisoned<T>(rows * cols), rounded = Poisoned<T>(rows * cols);
  auto inverse = Poisoned<float>(rows);
  const std::size_t chunks = (rows + kGainChunk - 1) / kGainChunk;
  auto partials = Poisoned<float>(chunks * cols);
  std::vector<float> dgain = Normal(5, cols);
  auto device_dgain = ToDevice(dgain);
  RmsNorm(device_x.data(), device_gain.data(), 1e-5f, rows, cols, y.data(), inverse.data(),
          nullptr);
  RmsNormBackward(device_x.data(), device_gain.data(), inverse.data(), device_dy.data(), true, rows,
                  cols, device_dx.data(), rounded.data(), partials.data(), nullptr);
  const auto place = ToDevice(std::vector<GainPlace>{{0, static_cast<std::uint32_t>(cols)}});
  SumGains(partials.data(), chunks * cols, 1, chunks, place.data(), cols, device_dgain.data(),
           nullptr);

  std::vector<float> want(rows * cols), want_inverse(rows);
  fp4lab::RmsNorm(View<const float>(x, rows, cols), gain, 1e-5f, View<float>(want, rows, cols),
                  want_inverse);
  fp4lab::RmsNormBackward(View<const float>(x, rows, cols), gain, want_inverse,
                          View<const float>(dy, rows, cols), Write::kAccumulate,
                          View<float>(dx, rows, cols), dgain);
  CHECK(Different(FloatsOf(y), RoundedTo<T>(want)) == 0);
  CHECK(Different(ToHost(inverse), want_inverse) == 0);
  CHECK(Different(ToHost(device_dx), dx) == 0);
  CHECK(Different(FloatsOf(rounded), RoundedTo<T>(dx)) == 0);
  CHECK(Distance(ToHost(device_dgain), dgain) < 1e-6);
}

TEST_CASE("RMSNorm on the GPU gives the CPU's bits, forward and backward", "[gpu]") {
  if (NoGpu()) return;
  for (const auto [rows, cols] : kSizes) {
    CAPTURE(rows, cols);
    CheckRmsNorm<float>(rows, cols);
    CheckRmsNorm<Bf16>(rows, cols);
  }
}

// Compares the amaxes that a kernel measures of its result, plain and after the Hadamard transform,
// with those of a separate pass over the result.
template <class Run>
void CheckAmax(std::size_t rows, std::size_t cols, Run&& run) {
  const auto measured = ToDevice(std::vector<std::uint32_t>(2, 0));
  const auto plain_only = ToDevice(std::vector<std::uint32_t>(1, 0));
  const auto want = ToDevice(std::vector<std::uint32_t>(2, 0));
  auto out = Poisoned<Bf16>(rows * cols), again = Poisoned<Bf16>(rows * cols),
       unmeasured = Poisoned<Bf16>(rows * cols);
  run(out.data(), AmaxPlaces{measured.data(), measured.data() + 1});
  run(again.data(), AmaxPlaces{plain_only.data(), nullptr});
  run(unmeasured.data(), AmaxPlaces{});
  QuantizeJob job;
  job.rows = rows;
  job.cols = cols;
  job.along_rows = true;
  job.hadamard = 16;
  MeasureBoth(job, out.data(), want.data(), want.data() + 1, nullptr);
  CHECK(ToHost(measured) == ToHost(want));
  CHECK(ToHost(plain_only)[0] == ToHost(want)[0]);
  CHECK(ToHost(want)[1] != 0);
  CHECK(Different(FloatsOf(out), FloatsOf(unmeasured)) == 0);
  CHECK(Different(FloatsOf(again), FloatsOf(unmeasured)) == 0);
}

TEST_CASE("Amaxes measured by the producing kernel equal a separate pass", "[gpu]") {
  if (NoGpu()) return;
  for (const auto [rows, cols] : std::vector<Size>{{16, 128}, {64, 512}, {48, 768}, {80, 1602}}) {
    CAPTURE(rows, cols);
    std::vector<float> values = Normal(1, rows * cols, 2.0);
    for (std::size_t i = 0; i < values.size(); i += 7) values[i] *= 0x1p-20f;  // wide groups
    const auto x = ToDevice(values), dy = ToDevice(Normal(3, rows * cols));
    const auto gain = ToDevice(Normal(2, cols));
    auto inverse = ToDevice(std::vector<float>(rows, 0.75f));
    auto partials = Poisoned<float>((rows + kGainChunk - 1) / kGainChunk * cols);
    CheckAmax(rows, cols, [&, cols = cols, rows = rows](Bf16* out, const AmaxPlaces& amax) {
      auto scratch = Poisoned<float>(rows);
      RmsNorm(x.data(), gain.data(), 1e-5f, rows, cols, out, scratch.data(), nullptr, amax);
      Check(cudaDeviceSynchronize(), "test");
    });
    CheckAmax(rows, cols, [&, cols = cols, rows = rows](Bf16* out, const AmaxPlaces& amax) {
      auto dx = Poisoned<float>(rows * cols);
      RmsNormBackward(x.data(), gain.data(), inverse.data(), dy.data(), false, rows, cols,
                      dx.data(), out, partials.data(), nullptr, amax);
      Check(cudaDeviceSynchronize(), "test");
    });
    for (const Activation activation : {Activation::kSquaredRelu, Activation::kGelu}) {
      CheckAmax(rows, cols, [&, cols = cols, rows = rows](Bf16* out, const AmaxPlaces& amax) {
        Activate(activation, x.data(), rows, cols, out, nullptr, amax);
      });
      CheckAmax(rows, cols, [&, cols = cols, rows = rows](Bf16* out, const AmaxPlaces& amax) {
        ActivateBackward(activation, x.data(), dy.data(), rows, cols, out, nullptr, amax);
      });
    }
  }
}

std::vector<std::uint16_t> SkewedTokens(std::size_t rows, std::size_t vocabulary) {
  std::vector<std::uint16_t> tokens(rows);
  const RandomStream stream{9, 0, 0};
  for (std::size_t i = 0; i < rows; ++i) {
    const std::uint32_t bits = stream.Bits32(i);
    tokens[i] = bits % 3 == 0 ? 5 : static_cast<std::uint16_t>((bits >> 8) % vocabulary);
  }
  return tokens;
}

TEST_CASE("The embedding on the GPU copies rows, and adds their gradients in a fixed order",
          "[gpu]") {
  if (NoGpu()) return;
  constexpr std::size_t kVocabulary = 50;
  for (const auto [rows, cols] : kSizes) {
    CAPTURE(rows, cols);
    std::vector<float> table = Normal(1, kVocabulary * cols), dy = Normal(2, rows * cols);
    const std::vector<std::uint16_t> tokens = SkewedTokens(rows, kVocabulary);
    const auto device_table = ToDevice(table), device_dy = ToDevice(dy);
    const auto device_tokens = ToDevice(tokens);
    auto y = Poisoned<float>(rows * cols);
    Embedding(device_table.data(), device_tokens.data(), rows, cols, y.data(), nullptr);
    std::vector<float> want(rows * cols);
    fp4lab::Embedding(View<const float>(table, kVocabulary, cols), tokens,
                      View<float>(want, rows, cols));
    CHECK(Different(ToHost(y), want) == 0);

    const SortedTokens sorted = SortTokens(tokens, kVocabulary, kSegmentRows);
    const auto of_rows = ToDevice(sorted.rows), first = ToDevice(sorted.first);
    const auto of_token = ToDevice(sorted.of_token);
    const std::size_t segments = sorted.first.size() - 1;
    auto partials = Poisoned<float>(segments * cols);
    auto dtable = ToDevice(table);
    EmbeddingBackward({of_rows.data(), first.data(), of_token.data(), segments, kVocabulary},
                      device_dy.data(), cols, partials.data(), dtable.data(), nullptr);
    fp4lab::EmbeddingBackward(tokens, View<const float>(dy, rows, cols),
                              View<float>(table, kVocabulary, cols));
    CHECK(Distance(ToHost(dtable), table) < 1e-6);
  }
}

template <class T>
void CheckRope(std::size_t kv_heads, std::size_t head_dim) {
  const RopeShape s{6 * 11, 11, 4, kv_heads, head_dim};
  const RopeTable table = MakeRopeTable(s.positions, head_dim, 10000.0f);
  std::vector<float> qkv = Normal(1, s.rows * s.Width());
  const auto device = ToDevice(qkv), cos = ToDevice(table.cos.values),
             sin = ToDevice(table.sin.values);
  auto out = Poisoned<T>(qkv.size()), back = Poisoned<T>(qkv.size());
  Rope(s, cos.data(), sin.data(), device.data(), out.data(), nullptr);
  RopeBackward(s, cos.data(), sin.data(), device.data(), back.data(), nullptr);
  std::vector<float> want = qkv, want_back = qkv;
  const std::size_t rotated = (s.heads + kv_heads) * head_dim;
  fp4lab::Rope(table, View<float>(want, s.rows, s.Width()).Block(0, 0, s.rows, rotated));
  fp4lab::RopeBackward(table,
                       View<float>(want_back, s.rows, s.Width()).Block(0, 0, s.rows, rotated));
  CHECK(Different(FloatsOf(out), RoundedTo<T>(want)) == 0);
  CHECK(Different(FloatsOf(back), RoundedTo<T>(want_back)) == 0);
}

TEST_CASE("Rotary positions on the GPU give the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const std::size_t head_dim : {16, 30, 64}) {
    CAPTURE(head_dim);
    CheckRope<float>(4, head_dim);
    CheckRope<Bf16>(2, head_dim);
  }
}

template <class T>
void CheckActivation(Activation activation, std::size_t rows, std::size_t ffn) {
  const std::size_t width = activation == Activation::kSwiglu ? 2 * ffn : ffn;
  std::vector<float> up = Normal(1, rows * width, 4.0), dy = Normal(2, rows * ffn);
  up[0] = 100.0f;
  up[1] = -200.0f;
  up[2] = -0.0f;
  const auto device_up = ToDevice(up), device_dy = ToDevice(dy);
  auto out = Poisoned<T>(rows * ffn), d_up = Poisoned<T>(rows * width);
  Activate(activation, device_up.data(), rows, ffn, out.data(), nullptr);
  ActivateBackward(activation, device_up.data(), device_dy.data(), rows, ffn, d_up.data(), nullptr);
  std::vector<float> want(rows * ffn), want_d(rows * width);
  const auto x = View<const float>(up, rows, width);
  const auto g = View<const float>(dy, rows, ffn);
  const auto y = View<float>(want, rows, ffn), dx = View<float>(want_d, rows, width);
  switch (activation) {
    case Activation::kSquaredRelu:
      SquaredRelu(x, y);
      SquaredReluBackward(x, g, dx);
      break;
    case Activation::kGelu:
      Gelu(x, y);
      GeluBackward(x, g, dx);
      break;
    case Activation::kSwiglu:
      Swiglu(x.Block(0, 0, rows, ffn), x.Block(0, ffn, rows, ffn), y);
      SwigluBackward(x.Block(0, 0, rows, ffn), x.Block(0, ffn, rows, ffn), g,
                     dx.Block(0, 0, rows, ffn), dx.Block(0, ffn, rows, ffn));
      break;
  }
  CHECK(Different(FloatsOf(out), RoundedTo<T>(want)) == 0);
  CHECK(Different(FloatsOf(d_up), RoundedTo<T>(want_d)) == 0);
}

TEST_CASE("Activations on the GPU give the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const Activation activation :
       {Activation::kSquaredRelu, Activation::kGelu, Activation::kSwiglu}) {
    for (const auto [rows, cols] : kSizes) {
      CAPTURE(static_cast<int>(activation), rows, cols);
      CheckActivation<float>(activation, rows, cols);
      CheckActivation<Bf16>(activation, rows, cols);
    }
  }
}

template <class T>
void CheckLoss(std::size_t rows, std::size_t vocabulary) {
  std::vector<float> logits = Normal(1, rows * vocabulary, 1.0);
  // Exponentials of all sizes, of some binades, that are nearly and that are exactly equal. Sums of
  // the third kind have many ties.
  constexpr float kDeviations[] = {3.0f, 20.0f, 0.01f, 0.0f};
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] *= kDeviations[i / vocabulary % 4];
  for (std::size_t c = 1; c < vocabulary; ++c) logits[c] -= 120.0f;  // exp is 0 in row 0
  const std::vector<std::uint16_t> targets = SkewedTokens(rows, vocabulary);
  const auto device_logits = ToDevice(logits);
  const auto device_targets = ToDevice(targets);
  auto losses = Poisoned<double>(rows), losses_again = Poisoned<double>(rows);
  auto gradient = Poisoned<T>(logits.size());
  auto sums = Poisoned<double>(Blocks(rows, kLossChunk));
  const float scale = 1.0f / 3000.0f;
  CrossEntropy(device_logits.data(), device_targets.data(), rows, vocabulary, losses.data(),
               nullptr);
  CrossEntropyGradient(device_logits.data(), device_targets.data(), scale, {}, rows, vocabulary,
                       losses_again.data(), gradient.data(), nullptr);
  SumLosses(losses.data(), rows, sums.data(), nullptr);
  std::vector<double> want_losses(rows);
  std::vector<float> want(logits.size());
  const double mean =
      fp4lab::CrossEntropyGradient(View<const float>(logits, rows, vocabulary), targets, scale,
                                   want_losses, View<float>(want, rows, vocabulary));
  CHECK(ToHost(losses) == want_losses);
  CHECK(ToHost(losses_again) == want_losses);
  CHECK(Different(FloatsOf(gradient), RoundedTo<T>(want)) == 0);
  double sum = 0.0;
  for (const double s : ToHost(sums)) sum += s;
  CHECK(sum / static_cast<double>(rows) == Approx(mean).epsilon(1e-13));
}

TEST_CASE("The loss and its gradient on the GPU give the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const std::size_t vocabulary : {7, 256, 1003, 4096, 23'557}) {
    for (const std::size_t rows : {1, 33, 2050}) {
      CAPTURE(rows, vocabulary);
      CheckLoss<float>(rows, vocabulary);
      CheckLoss<Bf16>(rows, vocabulary);
    }
  }
  CheckLoss<Bf16>(300, 50'257);
  CheckLoss<float>(300, 50'304);
  CheckLoss<Bf16>(33, 60'001);  // more than a multiprocessor's shared memory holds
}

TEST_CASE("AdamW and the gradient's norm on the GPU give the CPU's bits", "[gpu]") {
  if (NoGpu()) return;
  for (const std::size_t size : {1, 100, 4096, 50'001}) {
    CAPTURE(size);
    std::vector<float> gradient = Normal(1, size, 1e-3), weight = Normal(2, size);
    std::vector<float> m = Normal(3, size, 1e-3), v = Normal(4, size, 1e-4);
    for (float& value : v) value *= value;
    const AdamW options{
        .learning_rate = 3e-3f, .weight_decay = 0.1f, .gradient_scale = 0.37f, .step = 17};
    const auto device_gradient = ToDevice(gradient);
    auto device_weight = ToDevice(weight), device_m = ToDevice(m), device_v = ToDevice(v);
    auto partial = Poisoned<double>(Blocks(size, kSquaresChunk));
    AdamWStep(options, size, device_gradient.data(), device_weight.data(), device_m.data(),
              device_v.data(), nullptr);
    SumSquares(device_gradient.data(), size, partial.data(), nullptr);
    fp4lab::AdamWStep(options, gradient, weight, m, v);
    CHECK(Different(ToHost(device_weight), weight) == 0);
    CHECK(Different(ToHost(device_m), m) == 0);
    CHECK(Different(ToHost(device_v), v) == 0);
    double sum = 0.0;
    for (const double p : ToHost(partial)) sum += p;
    CHECK(sum == SumOfSquares(gradient));

    for (const std::size_t first : {0, 1, 2}) {  // a parameter begins anywhere
      if (first >= size) continue;
      const std::vector<float> part(weight.begin() + static_cast<std::ptrdiff_t>(first),
                                    weight.end());
      auto rounded = Poisoned<Bf16>(part.size());
      auto wide = Poisoned<float>(part.size()), widened = Poisoned<float>(part.size());
      RoundTo(device_weight.data() + first, part.size(), rounded.data(), nullptr);
      RoundTo(device_weight.data() + first, part.size(), wide.data(), nullptr);
      RoundTo(rounded.data(), part.size(), widened.data(), nullptr);
      for (const std::vector<float>& got : {FloatsOf(rounded), ToHost(wide), ToHost(widened)}) {
        CHECK(Different(got, RoundedTo<Bf16>(part)) == 0);
      }
    }
  }
}

}  // namespace
}  // namespace fp4lab::gpu
