#include "fp4lab/train/corpus_fit.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/data/load_corpus.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

Corpus LoadCorpusFor(const TrainConfig& config) {
  const IeeeArithmetic ieee;
  Corpus corpus = LoadCorpus(config.data);
  corpus.texts = LoadValidationTexts(config.evaluation.texts);
  return corpus;
}

void CheckCorpus(const TrainConfig& config, const Corpus& corpus, const std::string& where) {
  const Json empty = Json::object();
  const JsonObject root(empty, where);
  if (corpus.vocabulary > config.model.vocabulary) {
    throw Error(root.Where("model") + "/vocabulary",
                "the corpus " + corpus.name + " has " + std::to_string(corpus.vocabulary) +
                    " tokens, more than " + std::to_string(config.model.vocabulary));
  }
  const auto too_short = [&](std::string_view part, std::size_t tokens, std::size_t least) {
    if (tokens >= least) return;
    throw Error(root.Where("data"), "the " + std::string(part) + " part of " + corpus.name +
                                        " has " + std::to_string(tokens) +
                                        " tokens; the model's sequence needs at least " +
                                        std::to_string(least));
  };
  const auto sequence = static_cast<std::size_t>(config.model.sequence);
  too_short("training", corpus.train.size(), 2 * sequence);
  too_short("validation", corpus.validation.size(), sequence + 1);
  for (const ValidationPart& text : corpus.texts) {
    const std::string place = root.Where("evaluation") + "/texts/" + text.name;
    if (text.tokens.size() < sequence + 1) {
      throw Error(place, "has " + std::to_string(text.tokens.size()) +
                             " tokens; the model's sequence needs at least " +
                             std::to_string(sequence + 1));
    }
    const int largest = *std::max_element(text.tokens.begin(), text.tokens.end());
    if (largest < config.model.vocabulary) continue;
    throw Error(place, "holds the token " + std::to_string(largest) +
                           ", outside the model's vocabulary of " +
                           std::to_string(config.model.vocabulary));
  }
}

std::string EvaluationShortfall(const TrainConfig& config, const Corpus& corpus) {
  const auto sequence = static_cast<std::size_t>(config.model.sequence);
  const auto asked = static_cast<std::size_t>(config.evaluation.tokens);
  if (corpus.validation.empty() || asked < corpus.validation.size()) return "";
  const std::size_t evaluated = (corpus.validation.size() - 1) / sequence * sequence;
  return "evaluation.tokens is " + std::to_string(asked) + ", and the validation part of " +
         corpus.name + " has " + std::to_string(corpus.validation.size()) + ": " +
         std::to_string(evaluated) + " are evaluated";
}

}  // namespace fp4lab
