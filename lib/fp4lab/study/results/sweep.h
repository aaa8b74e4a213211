// Studies that sweep the learning rate: each arm of the file is trained at each rate.
#pragma once

#include <string>
#include <vector>

#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// The arms of `results` by their names in the study file: without the rates of a sweep.
std::vector<std::string> FileArms(const Results& results);

// The views of a study of one model (ByModel) that sweeps the learning rate, each with the arms of
// the file: all arms at the rate that is best for the reference ("shared"), each arm at the rate
// that is best for it ("best"), and all arms at each other rate. Best is the least mean loss at the
// primary budget; a rate at which a run is missing or diverged is the best of an arm only if every
// rate is such. Without a sweep: `results` alone.
std::vector<Results> ViewsOf(const Results& results);
// ViewsOf of each model.
std::vector<Results> AllViews(const Results& results);

}  // namespace fp4lab::study
