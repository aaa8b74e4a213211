// The source of training and validation tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

// The corpus is `tokens` if that is not empty, else `text` if that is not empty, else `source`.
// Paths are relative to the working folder.
struct DataConfig {
  std::string source = "austen";      // a manifest's name, a manifest file (*.json), or "synthetic"
  std::string text;                   // a text file, whose bytes are the tokens
  std::string tokens;                 // llm.c token file (magic 20240520, version 1), or .npy
  std::string validation_tokens;      // a second token file; empty: the end of the first one
  int vocabulary = 0;                 // of a token file; 0: its largest token + 1
  double validation_fraction = 0.05;  // part at the end of a text, token file or synthetic text
  std::uint64_t synthetic_seed = 1;   // seed of SyntheticSource
  std::int64_t synthetic_bytes = 1'000'000;  // training and validation text together
  // The seed of the order in which training sequences are read; none: the run's own seed, which
  // then decides on initial weights and order alike.
  std::optional<std::uint64_t> order_seed = std::nullopt;

  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// Reads a config strictly: throws Error at the JSON pointer of an unknown key, of keys that do not
// belong together and of a value out of range. `where` is "study.json#/data".
DataConfig ReadDataConfig(const Json& json, const std::string& where);
// JSON with only the members that apply to this kind of source; ReadDataConfig reads it back as the
// same config.
Json ToJson(const DataConfig& config);

// A text that validates beside the validation part of the corpus: one of the two files.
struct ValidationText {
  std::string name;    // letters, digits and "._-", at most 64 of them
  std::string text;    // a file whose bytes are the tokens
  std::string tokens;  // a token file, as DataConfig::tokens

  friend bool operator==(const ValidationText&, const ValidationText&) = default;
};

// Reads {NAME: {"text": path}} or {NAME: {"tokens": path}}, strictly; the texts are in the order of
// their names.
std::vector<ValidationText> ReadValidationTexts(const Json& json, const std::string& where);
Json ToJson(std::span<const ValidationText> texts);

}  // namespace fp4lab
