#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/gemm/gemm.cuh"
#include "fp4lab/nn/optimizer/muon.h"

namespace fp4lab::gpu {

// MuonStep (nn/optimizer/muon.h) in device memory, for weights of at most `size` elements whose shorter side
// is at most `rows`. `bf16` as Muon::bf16 of all calls.
class MuonStepOnDevice {
 public:
  MuonStepOnDevice(std::size_t rows, std::size_t size, bool bf16, cudaStream_t stream);

  // gradient, weight, m (rows, cols).
  void Run(const Muon& options, std::size_t rows, std::size_t cols, const float* gradient,
           float* weight, float* m);

 private:
  // The matrices of a step of Newton-Schulz on X (n, k), n <= k: squares (n, n), x (n, k).
  template <class T>
  struct Memory {
    DeviceArray<T> squares, polynomial, scaled, x, next;
  };

  template <class T>
  void Take(std::size_t rows, std::size_t size, Memory<T>* memory);
  void Iterate(int steps, std::size_t n, std::size_t k, Memory<float>* memory);
  void Iterate(int steps, std::size_t n, std::size_t k, Memory<Bf16>* memory);

  cudaStream_t stream_;
  Gemms gemms_;
  DeviceArray<float> direction_;
  DeviceArray<double> partials_;
  DeviceArray<float> numbers_;  // the divisor; the factor of A A
  Memory<float> wide_;
  Memory<Bf16> narrow_;
};

}  // namespace fp4lab::gpu
