// FindDecidingInputs: the search for inputs on which candidates write different bytes.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/random.h"
#include "fp4lab/io/tensors/safetensors.h"
#include "fp4lab/judge/cases/case_family.h"
#include "fp4lab/judge/cases/hazards.h"
#include "fp4lab/judge/identify/identify.h"

namespace fp4lab {
namespace {

using Partition = std::vector<std::vector<std::size_t>>;

// The bytes of candidates for one input; candidates with equal formulas share one computation.
class Computed {
 public:
  explicit Computed(MatrixView<const float> x) : x_(x) {}

  StoredMatrix BytesOf(const Candidate& c) {
    return Store(c.kernel.dialect, QuantizedBy(c), c.kernel.layout);
  }

 private:
  struct Entry {
    const Candidate* by;
    Quantized quantized;
  };
  static bool ComputeTheSame(const Candidate& a, const Candidate& b) {
    return a.columnwise == b.columnwise && a.kernel.hadamard == b.kernel.hadamard &&
           a.kernel.sign_mask == b.kernel.sign_mask &&
           SameFormulas(a.kernel.dialect, b.kernel.dialect);
  }
  const Quantized& QuantizedBy(const Candidate& c) {
    for (const Entry& entry : entries_) {
      if (ComputeTheSame(*entry.by, c)) return entry.quantized;
    }
    const MatrixView<const float> x = c.columnwise ? x_.Transposed() : x_;
    const KernelPlan plan = PlanOf(c.kernel);
    const Evaluator evaluator(plan, x, AmaxOf(plan, x, {}), {});
    entries_.push_back({&c, AsQuantized(c.kernel, evaluator)});
    return entries_.back().quantized;
  }
  static Quantized AsQuantized(const Kernel& kernel, const Evaluator& evaluator) {
    const Dialect& d = kernel.dialect;
    const ScaleType type = ScaleTypeOf(d, kernel.layout);
    Evaluated e = evaluator.EvaluateAll();
    Quantized q{.rows = e.rows,
                .cols = e.cols,
                .codes = std::move(e.codes),
                .scale_rows = e.scale_rows,
                .scale_cols = e.scale_cols,
                .amax = evaluator.amax()};
    for (const std::uint32_t code : e.scales) {
      const float value = ScaleValueOf(type, d.scale, code);
      if (d.scale_encoding == ScaleEncoding::kBinary32) {
        q.scale_values.push_back(value);
      } else {
        q.scales.push_back(
            static_cast<std::uint8_t>(type == ScaleType::kByte ? code : Encode(d.scale, value)));
      }
    }
    return q;
  }

  MatrixView<const float> x_;
  std::vector<Entry> entries_;
};

bool AreEqual(const StoredMatrix& a, const StoredMatrix& b) {
  return a.codes == b.codes && a.scales == b.scales &&
         std::equal(a.tensor_scale.begin(), a.tensor_scale.end(), b.tensor_scale.begin(),
                    b.tensor_scale.end(), [](float x, float y) {
                      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
                    });
}

std::vector<DecidingInput::Group> GroupsOn(std::span<const Candidate> candidates,
                                           MatrixView<const float> x) {
  std::vector<DecidingInput::Group> groups;
  Computed computed(x);
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    StoredMatrix bytes = computed.BytesOf(candidates[i]);
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& g) { return AreEqual(g.bytes, bytes); });
    if (same != groups.end()) {
      same->members.push_back(i);
    } else {
      groups.push_back({{i}, std::move(bytes)});
    }
  }
  return groups;
}

// Splits each part of the partition by the groups.
Partition Refined(const Partition& parts, const std::vector<DecidingInput::Group>& groups,
                  std::size_t candidates) {
  std::vector<std::size_t> group_of(candidates);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t i : groups[g].members) group_of[i] = g;
  }
  Partition refined;
  for (const std::vector<std::size_t>& part : parts) {
    std::map<std::size_t, std::vector<std::size_t>> cut;
    for (const std::size_t i : part) cut[group_of[i]].push_back(i);
    for (auto& [g, members] : cut) refined.push_back(std::move(members));
  }
  return refined;
}

// BF16 values over a few binades, with exact ties among them.
Matrix<float> RandomInput(std::uint64_t seed, std::uint32_t index, std::size_t rows,
                          std::size_t cols) {
  const RandomStream stream{.seed = seed, .step = index, .tensor = 0x1DE57};
  Matrix<float> x(rows, cols);
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::uint32_t bits = stream.Bits32(i);
    const float magnitude = std::ldexp(1.0f + static_cast<float>(bits & 0x7Fu) / 128.0f,
                                       static_cast<int>(bits >> 8 & 7u) - 6);
    x.values[i] = (bits >> 31) != 0 ? -magnitude : magnitude;
  }
  return x;
}

