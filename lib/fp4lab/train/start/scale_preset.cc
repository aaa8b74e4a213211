// The rule that scales a published shape.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/train/start/presets.h"

namespace fp4lab {
namespace {

constexpr int kWidth = 64, kSequence = 128, kVocabulary = 256, kBlock = 32, kLeastHeadDim = 16;

int Nearest(double x) { return static_cast<int>(std::lround(x)); }

// The multiple of `unit` nearest to x, at least one.
int NearestMultiple(double x, int unit) { return unit * std::max(1, Nearest(x / unit)); }

int Value(const Json& json, const char* key) { return json.value(key, 0); }

// Whether the blocks take lists of parts in turn.
bool IsPattern(const Preset& preset) {
  const Json parts = preset.model.value("parts", Json::array());
  return !parts.empty() && parts.front().is_array();
}

int Layers(const Preset& preset, double s) {
  int period = 1;
  for (const char* key : {"full_attention_every", "no_rope_every"}) {
    period = std::lcm(period, std::max(1, Value(preset.model, key)));
  }
  if (IsPattern(preset)) {
    period = std::lcm(period, static_cast<int>(preset.model.at("parts").size()));
  }
  const int layers = std::max(2, Nearest(Value(preset.published, "layers") * s));
  return (layers + period - 1) / period * period;
}

// The largest power of two that divides both numbers, leaves two chosen ones and is at most `most`.
int ExpertsDivisor(int experts, int top_k, double most) {
  int c = 1;
  while (2 * c <= most && experts % (2 * c) == 0 && top_k % (2 * c) == 0 && top_k / (2 * c) >= 2) {
    c *= 2;
  }
  return c;
}

}  // namespace

const std::string_view kPresetRule =
    "\"model\": {\"preset\": NAME, \"d_model\": D} scales all widths by D / the published d_model. "
    "The ratios of ffn, heads, key heads, experts and chosen experts stay, and the window's to the "
    "sequence; widths are rounded to multiples of 32. Other members of \"model\" win.";

const Preset& PresetNamed(std::string_view name, const std::string& where) {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  throw Error(where, "unknown preset \"" + std::string(name) + "\"; " +
                         DidYouMean(name, names, "see fp4lab presets"));
}

Json ModelOfPreset(const Preset& preset, int d_model, int sequence) {
  const IeeeArithmetic ieee;
  const Json& p = preset.published;
  const int width = d_model > 0 ? d_model : kWidth, tokens = sequence > 0 ? sequence : kSequence;
  const double s = static_cast<double>(width) / Value(p, "d_model");
  const int published_heads = Value(p, "heads"), group = published_heads / Value(p, "kv_heads");
  const bool latent = p.contains("kv_lora_rank");
  const int published_head_dim = Value(p, latent ? "qk_nope_head_dim" : "head_dim");
  const double queries = s * published_heads * published_head_dim;
  int head_dim = published_head_dim;
  while (head_dim > kLeastHeadDim && Nearest(queries) < 2 * group * head_dim) head_dim /= 2;
  const int heads = NearestMultiple(queries / head_dim, group);
  Json model = preset.model;
  model["layers"] = Layers(preset, s);
  model["d_model"] = width;
  model["heads"] = heads;
  model["kv_heads"] = heads / group;
  if (heads * head_dim != width) model["head_dim"] = head_dim;
  model["ffn"] = NearestMultiple(s * Value(p, "ffn"), kBlock);
  model["sequence"] = tokens;
  model["vocabulary"] = kVocabulary;
  if (p.contains("window")) {
    model["window"] = std::max(2, Nearest(1.0 * Value(p, "window") * tokens / Value(p, "context")));
  }
  if (latent) {
    for (const char* rank : {"q_lora_rank", "kv_lora_rank"}) {
      model["mla"][rank] = NearestMultiple(s * Value(p, rank), kBlock);
    }
    for (const char* size : {"qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
      model["mla"][size] = Value(p, size) * head_dim / published_head_dim;
    }
  }
  if (IsPattern(preset)) model["gla"]["gate_rank"] = kBlock;
  if (p.contains("experts")) {
    const int experts = Value(p, "experts"), top_k = Value(p, "top_k"),
              c = ExpertsDivisor(experts, top_k, 1.0 / s);
    model["moe"]["experts"] = experts / c;
    model["moe"]["top_k"] = top_k / c;
    model["moe"]["ffn"] = NearestMultiple(s * Value(p, "expert_ffn"), kBlock);
    if (const int dense = Value(p, "first_k_dense_replace"); dense > 0) {
      model["moe"]["first_k_dense_replace"] = std::max(1, Nearest(s * dense));
    }
  }
  return model;
}

}  // namespace fp4lab
