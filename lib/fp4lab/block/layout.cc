#include "fp4lab/block/layout.h"

#include "fp4lab/base/error.h"

namespace fp4lab {

void CheckOptions(const QuantizeOptions& options) {
  const BlockFormat& f = options.format;
  Expects(options.rounding != Rounding::kTowardPositive,
          "a block quantizer rounds to nearest even, toward zero or stochastically");
  Expects(options.random_bits == 8 || options.random_bits == 16 || options.random_bits == 32,
          "stochastic rounding takes 8, 16 or 32 random bits an element");
  Expects(FormatOf(f.element).bits <= 8 && FormatOf(f.element).is_signed,
          "elements are signed formats of at most 8 bits");
  if (f.rule == ScaleRule::kTensor) return;
  Expects(f.block_cols > 0 && f.block_cols % 8 == 0 && f.block_cols <= 128,
          "blocks are 8, 16, 24 ... or 128 columns wide");
  Expects(f.block_rows > 0 && f.block_rows <= 128, "blocks are 1 to 128 rows high");
  if (f.rule == ScaleRule::kNvfp4) {
    Expects(f.element == FormatId::kE2M1 && f.scale == FormatId::kE4M3,
            "the NVFP4 rule is for E2M1 elements under E4M3 scales");
  } else {
    Expects(f.scale == FormatId::kE8M0, "the MX rules give E8M0 scales");
  }
}

QuantizeOptions WithAmax(MatrixView<const float> x, QuantizeOptions options) {
  if (HasTensorScale(options.format) && !options.amax) options.amax = TensorAmax(x);
  return options;
}

void ShapeQuantizedMatrix(std::size_t rows, std::size_t cols, const QuantizeOptions& options,
                          QuantizedMatrix* q) {
  CheckOptions(options);
  const BlockFormat& f = options.format;
  q->format = f;
  q->rows = rows;
  q->cols = cols;
  q->codes.resize(rows * CodeLayout(f, cols).row_bytes);
  const ScaleLayout scales(f, rows, cols);
  q->scales.resize(f.rule == ScaleRule::kTensor ? 0 : scales.rows * scales.cols);
  Expects(!HasTensorScale(f) || options.amax.has_value(), "the tensor's amax is known");
  q->amax = HasTensorScale(f) ? *options.amax : 0.0f;
}

QuantizedMatrix EmptyQuantizedMatrix(std::size_t rows, std::size_t cols,
                                     const QuantizeOptions& options) {
  QuantizedMatrix q;
  ShapeQuantizedMatrix(rows, cols, options, &q);
  return q;
}

}  // namespace fp4lab
