// A GPU, its memory and its streams: the interface of the backend, without any type of CUDA.
//
// Every function can be called in a build without CUDA and on a machine without a driver: there
// DeviceCount() returns 0, WhyNoDevice() returns the reason, and the other functions throw
// Error("CUDA", ...), one line that says what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace fp4lab::cuda {

// A cudaStream_t (a CUstream); nullptr is the default stream.
using StreamHandle = void*;

struct DeviceDescription {
  std::string name;             // "NVIDIA H200"
  int major = 0, minor = 0;     // compute capability
  int driver = 0, runtime = 0;  // CUDA versions, 13000 for 13.0
  int multiprocessors = 0;
  std::size_t memory = 0;  // bytes
};

// The number of GPUs that this process can use.
int DeviceCount();
// The reason why DeviceCount() is 0, one sentence without a full stop; "" if there is a device.
std::string WhyNoDevice();
// Makes device `index` current for the calling thread. Throws Error if there is no such device.
DeviceDescription UseDevice(int index = 0);

// Waits for all work on the stream. Throws Error if any of it failed.
void Synchronize(StreamHandle stream = nullptr);

// Memory of the current device, freed with the object. The constructor throws Error if the device
// has not enough free memory.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  std::size_t bytes() const { return bytes_; }
  void* data() const { return data_; }
  template <class T>
  T* As() const {
    return static_cast<T*>(data_);
  }

  // Copy from the host to the start of this memory, and back; both wait until the copy is done. The
  // host span has at most bytes() bytes.
  void CopyFrom(std::span<const std::byte> host) const;
  void CopyTo(std::span<std::byte> host) const;
  // Sets every byte to `value`, in order with the stream's other work.
  void Fill(std::uint8_t value, StreamHandle stream = nullptr) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// The most bytes that objects of DeviceMemory have held at a time, on all devices of this process;
// 0 in a build without CUDA.
std::size_t PeakDeviceMemory();

// Copies `host` to new device memory.
template <class T>
DeviceMemory OnDevice(std::span<const T> host) {
  DeviceMemory memory(host.size_bytes());
  memory.CopyFrom(std::as_bytes(host));
  return memory;
}

// Copies `bytes` bytes within device memory, in order with the stream's other work.
void CopyOnDevice(const void* from, void* to, std::size_t bytes, StreamHandle stream = nullptr);

// Measures the time between two points of a stream with the device's events.
class StreamTimer {
 public:
  explicit StreamTimer(StreamHandle stream = nullptr);
  StreamTimer(const StreamTimer&) = delete;
  StreamTimer& operator=(const StreamTimer&) = delete;
  ~StreamTimer();
  void Start();
  double Stop();  // seconds since Start(); waits for the stream

 private:
  StreamHandle stream_;
  void* start_ = nullptr;
  void* stop_ = nullptr;
};

}  // namespace fp4lab::cuda
