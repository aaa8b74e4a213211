#include "fp4lab/judge/cases/case_stream.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <istream>
#include <ostream>
#include <string>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/cases/bf16_bits.h"

static_assert(std::endian::native == std::endian::little, "records are written as memory lies");

namespace fp4lab {
namespace {

constexpr std::string_view kAnswersHeader = "fp4lab-answers 1";
constexpr std::uint32_t kMostBytes = 1u << 30;  // of one part of an answer
constexpr std::size_t kPiece = std::size_t{1} << 20;

std::string_view LevelName(CaseLevel level) {
  for (const NamedCaseLevel& named : kCaseLevels) {
    if (named.level == level) return named.name;
  }
  return "";
}

void Put(std::ostream& out, const void* data, std::size_t bytes) {
  out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

// FNV-1a over 32-bit words.
void Mix(std::uint32_t word, std::uint32_t* hash) { *hash = (*hash ^ word) * 0x01000193u; }

}  // namespace

std::uint32_t CaseCheck(const Case& c) {
  std::uint32_t hash = 0x811C9DC5u;
  Mix(static_cast<std::uint32_t>(c.x.rows), &hash);
  Mix(static_cast<std::uint32_t>(c.x.cols), &hash);
  for (const float x : c.x.values) Mix(std::bit_cast<std::uint32_t>(x), &hash);
  for (const std::uint16_t field : c.random) Mix(field, &hash);
  return hash;
}

void WriteCases(const Dialect& dialect, const CaseOptions& options, const std::vector<Case>& cases,
                std::ostream& out) {
  const IeeeArithmetic ieee;
  out << "fp4lab-cases 1 dialect=" << dialect.name << " level=" << LevelName(options.level)
      << " seed=" << options.seed << " dtype=" << (options.bf16_only ? "bf16" : "fp32")
      << " count=" << cases.size() << '\n';
  for (std::size_t i = 0; i < cases.size() && out; ++i) {
    const Case& c = cases[i];
    const std::uint32_t head[] = {static_cast<std::uint32_t>(i), CaseCheck(c),
                                  static_cast<std::uint32_t>(c.x.rows),
                                  static_cast<std::uint32_t>(c.x.cols), c.random.empty() ? 0u : 1u};
    Put(out, head, sizeof head);
    if (options.bf16_only) {
      const std::vector<std::uint16_t> bits = Bf16Bits(c.x);
      Put(out, bits.data(), bits.size() * sizeof bits[0]);
    } else {
      Put(out, c.x.values.data(), c.x.values.size() * sizeof(float));
    }
    Put(out, c.random.data(), c.random.size() * sizeof(std::uint16_t));
  }
  out.flush();
  if (!out)
    throw Error("cases", "cannot be written: the reader has closed the pipe or the disk is full");
}

AnswerStream::AnswerStream(std::istream& in, std::string where)
    : in_(in), where_(std::move(where)) {
  std::string line(kAnswersHeader.size() + 1, '\0');
  in_.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(in_.gcount()));
  if (line == std::string(kAnswersHeader) + "\n") return;
  throw Error(where_, line.empty()
                          ? "is empty: it holds no answers; the program that writes them says why"
                          : "does not start with the line \"" + std::string(kAnswersHeader) + "\"");
}

void AnswerStream::Read(void* out, std::size_t bytes) {
  in_.read(static_cast<char*>(out), static_cast<std::streamsize>(bytes));
  if (static_cast<std::size_t>(in_.gcount()) == bytes) return;
  throw Error(where_, "ends within record " + std::to_string(records_));
}

// Reads in pieces, because a length stated by an untrusted stream must not size an allocation.
template <class T>
void AnswerStream::ReadPart(std::size_t count, std::vector<T>* part) {
  while (part->size() < count) {
    const std::size_t old = part->size(), piece = std::min(count - old, kPiece);
    part->resize(old + piece);
    Read(part->data() + old, piece * sizeof(T));
  }
}

std::uint32_t AnswerStream::Number() {
  std::uint32_t number = 0;
  Read(&number, sizeof number);
  return number;
}

std::optional<CaseAnswer> AnswerStream::Next() {
  const IeeeArithmetic ieee;
  if (in_.peek() == std::istream::traits_type::eof()) return std::nullopt;
  CaseAnswer answer;
  answer.index = Number();
  answer.check = Number();
  const std::uint32_t codes = Number(), scales = Number(), numbers = Number();
  if (codes > kMostBytes || scales > kMostBytes || numbers > kMostBytes / 4) {
    throw Error(where_, "record " + std::to_string(records_) + " (case " +
                            std::to_string(answer.index) + ") claims " + std::to_string(codes) +
                            " bytes of codes, " + std::to_string(scales) + " of scales and " +
                            std::to_string(numbers) + " numbers: no answer is that long");
  }
  ReadPart(codes, &answer.codes);
  ReadPart(scales, &answer.scales);
  ReadPart(numbers, &answer.tensor_scale);
  ++records_;
  return answer;
}

}  // namespace fp4lab
