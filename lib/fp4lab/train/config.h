// The configuration of a training run, as one value and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/data/config.h"
#include "fp4lab/io/json.h"
#include "fp4lab/nn/activation.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/train/observe/observation.h"
#include "fp4lab/train/schedule.h"

namespace fp4lab {

enum class RouterScore;  // nn/router.h; its first one is kSoftmax

// The part "moe": experts instead of one MLP.
struct MoeConfig {
  int experts = 8, top_k = 2;
  int ffn = 0;                // of an expert; 0: ModelConfig::ffn
  int shared_experts = 0;     // that every token takes
  RouterScore score = {};     // kSoftmax
  bool normalize = true;      // the weights of a token's experts add up to `scale`
  float scale = 1.0f;         // factor of the weights
  float balance_loss = 0.0f;  // coefficient of the load-balancing loss (nn/router.h)
  // The loss-free bias (arXiv 2408.15664): after each step an expert's bias, which only the choice
  // sees, moves by so much, up if the expert had fewer tokens than the mean. 0: no bias.
  float bias_rate = 0.0f;
  int pad_tokens = 32;  // an expert's rows are padded with zeros to a multiple
  // The first blocks have "mlp" in place of "moe", as many as this (DeepSeek-V3, arXiv 2412.19437).
  int first_k_dense_replace = 0;

  friend bool operator==(const MoeConfig&, const MoeConfig&) = default;
};

// The part "mla": multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), under DeepSeek's
// names of its widths.
struct MlaConfig {
  int q_lora_rank = 0;  // of the queries' latent; 0: queries come from the norm directly
  int kv_lora_rank = 32;
  // Of each head's queries and keys, without and with rotary positions. All heads share the keys
  // with positions.
  int qk_nope_head_dim = 32, qk_rope_head_dim = 32;
  int v_head_dim = 32;

  friend bool operator==(const MlaConfig&, const MlaConfig&) = default;
};

// The part "gla": gated linear attention (arXiv 2312.06635), with ModelConfig::heads heads.
struct GlaConfig {
  int key_head_dim = 0;    // of a head's queries and keys; 0: d_model / heads / 2
  int value_head_dim = 0;  // of a head's values and gates; 0: d_model / heads
  int gate_rank = 16;      // of the decays' projection

  friend bool operator==(const GlaConfig&, const GlaConfig&) = default;
};

// Maximal update parametrization (arXiv 2203.03466), in the form of Megatron-LM's --use-mup. With
// r = d_model / base_d_model, beside the model without it: matrices of blocks learn at 1 / r of the
// rate, embedding and head begin as they do at base_d_model, logits are multiplied by 1 / r and
// scores by sqrt(base_head_dim) / head_dim in place of 1 / sqrt(head_dim).
struct MupConfig {
  int base_d_model = 0;  // 0: standard parametrization
  float base_head_dim = 1.0f;

  friend bool operator==(const MupConfig&, const MupConfig&) = default;
};

// Outliers that are planted on purpose (model/outliers.h): channels of operands times `gain`, their
// readers divided by it, so that the model without quantization computes the same function.
struct OutlierConfig {
  float gain = 1.0f;  // a power of two, so that every rounding to BF16 scales with it; 1: none
  int channels = 1;   // of each place in each block, evenly spaced
  std::vector<std::string> places = {"norm"};  // names of Part::outliers
  std::int64_t step = 0;                       // after so many steps; 0: in the initial weights

