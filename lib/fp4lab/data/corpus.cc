#include "fp4lab/data/corpus.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "fp4lab/base/hash.h"
#include "fp4lab/data/manifest.h"
#include "fp4lab/data/synthetic.h"
#include "fp4lab/data/token_file.h"
#include "fp4lab/io/file.h"

namespace fp4lab {
namespace {

constexpr std::size_t kFewestTokens = 64;  // of either part

void CheckLength(const std::string& where, std::string_view part, std::size_t tokens) {
  if (tokens >= kFewestTokens) return;
  throw Error(where, "is too short: its " + std::string(part) + " part has " +
                         std::to_string(tokens) + " tokens, at least " +
                         std::to_string(kFewestTokens) + " are needed");
}

// How many of `size` tokens are for training; the rest, from the end, is for validation.
std::size_t TrainSize(std::size_t size, double validation_fraction) {
  return size -
         static_cast<std::size_t>(std::llround(static_cast<double>(size) * validation_fraction));
}

std::vector<std::uint16_t> Tokens(std::string_view text) {
  std::vector<std::uint16_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(),
                 [](char c) { return static_cast<unsigned char>(c); });
  return tokens;
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

Corpus CorpusFromText(std::string name, std::string_view train, std::string_view validation) {
  CheckLength(name, "training", train.size());
  CheckLength(name, "validation", validation.size());
  return {.name = std::move(name),
          .train = Tokens(train),
          .validation = Tokens(validation),
          .train_sha256 = Sha256(train),
          .validation_sha256 = Sha256(validation)};
}

Corpus LoadCorpus(const DataConfig& config) {
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

}  // namespace fp4lab
