// results.json: the resolved study and every number of its runs.
#pragma once

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/run/runner.h"
#include "fp4lab/study/run/study.h"

namespace fp4lab::study {

// Schema "fp4lab.study.results/1" (studies/README.md). Runs are ordered by arm as in the study
// file, then by seed. "seconds" and "tokens_per_second" are the only members of a run that depend
// on anything but the study and the corpus. The member "analysis" is added by WriteReport.
Json ResultsJson(const Study& study, const Corpus& corpus, const Outcome& outcome);

}  // namespace fp4lab::study
