// Streams, and events that order what streams do.
#pragma once

#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

// A CUDA stream that does not synchronize with the default stream; with a stream each, the engines
// of one process do not wait for each other.
class Stream {
 public:
  Stream() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A moment of a stream for which other streams wait, without the host.
class Event {
 public:
  Event() { Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  // After what `stream` has been given so far.
  void Record(cudaStream_t stream) const { Check(cudaEventRecord(event_, stream), "event"); }
  void MakeWait(cudaStream_t stream) const { Check(cudaStreamWaitEvent(stream, event_), "event"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace fp4lab::gpu
