// The gaps of two formats and the reference's loss as laws over the sizes of several studies, and
// their prediction for a size that was not in the fit.
//
// gap = c N^-a (D/N)^b is fitted to the mean gaps of each format at the budgets behind the fall of
// every seed: the last ones of a study, from the first budget on after which no seed of either
// format or of the reference is apart. With three sizes or more the reference's loss is fitted at
// the same budgets; it and the gaps give the token ratio in extend form. Intervals: quantiles over
// draws of seeds, in each study on its own. A prediction has two: of the law, and of the mean over
// kNewSeeds new seeds, which scatter about the law as the fitted ones do.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"

namespace fp4lab::study {

inline constexpr std::size_t kNewSeeds = 3;

struct LawFile {
  std::vector<StudyFiles> studies;
  std::string reference;
  std::array<std::string, 2> formats;  // the one at the lower loss, the one at the higher loss
  std::int64_t predict = 0;            // block parameters
  std::vector<double> places;          // bytes per parameter
};

// Reads {"studies", "reference", "formats", "predict": block parameters, "places": [bytes per
// parameter, ...]}. Throws Error at the JSON pointer of anything unknown.
LawFile ReadLawFile(const std::filesystem::path& path);

// {"studies", "predicted_parameters", "draws", "arms": a law a format, and of three sizes or more
// "loss" and "token_ratios"}. Deterministic: the same bytes for any number of threads. Throws Error
// for fewer than two sizes with budgets behind the fall, and for a place at which the second format
// does not reach the first one's loss.
Json LawDocument(const LawFile& file, int draws);

}  // namespace fp4lab::study
