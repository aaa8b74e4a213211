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

// What the stored number may be; neither codes nor scales depend on it.
std::vector<LevelTwoConvention> ConventionsFor(const Dialect& d, const StoredMatrix& got) {
  if (!HasLevelTwo(d) || got.level_two.empty()) return {LevelTwoConvention::kNone};
  return {LevelTwoConvention::kAmax, LevelTwoConvention::kMultiplier, LevelTwoConvention::kDivisor};
}

// Without a convention.
std::vector<StorageLayout> LayoutsFor(const Dialect& d, const StoredMatrix& got) {
  std::vector<CodeOrder> orders = {DefaultCodeOrder(d.element)};
  if (FormatOf(d.element).bits == 4) {
    orders = {CodeOrder::kLowFirst, CodeOrder::kHighFirst, CodeOrder::kSplitHalves,
              CodeOrder::kBytes};
  } else if (FormatOf(d.element).bits == 6) {
    orders = {CodeOrder::kBytes, CodeOrder::kDense6};
  }
  const bool has_scales = d.block_rows > 0 && !got.scales.empty();
  std::vector<StorageLayout> layouts;
  for (const CodeOrder codes : orders) {
    for (const NamedScaleOrder& scales : kScaleOrders) {
      if (!has_scales && scales.order != ScaleOrder::kLinear) continue;
      for (const bool transposed : {false, true}) {
        for (const bool expanded : {false, true}) {
          if (expanded && (d.block_rows <= 1 || !has_scales)) continue;
          layouts.push_back({.codes = codes,
                             .scales = scales.order,
                             .transposed = transposed,
                             .expanded_scales = expanded,
                             .level_two = LevelTwoConvention::kNone});
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
    for (const Transform& t : transforms) {  // outside of the layouts, which share its blocks
      for (const StorageLayout& layout : LayoutsFor(*d, got)) {
        Candidate c{{*d, layout, t.size, t.signs}, columnwise};
        if (SizesAgree(c, x, got)) candidates.push_back(std::move(c));
      }
    }
  }
  return candidates;
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

// Whether codes and scales are the candidate's, or lie in its set.
bool GivesBlocks(const Candidate& c, ByteMatcher& matcher) {
  if (!IsApproximate(c.kernel.dialect)) return matcher.BlocksMatch(PlanOf(c.kernel));
  return BlocksLieInSet(c.kernel, matcher.x(), matcher.got(), matcher.options());
}

// Puts a candidate whose blocks are right where it belongs, under each convention whose number is
// the stored one; or, where none is, under the one whose number is nearest.
void Settle(Candidate c, ByteMatcher& matcher, Identification* result) {
  const Dialect& d = c.kernel.dialect;
  std::vector<Candidate>& fitting = IsApproximate(d) ? result->allowed : result->exact;
  bool fits = false;
  for (const LevelTwoConvention convention : ConventionsFor(d, matcher.got())) {
    c.kernel.layout.level_two = convention;
    if (!matcher.LevelTwoMatches(PlanOf(c.kernel))) continue;
    fitting.push_back(c);
    fits = true;
  }
  if (fits) return;
  const std::vector<float> amax = AmaxOf(PlanOf(c.kernel), matcher.x(), matcher.options());
  if (!amax.empty()) {
    c.kernel.layout.level_two =
        NearestConvention(amax.front(), matcher.got().level_two.front(), LevelTwoConstant(d));
  }
  result->other_number.push_back(c);
}

// Searches for inputs among the candidates that some input may part.
void Decide(std::uint64_t seed, Identification* result) {
  constexpr std::size_t kRows = 144, kCols = 80;  // fill no tile of any order of scales
  std::vector<Candidate> apart;
  std::vector<std::size_t> index;  // in result->exact
  for (const std::vector<std::size_t>& group : SameBytes(result->exact, kRows, kCols)) {
    apart.push_back(result->exact[group[0]]);
    index.push_back(group[0]);
  }
  if (apart.size() <= 1) return;
  result->deciding = FindDecidingInputs(apart, seed, &result->inseparable);
  const auto to_exact = [&](std::vector<std::size_t>& members) {
    for (std::size_t& i : members) i = index[i];
  };
  for (DecidingInput& input : result->deciding) {
    for (DecidingInput::Group& group : input.groups) to_exact(group.members);
  }
  for (std::vector<std::size_t>& members : result->inseparable) to_exact(members);
}

}  // namespace

Identification Identify(MatrixView<const float> x, const StoredMatrix& got,
                        const IdentifyOptions& options) {
  Identification result{.rows = x.rows, .cols = x.cols};
  ByteMatcher rowwise(x, got, options.dialect);
  ByteMatcher columnwise(x.Transposed(), got, options.dialect);
  std::vector<Candidate> candidates = CandidatesFor(x, false, got, options);
  for (Candidate& c : CandidatesFor(x.Transposed(), true, got, options)) {
    candidates.push_back(std::move(c));
  }
  std::vector<Rejected> rejected;
  for (const Candidate& c : candidates) {
    ByteMatcher& matcher = c.columnwise ? columnwise : rowwise;
    result.tried += ConventionsFor(c.kernel.dialect, got).size();
    if (GivesBlocks(c, matcher)) {
      Settle(c, matcher, &result);
    } else if (!IsApproximate(c.kernel.dialect)) {
      rejected.push_back({&c, &matcher});
    }
  }
  if (!result.exact.empty() || !result.allowed.empty()) result.other_number.clear();
  SortCandidates(&result.exact);
  SortCandidates(&result.allowed);
  SortCandidates(&result.other_number);
  if (!result.other_number.empty()) {
    const Candidate& first = result.other_number.front();
    result.number = ReadTensorNumber(first.kernel, first.columnwise ? columnwise : rowwise);
  } else if (result.exact.empty()) {
    result.near = Nearest(rejected);
  }
  if (options.decide && result.exact.size() > 1) Decide(options.seed, &result);
  return result;
}

}  // namespace fp4lab
