#include "fp4lab/judge/identify/identify.h"

#include <algorithm>
#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/judge/explain/deviation_values.h"
#include "fp4lab/transform/hadamard.h"

namespace fp4lab {
namespace {

struct Transform {
  int size;
  std::uint32_t signs;
};

// No transform, and Transformer Engine's with and without its signs if the input allows it.
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

// The conventions to try for the stored tensor scale; codes and scales do not depend on them.
std::vector<TensorScaleConvention> ConventionsFor(const Dialect& d, const StoredMatrix& got) {
  if (!HasTensorScale(d) || got.tensor_scale.empty()) return {TensorScaleConvention::kNone};
  return {TensorScaleConvention::kAmax, TensorScaleConvention::kMultiplier,
          TensorScaleConvention::kDivisor};
}

// The layouts to try, without a tensor-scale convention.
std::vector<StorageLayout> LayoutsFor(const Dialect& d, const StoredMatrix& got) {
  std::vector<CodeOrder> orders = {DefaultCodeOrder(d.element)};
  if (FormatOf(d.element).bits == 4) {
    orders = {CodeOrder::kLowFirst, CodeOrder::kHighFirst, CodeOrder::kSplitHalves,
              CodeOrder::kBytes};
  } else if (FormatOf(d.element).bits == 6) {
    orders = {CodeOrder::kBytes, CodeOrder::kDense6};
  }
  const bool has_scales = d.block_rows > 0 && !got.scales.empty();
  const bool own_type = ScaleTypeOf(d, {}) == got.layout.scale_type;
  const ScaleType type = own_type ? ScaleType::kByte : got.layout.scale_type;
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
                             .tensor_scale = TensorScaleConvention::kNone,
                             .scale_type = type});
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
    for (const Transform& t : transforms) {  // the outer loop: layouts share the computed blocks
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

// So many candidates with the fewest differences in the sample, each after its differences.
std::vector<std::pair<std::size_t, const Rejected*>> Fewest(const std::vector<Rejected>& rejected,
                                                            std::size_t kept) {
  std::vector<std::pair<std::size_t, const Rejected*>> best;
  for (const Rejected& r : rejected) {
    const std::size_t limit = best.size() < kept ? ~std::size_t{0} : best.back().first;
    const std::size_t mismatches = r.matcher->SampleMismatches(PlanOf(r.candidate->kernel), limit);
    if (mismatches >= limit) continue;
    const auto after =
        std::upper_bound(best.begin(), best.end(), mismatches,
                         [](std::size_t value, const auto& entry) { return value < entry.first; });
    best.insert(after, {mismatches, &r});
    if (best.size() > kept) best.pop_back();
  }
  return best;
}

// The candidates with the fewest differences in the sample, counted in full.
std::vector<Identification::Near> Nearest(const std::vector<Rejected>& rejected) {
  std::vector<Identification::Near> near;
  for (const auto& [mismatches, r] : Fewest(rejected, 3)) {
    near.push_back({*r->candidate, r->matcher->Count(PlanOf(r->candidate->kernel))});
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) {
    return a.counts.Different() < b.counts.Different();
  });
  return near;
}

// ---- Rows, columns, parts and bytes in another arrangement

// Keeps the candidate with the first value of the deviation that gives all bytes, if no plainer
// layout of the dialect gives them.
void TryArranged(Candidate c, const Deviation& deviation, ByteMatcher& matcher,
                 Identification* result) {
  const auto is_known = [&](const Identification::Arranged& a) {
    return a.candidate.kernel.dialect.name == c.kernel.dialect.name &&
           a.cause.deviations[0] == &deviation;
  };
  if (std::any_of(result->arranged.begin(), result->arranged.end(), is_known)) return;
  std::vector<DeviationValue> values = {deviation.value};
  if (deviation.kind != ValueKind::kNone) {
    values = ValuesToTry(deviation, c.kernel, matcher, Extent{});
  }
  const Deviation* const one[] = {&deviation};
  for (const DeviationValue& value : values) {
    const auto plan_of = [&](std::size_t* applied) {
      return PlanOf(c.kernel, one, applied, &value);
    };
    ++result->tried;
    std::size_t applied = 0;
    const KernelPlan plan = plan_of(&applied);
    if (applied == 0 || !matcher.BlocksMatch(plan)) continue;
    for (const TensorScaleConvention convention : ConventionsFor(c.kernel.dialect, matcher.got())) {
      c.kernel.layout.tensor_scale = convention;
      if (!matcher.TensorScaleMatches(plan_of(&applied))) continue;
      Cause cause{.deviations = {&deviation}};
      if (deviation.kind != ValueKind::kNone) cause.value = value;
      result->arranged.push_back({c, std::move(cause)});
      return;
    }
    c.kernel.layout.tensor_scale = TensorScaleConvention::kNone;
  }
}

// Deviations whose amax or bytes are read off, of the nearest candidates; the others of all
// candidates, and orders of bytes of all dialects, whatever the sizes.
void Arrange(MatrixView<const float> x, const std::vector<Rejected>& rejected, ByteMatcher& matcher,
             const IdentifyOptions& options, Identification* result) {
  constexpr std::size_t kNearest = 24;
  for (const char* name :
       {"input-rows-permuted", "input-rows-in-turn", "input-columns-permuted", "input-reversed"}) {
    for (const Rejected& r : rejected) {
      if (r.matcher == &matcher) {
        TryArranged(*r.candidate, *FindDeviation(name), matcher, result);
      }
    }
  }
  for (const char* name : {"amax-of-parts", "parts-folded"}) {
    for (const auto& [mismatches, r] : Fewest(rejected, kNearest)) {
      TryArranged(*r->candidate, *FindDeviation(name), *r->matcher, result);
    }
  }
  for (const auto& [mismatches, r] : Fewest(rejected, 16 * kNearest)) {
    if (!result->arranged.empty()) break;
    TryArranged(*r->candidate, *FindDeviation("scales-rows-down"), *r->matcher, result);
  }
  if (!result->arranged.empty()) return;
  std::vector<const Dialect*> dialects = options.dialects;
  if (dialects.empty()) {
    for (const Dialect& d : Dialects()) dialects.push_back(&d);
  }
  for (const char* name : {"scales-aiter", "scales-columns-padded", "scales-deepgemm",
                           "codes-16x16", "code-bytes-swapped", "code-nibbles-reversed"}) {
    for (const Dialect* d : dialects) {
      if (IsApproximate(*d)) continue;
      if (IsStochastic(*d) && options.dialect.random.size() != x.size()) continue;
      for (const StorageLayout& layout : LayoutsFor(*d, matcher.got())) {
        TryArranged({.kernel = {.dialect = *d, .layout = layout}}, *FindDeviation(name), matcher,
                    result);
      }
    }
  }
}

// Whether the candidate gives the codes and scales, or its set of answers holds them.
bool GivesBlocks(const Candidate& c, ByteMatcher& matcher) {
  if (!IsApproximate(c.kernel.dialect)) return matcher.BlocksMatch(PlanOf(c.kernel));
  return BlocksLieInSet(c.kernel, matcher.x(), matcher.got(), matcher.options());
}

// Adds a candidate whose codes and scales are right to the result: under each convention that gives
// the stored number; if there is none, to other_number under the convention with the nearest
// number.
void Settle(Candidate c, ByteMatcher& matcher, Identification* result) {
  const Dialect& d = c.kernel.dialect;
  std::vector<Candidate>& fitting = IsApproximate(d) ? result->allowed : result->exact;
  bool fits = false;
  for (const TensorScaleConvention convention : ConventionsFor(d, matcher.got())) {
    c.kernel.layout.tensor_scale = convention;
    if (!matcher.TensorScaleMatches(PlanOf(c.kernel))) continue;
    fitting.push_back(c);
    fits = true;
  }
  if (fits) return;
  const std::vector<float> amax = AmaxOf(PlanOf(c.kernel), matcher.x(), matcher.options());
  if (!amax.empty()) {
    c.kernel.layout.tensor_scale =
        NearestConvention(amax.front(), matcher.got().tensor_scale.front(), TensorScaleConstant(d));
  }
  result->other_number.push_back(c);
}

// Searches for deciding inputs, for the exact candidates that some input may tell apart.
void Decide(std::uint64_t seed, Identification* result) {
  constexpr std::size_t kRows = 144, kCols = 80;  // leave partial tiles in every order of scales
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
  const IeeeArithmetic ieee;
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
    if (options.progress) {
      options.progress(static_cast<std::size_t>(&c - candidates.data()) + 1, candidates.size());
    }
  }
  if (!result.exact.empty() || !result.allowed.empty()) result.other_number.clear();
  SortCandidates(&result.exact);
  SortCandidates(&result.allowed);
  SortCandidates(&result.other_number);
  if (!result.other_number.empty()) {
    const Candidate& first = result.other_number.front();
    result.number = InterpretTensorScale(first.kernel, first.columnwise ? columnwise : rowwise);
  } else if (result.exact.empty()) {
    result.near = Nearest(rejected);
    if (result.allowed.empty()) Arrange(x, rejected, rowwise, options, &result);
  }
  if (options.decide && result.exact.size() > 1) Decide(options.seed, &result);
  return result;
}

}  // namespace fp4lab
