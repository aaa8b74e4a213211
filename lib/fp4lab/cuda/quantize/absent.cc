// The backend in a build without CUDA: every function that needs a GPU throws Error("CUDA",
// kAbsent).
#include "fp4lab/base/error.h"
#include "fp4lab/cuda/device/build.h"
#include "fp4lab/cuda/device/device.h"
#include "fp4lab/cuda/gemm/block_scaled_gemm.h"
#include "fp4lab/cuda/quantize/dialect_values.h"
#include "fp4lab/cuda/quantize/generate.h"
#include "fp4lab/cuda/quantize/implementation.h"
#include "fp4lab/cuda/quantize/quantize.h"

namespace fp4lab::cuda {
namespace {

constexpr const char* kAbsent =
    "this fp4lab was built without it: put nvcc on the PATH and configure with -DFP4LAB_CUDA=ON";

[[noreturn]] void Absent() { throw Error("CUDA", kAbsent); }

}  // namespace

BuildDescription ThisBuild() { return {}; }

int DeviceCount() { return 0; }
std::string WhyNoDevice() { return kAbsent; }
DeviceDescription UseDevice(int) { Absent(); }
void Synchronize(StreamHandle) { Absent(); }

DeviceMemory::DeviceMemory(std::size_t) { Absent(); }
DeviceMemory::DeviceMemory(DeviceMemory&&) noexcept = default;
DeviceMemory& DeviceMemory::operator=(DeviceMemory&&) noexcept = default;
DeviceMemory::~DeviceMemory() = default;
void DeviceMemory::CopyFrom(std::span<const std::byte>) const { Absent(); }
void DeviceMemory::CopyTo(std::span<std::byte>) const { Absent(); }
void DeviceMemory::Fill(std::uint8_t, StreamHandle) const { Absent(); }
std::size_t PeakDeviceMemory() { return 0; }
void CopyOnDevice(const void*, void*, std::size_t, StreamHandle) { Absent(); }

StreamTimer::StreamTimer(StreamHandle stream) : stream_(stream) { Absent(); }
StreamTimer::~StreamTimer() = default;
void StreamTimer::Start() { Absent(); }
double StreamTimer::Stop() { Absent(); }

std::span<const Implementation<DeviceQuantization>> QuantizeImplementations() { return {}; }
void Quantize(const DeviceMatrix&, const Dialect&, const QuantizedSide*, const QuantizedSide*,
              StreamHandle) {
  Absent();
}
void QuantizeAs(const DeviceMatrix&, const Dialect&, const QuantizedSide*, const QuantizedSide*,
                StreamHandle) {
  Absent();
}
void QuantizeToValues(const Dialect&, const ValuesJob&, StreamHandle) { Absent(); }
void Amax(const DeviceMatrix&, float*, bool, StreamHandle) { Absent(); }
void RowAmax(const DeviceMatrix&, float*, bool, StreamHandle) { Absent(); }
void AmaxWithHadamard(const DeviceMatrix&, int, std::uint32_t, float*, float*, StreamHandle) {
  Absent();
}
void HadamardColumns(const DeviceMatrix&, int, std::uint32_t, std::uint16_t*, StreamHandle) {
  Absent();
}
void Dequantize(const Dialect&, const std::uint8_t*, const std::uint8_t*, const float*, std::size_t,
                std::size_t, ElementType, void*, StreamHandle) {
  Absent();
}
bool HasMmaForm(MmaForm) { Absent(); }
void BlockScaledGemm(const BlockScaledProblem&, MmaForm, StreamHandle) { Absent(); }
void Generate(Distribution, const RandomStream&, const DeviceMatrix&, StreamHandle) { Absent(); }

}  // namespace fp4lab::cuda
