// Values for GEMMs in every dialect: any shape, either direction, BF16 or binary32. This file holds
// the entry and the kernels of blocks of one row.
#include "fp4lab/base/error.h"
#include "fp4lab/cuda/quantize/values/dialect_values.cuh"

namespace fp4lab::cuda {

void QuantizeToValues(const Dialect& dialect, const ValuesJob& values, StreamHandle stream) {
  Expects(CanQuantizeToValues(dialect), "a dialect whose values a kernel gives");
  Expects(!HasTensorScale(dialect) || values.amax != nullptr, "the format needs the tensor's amax");
  Expects(Feeds(values.source.generator, dialect), "the generator gives the bits of the rounding");
  Expects(values.scales == nullptr || (dialect.unbias != Unbias::kMsEden &&
                                       dialect.block_cols > 0 && dialect.block_cols % 64 == 0),
          "scales apart, of blocks of 64 elements or more");
  QuantizedSide side;
  side.amax = values.amax;
  const SideJob job = JobOf(values.x, side, values.transposed);
  const cudaStream_t native = NativeStream(stream);
  if (dialect.unbias == Unbias::kMsEden) return LaunchMsEden(dialect, job, values, native);
  if (dialect.block_rows > 1) return LaunchTileValues(dialect, job, values, native);
  if (LaunchRegisterValues(dialect, job, values, native)) return;
  ForElement(dialect.element,
             [&]<FormatId kElement>() { LaunchValues<kElement, 1>(dialect, job, values, native); });
}

}  // namespace fp4lab::cuda
