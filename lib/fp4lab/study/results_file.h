// results.json read back: what the analysis and the report work on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"

namespace fp4lab::study {

// The annealed losses of a run at one budget, nats per token.
struct AnnealedPoint {
  std::int64_t tokens = 0, steps = 0;
  double loss = 0;       // validation in the precision of the training
  double loss_high = 0;  // the same weights in high precision; NaN where it was not measured
  std::vector<double> chunks, chunks_high;  // the same by stretches of the validation text
};

struct TrunkLoss {
  std::int64_t tokens = 0;
  double loss = 0;
};

struct CurvePoint {
  std::int64_t step = 0, tokens = 0;
  double loss = 0, learning_rate = 0;
};

struct TensorRow {
  std::string name, format;  // "blocks.0.mlp.up.fprop.input", "nvfp4"
  double amax = 0, underflow_percent = 0, clip_percent = 0, sqnr_db = 0;  // NaN: was not finite
};

struct RunResult {
  std::string arm;
  std::uint64_t seed = 0;
  bool diverged = false;
  std::int64_t diverged_step = 0;
  std::string diverged_tensor;
  std::vector<AnnealedPoint> points;
  std::vector<TrunkLoss> trunk_points;
  std::vector<CurvePoint> curve;
  std::vector<TensorRow> tensors;
  double seconds = 0, tokens_per_second = 0;
};

// What was asked before the runs: the study's "analysis".
struct Question {
  std::string reference;
  std::string format, format_reference;  // the contrast {f, R}; empty: none was registered
  std::int64_t primary_tokens = 0;
  double confidence = 0.95;
  std::vector<std::string> null_arms;  // twins of the reference that measure the noise floor
  Json criteria = Json::array();
};

struct Results {
  std::string name, title, description, version;
  Json numerics;  // by arm, the fingerprint of its runs; empty in files of older versions
  Json study;     // as it was resolved
  std::string corpus;
  std::int64_t vocabulary = 0, train_tokens = 0, validation_tokens = 0;
  std::string train_sha256, validation_sha256;
  std::int64_t parameters = 0, block_parameters = 0;
  std::vector<std::string> arms;     // in the study's order
  std::vector<std::uint64_t> seeds;  // likewise
  std::vector<std::int64_t> budgets;
  Question question;
  std::vector<RunResult> runs;

  const RunResult* Find(std::string_view arm, std::uint64_t seed) const;
};

// Schema "fp4lab.study.results/1". Error for anything else and where "sha256" is not the hash of
// the content; members that this version does not know are passed over.
Results ReadResults(const Json& json, const std::string& where);
// results.json as it is written: with "sha256", the SHA-256 of the document without that member,
// its keys sorted and without spaces.
std::string ResultsText(Json results);
// Whether it was written so; older versions wrote no hash.
bool HasHash(const Json& results);
// `path` is results.json or the folder it lies in.
Results LoadResults(const std::filesystem::path& path);
std::filesystem::path ResultsPath(const std::filesystem::path& file_or_folder);

}  // namespace fp4lab::study
