// The checkpoint whose weights a run begins with, in place of random ones: the key "start". Only
// weights are taken. Optimizer, amax histories and steps begin at zero.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fp4lab {

struct TrainConfig;

// The SHA-256 with which the checkpoint ends, 64 digits; it is not verified.
std::string HashOfCheckpoint(const std::filesystem::path& checkpoint, const std::string& where);

// Throws Error, at the JSON pointer of "start" or "model" in the object at `where`, if config.start
// is no checkpoint or has weights of other names or shapes than config.model. Other members of the
// model, as a window or rope_theta, may differ. Does nothing without a start.
void CheckStart(const TrainConfig& config, const std::string& where);

// The weights of config.start, in MakeLayout's order, with config.nudge_ulps applied. Throws Error
// as CheckStart does, and for a damaged file.
std::vector<float> ReadStart(const TrainConfig& config, const std::string& where);

}  // namespace fp4lab
