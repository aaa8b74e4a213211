// A quantized matrix of a checkpoint against the matrix that was quantized.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/checkpoint/decoder.h"
#include "fp4lab/checkpoint/original/placement.h"
#include "fp4lab/checkpoint/original/row_reader.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/exchange/vendors/reading.h"

namespace fp4lab {

// One way to read the bytes, and how near the values come to the original.
struct ReadingVerdict {
  CodeOrder codes = CodeOrder::kLowFirst;
  ScaleOrder scales = ScaleOrder::kLinear;
  bool as_stated = false;   // the reading that the names state
  double sqnr_db = 0;       // with the tensor scale as the names state it
  double best_sqnr_db = 0;  // with the tensor scale that fits best
  double factor = 1;        // the values are this times those of the best tensor scale
};

struct OriginalVerdict {
  std::string tensor;   // the original's name
  std::string problem;  // not compared: why
  std::string dialect;  // the formula that gives every byte; empty: none of the table
  std::string nearest;  // the formula with the fewest different codes
  // Of `dialect` or `nearest`: where its tensor scale stands, or that codes are random; may be
  // empty.
  std::string note;
  double share_of_codes = 0;             // of `nearest` on the first rows: codes that are equal
  double expected_db = 0;                // SQNR of `nearest` on the first rows
  std::vector<ReadingVerdict> readings;  // the stated one first
  std::string cause;  // of a difference that is not rounding; empty: there is none
};

// Compares. `numbers` are the tensor scales in the convention: none, one, or one a part. `others`
// and `scales`: where else the matrix and its scales may come from; may be empty.
OriginalVerdict CompareWithOriginal(const StoredBytes& bytes, const Reading& reading,
                                    TensorScaleConvention convention,
                                    std::span<const float> numbers, const RowReader& original,
                                    const OtherOriginals& others = {},
                                    const OtherScales& scales = {});

}  // namespace fp4lab
