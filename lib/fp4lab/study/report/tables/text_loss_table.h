// The table of the losses on further validation texts, as HTML.
#pragma once

#include <string>

#include "fp4lab/study/results/results_file.h"

namespace fp4lab::study {

// A row per arm, a column per text of "evaluation.texts": at the primary budget, the mean loss over
// the seeds that finished, in the precision of the training, and its paired difference to the
// reference with a t interval. Empty for a study without such texts.
std::string TextLossTable(const Results& results);

}  // namespace fp4lab::study