std::vector<Matrix<float>> InputsToTry(std::span<const Candidate> candidates, std::uint64_t seed) {
  std::vector<Matrix<float>> inputs;
  for (std::uint32_t i = 0; i < 6; ++i) {
    // 48x64 leaves part of a tile of scales empty; 64x64 and 160x96 show tiling and transposition.
    const std::size_t rows = i % 3 == 0 ? 48 : i % 3 == 1 ? 64 : 160;
    inputs.push_back(RandomInput(seed, i, rows, i % 3 == 2 ? 96 : 64));
  }
  const bool any_value = std::all_of(candidates.begin(), candidates.end(),
                                     [](const Candidate& c) { return c.kernel.hadamard == 0; });
  if (!any_value) return inputs;  // the transform takes BF16 values
  std::vector<Dialect> dialects;
  for (const Candidate& c : candidates) {
    if (std::find(dialects.begin(), dialects.end(), c.kernel.dialect) == dialects.end()) {
      dialects.push_back(c.kernel.dialect);
    }
  }
  // Directed cases cover inputs that the hazards do not: odd shapes, saturation.
  constexpr std::size_t kMostElements = 1 << 13;
  for (Case& directed : MakeCases(candidates[0].kernel.dialect)) {
    if (directed.x.values.size() > 0 && directed.x.values.size() <= kMostElements) {
      inputs.push_back(std::move(directed.x));
    }
  }
  for (const float amax : {1.0f, 2688.0f, 1.2345678f, 3.1415927f, 5.21875f}) {
    inputs.push_back(HazardInput(dialects, amax));
  }
  for (const float special :
       {0.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    inputs.push_back(SpecialInput(special));
  }
  return inputs;
}

Matrix<float> WithoutRows(const Matrix<float>& x, std::size_t first, std::size_t count) {
  Matrix<float> rest = x;
  const auto begin = rest.values.begin() + static_cast<std::ptrdiff_t>(first * x.cols);
  rest.values.erase(begin, begin + static_cast<std::ptrdiff_t>(count * x.cols));
  rest.rows -= count;
  return rest;
}

// Removes rows that the partition does not need, in ever smaller pieces.
Matrix<float> Shrunk(std::span<const Candidate> candidates, Matrix<float> x, const Partition& parts,
                     std::size_t wanted) {
  std::size_t step = 1;
  for (const Candidate& c : candidates) {
    if (c.columnwise || c.kernel.layout.transposed) return x;  // removing rows would cut blocks
    step = std::max(step, static_cast<std::size_t>(std::max(1, c.kernel.dialect.block_rows)));
  }
  for (std::size_t piece = std::bit_floor(x.rows); piece >= step; piece /= 2) {
    for (std::size_t at = 0; at + piece <= x.rows && x.rows > piece;) {
      Matrix<float> smaller = WithoutRows(x, at, piece);
      const Partition refined =
          Refined(parts, GroupsOn(candidates, smaller.View()), candidates.size());
      if (refined.size() == wanted) {
        x = std::move(smaller);
      } else {
        at += piece;
      }
    }
  }
  return x;
}

}  // namespace

std::vector<DecidingInput> FindDecidingInputs(std::span<const Candidate> candidates,
                                              std::uint64_t seed, Partition* inseparable) {
  const IeeeArithmetic ieee;
  std::vector<DecidingInput> chosen;
  Partition parts(1);
  for (std::size_t i = 0; i < candidates.size(); ++i) parts[0].push_back(i);
  std::vector<Matrix<float>> inputs = InputsToTry(candidates, seed);
  std::vector<std::vector<DecidingInput::Group>> groups(inputs.size());
  ParallelFor(inputs.size(),
              [&](std::size_t k) { groups[k] = GroupsOn(candidates, inputs[k].View()); });
  while (parts.size() < candidates.size()) {
    std::size_t best = inputs.size(), most = parts.size();
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      const std::size_t count = Refined(parts, groups[k], candidates.size()).size();
      if (count > most) {
        most = count;
        best = k;
      }
    }
    if (best == inputs.size()) break;
    DecidingInput input{.x = Shrunk(candidates, inputs[best], parts, most), .groups = {}};
    input.groups = GroupsOn(candidates, input.x.View());
    parts = Refined(parts, input.groups, candidates.size());
    chosen.push_back(std::move(input));
  }
  if (inseparable != nullptr) {
    inseparable->clear();
    for (std::vector<std::size_t>& part : parts) {
      if (part.size() > 1) inseparable->push_back(std::move(part));
    }
  }
  return chosen;
}

void WriteDecidingInput(const DecidingInput& input, std::span<const Candidate> candidates,
                        const std::filesystem::path& path) {
  const IeeeArithmetic ieee;
  SafetensorsFile file;
  const auto bytes_of = [](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  file.tensors["input"] = {"F32", {input.x.rows, input.x.cols}, bytes_of(input.x.values)};
  for (std::size_t g = 0; g < input.groups.size(); ++g) {
    const std::string name = std::to_string(g);
    const StoredMatrix& m = input.groups[g].bytes;
    file.tensors[name + ".codes"] = {"U8", {m.codes.size()}, bytes_of(m.codes)};
    if (!m.scales.empty()) {
      file.tensors[name + ".scales"] = {"U8", {m.scales.size()}, bytes_of(m.scales)};
    }
    if (!m.tensor_scale.empty()) {
      file.tensors[name + ".tensor_scale"] = {
          "F32", {m.tensor_scale.size()}, bytes_of(m.tensor_scale)};
    }
    std::string members;
    for (const std::size_t i : input.groups[g].members) {
      members += (members.empty() ? "" : "; ") + Name(candidates[i]);
    }
    file.metadata[name] = members;
  }
  WriteSafetensors(path, file);
}

}  // namespace fp4lab
