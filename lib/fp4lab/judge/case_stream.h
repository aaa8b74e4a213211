// The pipe `fp4lab cases | kernel | fp4lab verify`, and its twin in a folder of files.
//
// Both directions are one header line of text, ended by '\n', and then records without gaps. All
// numbers are little-endian.
//   cases:    "fp4lab-cases 1 dialect=D level=L seed=S dtype=T count=N\n", then N times
//             uint32 index, check, rows, cols, random
//             rows * cols elements: float (dtype=fp32), uint16 (dtype=bf16)
//             if random is not 0: rows * cols uint16 fields of random bits, for stochastic rounding
//   answers:  "fp4lab-answers 1\n", then a record for every case, in any order
//             uint32 index, check (both as in the case)
//             uint32 bytes of codes, bytes of scales, count of level-2 numbers
//             the codes, the scales, the level-2 numbers (float)
//             A kernel that cannot do a case answers with three zeros: declined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/io/json.h"
#include "fp4lab/judge/case.h"
#include "fp4lab/judge/deviation.h"
#include "fp4lab/judge/verify.h"

namespace fp4lab {

// A number that tells cases apart: of x, its shape and the random bits.
std::uint32_t CaseCheck(const Case& c);

// Elements are BF16 where options.bf16_only. Error where `out` cannot be written.
void WriteCases(const Dialect& dialect, const CaseOptions& options, const std::vector<Case>& cases,
                std::ostream& out);

struct CaseAnswer {
  std::uint32_t index = 0, check = 0;
  std::vector<std::uint8_t> codes = {}, scales = {};
  std::vector<float> level_two = {};
  bool Declined() const { return codes.empty() && scales.empty() && level_two.empty(); }
};

// Answers one by one, from a stream that is not trusted; errors name `where` and the record.
class AnswerStream {
 public:
  AnswerStream(std::istream& in, std::string where);
  std::optional<CaseAnswer> Next();

 private:
  std::uint32_t Number();
  void Read(void* out, std::size_t bytes);
  template <class T>
  void ReadPart(std::size_t count, std::vector<T>* part);

  std::istream& in_;
  std::string where_;
  std::size_t records_ = 0;
};

// A kernel of this library, with deviations or without, at the other end of the pipe: reads cases
// from `in`, which is not trusted, and answers them. Error(where, ...) where `in` holds no cases.
void AnswerCases(const Kernel& kernel, std::span<const Deviation* const> deviations,
                 std::istream& in, const std::string& where, std::ostream& out);

// A folder with a file a case: NNNN.x.npy (float32, or uint16 holding BF16 bits), NNNN.random.npy
// where there are random bits; or NNNN.safetensors holding "x" and "random". cases.json lists them.
void WriteCaseFolder(const Dialect& dialect, const CaseOptions& options,
                     const std::vector<Case>& cases, const std::filesystem::path& folder,
                     bool safetensors);
// The answer to case number `index`: NNNN.safetensors with "codes", "scales" and "level_two", or
// NNNN.codes.npy, NNNN.scales.npy and NNNN.level_two.npy. nullopt where there is none of them.
std::optional<CaseAnswer> ReadCaseAnswer(const std::filesystem::path& folder, std::size_t index);

// A case and its answer as such files, for `explain`: NNNN.x.npy (float32), NNNN.codes.npy ...
void WriteAnsweredCase(const Case& c, const CaseAnswer& answer,
                       const std::filesystem::path& folder);

// The numbers of the cases that WriteAnsweredCase left in a folder, ascending. Error where there is
// none.
std::vector<std::size_t> AnsweredCases(const std::filesystem::path& folder);

struct AnsweredCase {
  Matrix<float> x;
  std::vector<std::uint16_t> random = {};  // where the kernel rounds stochastically
  CaseAnswer answer = {};
};
AnsweredCase ReadAnsweredCase(const std::filesystem::path& folder, std::size_t index);

// The bytes of an answer as the matrix that they are.
StoredMatrix StoredAnswer(StoredMatrix shape, const CaseAnswer& answer);

// ---- Verdicts on all answers ----

struct CaseVerdict {
  std::size_t index = 0;
  bool answered = false, declined = false;
  Verdict verdict = {};  // where answered and not declined
};

struct SetVerdict {
  std::vector<CaseVerdict> cases = {};  // one a case
  bool allow_declined = false;
  // Whether every answer is one of the dialect's, or declined where that is allowed.
  bool Accepted() const;
};

struct SetOptions {
  StorageLayout layout = {};  // that the kernel writes
  VerifyOptions verify = {};
  bool allow_declined = false;      // else a declined case counts as different
  std::filesystem::path keep = {};  // a folder for the cases whose answers differ; empty: none
};

// Error for an answer to no case, to another set's case, a second one, of a wrong size, and where
// all cases are declined.
SetVerdict VerifyStream(const Dialect& dialect, const std::vector<Case>& cases, std::istream& in,
                        std::string where, const SetOptions& options = {});
// Error for a missing answer, and where all cases are declined.
SetVerdict VerifyFolder(const Dialect& dialect, const std::vector<Case>& cases,
                        const std::filesystem::path& folder, const SetOptions& options = {});

std::string SetVerdictText(const Dialect& dialect, const std::vector<Case>& cases,
                           const SetVerdict& verdict);
Json SetVerdictJson(const Dialect& dialect, const std::vector<Case>& cases,
                    const SetVerdict& verdict);

}  // namespace fp4lab
