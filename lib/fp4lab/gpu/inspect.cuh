// Looks at tensors: each is copied to the host.
#pragma once

#include "fp4lab/gpu/model.cuh"

namespace fp4lab::gpu {

template <class T, class A>
template <class X>
void DeviceModel<T, A>::Inspect(const Pass& pass, const std::string& name, const X* x,
                                std::size_t rows, std::size_t cols) const {
  if (pass.inspector == nullptr) return;
  std::vector<X> raw(rows * cols);
  Check(cudaMemcpyAsync(raw.data(), x, raw.size() * sizeof(X), cudaMemcpyDeviceToHost, stream_),
        "copy from the GPU");
  Check(cudaStreamSynchronize(stream_), "training");
  Matrix<float> matrix(rows, cols);
  for (std::size_t i = 0; i < raw.size(); ++i) matrix.values[i] = ToFloat(raw[i]);
  (*pass.inspector)(name, matrix.View());
}

template <class T, class A>
template <class X>
void DeviceModel<T, A>::InspectIn(const Pass& pass, int block, const char* name, const X* x,
                                  std::size_t cols) const {
  if (pass.inspector == nullptr) return;
  const std::string prefix = block < 0 ? "" : "blocks." + std::to_string(block) + ".";
  Inspect(pass, prefix + name, x, rows_, cols);
}

}  // namespace fp4lab::gpu
