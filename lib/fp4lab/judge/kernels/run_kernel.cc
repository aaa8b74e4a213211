#include "fp4lab/judge/kernels/run_kernel.h"

#include <bit>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/kernels/evaluate.h"
#include "fp4lab/judge/kernels/kernel_plan.h"
#include "fp4lab/judge/kernels/match.h"
#include "fp4lab/judge/kernels/places.h"

namespace fp4lab {
namespace {

void CheckTransform(const Kernel& kernel, MatrixView<const float> x) {
  if (kernel.hadamard == 0) return;
  Expects(kernel.hadamard == 16 || kernel.hadamard == 32, "Hadamard groups of 16 or 32");
  if (x.cols % static_cast<std::size_t>(kernel.hadamard) != 0) {
    throw Error("input", "the Hadamard transform takes rows of whole groups of " +
                             std::to_string(kernel.hadamard) + " elements, not of " +
                             std::to_string(x.cols));
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      if ((std::bit_cast<std::uint32_t>(x(r, c)) & 0xFFFFu) == 0) continue;
      throw Error("input", "the Hadamard transform takes BF16 values; element (" +
                               std::to_string(r) + ", " + std::to_string(c) +
                               ") is none: round the input to BF16 first");
    }
  }
}

void PlaceCodes(const Places& places, const Evaluated& q, std::vector<std::uint8_t>* bytes) {
  for (std::size_t r = 0; r < q.rows; ++r) {
    for (std::size_t c = 0; c < q.cols; ++c) {
      const std::size_t bit = places.CodeBit(r, c);
      if (places.Fits(bit, bytes->size())) places.PutCode(*bytes, bit, q.codes[r * q.cols + c]);
    }
  }
}

void PlaceScales(const Places& places, const Evaluated& e, std::vector<std::uint8_t>* bytes) {
  for (std::size_t i = 0; i < e.scale_rows; ++i) {
    for (std::size_t j = 0; j < e.scale_cols; ++j) {
      for (std::size_t copy = 0; copy < places.Copies(i, j); ++copy) {
        const std::size_t place = places.ScalePlace(i, j, copy);
        if (!places.HasScale(bytes->size(), place)) continue;
        PutScaleCode(e.scales[i * e.scale_cols + j], place, places.scale_type(), *bytes);
      }
    }
  }
}

// So many bytes of the same scale.
std::vector<std::uint8_t> FilledScales(std::uint32_t scale, ScaleType type, std::size_t bytes) {
  std::vector<std::uint8_t> filled(bytes);
  for (std::size_t i = 0; i < bytes / Named(type).bytes; ++i) PutScaleCode(scale, i, type, filled);
  return filled;
}

}  // namespace

StoredMatrix RunKernel(const Kernel& kernel, MatrixView<const float> x,
                       std::span<const Deviation* const> deviations, const DialectOptions& options,
                       const DeviationValue* value) {
  const IeeeArithmetic ieee;
  CheckTransform(kernel, x);
  CheckOptions(kernel.dialect, x, options);
  const KernelPlan plan = PlanOf(kernel, deviations, nullptr, value);
  const Evaluator evaluator(plan, x, AmaxOf(plan, x, options), options.random);
  const Evaluated q = evaluator.EvaluateAll();
  StoredMatrix stored = ShapeOf(kernel.dialect, x.rows, x.cols, kernel.layout);
  const StoredSizes sizes = SizesOf(stored, "layout");
  const Places places(plan, q.rows, q.cols);
  const bool other_codes = plan.output.code_bytes != nullptr;
  const bool other_scales = plan.output.scale_bytes != nullptr;
  stored.codes.assign(other_codes ? places.code_bytes() : sizes.codes,
                      plan.output.codes_filled.value_or(0));
  stored.scales = FilledScales(plan.output.scales_filled.value_or(0), places.scale_type(),
                               other_scales ? places.scale_bytes() : sizes.scales);
  if (!plan.output.codes_filled) PlaceCodes(places, q, &stored.codes);
  if (!plan.output.scales_filled) PlaceScales(places, q, &stored.scales);
  stored.tensor_scale = StoredTensorScale(plan, evaluator.amax());
  return stored;
}

}  // namespace fp4lab
