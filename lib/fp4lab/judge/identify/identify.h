// Identifies the dialects and layouts that write exactly these bytes for this input, and finds
// inputs that tell the remaining candidates apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/explain/causes.h"
#include "fp4lab/judge/kernels/match.h"

namespace fp4lab {

// One kernel that the bytes may come from.
struct Candidate {
  Kernel kernel;
  bool columnwise = false;  // the kernel quantizes the transposed input
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
// "nvfp4.te, codes low-first, scales 128x4, columnwise".
std::string Name(const Candidate& candidate);
std::string LayoutName(const Candidate& candidate);  // the same without the dialect

// An input on which candidates write different bytes, with the bytes of each group.
struct DecidingInput {
  Matrix<float> x;
  struct Group {
    std::vector<std::size_t> members;  // indices of candidates that write the same bytes
    StoredMatrix bytes;
  };
  std::vector<Group> groups;
};

struct Identification {
  std::vector<Candidate> exact = {};    // candidates that give all bytes
  std::vector<Candidate> allowed = {};  // approximate dialects whose set of answers holds the bytes
  // If both are empty: candidates that give codes and scales (or whose set holds them), but not the
  // stored tensor scale, and the interpretation of that number. The candidates' layouts have the
  // nearest convention.
  std::vector<Candidate> other_number = {};
  std::optional<TensorScaleReading> number = {};
  struct Near {
    Candidate candidate;
    MatchCounts counts;
  };
  std::vector<Near> near = {};  // if all of the above are empty: the nearest candidates, best first
  // If there is no exact, allowed or other_number: candidates that give all bytes together with one
  // deviation of arrangement: rows or columns in another order, parts with an amax of their own, an
  // order of bytes that no layout has.
  struct Arranged {
    Candidate candidate;
    Cause cause;
  };
  std::vector<Arranged> arranged = {};
  std::size_t tried = 0;           // combinations of dialect, layout and tensor-scale convention
  std::size_t rows = 0, cols = 0;  // of the input
  bool Fits() const { return !exact.empty() || !allowed.empty(); }
  // If more than one candidate is exact: inputs that together tell apart all candidates that any
  // tried input tells apart, and the groups of candidates that no tried input tells apart.
  std::vector<DecidingInput> deciding = {};
  std::vector<std::vector<std::size_t>> inseparable = {};
};

struct IdentifyOptions {
  DialectOptions dialect = {};
  std::vector<const Dialect*> dialects = {};  // empty: all
  bool decide = true;                         // whether to search for deciding inputs
  std::uint64_t seed = 1;                     // of the random inputs of that search
  // Called after each candidate with the numbers of those tried and of all.
  std::function<void(std::size_t tried, std::size_t all)> progress = {};
};

// Groups of candidates of one dialect whose layouts put every element and scale of a rows x cols
// input at the same place, so that no such input tells them apart. Returns indices in order, one
// group per distinct placement.
std::vector<std::vector<std::size_t>> SameBytes(std::span<const Candidate> candidates,
                                                std::size_t rows, std::size_t cols);

// Sorts plain layouts first. Within a layout, dialects come first whose code bases store their
// matrices in it: a stored amax suggests Transformer Engine, a divisor compressed-tensors.
void SortCandidates(std::vector<Candidate>* candidates);

// Identifies the bytes of got.codes, got.scales and got.tensor_scale; got's shape and layout are
// ignored. Absent scales or tensor scales are not compared.
Identification Identify(MatrixView<const float> x, const StoredMatrix& got,
                        const IdentifyOptions& options = {});

// Searches greedily for inputs that tell the candidates apart; *inseparable gets the groups of two
// and more candidates that write equal bytes on all inputs that were tried.
std::vector<DecidingInput> FindDecidingInputs(std::span<const Candidate> candidates,
                                              std::uint64_t seed,
                                              std::vector<std::vector<std::size_t>>* inseparable);

// Writes a .safetensors file with "input", and for group g "g.codes", "g.scales", "g.tensor_scale";
// the metadata "g" lists the group's members.
void WriteDecidingInput(const DecidingInput& input, std::span<const Candidate> candidates,
                        const std::filesystem::path& path);

std::string Text(const Identification& result);
Json ToJson(const Identification& result);

}  // namespace fp4lab
