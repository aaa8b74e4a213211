#include "fp4lab/cuda/device/device.h"

#include <atomic>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/cuda/device/build.h"
#include "fp4lab/cuda/device/check.cuh"

namespace fp4lab::cuda {
namespace {

// Bytes of all objects of DeviceMemory, now and at most.
std::atomic<std::size_t> held_memory{0}, peak_memory{0};

cudaEvent_t NewEvent() {
  cudaEvent_t event = nullptr;
  Check(cudaEventCreate(&event), "making an event");
  return event;
}

}  // namespace

BuildDescription ThisBuild() {
  return {.present = true,
          .runtime = CUDART_VERSION,
          .chips = FP4LAB_BUILD_CHIPS,  // CMakeLists.txt defines both
          .ptx = FP4LAB_BUILD_PTX};
}

int DeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string WhyNoDevice() {
  int count = 0, driver = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return "";
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return "no CUDA driver was found: this machine has no NVIDIA GPU, or its driver is not "
           "installed";
  }
  if (status == cudaErrorInsufficientDriver) {
    return "the driver supports CUDA " + VersionText(driver) + ", but this program needs " +
           VersionText(CUDART_VERSION) + ": install a newer driver";
  }
  return "the driver reports no GPU" +
         (status == cudaSuccess ? std::string() : ": " + std::string(cudaGetErrorString(status)));
}

DeviceDescription UseDevice(int index) {
  const int count = DeviceCount();
  if (count == 0) throw Error("CUDA", WhyNoDevice());
  if (index < 0 || index >= count) {
    throw Error("CUDA", "there is no device " + std::to_string(index) + ": this machine has " +
                            std::to_string(count));
  }
  Check(cudaSetDevice(index), "choosing the device");
  cudaDeviceProp properties;
  Check(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
  DeviceDescription d{.name = properties.name,
                      .major = properties.major,
                      .minor = properties.minor,
                      .multiprocessors = properties.multiProcessorCount,
                      .memory = properties.totalGlobalMem};
  Check(cudaDriverGetVersion(&d.driver), "asking for the driver's version");
  Check(cudaRuntimeGetVersion(&d.runtime), "asking for the runtime's version");
  return d;
}

void Synchronize(StreamHandle stream) {
  Check(cudaStreamSynchronize(NativeStream(stream)), "waiting for the device");
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const std::string what = std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
  Check(cudaMalloc(&data_, bytes), what.c_str());
  const std::size_t now = held_memory += bytes;
  for (std::size_t peak = peak_memory; peak < now;) {
    if (peak_memory.compare_exchange_weak(peak, now)) break;
  }
}
DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  cudaFree(data_);
  held_memory -= bytes_;
}

std::size_t PeakDeviceMemory() { return peak_memory; }

void DeviceMemory::CopyFrom(std::span<const std::byte> host) const {
  Expects(host.size() <= bytes_, "the memory holds what is copied to it");
  Check(cudaMemcpy(data_, host.data(), host.size(), cudaMemcpyHostToDevice),
        "copying to the device");
}

void DeviceMemory::CopyTo(std::span<std::byte> host) const {
  Expects(host.size() <= bytes_, "the memory holds what is copied from it");
  Check(cudaMemcpy(host.data(), data_, host.size(), cudaMemcpyDeviceToHost),
        "copying from the device");
}

void DeviceMemory::Fill(std::uint8_t value, StreamHandle stream) const {
  Check(cudaMemsetAsync(data_, value, bytes_, NativeStream(stream)), "filling device memory");
}

void CopyOnDevice(const void* from, void* to, std::size_t bytes, StreamHandle stream) {
  Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, NativeStream(stream)),
        "copying on the device");
}

StreamTimer::StreamTimer(StreamHandle stream) : stream_(stream) {
  start_ = NewEvent();
  stop_ = NewEvent();
}
StreamTimer::~StreamTimer() {
  cudaEventDestroy(static_cast<cudaEvent_t>(start_));
  cudaEventDestroy(static_cast<cudaEvent_t>(stop_));
}
void StreamTimer::Start() {
  Check(cudaEventRecord(static_cast<cudaEvent_t>(start_), NativeStream(stream_)), "timing");
}
double StreamTimer::Stop() {
  const IeeeArithmetic ieee;
  Check(cudaEventRecord(static_cast<cudaEvent_t>(stop_), NativeStream(stream_)), "timing");
  Check(cudaEventSynchronize(static_cast<cudaEvent_t>(stop_)), "waiting for the device");
  float milliseconds = 0;
  Check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start_),
                             static_cast<cudaEvent_t>(stop_)),
        "timing");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace fp4lab::cuda
