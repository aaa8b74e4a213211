#include "fp4lab/judge/cases/case_coverage.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/kernels/kernel_plan.h"
#include "fp4lab/judge/kernels/run_kernel.h"
#include "fp4lab/judge/verify/verify.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

Kernel PlainKernel(const Dialect& dialect) {
  Kernel kernel{.dialect = dialect, .layout = {}};
  kernel.layout.codes = DefaultCodeOrder(dialect.element);
  kernel.layout.scales = ScaleOrder::k128x4;
  if (!HasTensorScale(dialect)) kernel.layout.tensor_scale = TensorScaleConvention::kNone;
  return kernel;
}

// The kernel behind a Hadamard transform along the blocks, if there is a transform of the block's
// size.
std::optional<Kernel> TransformedKernel(const Dialect& dialect) {
  if (dialect.block_rows != 1) return std::nullopt;
  if (dialect.block_cols != 16 && dialect.block_cols != 32) return std::nullopt;
  Kernel kernel = PlainKernel(dialect);
  kernel.hadamard = dialect.block_cols;
  kernel.sign_mask = dialect.block_cols == 16 ? kTeSignMask16 : kTeSignMask32;
  return kernel;
}

bool Accepts(const Kernel& kernel, const Case& c) {
  return kernel.hadamard == 0 ||
         (c.is_bf16 && c.x.cols % static_cast<std::size_t>(kernel.hadamard) == 0);
}

// A kernel, and its right answer to every case that it accepts.
struct Bench {
  Kernel kernel;
  std::vector<std::optional<StoredMatrix>> right;

  Bench(const Kernel& with, const std::vector<Case>& cases) : kernel(with), right(cases.size()) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (Accepts(kernel, cases[i])) {
        right[i] = RunKernel(kernel, cases[i].x.View(), {}, {.random = cases[i].random});
      }
    }
  }

  bool Catches(const Deviation& deviation, const Case& c, std::size_t i) const {
    if (!right[i]) return false;
    const Deviation* const one[] = {&deviation};
    const StoredMatrix wrong = RunKernel(kernel, c.x.View(), one, {.random = c.random});
    if (wrong.tensor_scale.size() != right[i]->tensor_scale.size() ||
        wrong.codes.size() != right[i]->codes.size() ||
        wrong.scales.size() != right[i]->scales.size()) {
      return true;
    }
    return !CompareStored(*right[i], wrong, c.name, {.first = 0}).Equal();
  }
};

std::size_t FamilyIndex(const CoverageReport& report, const Case& c) {
  const auto at = std::find_if(report.families.begin(), report.families.end(),
                               [&](const CaseFamily* f) { return f->name == c.family; });
  return static_cast<std::size_t>(at - report.families.begin());
}

void Measure(const CoverageReport& report, const Bench& bench, const std::vector<Case>& cases,
             bool until_caught, MutantCoverage* mutant) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::size_t family = FamilyIndex(report, cases[i]);
    const bool in_set = family < report.set_size;
    if (until_caught && in_set && mutant->CaughtBySet(report.set_size)) continue;
    mutant->caught[family] += bench.Catches(*mutant->deviation, cases[i], i) ? 1 : 0;
  }
}

bool AnyCaught(std::span<const std::size_t> counts) {
  return std::any_of(counts.begin(), counts.end(), [](std::size_t n) { return n != 0; });
}

// Fills in the families that have cases, and their numbers of cases.
void FillFamilies(const std::vector<Case>& cases, CoverageReport* report) {
  for (const CaseFamily& family : CaseFamilies()) {
    const auto count = std::count_if(cases.begin(), cases.end(),
                                     [&](const Case& c) { return c.family == family.name; });
    if (count == 0) continue;
    report->families.push_back(&family);
    report->cases.push_back(static_cast<std::size_t>(count));
    if (!family.is_control) report->set_size = report->families.size();
  }
}

}  // namespace

bool MutantCoverage::CaughtBySet(std::size_t set_size) const {
  return AnyCaught(std::span(caught).first(set_size));
}
bool MutantCoverage::CaughtByControl(std::size_t set_size) const {
  return AnyCaught(std::span(caught).subspan(set_size));
}

