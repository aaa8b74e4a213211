#include "fp4lab/judge/products/gemm_probe.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "fp4lab/base/error.h"
#include "fp4lab/base/ieee_arithmetic.h"

namespace fp4lab {
namespace {

constexpr std::size_t kDepth = 256;  // K
constexpr std::size_t kGroup = 16;   // elements that are summed exactly

// The exponents that products of the operands reach, and the ranges of the families.
struct Reach {
  std::string_view operands;
  FormatId element, scale;
  int group;  // 0: no scales
  int big;    // B = 2^big
  int tiny;   // 2^tiny lies further below B than any F
  int least_align, most_align;
  std::vector<int> places;              // of step probes, in elements
  int least_floor = 1, most_floor = 0;  // least > most: no floor probes
};

const std::vector<Reach>& Reaches() {
  static const std::vector<int> kElements = {2,  3,  4,  5,  6,  7,  8,  9,  12, 15, 16,
                                             17, 24, 31, 32, 33, 48, 63, 64, 65, 128};
  static const std::vector<int> kGroups = {32, 48, 64, 80, 96, 112, 128, 144, 192, 240};
  static const std::vector<int> kGroupPairs = {32, 64, 96, 128, 160, 192, 224};
  static const std::vector<Reach> reaches = {
      {"nvfp4", FormatId::kE2M1, FormatId::kE4M3, 16, 16, -20, 28, 36, kGroups},
      {"mxfp4", FormatId::kE2M1, FormatId::kE8M0, 32, 0, -60, 12, 45, kGroupPairs, 150, 190},
      {"e4m3", FormatId::kE4M3, FormatId::kE8M0, 0, 16, -12, 10, 28, kElements},
      {"bf16", FormatId::kBF16, FormatId::kE8M0, 0, 0, -60, 10, 45, kElements, 150, 190},
  };
  return reaches;
}

const Reach& ReachOf(std::string_view operands) {
  for (const Reach& reach : Reaches()) {
    if (reach.operands == operands) return reach;
  }
  throw Error("probes of " + std::string(operands),
              "are not available; use one of: nvfp4 mxfp4 e4m3 bf16");
}

// One pair of rows, as values and scales.
class Rows {
 public:
  explicit Rows(const Reach& reach) : reach_(reach), a_(kDepth, 0.0f), b_(kDepth, 0.0f) {
    if (reach.group > 0) {
      sa_.resize(kDepth / static_cast<std::size_t>(reach.group));
      sb_.resize(sa_.size());
      // Groups of zeros have the least scales, so that they never determine E.
      const int least = reach.scale == FormatId::kE8M0 ? -250 : -18;
      for (std::size_t k = 0; k < kDepth; k += static_cast<std::size_t>(reach.group)) {
        SetScales(k, least);
      }
    }
  }

  // Puts the product significand * 2^exponent (1 or 1.5, either sign) at element k. For scaled
  // operands it is the only nonzero product of its group, and the scales carry as much of the
  // exponent as their range allows.
  void Put(std::size_t k, float significand, int exponent) {
    int rest = exponent;
    if (reach_.group > 0) {
      const int scale = reach_.scale == FormatId::kE8M0 ? exponent : std::clamp(exponent, -18, 16);
      rest = exponent - scale;  // 0, -1 or -2
      SetScales(k, scale);
    }
    const int half = rest >= 0 ? rest / 2 : -(-rest / 2);
    a_[k] = std::ldexp(significand, rest - half);
    b_[k] = std::ldexp(1.0f, half);
    if (reach_.group > 0) {  // E2M1 has 1, 1.5 and 0.5 only below 2
      a_[k] = rest == -2 ? significand * 0.5f : significand;
      b_[k] = rest == 0 ? 1.0f : 0.5f;
    }
  }

  // Puts the products +2^exponent and -2^exponent into one group.
  void PutCancelling(std::size_t k, int exponent) {
    Put(k, 1.0f, exponent);
    Put(k + 1, -1.0f, exponent);
  }

  void SetScales(std::size_t k, int exponent) {
    const std::size_t g = k / static_cast<std::size_t>(reach_.group);
    const int half = exponent >= 0 ? exponent / 2 : -(-exponent / 2);
    sa_[g] = std::ldexp(1.0f, exponent - half);
    sb_[g] = std::ldexp(1.0f, half);
  }

