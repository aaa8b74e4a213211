#pragma once

#include <cstddef>
#include <span>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/nn/optimizer/muon.h"
#include "fp4lab/train/optimizer/muon_matrices.h"

namespace fp4lab::gpu {

// MuonStep (nn/optimizer/muon.h) in device memory, for batches no larger than the largest of
// `batches`. `bf16` as Muon::bf16 of all calls.
class MuonStepOnDevice {
 public:
  MuonStepOnDevice(std::span<const MuonBatch> batches, bool bf16, cudaStream_t stream);

  // Updates the matrices of `batch`. gradient, weight, m: the flat parameters.
  void Run(const Muon& options, const MuonBatch& batch, const float* gradient, float* weight,
           float* m);

 private:
  // The matrices of a step of Newton-Schulz on a batch of X (n, k), n <= k: squares (n, n), x (n,
  // k).
  template <class T>
  struct Memory {
    DeviceArray<T> squares, polynomial, scaled, x, next;
  };

  template <class T>
  void Take(std::size_t squares, std::size_t size, Memory<T>* memory);
  void Iterate(int steps, std::size_t n, std::size_t k, std::size_t batch, Memory<float>* memory);
  void Iterate(int steps, std::size_t n, std::size_t k, std::size_t batch, Memory<Bf16>* memory);

  cudaStream_t stream_;
  Gemms gemms_;
  DeviceArray<float> direction_;
  DeviceArray<double> partials_;
  DeviceArray<std::size_t> offsets_;
  DeviceArray<float> divisors_, factor_;  // factor_: of A A
  Memory<float> wide_;
  Memory<Bf16> narrow_;
};

}  // namespace fp4lab::gpu
