// A kernel with its deviations spelled out as knobs: what deviations edit and block evaluation
// reads. The knobs' defaults deviate in nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp4lab/formats/format.h"
#include "fp4lab/judge/deviation.h"

namespace fp4lab {

// Which matrix is quantized.
struct InputPlan {
  bool transposed = false;               // x^T
  int shift = 0;                         // element i of the memory is read for element i - shift
  bool flushed = false;                  // binary32 subnormals are read as zeros of their sign
  std::optional<FormatId> rounded = {};  // every element rounded to this format first
  int hadamard = 0;                      // as in Kernel
  std::uint32_t sign_mask = 0;
  bool normalised = true;    // the factor size^(-1/2) of the transform
  bool signs_after = false;  // signs on the results instead of the inputs
  bool bf16_result = true;   // its last rounding
  int negated_result = -1;   // this result of every group comes out negated
  friend constexpr bool operator==(const InputPlan&, const InputPlan&) = default;
};

// Where the level-2 amax comes from.
enum class AmaxFrom : std::uint8_t {
  kTensor,
  kFirstRow,
  kFirstBlock,
  kLargestSigned,
  kWithoutLastRows,  // `rows_left_out`
  kGiven             // not from x: `given`
};

struct LevelPlan {
  AmaxFrom amax = AmaxFrom::kTensor;
  std::size_t rows_left_out = 0;
  float given = 0.0f;
  std::optional<FormatId> rounded = {};  // the amax rounded to this format
  // S, D rounded; the other follows where the dialect makes it from this one.
  std::optional<FormatId> encode_rounded = {}, decode_rounded = {};
  bool inverted = false;          // S and D exchanged
  bool missing_in_scale = false;  // S = D = 1 there
  bool missing_in_factor = false;
  bool missing = false;  // in both
  friend constexpr bool operator==(const LevelPlan&, const LevelPlan&) = default;
};

// Over which elements a block's amax is taken.
enum class AmaxWindow : std::uint8_t {
  kBlock,
  kTwoBlocks,
  kHalfBlock,
  kSixteenRows,
  kPreviousBlock,
  kOnePast,   // the block and the column after it
  kEvenLanes  // its columns 0, 2, 4 ...
};

enum class OtherEncoding : std::uint8_t { kNo, kHalfUp, kTowardZero, kUp, kPowerOfTwo };

struct ScalePlan {
  AmaxWindow window = AmaxWindow::kBlock;
  bool largest_signed = false;                  // block amax without abs
  std::optional<FormatId> amax_rounded = {};    // b rounded
  std::optional<FormatId> before_rounded = {};  // t rounded before it is encoded
  bool constant_over_amax = false;              // t = fl(fl(b * scale_max) / amax)
  OtherEncoding encoding = OtherEncoding::kNo;
  bool overflow_is_nan = false;     // beyond the largest finite: the NaN byte
  bool subnormals_flushed = false;  // subnormal scales become 0
  bool nan_is_largest = false;      // a NaN byte becomes the largest finite
  int offset = 0;                   // added to the byte, within the finite ones
  friend constexpr bool operator==(const ScalePlan&, const ScalePlan&) = default;
};

enum class OtherRounding : std::uint8_t {
  kNo,
  kTowardNegative,
  kAwayFromZero,
  kTiesToOdd,
  kTiesTowardZero,
  kTiesToPositive,
  kTiesToNegative
};
enum class Negative : std::uint8_t { kKept, kAbs, kToZero, kFlipped };
enum class Saturation : std::uint8_t { kKept, kWraps, kLosesSign, kToZero };
enum class ZeroCode : std::uint8_t { kKept, kPositive, kNegative };
// Where the random field of an element comes from: from its own place, from its column's in row 0,
// or it is the element's index.
enum class RandomFrom : std::uint8_t { kOwn, kFirstRow, kCounter };

struct ElementPlan {
  std::optional<FormatId> factor_rounded = {};  // e rounded
  std::optional<FormatId> scaled_rounded = {};  // v rounded before it is encoded
  bool unrounded_scale = false;                 // e from t, not from the stored byte's s
  bool flush = false;                           // subnormals of D, s * D, e and v are zeros
  OtherRounding rounding = OtherRounding::kNo;
  Negative negative = Negative::kKept;
  Saturation saturation = Saturation::kKept;
  ZeroCode zero = ZeroCode::kKept;
  bool zero_under_zero_scale = false;
  std::size_t random_index_xor = 0;  // element i takes the random bits of element i ^ this
  bool random_bytes_swapped = false;
  RandomFrom random_from = RandomFrom::kOwn;
  friend constexpr bool operator==(const ElementPlan&, const ElementPlan&) = default;
};

// How a kernel arranges tiles of scales, where its layout has tiles.
enum class ScaleTiles : std::uint8_t {
  kAsLaidOut,
  kColumnByColumn,  // the tiles in the other order
  kRowByRow,        // a tile as it stands, its rows not interleaved
  kTransposed       // a tile column by column
};

// A part of the output that the kernel did not write, and what stands there.
struct UnwrittenPart {
  Rectangle region = {};
  std::optional<std::uint8_t> even_code = {}, odd_code = {};  // by column; nothing: written
  std::optional<std::uint8_t> scale = {};                     // of blocks that lie in the region
  friend constexpr bool operator==(const UnwrittenPart&, const UnwrittenPart&) = default;
};

// Two parts of the output that changed places; whole blocks.
struct SwappedParts {
  Rectangle region = {};
  std::size_t other_row = 0, other_col = 0;  // where the other one, as large, starts
  friend constexpr bool operator==(const SwappedParts&, const SwappedParts&) = default;
};

struct OutputPlan {
  StorageLayout written = {};     // how the kernel lays its bytes down
  bool codes_transposed = false;  // on top of written.transposed
  bool scales_transposed = false;
  bool swizzled_twice = false;
  ScaleTiles scale_tiles = ScaleTiles::kAsLaidOut;
  int code_shift = 0, scale_shift = 0;  // places further on in memory
  int scale_row_shift = 0;              // rows of scales further down
  bool words_reversed = false;          // the bytes of every 32-bit word of codes
  bool nibbles_reversed = false;        // the eight nibbles of every 32-bit word of codes
  std::optional<std::uint8_t> codes_filled = {}, scales_filled = {};  // one code, one byte, for all
  bool tail_block_zero = false;  // a block that is cut off by the last column stays 0
  bool tail_rows_zero = false;   // rows beyond the last whole 16 stay 0
  UnwrittenPart unwritten = {};
  SwappedParts swapped = {};
  std::optional<float> level_two_filled = {};
  bool level_two_inverted = false;  // the stored number is 1 / it
  friend constexpr bool operator==(const OutputPlan&, const OutputPlan&) = default;
};

struct KernelPlan {
  Kernel kernel;  // the dialect with deviating stages; layout: the one asked for
  InputPlan input;
  LevelPlan level;
  ScalePlan scale;
  ElementPlan element;
  OutputPlan output;
  friend constexpr bool operator==(const KernelPlan&, const KernelPlan&) = default;
};

// The kernel itself, then each deviation applied in turn; *applied gets how many changed anything.
// `value`: of the one that takes a value, if not the table's.
KernelPlan PlanOf(const Kernel& kernel, std::span<const Deviation* const> deviations = {},
                  std::size_t* applied = nullptr, const DeviationValue* value = nullptr);

}  // namespace fp4lab
