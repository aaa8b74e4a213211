// Loads the corpus that a configuration names, from files or generated.
#pragma once

#include "fp4lab/data/config.h"
#include "fp4lab/data/corpus.h"

namespace fp4lab {

// Throws a one-line Error with a remedy for a file that is missing, empty, too short, of another
// format, or whose hash is not the manifest's.
Corpus LoadCorpus(const DataConfig& config);

}  // namespace fp4lab