CoverageReport MeasureCoverage(const Dialect& dialect, const std::vector<Case>& cases,
                               bool until_caught,
                               const std::function<void(std::size_t, std::size_t)>& progress) {
  const IeeeArithmetic ieee;
  CoverageReport report{.dialect = dialect.name};
  FillFamilies(cases, &report);
  const Bench plain(PlainKernel(dialect), cases);
  std::optional<Bench> transformed;
  if (const std::optional<Kernel> kernel = TransformedKernel(dialect)) {
    transformed.emplace(*kernel, cases);
  }
  std::vector<const Bench*> benches;
  for (const Deviation& deviation : Deviations()) {
    const Bench* bench = Applies(deviation, plain.kernel)                         ? &plain
                         : transformed && Applies(deviation, transformed->kernel) ? &*transformed
                                                                                  : nullptr;
    if (bench == nullptr) continue;
    benches.push_back(bench);
    report.mutants.push_back({.deviation = &deviation});
    report.mutants.back().caught.resize(report.families.size());
  }
  std::vector<std::exception_ptr> problems(report.mutants.size());
  std::atomic<std::size_t> measured = 0;
  ParallelFor(report.mutants.size(), [&](std::size_t i) {
    try {
      Measure(report, *benches[i], cases, until_caught, &report.mutants[i]);
      if (progress) progress(++measured, report.mutants.size());
    } catch (...) {
      problems[i] = std::current_exception();
    }
  });
  for (const std::exception_ptr& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
  for (const MutantCoverage& m : report.mutants) {
    report.caught_by_set += m.CaughtBySet(report.set_size) ? 1 : 0;
    report.caught_by_control += m.CaughtByControl(report.set_size) ? 1 : 0;
  }
  return report;
}

std::string CoverageText(const CoverageReport& report) {
  const IeeeArithmetic ieee;
  std::size_t cases = 0, width = 0;
  for (std::size_t i = 0; i < report.set_size; ++i) cases += report.cases[i];
  for (const MutantCoverage& m : report.mutants) width = std::max(width, m.deviation->name.size());
  std::string text = std::string(report.dialect) + ": " + std::to_string(report.mutants.size()) +
                     " wrong kernels, " + std::to_string(cases) + " cases in " +
                     std::to_string(report.set_size) + " families\n";
  char field[128];
  for (std::size_t i = 0; i < report.families.size(); ++i) {
    std::snprintf(field, sizeof field, "%3zu  %-20s %3zu cases  ", i + 1,
                  std::string(report.families[i]->name).c_str(), report.cases[i]);
    text += field + std::string(report.families[i]->cause) + "\n";
  }
  text += "Cases of each family that catch the wrong kernel (. none):\n" + std::string(width, ' ');
  for (std::size_t i = 0; i < report.families.size(); ++i) {
    std::snprintf(field, sizeof field, "%3zu", i + 1);
    text += field;
  }
  text += "  set  control\n";
  for (const MutantCoverage& m : report.mutants) {
    std::string line(m.deviation->name);
    line.resize(width, ' ');
    for (const std::size_t caught : m.caught) {
      std::snprintf(field, sizeof field, "%3zu", caught);
      line += caught == 0 ? "  ." : field;
    }
    line += m.CaughtBySet(report.set_size) ? "  yes" : "  NO ";
    text += line + (m.CaughtByControl(report.set_size) ? "  yes\n" : "  no\n");
  }
  return text + "The set catches " + std::to_string(report.caught_by_set) + " of " +
         std::to_string(report.mutants.size()) + " wrong kernels, plain random data " +
         std::to_string(report.caught_by_control) + "\n";
}

Json CoverageJson(const CoverageReport& report) {
  const IeeeArithmetic ieee;
  Json families = Json::array(), mutants = Json::array();
  for (std::size_t i = 0; i < report.families.size(); ++i) {
    families.push_back({{"name", report.families[i]->name},
                        {"cause", report.families[i]->cause},
                        {"control", report.families[i]->is_control},
                        {"cases", report.cases[i]}});
  }
  for (const MutantCoverage& m : report.mutants) {
    mutants.push_back({{"name", m.deviation->name},
                       {"what", m.deviation->what},
                       {"caught", m.caught},
                       {"caught_by_set", m.CaughtBySet(report.set_size)},
                       {"caught_by_control", m.CaughtByControl(report.set_size)}});
  }
  return {{"dialect", report.dialect},
          {"families", std::move(families)},
          {"mutants", std::move(mutants)},
          {"caught_by_set", report.caught_by_set},
          {"caught_by_control", report.caught_by_control}};
}

}  // namespace fp4lab