  friend bool operator==(const OutlierConfig&, const OutlierConfig&) = default;
};

// A pre-norm decoder: blocks of parts; RMSNorm, no biases, no dropout.
struct ModelConfig {
  int layers = 4, d_model = 64, heads = 4;
  int kv_heads = 0;  // 0: as many as heads; fewer: grouped-query attention
  int ffn = 256;
  int sequence = 128;
  int vocabulary = 256;
  Activation activation = Activation::kSquaredRelu;
  bool tied_head = false;
  float norm_epsilon = 1e-5f, rope_theta = 10000.0f;
  // Of each block, in order (parts/parts.h says which a block has).
  std::vector<std::string> parts = {"attention", "mlp"};
  // Where blocks differ: block i has the parts of list i modulo the lists, and `parts` are those of
  // all lists, in the order of their first places. Empty: each block has `parts`.
  std::vector<std::vector<std::string>> pattern = {};
  int head_dim = 0;      // 0: d_model / heads
  bool qk_norm = false;  // RMSNorm of each head's queries and keys, before rotary positions (Qwen3)
  int window = 0;        // keys that a query sees, its own included; 0: all before it
  // With a window, every N-th block (N - 1, 2 N - 1, ...) sees all keys; 0: none does.
  int full_attention_every = 0;
  int no_rope_every = 0;  // every N-th block has no rotary positions; 0: all have them
  MoeConfig moe = {};
  MlaConfig mla = {};
  GlaConfig gla = {};
  MupConfig mup = {};
  float logit_soft_cap = 0.0f;  // 0: none; logits become cap tanh(logits / cap) (Gemma 2)
  float z_loss = 0.0f;          // coefficient of the z-loss (nn/loss.h)
  OutlierConfig outliers = {};

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// How Muon scales its orthogonal update of a matrix (out, in).
enum class MuonScale {
  kMoonlight,    // 0.2 sqrt(max(out, in)): the size of AdamW's updates (arXiv 2502.16982)
  kKellerJordan  // sqrt(max(1, out / in))
};

// nn/optimizer/muon.h, on the matrices of the blocks; AdamW updates embedding, head and gains.
struct MuonConfig {
  float momentum = 0.95f;
  bool nesterov = true;
  int steps = 5;
  bool bf16 = false;  // Newton-Schulz in BF16
  MuonScale scale = MuonScale::kMoonlight;
  bool split_fused = true;  // queries, keys, values, and a gate, are matrices of their own

  friend bool operator==(const MuonConfig&, const MuonConfig&) = default;
};

enum class LossScalingKind { kNone, kStatic, kDynamic };

// The backward pass computes the gradients of the loss times a scale, and the update divides by it.
// Dynamic: a step whose gradients are not finite changes no weight and halves the scale, down to 1;
// after growth_interval good steps in a row the scale doubles, up to kMostLossScale.
struct LossScalingConfig {
  LossScalingKind kind = LossScalingKind::kNone;
  float scale = 65536.0f;  // a power of two, so that the division is exact; dynamic: the first one
  int growth_interval = 2000;

  friend bool operator==(const LossScalingConfig&, const LossScalingConfig&) = default;
};
inline constexpr float kMostLossScale = 16777216.0f;

// The learning rate of each group of parameters (model/parameters.h), as a multiple of the
// schedule's.
struct GroupRates {
  float embeddings = 1.0f, matrices = 1.0f, gains = 1.0f;

  friend bool operator==(const GroupRates&, const GroupRates&) = default;
};

// Weights of embedding, head and linears decay, gains of norms do not. clip is the global norm, 0:
// off. An optimizer reads the numbers that its source file names.
struct OptimizerConfig {
  std::string name = "adamw";  // optimizer/optimizers.h
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, weight_decay = 0.1f, clip = 1.0f;
  GroupRates rates = {};
  MuonConfig muon = {};
  LossScalingConfig loss_scaling = {};

  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

// Validation reads the same windows of `sequence` tokens for every run: the first `tokens` tokens
// of the validation part (0: all), cut to whole windows.
struct EvaluationConfig {
  std::int64_t every = 0;  // steps; 0: at the end only
  std::int64_t tokens = 204'800;
  std::int64_t chunk_tokens = 2048;  // tokens of one entry of Evaluation::chunk_losses
  bool high_precision = true;        // evaluate also with the forward pass in high precision
  int diagnostics_every = 1;         // evaluations between diagnostics; 0: none
  // Further texts to validate on, each cut to windows as the validation part is.
  std::vector<ValidationText> texts = {};

  friend bool operator==(const EvaluationConfig&, const EvaluationConfig&) = default;
};

inline constexpr std::string_view kMuonName = "muon";  // the optimizer that reads `muon`

// A teacher whose logits the run is pulled to (start/teacher.h, nn/loss.h). The teacher is not
// quantized; its loss has the share, the text's cross-entropy the rest.
struct TeacherConfig {
  std::string from = {};     // its checkpoint; empty: no teacher
  float temperature = 1.0f;  // of both softmaxes
  float share = 1.0f;        // above 0, at most 1

