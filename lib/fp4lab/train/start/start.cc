#include "fp4lab/train/start/start.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/train/checkpoint.h"
#include "fp4lab/train/config.h"
#include "fp4lab/train/model/nudge.h"
#include "fp4lab/train/model/outliers.h"
#include "fp4lab/train/model/shapes.h"
#include "fp4lab/train/start/checkpoint_model.h"

namespace fp4lab {
namespace {

constexpr std::size_t kHashDigits = 64;

std::string PlaceOf(const char* key, const std::string& where) {
  const Json empty = Json::object();
  return JsonObject(empty, where).Where(key);
}

std::string ShapeText(const ParameterSlice& slice) {
  return slice.name + " (" + std::to_string(slice.rows) + ", " + std::to_string(slice.cols) + ")";
}

// Throws Error for the first of the model's weights that the checkpoint's model has not.
void CheckSameWeights(const TrainConfig& config, const Json& there, const std::string& where) {
  const std::string file = CheckpointFile(config.start).string();
  const ParameterLayout here = MakeLayout(config.model),
                        given = MakeLayout(ReadModelConfig(there, file + "#/configuration/model"));
  for (std::size_t i = 0; i < std::max(here.slices.size(), given.slices.size()); ++i) {
    const std::string ours = i < here.slices.size() ? ShapeText(here.slices[i]) : "nothing more",
                      theirs =
                          i < given.slices.size() ? ShapeText(given.slices[i]) : "nothing more";
    if (ours == theirs) continue;
    throw Error(PlaceOf("model", where), "does not fit the weights of " + file + ": " + ours +
                                             " here, " + theirs + " there");
  }
}

}  // namespace

std::string HashOfCheckpoint(const std::filesystem::path& checkpoint, const std::string& where) {
  const IeeeArithmetic ieee;
  const FileContent content = OpenCheckpoint(checkpoint, where);
  ReadCheckpointHeader(content.bytes(), CheckpointFile(checkpoint).string());
  const auto digits = content.bytes().last(kHashDigits);
  return {reinterpret_cast<const char*>(digits.data()), digits.size()};
}

void CheckStart(const TrainConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  if (config.start.empty()) return;
  CheckSameWeights(config, ModelOfCheckpoint(config.start, PlaceOf("start", where)), where);
}

std::vector<float> ReadStart(const TrainConfig& config, const std::string& where) {
  const IeeeArithmetic ieee;
  const std::string place = PlaceOf("start", where);
  const FileContent content = OpenCheckpoint(config.start, place);
  Checkpoint checkpoint = ReadCheckpoint(content.bytes(), CheckpointFile(config.start).string());
  CheckSameWeights(config, ModelIn(checkpoint.header, place, config.start), where);
  const ParameterLayout layout = MakeLayout(config.model);
  if (checkpoint.payload.size() < layout.total) {
    throw Error(place,
                CheckpointFile(config.start).string() + " does not hold its model's numbers");
  }
  checkpoint.payload.resize(layout.total);
  checkpoint.payload.shrink_to_fit();  // without the states of the optimizer
  NudgeFirstGain(layout, config.nudge_ulps, checkpoint.payload);
  if (config.model.outliers.step == 0) PlantOutliers(config.model, checkpoint.payload, {});
  return std::move(checkpoint.payload);
}

}  // namespace fp4lab
