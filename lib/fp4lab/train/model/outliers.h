// Outliers planted on purpose, where they change no result of the model without quantization.
//
// Each place of Part::outliers has channels c of an operand x = ... * a_c that a matrix reads with
// its column w_c: a_c becomes gain * a_c, and w_c becomes w_c / gain. A power of two scales every
// rounding to BF16 or binary32 with it, as long as nothing overflows or is subnormal, so the logits
// keep their bits. Under quantization the channel stands out of its blocks, and its column falls
// out of those of the weight.
//   norm    a norm's gain, and the matrices that read the norm: attention.qkv, mlp.up, of moe the
//           router, shared.up and each expert's up, and of mla attention.q_a (or q) and kv_a
//   value   the rows of attention.qkv (of mla: attention.kv_b) that give the values, and
//           attention.out, for each head of queries that reads them
//   hidden  the rows of mlp.up (with SwiGLU those behind the gate's; with a squared ReLU they are
//           multiplied by sqrt(gain), which makes the operand gain times as large), and mlp.down;
//           so in every expert and in the shared ones
#pragma once

#include <span>

#include "fp4lab/train/config.h"

namespace fp4lab {

// Multiplies the parameters of each place. A parameter times s has a gradient of 1 / s, so its
// number k of `states`, the optimizer's moment k + 1, is divided by s^(k + 1).
void PlantOutliers(const ModelConfig& config, std::span<float> parameters,
                   std::span<const std::span<float>> states);

}  // namespace fp4lab