  bool Asked() const { return !from.empty(); }
  friend bool operator==(const TeacherConfig&, const TeacherConfig&) = default;
};

enum class Device { kCpu, kCuda };
// "cpu" or "cuda".
std::string_view DeviceName(Device device);
Device ReadDevice(std::string_view name, const std::string& where);

struct TrainConfig {
  Device device = Device::kCpu;  // the processor that computes
  ModelConfig model;
  std::string start = {};  // the checkpoint with the first weights (start/start.h); empty: random
  TeacherConfig teacher = {};
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  RecipeConfig recipe;
  DataConfig data;
  std::uint64_t seed = 1;  // initial weights, stochastic rounding, data order (data.order_seed)
  // ulps of FP32, 0 to kMostNudge, by which one initial gain is moved: the run then differs from
  // its twin with 0 by chaos alone, the noise floor of a comparison. One ulp takes tens of steps to
  // reach the losses, 65536 (one ulp of BF16) a few.
  int nudge_ulps = 0;
  std::int64_t tokens = 1'000'000;  // the run's length, rounded down to whole steps
  int batch = 16;                   // sequences a step
  int micro_batches = 1;            // parts of a step over which its gradient is accumulated
  EvaluationConfig evaluation;
  DiagnosticsConfig diagnostics;      // the steps to observe; none by default
  std::int64_t log_every = 1;         // steps between lines of metrics
  std::int64_t checkpoint_every = 0;  // steps; 0: not by steps
  double checkpoint_minutes = 5.0;    // minutes; 0: not by time

  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

inline constexpr int kMostNudge = 1 << 20;

// Reads strictly; `where`, "run.json" or "study.json#/base", begins the errors. Keys: device,
// model, start, teacher, optimizer, schedule, recipe, data, seed, nudge_ulps, tokens, batch,
// micro_batches, evaluation, diagnostics, log_every, checkpoint_every, checkpoint_minutes. Checks
// shapes, too (CheckShapes).
TrainConfig ReadTrainConfig(const Json& json, const std::string& where);
// All members with defaults spelled out, but for members that came later (model/parts, model/mup,
// model/outliers, optimizer/name, optimizer/rates, optimizer/muon, optimizer/loss_scaling,
// evaluation/texts) and are as before: files and keys of runs stay. ReadTrainConfig gives the same
// config back.
Json ToJson(const TrainConfig& config);

// The keys "preset" and "from" stand for the members of a model (start/named_model.h).
ModelConfig ReadModelConfig(const Json& json, const std::string& where);
Json ToJson(const ModelConfig& config);
// "squared_relu", "swiglu" or "gelu".
std::string_view ActivationName(Activation activation);
OptimizerConfig ReadOptimizerConfig(const Json& json, const std::string& where);
Json ToJson(const OptimizerConfig& config);
// The key "from" is `start`'s checkpoint if it is left out. A share of 0 is no teacher.
TeacherConfig ReadTeacherConfig(const Json& json, const std::string& where,
                                const std::string& start);
Json ToJson(const TeacherConfig& config);
EvaluationConfig ReadEvaluationConfig(const Json& json, const std::string& where);
Json ToJson(const EvaluationConfig& config);

// Throws Error, at the JSON pointer of the member, for an unknown optimizer or part and for
// impossible shapes: heads that do not divide d_model, a width that is no multiple of a block or
// Hadamard group of the recipe, a recipe that selects blocks or linears which the model does not
// have, ... `recipe_where`: the place of the recipe.
void CheckShapes(const TrainConfig& config, const std::string& where,
                 const std::string& recipe_where);
// CheckShapes with the recipe at the key "recipe" of `where`.
void CheckShapes(const TrainConfig& config, const std::string& where);

// Throws Error, at the JSON pointer of the member, for a model or an optimizer that config.device
// does not train. The GPU's engine checks recipes. `optimizer_where`: the place of the object that
// holds "optimizer"; `where`: that of "model".
void CheckDevice(const TrainConfig& config, const std::string& where,
                 const std::string& optimizer_where);

// CheckShapes refuses more steps, whose random streams would repeat, and larger steps.
inline constexpr std::int64_t kMostSteps = 0xFFFFFFFF;
inline constexpr std::int64_t kMostTokensPerStep = 0x7FFFFFFF;
std::int64_t TokensPerStep(const TrainConfig& config);
std::int64_t TotalSteps(const TrainConfig& config);  // tokens / TokensPerStep, rounded down

std::int64_t ParameterCount(const ModelConfig& config);
// Parameters of the matrices inside the blocks: without embedding, head and norms.
std::int64_t BlockParameterCount(const ModelConfig& config);

}  // namespace fp4lab
