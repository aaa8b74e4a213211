#include "fp4lab/judge/identify.h"

#include <algorithm>
#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

struct Transform {
  int size;
  std::uint32_t signs;
};

// None, and Transformer Engine's with and without its signs where the input allows them.
std::vector<Transform> TransformsFor(MatrixView<const float> x) {
  std::vector<Transform> transforms = {{0, 0}};
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      if ((std::bit_cast<std::uint32_t>(x(r, c)) & 0xFFFFu) != 0) return transforms;
    }
  }
  if (x.cols % 16 == 0) {
    transforms.push_back({16, kTeSignMask16});
    transforms.push_back({16, 0});
  }
  return transforms;
}

std::vector<StorageLayout> LayoutsFor(const Dialect& d, const StoredMatrix& got) {
  std::vector<CodeOrder> orders = {DefaultCodeOrder(d.element)};
  if (FormatOf(d.element).bits == 4) {
    orders = {CodeOrder::kLowFirst, CodeOrder::kHighFirst, CodeOrder::kSplitHalves,
              CodeOrder::kBytes};
  } else if (FormatOf(d.element).bits == 6) {
    orders = {CodeOrder::kBytes, CodeOrder::kDense6};
  }
  const bool has_scales = d.block_rows > 0 && !got.scales.empty();
  std::vector<LevelTwoConvention> conventions = {LevelTwoConvention::kNone};
  if (HasLevelTwo(d) && !got.level_two.empty()) {
    conventions = {LevelTwoConvention::kAmax, LevelTwoConvention::kMultiplier,
                   LevelTwoConvention::kDivisor};
  }
  std::vector<StorageLayout> layouts;
  for (const CodeOrder codes : orders) {
    for (const NamedScaleOrder& scales : kScaleOrders) {
      if (!has_scales && scales.order != ScaleOrder::kLinear) continue;
      for (const bool transposed : {false, true}) {
        for (const bool expanded : {false, true}) {
          if (expanded && (d.block_rows <= 1 || !has_scales)) continue;
          for (const LevelTwoConvention level_two : conventions) {
            layouts.push_back({.codes = codes,
                               .scales = scales.order,
                               .transposed = transposed,
                               .expanded_scales = expanded,
                               .level_two = level_two});
          }
        }
      }
    }
  }
  return layouts;
}

bool SizesAgree(const Candidate& c, MatrixView<const float> x, const StoredMatrix& got) {
  const StoredSizes sizes =
      SizesOf(ShapeOf(c.kernel.dialect, x.rows, x.cols, c.kernel.layout), "layout");
  const bool scales = got.scales.empty() || sizes.scales == got.scales.size();
  return sizes.codes == got.codes.size() && scales;
}

std::vector<Candidate> CandidatesFor(MatrixView<const float> x, bool columnwise,
                                     const StoredMatrix& got, const IdentifyOptions& options) {
  std::vector<const Dialect*> dialects = options.dialects;
  if (dialects.empty()) {
    for (const Dialect& d : Dialects()) dialects.push_back(&d);
  }
  std::vector<Candidate> candidates;
  const std::vector<Transform> transforms = TransformsFor(x);
  for (const Dialect* d : dialects) {
    if (IsStochastic(*d) && options.dialect.random.size() != x.size()) continue;
    for (const StorageLayout& layout : LayoutsFor(*d, got)) {
      for (const Transform& t : transforms) {
        Candidate c{{*d, layout, t.size, t.signs}, columnwise};
        if (SizesAgree(c, x, got)) candidates.push_back(std::move(c));
      }
    }
  }
  return candidates;
}

// Layouts of one dialect that cannot be told apart by these bytes (a matrix of one tile ...) are
// all kept, the plain ones first.
void Sort(std::vector<Candidate>* candidates) {
  const auto plainness = [](const Candidate& c) {
    const StorageLayout& l = c.kernel.layout;
    return (c.kernel.hadamard != 0 ? 16 : 0) + (c.columnwise ? 8 : 0) + (l.transposed ? 4 : 0) +
           (l.codes != DefaultCodeOrder(c.kernel.dialect.element) ? 2 : 0) +
           (l.scales != ScaleOrder::kLinear ? 1 : 0);
  };
  std::stable_sort(
      candidates->begin(), candidates->end(),
      [&](const Candidate& a, const Candidate& b) { return plainness(a) < plainness(b); });
}

