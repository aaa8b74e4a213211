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
//             uint32 bytes of codes, bytes of scales, count of tensor scales
//             the codes, the scales, the tensor scales (float)
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
#include "fp4lab/judge/cases/case.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/judge/verify/verify.h"

namespace fp4lab {

// A checksum of x, its shape and the random bits, which tells cases apart.
std::uint32_t CaseCheck(const Case& c);

// Writes the stream of cases. Elements are BF16 if options.bf16_only. Throws Error if `out` cannot
// be written.
void WriteCases(const Dialect& dialect, const CaseOptions& options, const std::vector<Case>& cases,
                std::ostream& out);

struct CaseAnswer {
  std::uint32_t index = 0, check = 0;
  std::vector<std::uint8_t> codes = {}, scales = {};
  std::vector<float> tensor_scale = {};
  std::vector<std::size_t> codes_shape = {}, scales_shape = {};  // that files state; else empty
  bool Declined() const { return codes.empty() && scales.empty() && tensor_scale.empty(); }
};

// Reads answers one by one from an untrusted stream; errors name `where` and the record.
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

// Plays the kernel of the pipe with a kernel of this library, with or without deviations: reads
// cases from the untrusted stream `in` and writes the answers to `out`, nothing before the first.
// Throws Error(where, ...) if `in` holds no cases.
void AnswerCases(const Kernel& kernel, std::span<const Deviation* const> deviations,
                 std::istream& in, const std::string& where, std::ostream& out);

// Writes a folder with files for each case: NNNN.x.npy (float32, or uint16 holding BF16 bits) and,
// if there are random bits, NNNN.random.npy; or NNNN.safetensors with "x" and "random". cases.json
// lists them.
void WriteCaseFolder(const Dialect& dialect, const CaseOptions& options,
                     const std::vector<Case>& cases, const std::filesystem::path& folder,
                     bool safetensors);
// Reads the answer to case number `index`: NNNN.safetensors with "codes", "scales" and
// "tensor_scale", or NNNN.codes.npy, NNNN.scales.npy and NNNN.tensor_scale.npy. nullopt if none of
// these files exists.
std::optional<CaseAnswer> ReadCaseAnswer(const std::filesystem::path& folder, std::size_t index);

// Writes a case and its answer as files for `explain`: NNNN.x.npy (float32), NNNN.codes.npy ...
void WriteAnsweredCase(const Case& c, const CaseAnswer& answer,
                       const std::filesystem::path& folder);

// The cases of one verdict that are kept in a folder for `explain`, in place of those of an earlier
// verdict. kept.json there says that the cases are of this kind, and has the dialect, the layout of
// the bytes and the amax that the kernel was given.
class KeptCases {
 public:
  // Removes the cases of an earlier verdict; an empty `folder` keeps nothing. Throws Error for a
  // folder with cases and without kept.json, which this class did not write.
  KeptCases(std::filesystem::path folder, const Dialect& dialect, const StorageLayout& layout,
            std::span<const float> amax = {});
  void Keep(const Case& c, const CaseAnswer& answer);

 private:
  std::filesystem::path folder_;
  Json kept_;
  bool is_marked_ = false;
};

// What kept.json says of the cases of a folder.
struct KeptKind {
  std::string dialect = {};
  StorageLayout layout = {};
  std::vector<float> amax = {};  // that the kernel was given; empty: none
};
// nullopt if the folder has no kept.json. Throws Error, which names the key, for one that KeptCases
// did not write.
std::optional<KeptKind> ReadKeptKind(const std::filesystem::path& folder);

// The numbers of the cases that WriteAnsweredCase wrote to a folder, ascending. Throws Error if
// there is none.
std::vector<std::size_t> AnsweredCases(const std::filesystem::path& folder);

struct AnsweredCase {
  Matrix<float> x;
  std::vector<std::uint16_t> random = {};  // if the kernel rounds stochastically
  CaseAnswer answer = {};
};
AnsweredCase ReadAnsweredCase(const std::filesystem::path& folder, std::size_t index);

// `shape` with the codes, scales and tensor scales of an answer.
StoredMatrix StoredAnswer(StoredMatrix shape, const CaseAnswer& answer);

// ---- Verdicts on all answers ----

struct CaseVerdict {
  std::size_t index = 0;
  bool answered = false, declined = false;
  Verdict verdict = {};  // if answered and not declined
};

struct SetVerdict {
  std::vector<CaseVerdict> cases = {};  // one per case
  bool allow_declined = false;
  // Whether every answer is one of the dialect's, or is declined and declining is allowed.
  bool Accepted() const;
};

struct SetOptions {
  StorageLayout layout = {};  // of the kernel's bytes
  VerifyOptions verify = {};
  bool allow_declined = false;  // false: a declined case counts as different
  // The folder to keep cases with different answers in, in place of those of an earlier verdict;
  // empty: none.
  std::filesystem::path keep = {};
};

// Throws Error for an answer to a case that does not exist, to a case of another set, a second
// answer to a case, an answer of a wrong size or a missing one, and if all cases are declined.
SetVerdict VerifyStream(const Dialect& dialect, const std::vector<Case>& cases, std::istream& in,
                        std::string where, const SetOptions& options = {});
// Throws Error for a missing answer, and if all cases are declined.
SetVerdict VerifyFolder(const Dialect& dialect, const std::vector<Case>& cases,
                        const std::filesystem::path& folder, const SetOptions& options = {});

std::string SetVerdictText(const Dialect& dialect, const std::vector<Case>& cases,
                           const SetVerdict& verdict);
Json SetVerdictJson(const Dialect& dialect, const std::vector<Case>& cases,
                    const SetVerdict& verdict);

}  // namespace fp4lab
