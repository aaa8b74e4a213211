// A mixture of experts on the GPU: the router's products and the rows of experts against the CPU,
// and experts at once against experts one after the other.
#include <algorithm>
#include <cmath>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/gpu/engine/step_parts.cuh"
#include "fp4lab/gpu/kernels/expert_rows.cuh"
#include "fp4lab/gpu/kernels/router_gemm.cuh"
#include "fp4lab/tensor/gemm.h"
#include "tests/gpu/device.h"
#include "tests/gpu/trainers.h"

namespace fp4lab::gpu {
namespace {

using View = MatrixView<const float>;

struct RouterShape {
  std::size_t rows, cols, experts;
};

TEST_CASE(
    "The router's products on the GPU are the CPU's: logits and the input's gradient to the "
    "bit",
    "[gpu]") {
  if (NoGpu()) return;
  for (const RouterShape& s : std::vector<RouterShape>{
           {1, 1, 1}, {37, 64, 8}, {1030, 132, 33}, {300, 30, 3}, {513, 1028, 17}}) {
    CAPTURE(s.rows, s.cols, s.experts);
    std::vector<float> x = Normal(1, s.rows * s.cols), w = Normal(2, s.experts * s.cols, 0.1);
    if (s.rows > 4) x[4 * s.cols] = INFINITY;
    const std::vector<float> dy = Normal(3, s.rows * s.experts, 1e-3);
    const View xs(x.data(), s.rows, s.cols), ws(w.data(), s.experts, s.cols);
    const View dys(dy.data(), s.rows, s.experts);
    const auto device_x = ToDevice(x), device_w = ToDevice(w), device_dy = ToDevice(dy);

    auto logits = Poisoned<float>(dy.size());
    RouterLogits(device_x.data(), device_w.data(), s.rows, s.cols, s.experts, logits.data(),
                 nullptr);
    std::vector<float> want(dy.size());
    fp4lab::Gemm(xs, ws, {}, {want.data(), s.rows, s.experts});
    CHECK(Different(ToHost(logits), want) == 0);

    auto dx = Poisoned<float>(x.size());
    AddInputGradients(s.rows, 0, nullptr, nullptr, {device_dy.data(), device_w.data(), s.experts},
                      s.cols, false, dx.data(), nullptr);
    std::vector<float> want_dx(x.size());
    fp4lab::Gemm(dys, ws.Transposed(), {}, {want_dx.data(), s.rows, s.cols});
    CHECK(Different(ToHost(dx), want_dx) == 0);

    if (s.rows > 4) x[4 * s.cols] = 1.0f;
    const auto finite_x = ToDevice(x);
    std::vector<float> want_dw = Normal(4, w.size());
    const auto dw = ToDevice(want_dw);
    auto partials = Poisoned<float>(DivideUp(s.rows, kRouterChunk) * w.size());
    const auto place = ToDevice(std::vector<GainPlace>{{0, static_cast<std::uint32_t>(w.size())}});
    AddRouterWeightGradient(device_dy.data(), finite_x.data(), s.rows, s.cols, s.experts,
                            partials.data(), place.data(), dw.data(), nullptr);
    fp4lab::Gemm(dys.Transposed(), xs.Transposed(), {.accumulate = true},
                 {want_dw.data(), s.experts, s.cols});
    CHECK(Distance(ToHost(dw), want_dw) < 1e-6);
  }
}

template <class T>
void CheckRows(std::size_t rows, std::size_t cols, std::size_t experts, std::size_t top_k,
               std::size_t pad) {
  CAPTURE(rows, cols, experts, top_k, pad);
  const std::size_t choices = rows * top_k;
  std::vector<std::uint32_t> chosen(choices), counts(experts), rank(choices), first(experts);
  for (std::size_t i = 0; i < choices; ++i) {  // the choices of a row differ
    const std::size_t row = i / top_k;
    chosen[i] = static_cast<std::uint32_t>((row * row / 3 + i % top_k) % experts);
    rank[i] = counts[chosen[i]]++;
  }
  std::size_t slots = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    first[e] = static_cast<std::uint32_t>(slots);
    slots += RoundUp(std::size_t{counts[e]}, pad);
  }
  const std::vector<float> weights = Normal(5, choices);
  const auto device_weights = ToDevice(weights);
  const auto device_chosen = ToDevice(chosen), device_counts = ToDevice(counts),
             device_rank = ToDevice(rank), device_first = ToDevice(first);
  const DeviceRouting routing{rows,
                              experts,
                              nullptr,
                              device_weights.data(),
                              device_chosen.data(),
                              device_counts.data(),
                              device_rank.data(),
                              nullptr};
  const ExpertPadding padding{device_counts.data(), device_first.data(), experts, pad};
  auto device_slot = Poisoned<std::uint32_t>(choices);
  PlaceSlots(routing, top_k, device_first.data(), device_slot.data(), nullptr);
  const std::vector<std::uint32_t> slot = ToHost(device_slot);
  for (std::size_t i = 0; i < choices; ++i) REQUIRE(slot[i] == first[chosen[i]] + rank[i]);

