// KernelPlan: a kernel with its deviations as parameters. Deviations edit the plan, block
// evaluation reads it. A plan with the default values has no deviation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fp4lab/formats/format.h"
#include "fp4lab/judge/kernels/deviation.h"

namespace fp4lab {

struct ByteOrder;  // exchange/order/byte_order.h

// The steps of a kernel between its input in memory and the matrix that it quantizes.
struct InputPlan {
  bool transposed = false;  // x^T
  RowOrder rows = RowOrder::kKept, cols = RowOrder::kKept;
  // So many parts of the rows take turns, `row_group` rows at a time, if the rows are a multiple of
  // both together; 0: the rows are in their order.
  std::size_t row_parts = 0, row_group = 1;
  std::size_t cols_dropped = 0;          // so many last columns are read as zeros
  float times = 1.0f;                    // every element is multiplied by it first
  int shift = 0;                         // memory element i is read for element i - shift
  bool flushed = false;                  // binary32 subnormals are read as zeros of their sign
  std::optional<FormatId> rounded = {};  // every element is rounded to this format first
  int hadamard = 0;                      // as in Kernel
  std::uint32_t sign_mask = 0;
  bool normalised = true;    // the transform has its factor size^(-1/2)
  bool signs_after = false;  // signs on the results instead of the inputs
  bool bf16_result = true;   // the transform's results are rounded to BF16
  int negated_result = -1;   // index of the result of every group that is negated; -1: none
  friend constexpr bool operator==(const InputPlan&, const InputPlan&) = default;
};

// The source of the tensor scale's amax.
enum class AmaxFrom : std::uint8_t {
  kTensor,
  kFirstRow,
  kFirstBlock,
  kLargestSigned,
  kWithoutLastRows,  // `rows_left_out`
  kFirstCols,        // of a row: `first_cols`
  kParts,            // `parts`: every part has its own
  kGiven             // `given`, not from x
};

// Parts of a matrix: whole rows or whole columns from the first to the last, or rows in turn.
struct AmaxParts {
  static constexpr std::size_t kMost = 8;
  std::array<std::uint32_t, kMost - 1> starts = {};  // of the parts after the first; 0: none
  bool by_columns = false;
  std::uint32_t in_turn = 0, group = 1;  // the part of row r is r / group % in_turn; 0: by `starts`
  // The part's scale is encoded again, times the part's D over the stored number's.
  bool folded = false;
  // The number that is stored for all: the amax of the matrix, of the first part, of the last part.
  enum class Stored : std::uint8_t { kWhole, kFirst, kLast } stored = Stored::kWhole;
  std::size_t Count() const;
  // The part of a row, or of a column if by_columns.
  std::size_t PartOf(std::size_t row, std::size_t col) const;
  friend constexpr bool operator==(const AmaxParts&, const AmaxParts&) = default;
};

struct TensorScalePlan {
  AmaxFrom amax = AmaxFrom::kTensor;
  std::size_t rows_left_out = 0;
  std::size_t first_cols = 0;
  float given = 0.0f;
  AmaxParts parts = {};
  std::optional<float> scale_amax = {}, factor_amax = {};  // another amax for scales, for factors
  bool unclamped = false;                // S is infinite where the dialect clamps it to FLT_MAX
  std::optional<FormatId> rounded = {};  // the amax is rounded to this format
  // S or D is rounded to this format; the number that the dialect derives from it changes too.
  std::optional<FormatId> encode_rounded = {}, decode_rounded = {};
  bool inverted = false;           // S and D are exchanged
  bool missing_in_scale = false;   // S = D = 1 in block scales
  bool missing_in_factor = false;  // S = D = 1 in factors
  bool missing = false;            // S = D = 1 in both
  friend constexpr bool operator==(const TensorScalePlan&, const TensorScalePlan&) = default;
};

// The elements whose largest magnitude is a block's amax.
enum class AmaxWindow : std::uint8_t {
  kBlock,
  kTwoBlocks,
  kHalfBlock,
  kSixteenRows,
  kPreviousBlock,
  kOnePast,   // the block and the column after it
  kEvenLanes  // the block's columns 0, 2, 4 ...
};

enum class OtherEncoding : std::uint8_t {
  kNo,
  kHalfUp,
  kTowardZero,
  kUp,
  kPowerOfTwo,
  kPowerOfTwoUp  // of scales that are numbers
};

// The stored form of a block's scale that is a number.
enum class StoredScale : std::uint8_t { kOwn, kInverse, kBf16, kPowerOfTwoUp };

struct ScalePlan {
  AmaxWindow window = AmaxWindow::kBlock;
  bool largest_signed = false;                  // block amax without abs
  std::optional<FormatId> amax_rounded = {};    // b is rounded to this format
  float least_amax = 0.0f;                      // b is at least this
  std::optional<FormatId> before_rounded = {};  // t is rounded to this format before encoding
  bool constant_over_amax = false;              // t = fl(fl(b * scale_max) / amax)
  OtherEncoding encoding = OtherEncoding::kNo;
  bool overflow_is_nan = false;         // t beyond the largest finite scale gives the NaN byte
  bool overflow_stored_as_nan = false;  // the same, but elements are scaled by the saturated scale
  bool subnormals_flushed = false;      // subnormal scales become 0
  bool nan_is_largest = false;          // a NaN byte becomes the largest finite byte
  int offset = 0;                       // added to the byte, clamped to finite bytes
  bool value_is_byte = false;  // the scale's value, cut to an integer modulo 256, is stored
  StoredScale stored = StoredScale::kOwn;  // another number than the elements are scaled by
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
// The random field of an element: its own, that of its column in row 0, or the element's index.
enum class RandomFrom : std::uint8_t { kOwn, kFirstRow, kCounter };

struct ElementPlan {
  std::optional<FormatId> factor_rounded = {};  // e is rounded to this format
  std::optional<FormatId> scaled_rounded = {};  // v is rounded to this format before encoding
  bool unrounded_scale = false;                 // e from t, not from the stored byte's s
  bool over_amax = false;                       // v = fl(fl(x * q) / b), q the largest element
  bool over_quotient = false;                   // v = fl(x / fl(b/q))
  FactorOfBlock factor_of = FactorOfBlock::kOwn;
  bool flush = false;  // subnormal D, t, s * D, e and v become zeros
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

// The arrangement of scales in tiles, for layouts with tiles.
enum class ScaleTiles : std::uint8_t {
  kAsLaidOut,
  kColumnByColumn,  // the tiles in column-major order
  kRowByRow,        // a tile row by row, without interleaving
  kTransposed,      // a tile column by column
  kInnerTransposed  // the interleaving exchanges a row's quarter and its column
};

// A part of the output that the kernel did not write, and the bytes found there.
struct UnwrittenPart {
  Rectangle region = {};
  std::optional<std::uint8_t> even_code = {}, odd_code = {};  // by column; nullopt: written
  std::optional<std::uint32_t> scale = {};                    // of blocks within the region
  friend constexpr bool operator==(const UnwrittenPart&, const UnwrittenPart&) = default;
};

// Two parts of the output, of whole blocks, that are exchanged.
struct SwappedParts {
  Rectangle region = {};
  std::size_t other_row = 0, other_col = 0;  // the start of the other part, of equal size
  friend constexpr bool operator==(const SwappedParts&, const SwappedParts&) = default;
};

struct OutputPlan {
  StorageLayout written = {};     // the layout of the bytes that the kernel writes
  bool codes_transposed = false;  // in addition to written.transposed
  bool scales_transposed = false;
  bool swizzled_twice = false;
  // The order of the bytes of codes, or of scales, in place of the layout's.
  const ByteOrder* code_bytes = nullptr;
  const ByteOrder* scale_bytes = nullptr;
  ScaleTiles scale_tiles = ScaleTiles::kAsLaidOut;
  int code_shift = 0, scale_shift = 0;            // elements, or scales, to later places
  int scale_row_shift = 0;                        // by so many rows of scales, down
  bool words_reversed = false;                    // the bytes of every 32-bit word of codes
  bool nibbles_reversed = false;                  // the eight nibbles of every 32-bit word of codes
  std::optional<std::uint8_t> codes_filled = {};  // the same code for all
  std::optional<std::uint32_t> scales_filled = {};  // the same scale for all
  bool tail_block_zero = false;  // a block that is cut off by the last column is 0
  bool tail_rows_zero = false;   // rows beyond the last whole 16 are 0
  UnwrittenPart unwritten = {};
  SwappedParts swapped = {};
  std::optional<float> tensor_scale_filled = {};
  bool tensor_scale_inverted = false;  // the reciprocal of the number is stored
  friend constexpr bool operator==(const OutputPlan&, const OutputPlan&) = default;
};

struct KernelPlan {
  Kernel kernel;  // the dialect with deviating stages; the layout that was asked for
  InputPlan input;
  TensorScalePlan tensor;
  ScalePlan scale;
  ElementPlan element;
  OutputPlan output;
  friend constexpr bool operator==(const KernelPlan&, const KernelPlan&) = default;
};

// The plan of a kernel with each deviation applied in turn; *applied gets the number of deviations
// that changed something. `value`: the value of the deviation that takes one, in place of the
// table's.
KernelPlan PlanOf(const Kernel& kernel, std::span<const Deviation* const> deviations = {},
                  std::size_t* applied = nullptr, const DeviationValue* value = nullptr);

// Whether the deviation changes the bytes of this kernel for some input.
bool Applies(const Deviation& deviation, const Kernel& kernel);

}  // namespace fp4lab
