#include <vector>

#include "fp4lab/base/divide_up.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/dialect/decoded_product.h"
#include "fp4lab/dialect/tensor_scale_stage.h"
#include "fp4lab/exchange/stored.h"

namespace fp4lab {
namespace {

// The factor of the elements of row `row` of a tensor without blocks.
float TensorFactor(const StoredMatrix& m, std::size_t row) {
  if (m.tensor_scale.empty()) return 1.0f;
  const float v = m.tensor_scale[m.tensor_scale.size() == 1 ? 0 : row];
  switch (m.layout.tensor_scale) {
    case TensorScaleConvention::kNone:
      return 1.0f;
    case TensorScaleConvention::kAmax:
      return TensorFp8Scale(m.element, v).decode;
    case TensorScaleConvention::kMultiplier:
      return v;
    case TensorScaleConvention::kDivisor:
      return 1.0f / v;
  }
  return 1.0f;
}

// The factor of the elements of a block in row `row`: its scale and the tensor scale.
float BlockFactor(const StoredMatrix& m, float scale, std::size_t row, float constant) {
  if (m.tensor_scale.empty()) return scale;
  const float v = m.tensor_scale[m.tensor_scale.size() == 1 ? 0 : row];
  switch (m.layout.tensor_scale) {
    case TensorScaleConvention::kNone:
      return scale;
    case TensorScaleConvention::kAmax:
      return DecodedProduct(scale, v) * (1.0f / constant);
    case TensorScaleConvention::kMultiplier:
      return DecodedProduct(scale, v);
    case TensorScaleConvention::kDivisor:
      return DecodedQuotient(scale, v);
  }
  return scale;
}

}  // namespace

Matrix<float> StoredValues(const StoredMatrix& stored, float scale_max, std::string_view where) {
  const IeeeArithmetic ieee;
  const StorageLayout plain{.codes = CodeOrder::kBytes, .tensor_scale = stored.layout.tensor_scale};
  const StoredMatrix m = Convert(stored, plain, scale_max, where);
  const float constant = TensorScaleConstant(m, scale_max);
  const bool blocks = m.block_rows > 0;
  const auto block_rows = static_cast<std::size_t>(blocks ? m.block_rows : 1);
  const auto block_cols = static_cast<std::size_t>(blocks ? m.block_cols : 1);
  const std::size_t grid_cols = blocks ? DivideUp(m.cols, block_cols) : 0;
  Matrix<float> values(m.rows, m.cols);
  for (std::size_t r = 0; r < m.rows; ++r) {
    float factor = TensorFactor(m, r);
    for (std::size_t c = 0; c < m.cols; ++c) {
      if (blocks && c % block_cols == 0) {
        const std::size_t place = r / block_rows * grid_cols + c / block_cols;
        const ScaleType type = m.layout.scale_type;
        const float scale = ScaleValueOf(type, m.scale, ScaleCodeAt(m.scales, place, type));
        factor = BlockFactor(m, scale, r, constant);
      }
      values(r, c) = DecodedProduct(Decode(m.element, m.codes[r * m.cols + c]), factor);
    }
  }
  return values;
}

}  // namespace fp4lab