  const std::vector<float> x = Normal(6, rows * cols), results = Normal(7, slots * cols);
  const auto device_x = ToDevice(x), device_results = ToDevice(results);
  auto spread = Poisoned<T>(slots * cols), d_results = Poisoned<T>(slots * cols);
  auto out = Poisoned<float>(rows * cols), d_weights = Poisoned<float>(choices);
  auto d_x = ToDevice(x);
  SpreadRows(device_x.data(), rows, top_k, device_slot.data(), padding, cols, spread.data(),
             nullptr);
  AddExperts(routing, top_k, device_slot.data(), device_results.data(), cols, device_x.data(),
             out.data(), nullptr);
  AddExpertsBackward(routing, top_k, device_slot.data(), padding, device_results.data(),
                     device_x.data(), cols, d_results.data(), d_weights.data(), nullptr);
  AddInputGradients(rows, top_k, device_slot.data(), device_results.data(), {}, cols, true,
                    d_x.data(), nullptr);

  std::vector<float> want_spread(slots * cols), want_d(slots * cols), want_out = x, want_dx = x;
  std::vector<float> want_weights(choices);
  for (std::size_t i = 0; i < choices; ++i) {
    double dot = 0.0;
    for (std::size_t c = 0; c < cols; ++c) {
      const std::size_t from = i / top_k * cols + c, to = slot[i] * cols + c;
      want_spread[to] = x[from];
      want_d[to] = weights[i] * x[from];
      want_out[from] += weights[i] * results[to];
      want_dx[from] += results[to];
      dot += double{x[from]} * results[to];
    }
    want_weights[i] = static_cast<float>(dot);
  }
  for (float& value : want_dx) value += 0.0f;  // of the router
  CHECK(Different(FloatsOf(spread), RoundedTo<T>(want_spread)) == 0);
  CHECK(Different(FloatsOf(d_results), RoundedTo<T>(want_d)) == 0);
  CHECK(Different(ToHost(out), want_out) == 0);
  CHECK(Different(ToHost(d_x), want_dx) == 0);
  CHECK(Distance(ToHost(d_weights), want_weights) < 1e-6);
}

TEST_CASE("Rows go to their experts on the GPU and come back as on the CPU, padding included",
          "[gpu]") {
  if (NoGpu()) return;
  CheckRows<float>(1, 4, 2, 1, 1);
  CheckRows<Bf16>(1030, 132, 8, 2, 16);
  CheckRows<float>(300, 30, 33, 6, 128);
  CheckRows<Bf16>(257, 1028, 5, 5, 32);
}

TEST_CASE("Experts at once give the bits of experts one after the other", "[gpu]") {
  if (NoGpu()) return;
  for (const char* recipe : {"bf16", "te_nvfp4", "te_mxfp8", "deepseek_v3_fp8"}) {
    CAPTURE(recipe);
    const TrainConfig config = ReadTrainConfig(
        {{"model",
          {{"layers", 2},
           {"d_model", 128},
           {"heads", 4},
           {"ffn", 128},
           {"sequence", 128},
           {"parts", {"attention", "moe"}},
           {"moe", {{"experts", 8}, {"top_k", 3}, {"shared_experts", 1}, {"pad_tokens", 128}}}}},
         {"schedule", {{"learning_rate", 3e-3}, {"warmup_steps", 10}}},
         {"data", {{"source", "synthetic"}}},
         {"evaluation", {{"tokens", 4096}}},
         {"recipe", recipe},
         {"batch", 8},
         {"tokens", 1024 * 10}},
        "test");
    Trainer at_once = OnGpu(config), in_turn = OnGpu(config);
    const std::vector<double> losses = Train(&at_once, 10);
    DeviceStepClock clock(nullptr);  // a step that is timed has one lane
    device_step_clock = &clock;
    const std::vector<double> in_turn_losses = Train(&in_turn, 10);
    device_step_clock = nullptr;
    CHECK(losses == in_turn_losses);
    CHECK(at_once.SaveState() == in_turn.SaveState());
  }
}

}  // namespace
}  // namespace fp4lab::gpu
