// The surface: the token ratio of two formats over sizes, texts and budgets of several studies.
//
// A token ratio in extend form says how many times the tokens of the arm at the lower loss the
// other arm needs for the same loss; in shrink form, how many times earlier the arm at the lower
// loss passed the loss where the other one ended. Both give points of one curve, the ratio against
// the tokens of the arm at the lower loss. A ratio stands only where StandingRatio has a value for
// every seed. Intervals: Student's t over paired seeds, and a bootstrap over seeds and blocks of
// neighbouring chunks of the validation text (statistics.h, DrawBootstrap).
//
// Corners: eight arms that lead from one set of three properties to another. The share of a
// property in ln of the token ratio of the last corner to the first one is Shapley's.
#pragma once

#include <filesystem>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"
#include "fp4lab/study/several/surface_question.h"

namespace fp4lab::study {

struct SurfaceFile {
  std::vector<StudyFiles> studies;
  SurfaceQuestion question;
};

// Reads {"studies": [...] (joined_study.h), "reference", "formats": [a, b], "null", "corners":
// {"factors", "arms"}, "sizes", "wanted_half_width"}. Throws Error at the JSON pointer of anything
// unknown.
SurfaceFile ReadSurfaceFile(const std::filesystem::path& path);

// {"reference", "formats", "draws", "studies": one object a study, by rising size, "references":
// studies of "sizes" that have the reference alone, "sizes"}; all losses in nats a byte. Of a
// study, "gaps" has its losses at each budget, "ratios" the token ratio of the formats,
// "ratios_to_reference" those to the reference, "corners" and "shares", "growth" of the shrink
// form's ratio from the first to the last budget, "persistence" of what a seed does to the
// difference of the formats over budgets, and "evaluation" (evaluation.h). Deterministic: the same
// bytes for any number of threads.
Json SurfaceDocument(const SurfaceFile& file, int draws);
// The object of one study.
Json SurfaceOf(const JoinedStudy& study, const SurfaceQuestion& question, int draws);

}  // namespace fp4lab::study
