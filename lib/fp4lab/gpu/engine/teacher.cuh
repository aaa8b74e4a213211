// The teacher of knowledge distillation (train/start/teacher.h) on the device.
#pragma once

#include <cstddef>

#include "fp4lab/gpu/engine/memory.cuh"
#include "fp4lab/gpu/engine/model.cuh"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/start/teacher.h"

namespace fp4lab::gpu {

template <class T>
class DeviceTeacher {
 public:
  // For batches of at most `rows` rows. `tensor_cores`: those of the run's DeviceModel. Throws
  // Error as ReadTeacher does.
  DeviceTeacher(const TrainConfig& config, std::size_t rows, bool tensor_cores, cudaStream_t stream)
      : DeviceTeacher(config, ReadTeacher(config, "config"), rows, tensor_cores, stream) {}

  // The loss of the rows of `batch`, with room for row_kl. Valid until the next call.
  DeviceTeacherLoss LossOf(DeviceBatch batch) {
    Pass pass;
    pass.high_precision = true;
    batch.trains = false;
    model_.Forward(pass, batch);
    return {model_.Logits(), config_.temperature, config_.share, row_kl_.data()};
  }
  const double* RowKl() const { return row_kl_.data(); }  // of the last batch

 private:
  DeviceTeacher(const TrainConfig& config, const TeacherNumbers& numbers, std::size_t rows,
                bool tensor_cores, cudaStream_t stream)
      : config_(config.teacher),
        parameters_(numbers.parameters.size()),
        model_(TeacherRun(config), tensor_cores && HasTensorCoreAttention(numbers.shape),
               parameters_.data(), nullptr, nullptr,
               rows / static_cast<std::size_t>(numbers.shape.sequence), stream),
        row_kl_(rows) {
    parameters_.CopyFrom(numbers.parameters, stream);
    Check(cudaStreamSynchronize(stream), "copy to the GPU");
  }

  TeacherConfig config_;
  DeviceArray<float> parameters_;
  DeviceModel<T> model_;
  DeviceArray<double> row_kl_;
};

}  // namespace fp4lab::gpu
