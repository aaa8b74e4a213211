// The findings of `fp4lab check`, as a table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace fp4lab {

enum class FindingKind : std::uint8_t {
  kGrid,
  kZeroScales,
  kConstantScales,
  kNanScales,
  kNegativeScales,
  kSaturatedScales,
  kNumbersAsBytes,
  kScaleDtype,
  kCodesDtype,
  kTensorScaleMissing,
  kTensorScaleZero,
  kTensorScaleCount,
  kTensorScaleDiffers,
  kInputScaleMissing,
  kInputScaleZero,
  kInputScaleDiffers,
  kMagnitude,
  kZeroCodes,
  kUnwrittenRows,
  kConstantCodes,
  kImpossibleCodes,
  kSplit,
  kDuplicate,
  kMissingPart,
  kUnused,
  kIndex,
  kConfig,
  kOriginal,
  kValues,
  kUnreadable,
};

struct NamedFinding {
  FindingKind kind;
  std::string_view name;    // in tables and JSON
  std::string_view remedy;  // what a user does about it
};
inline constexpr std::array kFindings = {
    NamedFinding{FindingKind::kGrid, "grid",
                 "store the scales in the grid that is stated, or name the right group size in the "
                 "configuration"},
    NamedFinding{FindingKind::kZeroScales, "zero-scales",
                 "write the scales again: these blocks decode to 0, whatever their codes"},
    NamedFinding{FindingKind::kConstantScales, "constant-scales",
                 "write the scales again: a placeholder was stored instead of them"},
    NamedFinding{FindingKind::kNanScales, "nan-scales",
                 "quantize the matrix again: these blocks decode to NaN"},
    NamedFinding{FindingKind::kNegativeScales, "negative-scales",
                 "write the scales again: a block scale has no sign"},
    NamedFinding{FindingKind::kSaturatedScales, "saturated-scales",
                 "quantize again with the tensor scale of this tensor: it was too small, and the "
                 "largest blocks are clipped"},
    NamedFinding{FindingKind::kNumbersAsBytes, "numbers-as-bytes",
                 "store the bytes of E8M0 (torch: view(torch.uint8)), not the numbers cast to "
                 "uint8"},
    NamedFinding{FindingKind::kScaleDtype, "scale-dtype",
                 "declare the scales in the format of their bytes"},
    NamedFinding{FindingKind::kCodesDtype, "codes-dtype", "declare packed codes as U8"},
    NamedFinding{FindingKind::kTensorScaleMissing, "tensor-scale-missing",
                 "store the tensor scale: without it every value is off by one factor"},
    NamedFinding{FindingKind::kTensorScaleZero, "tensor-scale-zero",
                 "write the tensor scale again: the whole tensor decodes to 0, Inf or NaN"},
    NamedFinding{FindingKind::kTensorScaleCount, "tensor-scale-count",
                 "store one tensor scale, or one an expert"},
    NamedFinding{FindingKind::kTensorScaleDiffers, "tensor-scale-differs",
                 "quantize these parts with one amax: engines join them under one tensor scale"},
    NamedFinding{FindingKind::kInputScaleMissing, "input-scale-missing",
                 "calibrate and store it: engines take 1, or the number of another expert"},
    NamedFinding{FindingKind::kInputScaleZero, "input-scale-zero",
                 "calibrate again: no tokens reached this matrix, or the number was not written"},
    NamedFinding{FindingKind::kInputScaleDiffers, "input-scale-differs",
                 "calibrate these parts together: they have one input, and engines take the "
                 "largest number for all"},
    NamedFinding{FindingKind::kMagnitude, "magnitude",
                 "look whether the tensor scale is a multiplier or a divisor, and in which format "
                 "the scales are"},
    NamedFinding{FindingKind::kZeroCodes, "zero-codes", "write the matrix again: every code is 0"},
    NamedFinding{FindingKind::kUnwrittenRows, "unwritten-rows",
                 "write the codes of these rows again: their scales are those of numbers that are "
                 "not 0"},
    NamedFinding{FindingKind::kConstantCodes, "constant-codes",
                 "write the matrix again: every byte of its codes is the same"},
    NamedFinding{FindingKind::kImpossibleCodes, "impossible-codes",
                 "look at the packing and the format of the codes"},
    NamedFinding{FindingKind::kSplit, "split",
                 "keep the tensors of a matrix in one shard: some loaders read shard by shard"},
    NamedFinding{FindingKind::kDuplicate, "duplicate",
                 "remove one of them: loaders keep the one that they read last"},
    NamedFinding{FindingKind::kMissingPart, "missing-part",
                 "add the shard or the tensors that are missing"},
    NamedFinding{FindingKind::kUnused, "unused",
                 "remove the tensor, or add the codes that it belongs to"},
    NamedFinding{FindingKind::kIndex, "index", "write the index again"},
    NamedFinding{FindingKind::kConfig, "config",
                 "correct the configuration: engines choose their kernels by it"},
    NamedFinding{FindingKind::kOriginal, "original", "see the readings of --original"},
    NamedFinding{FindingKind::kValues, "values",
                 "look at the program that decoded the matrix, from its scales on"},
    NamedFinding{FindingKind::kUnreadable, "unreadable",
                 "store the matrix in a form that the names promise"},
};
constexpr const NamedFinding& Named(FindingKind kind) {
  return kFindings[static_cast<std::size_t>(kind)];
}

struct Finding {
  FindingKind kind;
  std::string where;  // the matrix, tensor or file
  std::string text;   // what was found, with numbers
  friend bool operator==(const Finding&, const Finding&) = default;
};

}  // namespace fp4lab
