// Differences of two arms of a study, and the share that one difference is of another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"

namespace fp4lab::study {

struct AskedDifference {
  std::string study, arm, base;
  std::vector<std::string> whole;  // two arms: the difference that this one is a share of; or none
  // Two arms, possibly of another model: their difference is taken off; or none.
  std::vector<std::string> against;
  std::int64_t tokens = 0;  // the budget; 0: the study's largest
  double margin = 0;        // within which the result counts as nothing, nats; 0: none was stated
};

struct DifferencesFile {
  std::vector<StudyFiles> studies;
  std::vector<AskedDifference> differences;
};

// Reads {"studies": [...] (joined_study.h), "differences": [{"study": name, "arm", "base", "of":
// [arm, base], "against": [arm, base], "tokens": budget, "margin": nats}, ...]}. Throws Error at
// the JSON pointer of anything unknown.
DifferencesFile ReadDifferencesFile(const std::filesystem::path& path);

// {"sources", "differences"}: of each, loss(arm) - loss(base) at "tokens", the study's largest
// budget if none is asked, paired over seeds, as NumberJson gives it, and "interval_with_text"
// (evaluation.h); with "of" also "share": the mean over the mean of the whole, with Fieller's
// interval, null where it is unbounded. With "against" the number is (arm - base) - (the first of
// these less the second). With "margin" also "verdict", by the 95 % interval with the text's error
// (over seeds alone where there is none): "within the margin" if it lies in [-margin, margin],
// "beyond the margin" if it lies outside, else "not decided". Two one-sided tests at 2.5 % each say
// the same. Their power is in "shown_margin": the smallest margin within which 8 of 10 such data
// would lie if nothing differed; null without an interval. Throws Error for a study, an arm or a
// budget that is not there.
Json DifferencesDocument(const DifferencesFile& file);

}  // namespace fp4lab::study
