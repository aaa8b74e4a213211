// results.json: the study as it was resolved, and every number that its runs brought.
#pragma once

#include "fp4lab/data/corpus.h"
#include "fp4lab/io/json.h"
#include "fp4lab/study/runner.h"
#include "fp4lab/study/study.h"

namespace fp4lab::study {

// Schema "fp4lab.study.results/1" (studies/README.md). Runs stand by arm as in the file, then by
// seed. "seconds" and "tokens_per_second" of a run are its only members that depend on anything
// but the study and the corpus. "analysis" is not there yet.
Json ResultsJson(const Study& study, const Corpus& corpus, const Outcome& outcome);

}  // namespace fp4lab::study
