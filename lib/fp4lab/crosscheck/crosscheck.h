// `fp4lab crosscheck`: compares the GPU's kernels with the oracle's, and their speed with that of a
// copy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fp4lab/crosscheck/kernel_call.h"
#include "fp4lab/cuda/device/device.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/cases/case.h"

namespace fp4lab::crosscheck {

struct CrosscheckOptions {
  CaseLevel level = CaseLevel::kQuick;
  std::size_t side = 4096;                 // rows and columns of the large random matrices
  std::vector<std::string> dialects = {};  // names of the table; empty: all dialects
  bool directed = true, random = true, speed = true;
  std::size_t speed_bytes = std::size_t{2} << 30;  // of the timed BF16 matrix; FP32: twice as many
};

// The counts of one kernel, dialect and family of inputs, summed over its calls. different:
// differing bytes.
struct CheckRow {
  std::size_t calls = 0, elements = 0, bytes = 0, different = 0;
};

struct SpeedRow {
  std::string what;
  double bytes = 0;         // read and written by the kernel
  double seconds = 0;       // median of the repetitions
  double copy_seconds = 0;  // median of a device copy that moves as many bytes
  double Ratio() const { return copy_seconds / seconds; }
};

struct Crosscheck {
  cuda::DeviceDescription device;
  // The key: kernel, dialect, direction and input, family.
  std::map<std::tuple<std::string, std::string, std::string, std::string>, CheckRow> rows;
  std::vector<std::string> differences = {};  // place and cause, the first of a row; for few rows
  std::vector<std::string> notes = {};        // remarks on the run that are no differences
  std::vector<SpeedRow> speeds = {};
  double seconds = 0;

  std::size_t Elements() const;
  std::size_t Different() const;
  // Compares `got` with `expected` and adds the counts to the row of the call; explains the first
  // difference of the row. x: the matrix that the side quantizes, for a columnwise side the
  // transpose.
  void Add(const KernelCall& call, const SideCall& side, const std::string& input,
           const std::string& family, MatrixView<const float> x, const SideBytes& expected,
           const SideBytes& got);
};

// Runs the directed cases of every dialect through every kernel that computes it.
void CheckDirected(const CrosscheckOptions& options, Crosscheck* result);
// Runs large matrices, which host and device generate by counter, through the fast kernels.
void CheckRandom(const CrosscheckOptions& options, Crosscheck* result);
// Compares fp4lab's kernels of block-scaled products, in the forms that the chip has, with the
// oracle's model of tensor cores, bit for bit.
void CheckProducts(const CrosscheckOptions& options, Crosscheck* result);
// Checks that cuBLASLt's products are within a bound of exact sums.
void CheckBlasProducts(Crosscheck* result);
void MeasureSpeed(const CrosscheckOptions& options, Crosscheck* result);

// The dialects of `names` that the GPU's kernels compute, in the order of the table; all such
// dialects if `names` is empty. Every name must be known.
std::vector<Dialect> ServedDialects(const std::vector<std::string>& names);

Json CrosscheckJson(const Crosscheck& result);
std::string CrosscheckHtml(const Crosscheck& result);
std::string CrosscheckText(const Crosscheck& result);

// ---- The pipe: cases out, answers in ----
//
// Both files hold, for each dialect, one line "fp4lab-crosscheck 1 DIALECT BYTES\n" and BYTES bytes
// of the stream of judge/cases/case_stream.h. The functions throw Error if a file cannot be read or
// written, or is damaged.

void WriteCrosscheckCases(const CrosscheckOptions& options, const std::string& path);
// Answers the cases of the file `cases` in the file `path`, with the GPU's kernels or, if `cpu`,
// with the oracle's.
void AnswerCrosscheckCases(const std::string& cases, const std::string& path, bool cpu);
struct AnswersVerdict {
  std::size_t dialects = 0, cases = 0, different = 0;
  std::string first = {};  // text on the first dialect that differs; "" if none does
};
AnswersVerdict VerifyCrosscheckAnswers(const CrosscheckOptions& options, const std::string& path);

}  // namespace fp4lab::crosscheck
