// Whether a corpus fits a training configuration.
#pragma once

#include <string>

#include "fp4lab/data/corpus.h"
#include "fp4lab/train/config.h"

namespace fp4lab {

// The corpus of config.data, with the texts of config.evaluation. Throws Error as LoadCorpus does.
Corpus LoadCorpusFor(const TrainConfig& config);

// Throws Error for a corpus with more tokens in its vocabulary than the model has, or with a part
// or text too short for the model's sequence; `where` begins the errors' JSON pointers. A Trainer
// calls it.
void CheckCorpus(const TrainConfig& config, const Corpus& corpus, const std::string& where);

// One line that says that config.evaluation.tokens is more than the validation part of the corpus
// holds, so that fewer are evaluated; empty where the part has enough.
std::string EvaluationShortfall(const TrainConfig& config, const Corpus& corpus);

}  // namespace fp4lab
