// Two dumps of named tensors against each other: the activations of a training engine and of a
// rollout engine, two versions of a program, two precisions.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fp4lab/checkpoint/checkpoint.h"
#include "fp4lab/io/json.h"

namespace fp4lab {

// A tensor of both dumps. `first` and `second` are the dumps.
struct DumpedTensor {
  std::string name, second_name;
  std::string dtype, second_dtype;
  std::vector<std::size_t> shape = {}, second_shape = {};
  std::string problem = {};  // not compared: why
  std::size_t elements = 0;
  std::size_t different = 0;  // other values; NaN equals NaN, and -0 equals 0
  std::size_t first_nans = 0, second_nans = 0, lone_nans = 0;  // lone: NaN in one dump only
  // Of elements that are finite in both.
  double max_difference = 0;
  double max_relative = 0;    // |a - b| / max(|a|, |b|)
  double sqnr_db = 0;         // the first dump is the signal; 999: no noise
  double factor = 1;          // of the second, that fits the first best: a is about factor * b
  double sqnr_scaled_db = 0;  // with that factor
  // The place of the first difference, in the shape of the first dump, and the values there.
  std::vector<std::size_t> place = {};
  double got = 0, second_got = 0;
  // Rows are those of the last dimension.
  std::size_t rows = 0, cols = 0, rows_different = 0;
  std::size_t first_row = 0, last_row = 0, first_col = 0, last_col = 0;  // hold all differences
  std::size_t blocks = 0, blocks_different = 0;                          // of 16 columns of a row
  std::string cause = {};                                                // empty: there is none
  bool accepted = false;  // equal, or its SQNR suffices and no NaN stands alone

  bool Equal() const { return problem.empty() && different == 0; }
};

struct DumpReport {
  std::string path, second_path;
  std::vector<DumpedTensor> tensors;  // in the order of names, numbers by value
  std::vector<std::string> only_first, only_second;
  // Whether every tensor is in both dumps and accepted.
  bool Accepted() const;
};

struct DumpOptions {
  // Tensors of at least this SQNR, in decibels, are accepted; infinite: equal ones only.
  double least_sqnr_db = 0;
  bool only_equal = true;
  // Names of tensors of the first dump and of the second one that differ. '*' stands for a number,
  // the same in both: "decoder.layers.*.mlp" and "model.layers.*.mlp".
  std::vector<std::pair<std::string, std::string>> names = {};
  NpzReader read_npz = {};
  // Called between tensors with the bytes that are done and the bytes of all.
  std::function<void(std::size_t done, std::size_t all)> progress = {};
};

// Names of a JSON object, {"name in the first dump": "name in the second"}. Throws Error(where,
// ...) for another form, and for names with unlike numbers of '*'.
std::vector<std::pair<std::string, std::string>> ParseDumpNames(const Json& json,
                                                                const std::string& where);

// Compares tensors of one name; "model.", "module." and "_orig_mod." before a name are ignored
// where the rest is unique. Dimensions of 1 are ignored, and leading dimensions may be joined.
// Memory does not grow with the tensors of .safetensors and .npy files. Throws Error for files that
// cannot be read, and for dumps without a common name.
DumpReport CompareDumps(const std::filesystem::path& first, const std::filesystem::path& second,
                        const DumpOptions& options);
class DumpSource;  // dumps/dump_source.h
DumpReport CompareDumps(const DumpSource& first, const DumpSource& second,
                        const DumpOptions& options);

std::string ReportText(const DumpReport& report);
Json ReportJson(const DumpReport& report);

}  // namespace fp4lab
