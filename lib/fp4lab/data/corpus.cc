#include "fp4lab/data/corpus.h"

#include <algorithm>

#include "fp4lab/base/error.h"
#include "fp4lab/base/hash.h"

namespace fp4lab {
namespace {

constexpr std::size_t kFewestTokens = 64;  // of the training and of the validation part

std::vector<std::uint16_t> Tokens(std::string_view text) {
  std::vector<std::uint16_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(),
                 [](char c) { return static_cast<unsigned char>(c); });
  return tokens;
}

}  // namespace

void CheckLength(const std::string& where, std::string_view part, std::size_t tokens) {
  if (tokens >= kFewestTokens) return;
  throw Error(where, "is too short: its " + std::string(part) + " part has " +
                         std::to_string(tokens) + " tokens, at least " +
                         std::to_string(kFewestTokens) + " are needed");
}

Corpus CorpusFromText(std::string name, std::string_view train, std::string_view validation) {
  CheckLength(name, "training", train.size());
  CheckLength(name, "validation", validation.size());
  return {.name = std::move(name),
          .train = Tokens(train),
          .validation = Tokens(validation),
          .train_sha256 = Sha256(train),
          .validation_sha256 = Sha256(validation)};
}

}  // namespace fp4lab
