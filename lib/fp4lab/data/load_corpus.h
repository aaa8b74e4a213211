// Loads the corpus that a configuration names, from files or generated.
#pragma once

#include <span>
#include <vector>

#include "fp4lab/data/config.h"
#include "fp4lab/data/corpus.h"

namespace fp4lab {

// Throws a one-line Error with a remedy for a file that is missing, empty, too short, of another
// format, or whose hash is not the manifest's.
Corpus LoadCorpus(const DataConfig& config);

// The tokens of each text, in the same order. Throws as LoadCorpus does.
std::vector<ValidationPart> LoadValidationTexts(std::span<const ValidationText> texts);

}  // namespace fp4lab
