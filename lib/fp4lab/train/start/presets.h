// Published shapes of models, as rows of data/presets.json, which the library embeds, and the rule
// by which a shape is scaled to a size that fits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

// A public file that shows numbers of a row.
struct PresetEvidence {
  std::string repository, file, commit;  // "owner/name", a path, 40 hexadecimal digits
  std::vector<std::string> shows;  // keys of Preset::published and ::model: "ffn", "moe/score"
};

struct Preset {
  std::string name;    // "qwen3-moe": for "model": {"preset": "qwen3-moe"}
  std::string title;   // the published model
  std::string source;  // the publication
  std::vector<PresetEvidence> evidence;
  std::vector<std::string> unproved;  // keys that no public file was found for
  std::string not_modelled;           // what `model` leaves out; may be empty
  // layers, d_model, heads, kv_heads, head_dim, ffn, vocabulary, context (tokens of a sequence);
  // window where there is one; experts, top_k, expert_ffn of a model with experts; the widths of
  // MlaConfig in place of head_dim.
  Json published;
  Json model;  // the members of a model that have no size: activation, parts, rope_theta, ...
};

// In the order of the file.
const std::vector<Preset>& Presets();
// Throws Error at `where` for an unknown name.
const Preset& PresetNamed(std::string_view name, const std::string& where);

// The rule, in the words of `fp4lab presets`.
extern const std::string_view kPresetRule;

// The members of a model (for ReadModelConfig) of the shape at a width: `d_model` 0 is 64,
// `sequence` 0 is 128. With s = d_model / published d_model:
//   layers     max(2, nearest(layers s)), up to whole periods of window, rope and parts
//   head_dim   the largest power of two, at most the published, at which the width of the queries
//              has two heads for each key head and group; at least 16
//              (latent attention: of queries and keys without positions; the size with positions
//              and that of values keep their ratio to it, and the ranks are scaled as ffn is)
//   heads      nearest to heads head_dim s / head_dim that is a multiple of the published group
//              (heads per key head), at least one group; kv_heads: one for each group
//   first_k_dense_replace  max(1, nearest(first_k_dense_replace s)) if there is one
//   ffn        nearest multiple of 32 to ffn s, at least 32; of an expert as well
//   experts    experts / c of which top_k / c are chosen; c: the largest power of two at most 1 / s
//              that divides both and leaves two
//   window     nearest(window sequence / context), at least 2
//   gate_rank  32 with gated linear attention, which no published shape has
//   vocabulary 256
// At the published d_model and context it is the published shape, but for the vocabulary.
Json ModelOfPreset(const Preset& preset, int d_model, int sequence);

}  // namespace fp4lab
