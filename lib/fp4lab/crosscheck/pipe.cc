// The pipe of cases and answers, to cross-check a GPU in another machine.
#include <cerrno>
#include <fstream>
#include <sstream>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/crosscheck/crosscheck.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/io/near_files.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/case_stream.h"

namespace fp4lab::crosscheck {
namespace {

constexpr std::string_view kMagic = "fp4lab-crosscheck 1 ";
constexpr std::size_t kMostBytes = std::size_t{1} << 32;

StorageLayout LayoutOf(const Dialect& d) {
  return {.codes = DefaultCodeOrder(d.element),
          .tensor_scale =
              HasTensorScale(d) ? TensorScaleConvention::kAmax : TensorScaleConvention::kNone};
}

void PutPart(std::ostream& out, const Dialect& d, const std::string& bytes) {
  out << kMagic << d.name << ' ' << bytes.size() << '\n' << bytes;
}

struct Part {
  const Dialect* dialect = nullptr;
  std::string bytes = {};
};

// Reads the next part; false at the end. The file is not trusted: Error if it is damaged.
bool NextPart(std::istream& in, const std::string& path, Part* part) {
  std::string line;
  if (!std::getline(in, line)) return false;
  std::istringstream words(line.substr(std::min(line.size(), kMagic.size())));
  std::string name;
  std::size_t bytes = 0;
  if (line.rfind(kMagic, 0) != 0 || !(words >> name >> bytes) || bytes > kMostBytes) {
    throw Error(path, "is not a file of `fp4lab crosscheck`, or is damaged");
  }
  part->dialect = FindDialect(name);
  if (part->dialect == nullptr) throw Error(path, "has cases for " + name + ", which is not known");
  part->bytes.resize(bytes);
  in.read(part->bytes.data(), static_cast<std::streamsize>(bytes));
  if (static_cast<std::size_t>(in.gcount()) != bytes) throw Error(path, "ends within " + name);
  return true;
}

std::ifstream Opened(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) CannotRead(path, errno);
  return in;
}

void Close(std::ofstream* out, const std::string& path) {
  out->close();
  if (!*out) throw Error(path, "cannot be written: the disk is full or the folder is missing");
}

// The level of a stream of cases, from its first line.
CaseLevel LevelOfCases(const std::string& stream, const std::string& path) {
  const std::string line = stream.substr(0, stream.find('\n'));
  for (const NamedCaseLevel& named : kCaseLevels) {
    if (line.find(" level=" + std::string(named.name) + " ") != line.npos) return named.level;
  }
  throw Error(path, "has cases of a level that is not known: use the same fp4lab on both sides");
}

// Answers on the machine with the GPU. The cases are generated again here and must equal the
// file's.
std::string AnsweredOnDevice(const Dialect& d, const std::string& cases_bytes,
                             const std::string& path) {
  const CaseOptions options{.level = LevelOfCases(cases_bytes, path)};
  const std::vector<Case> cases = MakeCases(d, options);
  std::ostringstream again;
  WriteCases(d, options, cases, again);
  if (again.str() != cases_bytes) {
    throw Error(path, "has other cases for " + std::string(d.name) +
                          " than this version makes: use the same fp4lab on both sides");
  }
  std::ostringstream out;
  out << "fp4lab-answers 1\n";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    KernelCall call{.kernel = "dialects", .dialect = d};
    call.row.on = true;
    if (IsStochastic(d)) {
      call.row.bits = cuda::RandomBits::kGiven;
      call.row.given = c.random;
    }
    const cuda::DeviceMemory memory = Upload(c.x.View(), false);
    const SideBytes got =
        RunCall(call, {memory.data(), cuda::ElementType::kFp32, c.x.rows, c.x.cols}).row;
    const std::uint32_t head[] = {
        static_cast<std::uint32_t>(i), CaseCheck(c), static_cast<std::uint32_t>(got.codes.size()),
        static_cast<std::uint32_t>(got.scales.size()), static_cast<std::uint32_t>(got.amax.size())};
    const auto put = [&out](const void* data, std::size_t bytes) {
      out.write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
    };
    put(head, sizeof head);
    put(got.codes.data(), got.codes.size());
    put(got.scales.data(), got.scales.size());
    put(got.amax.data(), got.amax.size() * sizeof(float));
  }
  return out.str();
}

std::string AnsweredByOracle(const Dialect& d, const std::string& cases, const std::string& path) {
  std::istringstream in(cases);
  std::ostringstream out;
  AnswerCases({.dialect = d, .layout = LayoutOf(d)}, {}, in, path, out);
  return out.str();
}

}  // namespace

void WriteCrosscheckCases(const CrosscheckOptions& options, const std::string& path) {
  const IeeeArithmetic ieee;
  std::ofstream out(path, std::ios::binary);
  for (const Dialect& d : ServedDialects(options.dialects)) {
    std::ostringstream stream;
    const CaseOptions cases{.level = options.level};
    WriteCases(d, cases, MakeCases(d, cases), stream);
    PutPart(out, d, stream.str());
  }
  Close(&out, path);
}

void AnswerCrosscheckCases(const std::string& cases, const std::string& path, bool cpu) {
  const IeeeArithmetic ieee;
  if (!cpu) cuda::UseDevice();
  std::ifstream in = Opened(cases);
  std::ofstream out(path, std::ios::binary);
  for (Part part; NextPart(in, cases, &part);) {
    const Dialect& d = *part.dialect;
    PutPart(out, d,
            cpu ? AnsweredByOracle(d, part.bytes, cases) : AnsweredOnDevice(d, part.bytes, cases));
  }
  Close(&out, path);
}

AnswersVerdict VerifyCrosscheckAnswers(const CrosscheckOptions& options, const std::string& path) {
  const IeeeArithmetic ieee;
  AnswersVerdict verdict;
  std::ifstream in = Opened(path);
  for (Part part; NextPart(in, path, &part);) {
    const Dialect& d = *part.dialect;
    const std::vector<Case> cases = MakeCases(d, {.level = options.level});
    std::istringstream answers(part.bytes);
    const SetVerdict set = VerifyStream(d, cases, answers, path, {.layout = LayoutOf(d)});
    ++verdict.dialects;
    verdict.cases += cases.size();
    if (set.Accepted()) continue;
    ++verdict.different;
    if (verdict.first.empty()) verdict.first = SetVerdictText(d, cases, set);
  }
  if (verdict.dialects == 0) throw Error(path, "holds no answers");
  return verdict;
}

}  // namespace fp4lab::crosscheck
