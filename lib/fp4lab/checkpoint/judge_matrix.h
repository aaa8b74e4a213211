// The findings of one matrix.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/checkpoint/original/original_source.h"
#include "fp4lab/checkpoint/report.h"
#include "fp4lab/checkpoint/scan.h"

namespace fp4lab {

// Adds a finding to the matrix and to the list.
void Report(FindingKind kind, std::string text, CheckedMatrix* m, std::vector<Finding>* findings);

// The findings of the passes over codes and scales; m->reading and m->tensor_scale are set.
void JudgeCodes(const CodeScan& scan, CheckedMatrix* m, std::vector<Finding>* findings);
void JudgeScales(const ScaleScan& scan, std::size_t dead_blocks, CheckedMatrix* m,
                 std::vector<Finding>* findings);
// The numbers above the block scales; needs_number: the names or the formats promise one.
void JudgeNumbers(bool needs_number, const std::string& number_name, CheckedMatrix* m,
                  std::vector<Finding>* findings);
// Parts that engines join (gate and up; q, k and v) with different tensor scales, and input scales
// that some matrices have and others lack.
void JudgeNeighbours(const QuantizationConfig& config, std::vector<CheckedMatrix>* matrices,
                     std::vector<Finding>* findings);

// The original of the comparison; nullptr: none.
struct References {
  const OriginalSource* original = nullptr;
  const OriginalSource* values = nullptr;
  OtherScales other_scales = {};  // of the present matrix; may be empty
};

// Compares with the original and with decoded values: with the original, if it has the matrix, and
// reports causes other than rounding. `only`: the checkpoint has no other matrix.
void JudgeReferences(const References& references, const StoredBytes& bytes, bool only,
                     CheckedMatrix* m, std::vector<Finding>* findings);

}  // namespace fp4lab
