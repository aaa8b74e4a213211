#include "fp4lab/data/load_corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "fp4lab/base/hash.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/data/manifest.h"
#include "fp4lab/data/synthetic.h"
#include "fp4lab/data/token_file.h"
#include "fp4lab/io/file.h"

namespace fp4lab {
namespace {

// The number of training tokens among `size`; the rest, at the end, is for validation.
std::size_t TrainSize(std::size_t size, double validation_fraction) {
  return size -
         static_cast<std::size_t>(std::llround(static_cast<double>(size) * validation_fraction));
}

Corpus FromOneText(std::string name, std::string_view text, double validation_fraction) {
  const std::size_t split = TrainSize(text.size(), validation_fraction);
  return CorpusFromText(std::move(name), text.substr(0, split), text.substr(split));
}

Corpus FromTokenFiles(const DataConfig& config) {
  Corpus corpus{.name = config.tokens};
  corpus.train = ReadTokenFile(config.tokens);
  if (!config.validation_tokens.empty()) {
    corpus.validation = ReadTokenFile(config.validation_tokens);
  } else {
    const auto split = corpus.train.begin() + static_cast<std::ptrdiff_t>(TrainSize(
                                                  corpus.train.size(), config.validation_fraction));
    corpus.validation.assign(split, corpus.train.end());
    corpus.train.erase(split, corpus.train.end());
  }
  CheckLength(config.tokens, "training", corpus.train.size());
  CheckLength(config.validation_tokens.empty() ? config.tokens : config.validation_tokens,
              "validation", corpus.validation.size());
  const int largest = std::max(*std::ranges::max_element(corpus.train),
                               *std::ranges::max_element(corpus.validation));
  corpus.vocabulary = config.vocabulary == 0 ? largest + 1 : config.vocabulary;
  if (largest >= corpus.vocabulary) {
    throw Error(config.tokens, "holds the token " + std::to_string(largest) +
                                   ", outside the vocabulary of " +
                                   std::to_string(corpus.vocabulary));
  }
  corpus.train_sha256 = Sha256(std::as_bytes(std::span(corpus.train)));
  corpus.validation_sha256 = Sha256(std::as_bytes(std::span(corpus.validation)));
  return corpus;
}

}  // namespace

Corpus LoadCorpus(const DataConfig& config) {
  const IeeeArithmetic ieee;
  if (!config.tokens.empty()) return FromTokenFiles(config);
  if (!config.text.empty()) {
    return FromOneText(config.text, ReadFile(config.text), config.validation_fraction);
  }
  if (config.source == "synthetic") {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(config.synthetic_bytes, 0));
    return FromOneText("synthetic", SyntheticSource(config.synthetic_seed).Text(size),
                       config.validation_fraction);
  }
  return LoadManifestCorpus(FindManifest(config.source), config.source);
}

std::vector<ValidationPart> LoadValidationTexts(std::span<const ValidationText> texts) {
  const IeeeArithmetic ieee;
  std::vector<ValidationPart> parts;
  for (const ValidationText& text : texts) {
    ValidationPart part{.name = text.name};
    if (text.tokens.empty()) {
      const std::string bytes = ReadFile(text.text);
      for (const char c : bytes) part.tokens.push_back(static_cast<unsigned char>(c));
      part.sha256 = Sha256(std::as_bytes(std::span(bytes)));
    } else {
      part.tokens = ReadTokenFile(text.tokens);
      part.sha256 = Sha256(std::as_bytes(std::span(part.tokens)));
    }
    CheckLength(text.tokens.empty() ? text.text : text.tokens, "validation", part.tokens.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace fp4lab