struct Rejected {
  const Candidate* candidate;
  ByteMatcher* matcher;
};

// Those with the fewest differences in the sample, counted in full.
std::vector<Identification::Near> Nearest(const std::vector<Rejected>& rejected) {
  constexpr std::size_t kKept = 3;
  std::vector<std::pair<std::size_t, const Rejected*>> best;
  for (const Rejected& r : rejected) {
    const std::size_t limit = best.size() < kKept ? ~std::size_t{0} : best.back().first;
    const std::size_t mismatches = r.matcher->SampleMismatches(PlanOf(r.candidate->kernel), limit);
    if (mismatches >= limit) continue;
    const auto after =
        std::upper_bound(best.begin(), best.end(), mismatches,
                         [](std::size_t value, const auto& entry) { return value < entry.first; });
    best.insert(after, {mismatches, &r});
    if (best.size() > kKept) best.pop_back();
  }
  std::vector<Identification::Near> near;
  for (const auto& [mismatches, r] : best) {
    near.push_back({*r->candidate, r->matcher->Count(PlanOf(r->candidate->kernel))});
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
    return a.counts.Different() < b.counts.Different();
  });
  return near;
}

}  // namespace

std::string Name(const Candidate& c) {
  return std::string(c.kernel.dialect.name) + ", " + LayoutName(c);
}

std::string LayoutName(const Candidate& c) {
  const StorageLayout& l = c.kernel.layout;
  std::string name = "codes " + std::string(Name(l.codes));
  if (c.kernel.dialect.block_rows > 0) {
    name += ", scales " + std::string(Named(l.scales).name);
    if (l.expanded_scales) name += " expanded";
  }
  if (l.level_two != LevelTwoConvention::kNone) {
    name += ", level 2 as " +
            std::string(kLevelTwoConventions[static_cast<std::size_t>(l.level_two)].name);
  }
  if (l.transposed) name += ", transposed";
  if (c.columnwise) name += ", of the transposed input";
  if (c.kernel.hadamard != 0) {
    name += ", after Hadamard " + std::to_string(c.kernel.hadamard) +
            (c.kernel.sign_mask == 0 ? " without signs" : " with Transformer Engine's signs");
  }
  return name;
}

Identification Identify(MatrixView<const float> x, const StoredMatrix& got,
                        const IdentifyOptions& options) {
  Identification result;
  ByteMatcher rowwise(x, got, options.dialect);
  ByteMatcher columnwise(x.Transposed(), got, options.dialect);
  std::vector<Candidate> candidates = CandidatesFor(x, false, got, options);
  for (Candidate& c : CandidatesFor(x.Transposed(), true, got, options)) {
    candidates.push_back(std::move(c));
  }
  result.tried = candidates.size();
  std::vector<Rejected> rejected;
  for (const Candidate& c : candidates) {
    ByteMatcher& matcher = c.columnwise ? columnwise : rowwise;
    if (IsApproximate(c.kernel.dialect)) {
      const bool inside = LiesInSet(c.kernel, matcher.x(), got, options.dialect);
      if (inside) result.allowed.push_back(c);
      continue;
    }
    const KernelPlan plan = PlanOf(c.kernel);
    if (matcher.Matches(plan)) {
      result.exact.push_back(c);
    } else {
      rejected.push_back({&c, &matcher});
    }
  }
  Sort(&result.exact);
  Sort(&result.allowed);
  if (result.exact.empty()) result.near = Nearest(rejected);
  if (options.decide && result.exact.size() > 1) {
    result.deciding = FindDecidingInputs(result.exact, options.seed, &result.inseparable);
  }
  return result;
}

}  // namespace fp4lab
