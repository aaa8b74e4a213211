// Where training and validation tokens come from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab {

// Token ids. Bytes of a text are tokens 0..255 of a vocabulary of 256.
struct Corpus {
  std::string name;
  int vocabulary = 256;
  std::vector<std::uint16_t> train = {}, validation = {};
  // Of the text's bytes, or of the token file's tokens as little-endian uint16.
  std::string train_sha256 = {}, validation_sha256 = {};
};

// Exactly one of `source`, `text` and `tokens` counts: `tokens` where set, else `text`, else
// `source`. Paths are relative to the working folder.
struct DataConfig {
  std::string source = "austen";      // a manifest's name, a manifest file (*.json), or "synthetic"
  std::string text;                   // own text file, taken as bytes
  std::string tokens;                 // llm.c token file (magic 20240520, version 1, uint16 tokens)
  std::string validation_tokens;      // a second token file; empty: the end of the first one
  int vocabulary = 0;                 // of a token file; 0: its largest token + 1
  double validation_fraction = 0.05;  // from the end of a text, token file or synthetic text
  std::uint64_t synthetic_seed = 1;   // SyntheticSource's
  std::int64_t synthetic_bytes = 1'000'000;  // both parts together

  friend bool operator==(const DataConfig&, const DataConfig&) = default;
};

// Error, in one line with a remedy: files that are missing, empty, too short, of another format, or
// whose hash is not the manifest's.
Corpus LoadCorpus(const DataConfig& config);

// Bytes as tokens. Error for a part too short to train on or to measure.
Corpus CorpusFromText(std::string name, std::string_view train, std::string_view validation);

// Strict: unknown keys, keys that do not belong together and values out of range are Errors at
// their JSON pointer. `where` is "study.json#/data".
DataConfig ReadDataConfig(const Json& json, const std::string& where);
// Only the members that count for this kind of source; ReadDataConfig gives the same config back.
Json ToJson(const DataConfig& config);

}  // namespace fp4lab
