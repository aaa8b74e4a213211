#include "fp4lab/checkpoint/config.h"

#include "tests/support/catch.h"

namespace fp4lab {
namespace {

QuantizationConfig Parse(const char* text) {
  return ParseQuantizationConfig(ParseJson(text, "config"), "config.json");
}

TEST_CASE("The configurations of the code bases", "[checkpoint]") {
  const QuantizationConfig ct = Parse(R"({"quant_method": "compressed-tensors",
    "format": "nvfp4-pack-quantized", "ignore": ["lm_head"], "config_groups": {"group_0": {
    "weights": {"num_bits": 4, "group_size": 16}, "input_activations": {"dynamic": "local"}}}})");
  CHECK(ct.algorithm == "nvfp4-pack-quantized");
  CHECK(ct.group_size == 16);
  CHECK(ct.input_scales == true);
  CHECK(IsExcluded(ct, "lm_head"));
  CHECK_FALSE(IsExcluded(ct, "lm_header"));
  const QuantizationConfig weights = Parse(R"({"config_groups": {"g": {"weights": {
    "group_size": 16}, "input_activations": null}}})");
  CHECK(weights.input_scales == false);
  const QuantizationConfig fp8 = Parse(R"({"quant_method": "fp8", "activation_scheme": "dynamic",
    "weight_block_size": [128, 64]})");
  CHECK(fp8.block_rows == 128);
  CHECK(fp8.block_cols == 64);
  CHECK(fp8.input_scales == false);
  const QuantizationConfig mlx = Parse(R"({"group_size": 32, "bits": 4, "mode": "mxfp4"})");
  CHECK(mlx.group_size == 32);
  CHECK(mlx.algorithm == "mxfp4");
}

TEST_CASE("Values of other types and sizes are not taken", "[checkpoint]") {
  const QuantizationConfig c = Parse(R"({"quant_method": 3, "group_size": -1,
    "weight_block_size": [1e30, "a"], "ignore": [1, {"a": 2}], "config_groups": [1]})");
  CHECK(c.method.empty());
  CHECK(c.group_size == 0);
  CHECK(c.block_rows == 0);
  CHECK(c.excluded.empty());
  CHECK(Parse("[1]").method.empty());
}

TEST_CASE("Patterns of modules", "[checkpoint]") {
  const QuantizationConfig c = Parse(R"({"ignore": ["model.layers.1.*", "*router*", "embed",
    "re:.*norm"]})");
  CHECK(IsExcluded(c, "model.layers.1.mlp.up"));
  CHECK_FALSE(IsExcluded(c, "model.layers.10.mlp.up"));
  CHECK(IsExcluded(c, "a.router.b"));
  CHECK(IsExcluded(c, "model.embed.x"));
  CHECK_FALSE(IsExcluded(c, "a.norm"));
}

}  // namespace
}  // namespace fp4lab
