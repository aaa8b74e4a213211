#include <vector>

#include "fp4lab/block/scale_rules.h"
#include "fp4lab/exchange/stored.h"

namespace fp4lab {
namespace {

float TensorFactor(const StoredMatrix& m) {  // of a tensor that is one block
  if (m.level_two.empty()) return 1.0f;
  const float v = m.level_two.front();
  switch (m.layout.level_two) {
    case LevelTwoConvention::kNone:
      return 1.0f;
    case LevelTwoConvention::kAmax:
      return 1.0f / Fp8TensorScale(m.element, v);
    case LevelTwoConvention::kMultiplier:
      return v;
    case LevelTwoConvention::kDivisor:
      return 1.0f / v;
  }
  return 1.0f;
}

float BlockFactor(const StoredMatrix& m, float scale, std::size_t row, float constant) {
  if (m.level_two.empty()) return scale;
  const float v = m.level_two[m.level_two.size() == 1 ? 0 : row];
  switch (m.layout.level_two) {
    case LevelTwoConvention::kNone:
      return scale;
    case LevelTwoConvention::kAmax:
      return scale * v * (1.0f / constant);
    case LevelTwoConvention::kMultiplier:
      return scale * v;
    case LevelTwoConvention::kDivisor:
      return scale / v;
  }
  return scale;
}

}  // namespace

Matrix<float> StoredValues(const StoredMatrix& stored, float scale_max, std::string_view where) {
  const StorageLayout plain{.codes = CodeOrder::kBytes, .level_two = stored.layout.level_two};
  const StoredMatrix m = Convert(stored, plain, scale_max, where);
  const float constant = LevelTwoConstant(m, scale_max);
  const bool blocks = m.block_rows > 0;
  const auto block_rows = static_cast<std::size_t>(blocks ? m.block_rows : 1);
  const auto block_cols = static_cast<std::size_t>(blocks ? m.block_cols : 1);
  const std::size_t grid_cols = blocks ? (m.cols + block_cols - 1) / block_cols : 0;
  Matrix<float> values(m.rows, m.cols);
  for (std::size_t r = 0; r < m.rows; ++r) {
    float factor = TensorFactor(m);
    for (std::size_t c = 0; c < m.cols; ++c) {
      if (blocks && c % block_cols == 0) {
        const std::uint8_t byte = m.scales[r / block_rows * grid_cols + c / block_cols];
        factor = BlockFactor(m, Decode(m.scale, byte), r, constant);
      }
      values(r, c) = Decode(m.element, m.codes[r * m.cols + c]) * factor;
    }
  }
  return values;
}

}  // namespace fp4lab
