// Sizes of the surface beside each other.
#pragma once

#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/study/several/joined_study.h"
#include "fp4lab/study/several/surface_question.h"

namespace fp4lab::study {

struct SizedStudy {
  const JoinedStudy* study;
  const Json* part;  // what SurfaceOf (surface.h) made of it; null: it has the reference alone
};

// Budgets within this distance in ln are at the same bytes per parameter.
inline constexpr double kNearBytes = 0.07;
// Budgets within this distance in ln are the same text, to a step of a batch.
inline constexpr double kSameText = 0.002;

// Of studies by rising size:
// - "same_bytes": of two neighbouring sizes, at budgets of kNearBytes, the tokens of a format over
//   the reference's at equal loss: ln of the larger size's ratio over the smaller's, with Welch's
//   interval over the seeds of both;
// - "same_text": these tokens, shrink form, of each size at the largest budget that all have;
// - "reference_size": the block parameters with which a model of the reference has the format's
//   loss after the same bytes, over the format's. The reference's loss is linear in ln N between
//   the size and the next smaller one, and a SmoothCurve of the mean over seeds in ln D there; with
//   the "interval" of a bootstrap over the seeds of each size on its own, and "interval_with_text",
//   whose draws also take blocks of chunks of the validation text (evaluation.h), the same blocks
//   for both sizes. Pairs that were not validated on the same chunks of one text have no record:
//   losses on two texts differ by more than two sizes.
// A size that has the reference alone serves the next larger one. Throws Error if the largest has
// no formats. Other intervals do not hold the error of the validation text, and none holds that of
// a line between two sizes.
Json CompareSizes(const std::vector<SizedStudy>& sizes, const SurfaceQuestion& question, int draws);

}  // namespace fp4lab::study
