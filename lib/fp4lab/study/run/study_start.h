// What a study needs before its first step: `study run` and `study check` share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fp4lab/data/corpus.h"
#include "fp4lab/study/run/study.h"
#include "fp4lab/train/trainer.h"

namespace fp4lab::study {

// Runs at a time of a study with `runs` runs to train: `jobs`, or, if it is 0, as many as there are
// threads or GPUs.
int JobsOf(const Study& study, int jobs, std::size_t runs);
// Bytes of the cache that one run may need.
std::uintmax_t BytesOfRun(const Trainer& trainer);

// Loads the study's corpus. Throws Error for a source that is not known, a file that cannot be
// read, and a corpus that does not fit the models of the arms.
Corpus LoadCorpusOf(const Study& study);

// Throws Error if memory does not hold `jobs` of the largest of the runs at a time, or if the
// device is not there. `runs` are configurations of the study's runs; `bytes`, if not nullptr,
// receives the bytes of the files that one run leaves.
void CheckMachine(const std::string& name, const std::vector<TrainConfig>& runs,
                  const Corpus& corpus, int jobs, std::uintmax_t* bytes = nullptr);

// Loads the corpus and makes both checks for all runs of the study; `jobs` as RunOptions::jobs.
Corpus CheckStart(const Study& study, int jobs);

// One line each: evaluation tokens that the corpus lacks, arms whose recipe quantizes nothing of
// their model, and head sizes that a GPU is slow with.
std::vector<std::string> NotesOn(const Study& study, const Corpus& corpus);

}  // namespace fp4lab::study
