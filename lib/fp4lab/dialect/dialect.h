// Dialects: the formulas that all call themselves NVFP4 or MXFP4, each a row of a table.
//
// A quantizer goes through the same stages in every code base; a dialect says which formula stands
// at each stage, in its exact operation order (binary32, RNE, subnormals kept, no contraction):
//   amax          of the tensor, a row, or nothing            -> level 2 numbers S (encode), D
//   (decode) block amax b  and S, D                                    -> t, the scale before
//   rounding t                                                         -> the stored scale byte,
//   value s s, S, D                                                   -> the factor e of the block
//   x, e                                                      -> v, the scaled element
//   v                                                         -> the code
// The same enumerators serve `explain`: a wrong kernel is a row with one stage changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "fp4lab/block/block_format.h"
#include "fp4lab/formats/format.h"

namespace fp4lab {

// Level 2: the tensor's numbers. C = scale_max * largest element (2688 = 448 * 6 for NVFP4).
enum class LevelTwo : std::uint8_t {
  kNone,         // none, or outside of the quantizer: S = D = 1 (qwix, ggml, MX)
  kEncodeScale,  // S = min(fl(C/amax), FLT_MAX), 1 where amax or S is 0; D = fl(1/S)   (TE)
  kEncodeFused,  // as kEncodeScale, but amax = Inf leaves S = 0 and so D = Inf          (TE RHTF)
  kEncodeJax,  // S = FLT_MAX where amax = 0                                           (TE ref, JAX)
  kMultiplier,  // D = fl(amax/C), S = fl(1/D)                           (torchao, ModelOpt)
  kDivisor,     // S = fl(C/amax), D = fl(1/S)                           (compressed-tensors)
  kTensorFp8    // one scale and no blocks: S = fl(max/amax)  (TE Float8CurrentScaling)
};

// t from the block's amax b.
enum class BlockScale : std::uint8_t {
  kFolded,         // fl(b * fl(S * fl(1/6)))                 (TE, CUTLASS)
  kDivideFirst,    // fl(fl(b/6) * S)                         (TE 4over6, JAX, compressed-tensors)
  kDivideByLevel,  // fl(fl(b/6) / D)                         (torchao inference)
  kDivideByBoth,   // fl(b / fl(6 * D))                       (ModelOpt)
  kOverDecode,     // fl(fl(b / D) / 6)                       (universal)
  kNoLevel,        // fl(b/6)                                 (qwix, ggml)
  kApproximate,    // S * (b * rcp.approx(6)): a range        (FlashInfer's fast path)
  kMicroscaling    // none: the byte follows from b by the E8M0 rule, `mx_rule`
};

// The byte from t.
enum class ScaleEncoding : std::uint8_t {
  kNearest,        // RNE, saturating; NaN gives the NaN byte
  kFloor2m6,       // clamped to [2^-6, 448] first            (torchao inference)
  kFloor2m9,       // 0 becomes 1.0, then clamped to [2^-9, 448]   (ModelOpt)
  kZeroToOne,      // 0 becomes 1.0                           (Quartet II)
  kZeroToLeast,    // 0 becomes the least positive            (universal)
  kZeroToEpsilon,  // 0 becomes E4M3's epsilon 2^-3           (compressed-tensors)
  kHalfUpGgml,     // half up on the bits, 256 and beyond give 448   (ggml's own UE4M3)
  kExponent        // E8M0
};

// v from x and the block's s.
enum class Factor : std::uint8_t {
  kReciprocal,         // e = min(fl(1/fl(s*D)), FLT_MAX), v = fl(x*e); s = 0: e = FLT_MAX  (TE)
  kReciprocalOrZero,   // the same, e = 0 where s = 0           (TE's C++ test oracle)
  kEncodeOverScale,    // e = min(fl(S/s), FLT_MAX), 0 where s = 0; v = fl(x*e)
  kEncodeTimesRcp,     // e = min(fl(S*fl(1/s)), FLT_MAX), v = fl(x*e)       (CUTLASS)
  kBf16,               // e = bf16(min(fl(S/s), bf16 max)), v = x*e with +0 added  (TE fast math)
  kRcpLevelOverScale,  // e = fl(fl(1/D)/s), v = fl(x*e)       (torchao inference)
  kDivideByProduct,    // v = fl(x / fl(s*D))                   (ModelOpt, Quartet II)
  kDivideByQuotient,   // v = fl(x / fl(s/S))                   (compressed-tensors)
  kDivideByScale,      // v = fl(x / s); 0 where s = 0          (qwix)
  kTwoSteps,           // v = fl(fl(x/D) * fl(1/s))             (universal)
  kPowerOfTwo,         // v = fl(x * 2^-k), exact reciprocal    (MX)
  kApproximate         // e = rcp.approx(s * rcp.approx(S)): a range   (FlashInfer)
};

// The code from v.
enum class ElementRounding : std::uint8_t {
  kNearestEven,   // cvt.rn.satfinite
  kTiesUp,        // ties away from zero                       (Quartet II)
  kBf16First,     // v rounded to BF16 before                  (vLLM's Triton path)
  kTiesToLower,   // nearest by search, ties to the lower index: toward zero   (ggml)
  kTowardZero,    // truncation
  kStochastic16,  // cvt.rs: 16 bits an element
  kStochastic8    // TE's software rounder: 8 bits an element
};

// Two candidate scales a block, the better one kept (4over6).
enum class Adaptive : std::uint8_t { kNo, kMae, kMse };

struct Dialect {
  std::string_view name = {};    // "nvfp4.te"
  std::string_view source = {};  // code base, file and version that the row states
  std::string_view note = {};    // what a reader must know; may be empty
  FormatId element = FormatId::kE2M1, scale = FormatId::kE4M3;
  int block_rows = 1, block_cols = 16;  // 0, 0: one block, the tensor
  LevelTwo level_two = LevelTwo::kEncodeScale;
  bool row_scaled = false;   // one amax (and S, D) a row instead of one a tensor
  float scale_max = 448.0f;  // the largest block scale that C aims at (448, or 256 for 4over6)
  BlockScale block_scale = BlockScale::kFolded;
  ScaleRule mx_rule = ScaleRule::kFloor;  // for kMicroscaling
  ScaleEncoding scale_encoding = ScaleEncoding::kNearest;
  Factor factor = Factor::kReciprocal;
  ElementRounding rounding = ElementRounding::kNearestEven;
  Adaptive adaptive = Adaptive::kNo;
  bool keeps_negative_zero = true;  // else -0 and negative underflow of the input's zeros give +0
  bool nan_poisons_block = false;   // a NaN element makes the block's scale NaN (TE RHTF, MX)
  friend constexpr bool operator==(const Dialect&, const Dialect&) = default;
};

// All rows, in the order in which `fp4lab dialects` prints them.
std::span<const Dialect> Dialects();

// nullptr for an unknown name. Accepts aliases ("te" for "nvfp4.te").
const Dialect* FindDialect(std::string_view name);

// True where the answer is a set: QuantizeAs gives one member, IsAllowed (dialect/quantize.h)
// judges.
constexpr bool IsApproximate(const Dialect& d) {
  return d.block_scale == BlockScale::kApproximate || d.factor == Factor::kApproximate;
}

}  // namespace fp4lab
