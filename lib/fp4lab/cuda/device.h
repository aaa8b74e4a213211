// A GPU, its memory and its streams, without any type of CUDA: what callers of the backend see.
//
// Every function works in a build without CUDA and on a machine without a driver: DeviceCount() is
// 0 there and the others throw Error("CUDA", ...), one line that says what is missing.
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

// Devices that this process can use.
int DeviceCount();
// Why DeviceCount() is 0, as one sentence without a full stop; "" where it is not.
std::string WhyNoDevice();
// Makes device `index` current for the calling thread.
DeviceDescription UseDevice(int index = 0);

// Waits for all work on the stream, and throws what went wrong there.
void Synchronize(StreamHandle stream = nullptr);

// Device memory of the current device; freed with the object. Error where there is not enough.
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

  // Copies from and to the start of the memory; wait until done.
  void CopyFrom(std::span<const std::byte> host) const;
  void CopyTo(std::span<std::byte> host) const;
  // Every byte = value, in order with the stream's other work.
  void Fill(std::uint8_t value, StreamHandle stream = nullptr) const;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

template <class T>
DeviceMemory OnDevice(std::span<const T> host) {
  DeviceMemory memory(host.size_bytes());
  memory.CopyFrom(std::as_bytes(host));
  return memory;
}

// Bytes from one place of device memory to another, in order with the stream's other work.
void CopyOnDevice(const void* from, void* to, std::size_t bytes, StreamHandle stream = nullptr);

// Time between two points of a stream, as the device sees them.
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
