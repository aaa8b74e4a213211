// The teacher of knowledge distillation (nn/loss.h): a checkpoint's model without quantization,
// whose logits a run is pulled to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/memory/aligned.h"
#include "fp4lab/nn/loss.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/linear_plan.h"

namespace fp4lab {

class Model;

// The tokens that a teacher computes at a time, in whole sequences, so that its activations stay
// small.
inline constexpr std::size_t kTeacherTokens = 1024;

// The teacher's model, reading sequences as long as the run's. Throws Error, at the JSON pointer of
// "teacher" in the object at `where`, if there is no such checkpoint, or if its vocabulary is not
// the run's.
ModelConfig TeacherModel(const TrainConfig& config, const std::string& where);

// Throws Error as TeacherModel does, and for a part that config.device does not compute; does
// nothing without a teacher.
void CheckTeacher(const TrainConfig& config, const std::string& where);

// The teacher's identity in checkpoints and keys of runs: {"sha256", "temperature", "share"}.
Json TeacherIdentity(const TrainConfig& config, const std::string& where);

// A run that needs the operands and activations of the teacher's forward pass: its model and
// recipe, kTeacherTokens per step.
TrainConfig TeacherRun(const TrainConfig& config);

// A teacher's model and its parameters, in MakeLayout's order.
struct TeacherNumbers {
  ModelConfig shape;
  std::vector<float> parameters;
};

// Reads the teacher of a run. Throws Error as TeacherModel does, and for a damaged file.
TeacherNumbers ReadTeacher(const TrainConfig& config, const std::string& where);

class Teacher final : public LogitSource {
 public:
  // Throws Error as ReadTeacher does.
  Teacher(const TrainConfig& config, const std::string& where);
  ~Teacher() override;

  // Linears compute as the run's Recipe::rest.
  TeacherLoss LossOf(std::span<const std::uint16_t> tokens) override;

 private:
  TeacherConfig config_;
  TeacherNumbers numbers_;
  std::size_t sequences_;  // at a time
  std::unique_ptr<Model> model_;
  FloatBuffer logits_;
  std::vector<double> row_kl_;  // of the last LossOf
};

}  // namespace fp4lab