  void AppendTo(ProbeSet* set) const {
    Append(a_, sa_, &set->a);
    Append(b_, sb_, &set->b);
  }

 private:
  void Append(const std::vector<float>& values, const std::vector<float>& scales,
              MmaOperand* x) const {
    for (const float v : values) x->codes.push_back(Encode(x->format, v));
    for (const float s : scales) {
      x->scales.push_back(static_cast<std::uint8_t>(Encode(x->scale_format, s)));
    }
    ++x->rows;
  }

  const Reach& reach_;
  std::vector<float> a_, b_, sa_, sb_;
};

// The place of the n-th of three terms of a probe: each has its own group, or element; the third is
// element 4, which every scheme adds together with the first two.
std::size_t Place(const Reach& reach, std::size_t n) {
  return reach.group > 0 ? n * kGroup : n == 2 ? 4 : n;
}

Rows MakeRows(const Reach& reach, const GemmProbe& probe) {
  Rows rows(reach);
  const auto cancel = [&] {
    rows.Put(Place(reach, 0), 1.0f, reach.big);
    rows.Put(Place(reach, 1), -1.0f, reach.big);
  };
  switch (probe.family) {
    case ProbeFamily::kAlign:
      cancel();
      rows.Put(Place(reach, 2), 1.0f, reach.big - probe.parameter);
      break;
    case ProbeFamily::kAlignUp:
    case ProbeFamily::kAlignDown:
      cancel();
      rows.Put(Place(reach, 2), probe.family == ProbeFamily::kAlignUp ? 1.5f : -1.5f,
               reach.big - probe.parameter);
      break;
    case ProbeFamily::kStep:
      cancel();
      rows.Put(static_cast<std::size_t>(probe.parameter), 1.0f, reach.tiny);
      break;
    case ProbeFamily::kRoundPlus:
    case ProbeFamily::kRoundMinus: {
      const float sign = probe.family == ProbeFamily::kRoundPlus ? 1.0f : -1.0f;
      rows.Put(Place(reach, 0), sign, reach.big);
      rows.Put(Place(reach, 2), sign * 1.5f, reach.big - 24);
      break;
    }
    case ProbeFamily::kFloor:
      rows.Put(Place(reach, 0), 1.0f, -149);
      rows.Put(Place(reach, 2), -1.0f, -probe.parameter);
      break;
    case ProbeFamily::kCancelledGroup:
      rows.PutCancelling(Place(reach, 0), reach.big);  // both groups of 16 that may share a scale
      rows.PutCancelling(Place(reach, 1), reach.big);
      rows.Put(Place(reach, 2), 1.0f, reach.tiny);
      break;
    case ProbeFamily::kZeroGroup:
      rows.SetScales(Place(reach, 0), reach.big);
      rows.Put(Place(reach, 2), 1.0f, reach.tiny);
      break;
  }
  return rows;
}

std::vector<GemmProbe> ListProbes(const Reach& reach) {
  std::vector<GemmProbe> probes;
  for (int j = reach.least_align; j <= reach.most_align; ++j) {
    probes.push_back({ProbeFamily::kAlign, j});
    if (j == reach.most_align) break;  // 1.5 units need one bit more
    probes.push_back({ProbeFamily::kAlignUp, j});
    probes.push_back({ProbeFamily::kAlignDown, j});
  }
  for (const int place : reach.places) probes.push_back({ProbeFamily::kStep, place});
  probes.push_back({ProbeFamily::kRoundPlus, 0});
  probes.push_back({ProbeFamily::kRoundMinus, 0});
  for (int j = reach.least_floor; j <= reach.most_floor; ++j) {
    probes.push_back({ProbeFamily::kFloor, j});
  }
  if (reach.group > 0) {
    probes.push_back({ProbeFamily::kCancelledGroup, 0});
    probes.push_back({ProbeFamily::kZeroGroup, 0});
  }
  return probes;
}

using Answers = std::map<int, float>;  // the answers of a family by parameter

// The largest J with kept(answer), if it holds for all smaller J and for no larger one; else
// nullopt.
template <class Kept>
std::optional<int> LastKept(const Answers& answers, Kept kept) {
  std::optional<int> last;
  bool ended = false;
  for (const auto& [j, answer] : answers) {
    if (kept(answer) && ended) return std::nullopt;
    if (kept(answer)) last = j;
    ended |= !kept(answer);
  }
  return last;
}

// plus, minus: the answers to +1.5 and -1.5 units, in units (or +-1.75 of the last place).
std::string_view Direction(double plus, double minus) {
  if (plus == 1 && minus == -1) return "toward zero";
  if (plus == 1 && minus == -2) return "down";
  if (plus == 2 && minus == -2) return "nearest";
  if (plus == 2 && minus == -1) return "up";
  return "";
}

std::optional<int> ReadStep(const Answers& answers) {
  std::optional<int> first;
  for (const auto& [place, answer] : answers) {
    if (answer != 0 && !first) first = place;
    if (answer == 0 && first) return 0;  // interleaved: a later element is in the first step
  }
  return first;
}

}  // namespace

std::string NameOf(const GemmProbe& probe) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "align:",  "align-up:", "align-down:",     "step:",     "round:+",
      "round:-", "floor:",    "cancelled-group", "zero-group"};
  std::string name(kNames[static_cast<std::size_t>(probe.family)]);
  return name.back() == ':' ? name + std::to_string(probe.parameter) : name;
}

