// Helpers for the tests of the training kernels: copies between host and device, and comparisons.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "fp4lab/formats/format.h"
#include "fp4lab/gpu/engine/engine.h"
#include "fp4lab/gpu/engine/memory.cuh"
#include "tests/gpu/no_gpu.h"
#include "tests/support/catch.h"
#include "tests/support/values.h"

namespace fp4lab::gpu {

template <class X>
DeviceArray<X> ToDevice(const std::vector<X>& host) {
  DeviceArray<X> device(host.size());
  device.CopyFrom(host, nullptr);
  Check(cudaDeviceSynchronize(), "test");
  return device;
}

template <class X>
std::vector<X> ToHost(const DeviceArray<X>& device) {
  std::vector<X> host(device.size());
  device.CopyTo(host, nullptr);
  Check(cudaDeviceSynchronize(), "test");
  return host;
}

inline std::vector<float> ToFloats(const std::vector<float>& x) { return x; }
inline std::vector<float> ToFloats(const std::vector<Bf16>& x) {
  std::vector<float> floats;
  for (const Bf16 value : x) floats.push_back(__bfloat162float(value));
  return floats;
}
template <class X>
std::vector<float> FloatsOf(const DeviceArray<X>& device) {
  return ToFloats(ToHost(device));
}

// Copies floats to the device as T, which must represent them exactly.
template <class T>
DeviceArray<T> ToDeviceAs(const std::vector<float>& host) {
  std::vector<T> values(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) values[i] = static_cast<T>(host[i]);
  return ToDevice(values);
}

// The CPU's floats as a kernel with output type T rounds them: to BF16 unless T is float.
template <class T>
std::vector<float> RoundedTo(std::vector<float> x) {
  if constexpr (!std::is_same_v<T, float>) {
    for (float& value : x) value = RoundToBf16(value);
  }
  return x;
}

inline std::vector<float> Normal(std::uint64_t seed, std::size_t size, double deviation = 1.0) {
  std::vector<float> x(size);
  FillNormalValues(seed, deviation, x);
  return x;
}

// Device memory filled with NaNs, so that an element that a kernel does not write is found.
template <class X>
DeviceArray<X> Poisoned(std::size_t size) {
  DeviceArray<X> device(size);
  Check(cudaMemset(device.data(), 0xFF, size * sizeof(X)), "test");
  return device;
}

// The number of elements whose bits differ (all NaN count as one value).
inline std::size_t Different(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return a.size() + b.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(float)) == 0) continue;
    if (++count <= 3) std::printf("  element %zu: %a, expected %a\n", i, a[i], b[i]);
  }
  return count;
}

// |a - b| / |b| over all elements.
inline double Distance(std::span<const float> a, std::span<const float> b) {
  double difference = 0.0, size = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / size);
}

}  // namespace fp4lab::gpu
