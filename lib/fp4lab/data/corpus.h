// The tokens that a model trains on and is validated on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fp4lab {

// A text that validates beside the validation part.
struct ValidationPart {
  std::string name;
  std::vector<std::uint16_t> tokens = {};
  std::string sha256 = {};  // as Corpus::validation_sha256
};

// Token ids. A text is tokenized by bytes: tokens 0..255, a vocabulary of 256.
struct Corpus {
  std::string name;
  int vocabulary = 256;
  std::vector<std::uint16_t> train = {}, validation = {};
  // SHA-256 of the text's bytes, or of the token file's tokens as little-endian uint16.
  std::string train_sha256 = {}, validation_sha256 = {};
  std::vector<ValidationPart> texts = {};  // LoadValidationTexts
};

// Throws Error(where, ...) if a part ("training" or "validation") has too few tokens to train on or
// to measure: fewer than 64.
void CheckLength(const std::string& where, std::string_view part, std::size_t tokens);

// The corpus whose tokens are the bytes of two texts. Throws Error for a part that CheckLength
// refuses.
Corpus CorpusFromText(std::string name, std::string_view train, std::string_view validation);

}  // namespace fp4lab
