// Which dialects and layouts write exactly these bytes for this input, and an input that decides
// between those that are left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fp4lab/base/matrix.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/match.h"

namespace fp4lab {

// One kernel that the bytes may come from.
struct Candidate {
  Kernel kernel;
  bool columnwise = false;  // it quantizes the transposed input
  friend bool operator==(const Candidate&, const Candidate&) = default;
};
// "nvfp4.te, codes low-first, scales 128x4, columnwise".
std::string Name(const Candidate& candidate);
std::string LayoutName(const Candidate& candidate);  // the same without the dialect

// An input on which candidates part, with the bytes of each group.
struct DecidingInput {
  Matrix<float> x;
  struct Group {
    std::vector<std::size_t> members;  // indices of candidates that write the same bytes
    StoredMatrix bytes;
  };
  std::vector<Group> groups;
};

struct Identification {
  std::vector<Candidate> exact = {};    // all bytes are theirs
  std::vector<Candidate> allowed = {};  // approximate dialects whose set of answers holds the bytes
  // Without either: those that give codes and scales, or whose set holds them, but not the stored
  // number of level 2; and what that number looks like. Their layout says what it is nearest to.
  std::vector<Candidate> other_number = {};
  std::optional<TensorNumberReading> number = {};
  struct Near {
    Candidate candidate;
    MatchCounts counts;
  };
  std::vector<Near> near = {};  // without any of those: the nearest, best first
  std::size_t tried = 0;
  std::size_t rows = 0, cols = 0;  // of the input
  bool Fits() const { return !exact.empty() || !allowed.empty(); }
  // Where more than one is exact: inputs that together part all that any tried input parts, and the
  // candidates that stay together on all of them.
  std::vector<DecidingInput> deciding = {};
  std::vector<std::vector<std::size_t>> inseparable = {};
};

struct IdentifyOptions {
  DialectOptions dialect = {};
  std::vector<const Dialect*> dialects = {};  // empty: all
  bool decide = true;
  std::uint64_t seed = 1;  // of the random part of the search
};

// Candidates of one dialect whose layouts put every element and scale of a rows x cols input at the
// same place, so that no such input tells them apart: indices, in order; one group a layout.
std::vector<std::vector<std::size_t>> SameBytes(std::span<const Candidate> candidates,
                                                std::size_t rows, std::size_t cols);

// Plain layouts first; under one layout those dialects first whose code bases store their matrices
// in it: an amax speaks for Transformer Engine, a divisor for compressed-tensors.
void SortCandidates(std::vector<Candidate>* candidates);

// The sizes and contents of got.codes, got.scales and got.level_two count, not its shape or layout.
// Without scales or level 2 those are not compared.
Identification Identify(MatrixView<const float> x, const StoredMatrix& got,
                        const IdentifyOptions& options = {});

// Inputs that part the candidates, fewest first; *inseparable gets the groups of two and more that
// stay together on all inputs that were tried.
std::vector<DecidingInput> FindDecidingInputs(std::span<const Candidate> candidates,
                                              std::uint64_t seed,
                                              std::vector<std::vector<std::size_t>>* inseparable);

// "input", and for group g "g.codes", "g.scales", "g.level_two"; metadata "g" lists its members.
void WriteDecidingInput(const DecidingInput& input, std::span<const Candidate> candidates,
                        const std::filesystem::path& path);

std::string Text(const Identification& result);
Json ToJson(const Identification& result);

}  // namespace fp4lab
