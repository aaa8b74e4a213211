// `fp4lab crosscheck`: the GPU's kernels against the oracle, and their speed against a copy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "fp4lab/cuda/device.h"
#include "fp4lab/io/json.h"
#include "fp4lab/judge/case.h"
#include "tools/crosscheck_call.h"

namespace fp4lab::tools {

struct CrosscheckOptions {
  CaseLevel level = CaseLevel::kQuick;
  std::size_t side = 4096;                 // of the large random matrices
  std::vector<std::string> dialects = {};  // empty: all
  bool directed = true, random = true, speed = true;
  std::size_t speed_bytes = std::size_t{2} << 30;  // of the matrices that are timed
};

// One kernel on one dialect, one family of inputs: sums over its calls.
struct CheckRow {
  std::size_t calls = 0, elements = 0, bytes = 0, different = 0;
};

struct SpeedRow {
  std::string what;
  double bytes = 0;         // read and written by the kernel
  double seconds = 0;       // median of the repetitions
  double copy_seconds = 0;  // of a device copy that moves as many
  double Ratio() const { return copy_seconds / seconds; }
};

struct Crosscheck {
  cuda::DeviceDescription device;
  // kernel, dialect, direction and input, family
  std::map<std::tuple<std::string, std::string, std::string, std::string>, CheckRow> rows;
  std::vector<std::string> differences = {};  // where and why, the first of each row; few
  std::vector<std::string> notes = {};        // what is worth knowing and no difference
  std::vector<SpeedRow> speeds = {};
  double seconds = 0;

  std::size_t Elements() const;
  std::size_t Different() const;
  // Counts `expected` against `got`; x as the side has it. Explains the row's first difference.
  void Add(const KernelCall& call, const SideCall& side, const std::string& input,
           const std::string& family, MatrixView<const float> x, const SideBytes& expected,
           const SideBytes& got);
};

// Directed cases of every dialect, through every kernel that serves it.
void CheckDirected(const CrosscheckOptions& options, Crosscheck* result);
// Large matrices that host and device make by counter, through the fast kernels.
void CheckRandom(const CrosscheckOptions& options, Crosscheck* result);
// Block-scaled products by kernels of our own, in the forms that the chip has, and the oracle's
// model of its tensor cores.
void CheckProducts(const CrosscheckOptions& options, Crosscheck* result);
// cuBLASLt's products, within a bound of exact sums.
void CheckBlasProducts(Crosscheck* result);
void MeasureSpeed(const CrosscheckOptions& options, Crosscheck* result);

// Dialects that the GPU's kernels serve, in the order of the table; Error for an unknown name.
std::vector<Dialect> ServedDialects(const std::vector<std::string>& names);
// Whether fast kernels compute the dialect, and it is the first row with its formulas.
bool HasFastKernels(const Dialect& dialect);

Json CrosscheckJson(const Crosscheck& result);
std::string CrosscheckHtml(const Crosscheck& result);
std::string CrosscheckText(const Crosscheck& result);

// ---- The pipe: cases out, results in
// ------------------------------------------------------------- Both files hold, for each dialect,
// one line "fp4lab-crosscheck 1 DIALECT BYTES\n" and so many bytes of the stream of
// judge/case_stream.h.

void WriteCrosscheckCases(const CrosscheckOptions& options, const std::string& path);
// Answers them with the GPU's kernels, or (cpu) with the oracle's.
void AnswerCrosscheckCases(const std::string& cases, const std::string& path, bool cpu);
struct AnswersVerdict {
  std::size_t dialects = 0, cases = 0, different = 0;
  std::string first = {};  // about the first dialect that differs
};
AnswersVerdict VerifyCrosscheckAnswers(const CrosscheckOptions& options, const std::string& path);

}  // namespace fp4lab::tools
