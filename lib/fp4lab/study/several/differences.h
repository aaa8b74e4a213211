// Differences of two arms of a study, and the share that one difference is of another.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"

namespace fp4lab::study {

struct AskedDifference {
  std::string study, arm, base;
  std::vector<std::string> whole;  // two arms: the difference that this one is a share of; or none
};

struct DifferencesFile {
  std::vector<StudyFiles> studies;
  std::vector<AskedDifference> differences;
};

// Reads {"studies": [...] (joined_study.h), "differences": [{"study": name, "arm", "base", "of":
// [arm, base]}, ...]}. Throws Error at the JSON pointer of anything unknown.
DifferencesFile ReadDifferencesFile(const std::filesystem::path& path);

// {"sources", "differences"}: of each, loss(arm) - loss(base) at the study's largest budget, paired
// over seeds, as NumberJson gives it, and "interval_with_text" (evaluation.h); with "of" also
// "share": the mean over the mean of the whole, with Fieller's interval, null where it is
// unbounded. Throws Error for a study or an arm that is not there.
Json DifferencesDocument(const DifferencesFile& file);

}  // namespace fp4lab::study