ProbeSet MakeProbes(std::string_view operands) {
  const IeeeArithmetic ieee;
  const Reach& reach = ReachOf(operands);
  ProbeSet set{.operands = reach.operands, .a = {}, .b = {}, .probes = ListProbes(reach)};
  for (MmaOperand* x : {&set.a, &set.b}) {
    x->cols = kDepth;
    x->format = FormatOf(reach.element);
    x->group = reach.group;
    if (reach.group > 0) x->scale_format = FormatOf(reach.scale);
  }
  for (const GemmProbe& probe : set.probes) MakeRows(reach, probe).AppendTo(&set);
  return set;
}

std::vector<float> ProbeAnswers(const ProbeSet& set, const Accumulation& accumulation) {
  const IeeeArithmetic ieee;
  Matrix<float> d(set.a.rows, set.b.rows);
  GemmAs(accumulation, set.a, set.b, {}, d.View());
  std::vector<float> answers;
  for (std::size_t i = 0; i < d.rows; ++i) answers.push_back(d(i, i));
  return answers;
}

ProbeReading ReadProbes(const ProbeSet& set, std::span<const float> answers) {
  const IeeeArithmetic ieee;
  Expects(answers.size() == set.probes.size(), "an answer to every probe");
  const Reach& reach = ReachOf(set.operands);
  std::map<ProbeFamily, Answers> by_family;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    by_family[set.probes[i].family][set.probes[i].parameter] = answers[i];
  }
  ProbeReading r;
  const Answers& align = by_family[ProbeFamily::kAlign];
  r.fraction_bits = LastKept(align, [](float answer) { return answer != 0; });
  r.fraction_bits_or_more = r.fraction_bits == reach.most_align;
  r.step = ReadStep(by_family[ProbeFamily::kStep]);
  if (r.fraction_bits && !r.fraction_bits_or_more) {
    const double unit = std::ldexp(1.0, reach.big - *r.fraction_bits);
    r.alignment = Direction(by_family[ProbeFamily::kAlignUp][*r.fraction_bits] / unit,
                            by_family[ProbeFamily::kAlignDown][*r.fraction_bits] / unit);
  }
  if (r.fraction_bits && *r.fraction_bits >= 25) {  // with fewer bits the alignment hides it
    // The sums are counted in units in the last place from B.
    const double big = std::ldexp(1.0, reach.big), ulp = std::ldexp(1.0, reach.big - 23);
    r.output = Direction((by_family[ProbeFamily::kRoundPlus][0] - big) / ulp + 1,
                         (by_family[ProbeFamily::kRoundMinus][0] + big) / ulp - 1);
  }
  const Answers& floor = by_family[ProbeFamily::kFloor];
  const auto kept = LastKept(floor, [](float answer) { return answer == 0; });
  if (kept && r.fraction_bits && !r.fraction_bits_or_more && *kept < 149 + *r.fraction_bits) {
    r.floor = *r.fraction_bits - *kept;
  }
  if (reach.group > 0) {
    r.cancelled_group_counts = by_family[ProbeFamily::kCancelledGroup][0] == 0;
    r.zero_group_counts = by_family[ProbeFamily::kZeroGroup][0] == 0;
  }
  return r;
}

}  // namespace fp4lab
