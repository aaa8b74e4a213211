// Decoded values that another program made of a matrix of a checkpoint.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "fp4lab/checkpoint/original/original.h"

namespace fp4lab {

struct ValuesVerdict {
  std::string tensor;   // the name of the values
  std::string problem;  // not compared: why
  std::size_t elements = 0;
  // Neither within 2^-22 of the decoded value (another order of multiplications) nor that value
  // rounded to BF16 or FP16.
  std::size_t different = 0;
  double factor = 1;  // the values are this times the decoded ones; 0: no one factor fits
  std::size_t row = 0, col = 0;  // the first that differs
  float got = 0, want = 0;
  std::string cause;  // empty: there is none
};

// Compares values with what the matrix decodes to, in the order of operations of its convention
// (StoredValues, exchange/stored.h). A NaN equals a NaN.
ValuesVerdict CompareValues(const StoredBytes& bytes, const Reading& reading,
                            TensorScaleConvention convention, std::span<const float> numbers,
                            const RowReader& values);

}  // namespace fp4lab
