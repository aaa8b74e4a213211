// Values for GEMMs in dialects whose blocks have several rows: any shape, either direction, BF16 or
// binary32.
#include "fp4lab/cuda/quantize/values/dialect_values.cuh"

namespace fp4lab::cuda {

void LaunchTileValues(const Dialect& d, const SideJob& job, const ValuesJob& values,
                      cudaStream_t stream) {
  if (LaunchWholeTiles(d, job, values, stream)) return;
  ForElement(d.element, [&]<FormatId kElement>() {
    d.block_rows <= 16 ? LaunchValues<kElement, 16>(d, job, values, stream)
                       : LaunchValues<kElement, 32>(d, job, values, stream);
  });
}

}  // namespace fp4lab::cuda
