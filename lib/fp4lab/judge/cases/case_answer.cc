// AnswerCases: a kernel of this library in the pipe.
#include <algorithm>
#include <bit>
#include <istream>
#include <ostream>
#include <string>
#include <utility>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/cases/case_stream.h"
#include "fp4lab/judge/kernels/run_kernel.h"

namespace fp4lab {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 28;

struct Received {
  std::uint32_t index = 0, check = 0;
  Matrix<float> x;
  std::vector<std::uint16_t> random = {};
};

class CaseReader {
 public:
  CaseReader(std::istream& in, std::string where) : in_(in), where_(std::move(where)) {
    std::string line;
    for (char c = 0; line.size() < 1024 && in_.get(c) && c != '\n';) line += c;
    if (line.rfind("fp4lab-cases 1 ", 0) != 0) {
      throw Error(where_, "holds no cases: it does not start with \"fp4lab-cases 1 \"");
    }
    bf16_ = line.find(" dtype=bf16") != std::string::npos;
  }

  bool Next(Received* received) {
    if (in_.peek() == std::istream::traits_type::eof()) return false;
    std::uint32_t head[5];
    Read(head, sizeof head);
    const auto [index, check, rows, cols, has_random] = head;
    if (std::uint64_t{rows} * cols > kMostElements) {
      throw Error(where_, "case " + std::to_string(index) + " claims " + std::to_string(rows) +
                              "x" + std::to_string(cols) + " elements: no case is that large");
    }
    if (rows == 0 || cols == 0) {
      throw Error(where_, "case " + std::to_string(index) + " has no elements");
    }
    *received = {.index = index, .check = check, .x = {}};
    received->x.rows = rows;
    received->x.cols = cols;
    const std::size_t count = std::size_t{rows} * cols;
    std::vector<float>& values = received->x.values;
    if (bf16_) {
      for (const std::uint16_t bits : Part<std::uint16_t>(count)) {
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
      }
    } else {
      values = Part<float>(count);
    }
    if (has_random != 0) received->random = Part<std::uint16_t>(count);
    return true;
  }

 private:
  // Reads in pieces, because a shape stated by an untrusted stream must not size an allocation.
  template <class T>
  std::vector<T> Part(std::size_t count) {
    constexpr std::size_t kPiece = std::size_t{1} << 20;
    std::vector<T> part;
    while (part.size() < count) {
      const std::size_t old = part.size(), piece = std::min(count - old, kPiece);
      part.resize(old + piece);
      Read(part.data() + old, piece * sizeof(T));
    }
    return part;
  }
  void Read(void* out, std::size_t bytes) {
    in_.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
    if (static_cast<std::size_t>(in_.gcount()) != bytes) throw Error(where_, "ends within a case");
  }

  std::istream& in_;
  std::string where_;
  bool bf16_ = false;
};

void Put(std::ostream& out, const void* data, std::size_t bytes) {
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

}  // namespace

void AnswerCases(const Kernel& kernel, std::span<const Deviation* const> deviations,
                 std::istream& in, const std::string& where, std::ostream& out) {
  const IeeeArithmetic ieee;
  CaseReader reader(in, where);
  bool answered = false;
  for (Received received; out && reader.Next(&received);) {
    if (IsStochastic(kernel.dialect) && received.random.empty()) {
      throw Error(where, "has no random bits, which " + std::string(kernel.dialect.name) +
                             " needs: run fp4lab cases with a stochastic dialect");
    }
    const StoredMatrix answer =
        RunKernel(kernel, received.x.View(), deviations, {.random = received.random});
    if (!answered) out << "fp4lab-answers 1\n";
    answered = true;
    const std::uint32_t head[] = {received.index, received.check,
                                  static_cast<std::uint32_t>(answer.codes.size()),
                                  static_cast<std::uint32_t>(answer.scales.size()),
                                  static_cast<std::uint32_t>(answer.tensor_scale.size())};
    Put(out, head, sizeof head);
    Put(out, answer.codes.data(), answer.codes.size());
    Put(out, answer.scales.data(), answer.scales.size());
    Put(out, answer.tensor_scale.data(), answer.tensor_scale.size() * sizeof(float));
  }
  out.flush();
  if (!out)
    throw Error("answers", "cannot be written: the reader has closed the pipe or the disk is full");
}

}  // namespace fp4lab
