// The operations of a step, beside counts made by hand and MaxText's formulas.
#include "fp4lab/train/flops.h"

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

TrainConfig Config(const Json& model, int batch = 4) {
  return ReadTrainConfig({{"model", model}, {"batch", batch}, {"recipe", "bf16"}}, "test");
}

// MaxText 0.2.5, calculate_tflops_training_per_device, for a dense decoder: every weight once
// forward and twice backward, and attention with half of the causal square.
double MaxTextFlops(double batch, double length, double layers, double emb, double query_heads,
                    double kv_heads, double head_dim, double mlp_matrices, double mlp_dim,
                    double vocabulary) {
  const double ffn = mlp_matrices * 2 * batch * length * emb * mlp_dim;
  const double qkv = 2 * batch * length * emb * (query_heads + 2 * kv_heads) * head_dim;
  const double projection = 2 * batch * length * emb * query_heads * head_dim;
  const double attention = 4 * batch * length * length * query_heads * head_dim / 2;
  const double embedding = 2 * batch * length * emb * vocabulary;
  return 3 * ((ffn + qkv + projection) * layers + embedding) + 3 * attention * layers;
}

TEST_CASE("A dense decoder's step has MaxText's count", "[train]") {
  CHECK(StepFlops(Config({{"layers", 3},
                          {"d_model", 64},
                          {"heads", 4},
                          {"kv_heads", 2},
                          {"ffn", 160},
                          {"sequence", 96},
                          {"vocabulary", 512}})) ==
        Catch::Approx(MaxTextFlops(4, 96, 3, 64, 4, 2, 16, 2, 160, 512)));
  // A gated MLP has three matrices; heads may be wider than the model.
  CHECK(StepFlops(Config({{"layers", 2},
                          {"d_model", 64},
                          {"heads", 4},
                          {"head_dim", 32},
                          {"ffn", 96},
                          {"sequence", 32},
                          {"activation", "swiglu"}},
                         2)) == Catch::Approx(MaxTextFlops(2, 32, 2, 64, 4, 4, 32, 3, 96, 256)));
}

TEST_CASE("Windows leave keys out of the count, and micro-batches change nothing", "[train]") {
  const Json model = {{"layers", 2}, {"d_model", 64}, {"heads", 4}, {"sequence", 64}};
  Json windowed = model;
  windowed["window"] = 16;
  windowed["full_attention_every"] = 2;  // the second block sees all keys
  const double all = StepFlops(Config(model)), some = StepFlops(Config(windowed));
  const double keys_left_out = 64 * 64 / 2.0 - (16 * 16 / 2.0 + (64 - 16) * 16);
  CHECK(all - some == Catch::Approx(6 * 4 * 2 * 64 * keys_left_out));
  TrainConfig parts = Config(model);
  parts.micro_batches = 4;
  CHECK(StepFlops(parts) == all);
}

TEST_CASE("Of experts those count that a token takes, and latent attention by its own widths",
          "[train]") {
  const Json moe = {{"layers", 1},
                    {"d_model", 64},
                    {"heads", 4},
                    {"ffn", 32},
                    {"sequence", 32},
                    {"parts", {"attention", "moe"}},
                    {"moe", {{"experts", 8}, {"top_k", 2}, {"shared_experts", 1}}}};
  const double tokens = 4 * 32;
  const double products = 64 * 8 /* router */ + (2 + 1) * 2 * 64 * 32 + 4 * 64 * 64 + 64 * 256;
  CHECK(StepFlops(Config(moe)) ==
        Catch::Approx(6 * tokens * products + 6 * 4 * 2 * 64 * 32 * 32 / 2.0));
  const Json mla = {{"layers", 1},
                    {"d_model", 64},
                    {"heads", 2},
                    {"ffn", 32},
                    {"sequence", 32},
                    {"parts", {"mla", "mlp"}},
                    {"mla",
                     {{"kv_lora_rank", 32},
                      {"qk_nope_head_dim", 32},
                      {"qk_rope_head_dim", 32},
                      {"v_head_dim", 16}}}};
  const double latent = 64 * 2 * 64 + 64 * (32 + 32) + 32 * (2 * 32 + 2 * 16) + 2 * 16 * 64;
  CHECK(StepFlops(Config(mla)) == Catch::Approx(6 * tokens * (latent + 2 * 64 * 32 + 64 * 256) +
                                                6 * 4 * (2 * 64 + 2 * 16) * 32 * 32 / 2.0));
}

}  // namespace
}  // namespace fp4lab
