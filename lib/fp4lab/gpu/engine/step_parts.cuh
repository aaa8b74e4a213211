// The parts of a step on the device (base/step_parts.h): ranges for NVIDIA's tools and, while a
// DeviceStepClock lives, times by events of the stream.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "fp4lab/base/step_parts.h"
#include "fp4lab/gpu/engine/memory.cuh"

namespace fp4lab::gpu {

// Notes on the stream where each part begins. Events are made once and serve all steps.
class DeviceStepClock {
 public:
  explicit DeviceStepClock(cudaStream_t stream) : stream_(stream) {}
  DeviceStepClock(const DeviceStepClock&) = delete;
  DeviceStepClock& operator=(const DeviceStepClock&) = delete;
  ~DeviceStepClock() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  void Begin() {
    marks_.clear();
    part_ = StepPart::kOther;
    ChangeTo(part_);
  }
  // Waits for the stream. Returns the times since Begin.
  StepTimes End() {
    ChangeTo(StepPart::kOther);
    Check(cudaEventSynchronize(events_[marks_.size() - 1]), "timing a step");
    StepTimes times;
    for (std::size_t i = 0; i + 1 < marks_.size(); ++i) {
      float milliseconds = 0.0f;
      Check(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]), "timing a step");
      times.Of(marks_[i]) += 1e-3 * static_cast<double>(milliseconds);
    }
    marks_.clear();
    return times;
  }

  StepPart ChangeTo(StepPart part) {
    if (marks_.size() == events_.size()) {
      cudaEvent_t event = nullptr;
      Check(cudaEventCreate(&event), "timing a step");
      events_.push_back(event);
    }
    Check(cudaEventRecord(events_[marks_.size()], stream_), "timing a step");
    marks_.push_back(part);
    return std::exchange(part_, part);
  }

 private:
  cudaStream_t stream_;
  StepPart part_ = StepPart::kOther;
  std::vector<cudaEvent_t> events_;
  std::vector<StepPart> marks_;  // the part that begins at each event
};

// The clock of the engine that times a step on this thread.
inline thread_local DeviceStepClock* device_step_clock = nullptr;

// While it lives, what the thread enqueues belongs to `part`. Without a clock and without a tool
// that listens, an object costs two calls that return at once.
class DeviceStepScope {
 public:
  explicit DeviceStepScope(StepPart part) {
    nvtxRangePushA(StepPartName(part).data());
    if (device_step_clock != nullptr) before_ = device_step_clock->ChangeTo(part);
  }
  ~DeviceStepScope() {
    if (device_step_clock != nullptr) device_step_clock->ChangeTo(before_);
    nvtxRangePop();
  }
  DeviceStepScope(const DeviceStepScope&) = delete;
  DeviceStepScope& operator=(const DeviceStepScope&) = delete;

 private:
  StepPart before_ = StepPart::kOther;
};

}  // namespace fp4lab::gpu
