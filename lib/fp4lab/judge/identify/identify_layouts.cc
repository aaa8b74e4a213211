// The names of candidates, their order, and the candidates that no input of a shape tells apart.
#include <algorithm>
#include <cstdint>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/exchange/vendors/vendor.h"
#include "fp4lab/judge/identify/identify.h"

namespace fp4lab {
namespace {

int Plainness(const Candidate& c) {
  const StorageLayout& l = c.kernel.layout;
  return (c.kernel.hadamard != 0 ? 16 : 0) + (c.columnwise ? 8 : 0) + (l.transposed ? 4 : 0) +
         (l.codes != DefaultCodeOrder(c.kernel.dialect.element) ? 2 : 0) +
         (l.scales != ScaleOrder::kLinear ? 1 : 0);
}

// The number of layout features that the dialect's own code base has and that are not the default.
int TellTales(const Candidate& c) {
  const std::optional<StorageLayout> own = OwnLayout(c.kernel.dialect);
  if (!own) return 0;
  const StorageLayout& l = c.kernel.layout;
  const bool has_number = l.tensor_scale != TensorScaleConvention::kNone;
  if (has_number && l.tensor_scale != own->tensor_scale) return 0;
  const bool own_codes =
      l.codes == own->codes && l.codes != DefaultCodeOrder(c.kernel.dialect.element);
  const bool own_scales = l.scales == own->scales && l.scales != ScaleOrder::kLinear;
  return (has_number ? 1 : 0) + (own_codes ? 1 : 0) + (own_scales ? 1 : 0);
}

// A hash of the places of the code and the scale of every element, over the elements of the input.
std::uint64_t PlacesHash(const Candidate& c, std::size_t rows, std::size_t cols) {
  const Dialect& d = c.kernel.dialect;
  if (c.columnwise) std::swap(rows, cols);
  const Places places(PlanOf(c.kernel), rows, cols);
  const auto block_rows = static_cast<std::size_t>(std::max(1, d.block_rows));
  const auto block_cols = static_cast<std::size_t>(std::max(1, d.block_cols));
  const StorageLayout& l = c.kernel.layout;
  std::uint64_t sum = 0;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < cols; ++k) {
      const std::size_t copy = !l.expanded_scales ? 0
                               : l.transposed     ? k % block_cols
                                                  : r % block_rows;
      const std::size_t scale =
          d.block_rows == 0 ? 0 : places.ScalePlace(r / block_rows, k / block_cols, copy);
      const std::size_t element = c.columnwise ? k * rows + r : r * cols + k;
      std::uint64_t mixed = element * 0x9E3779B97F4A7C15u + places.CodeBit(r, k);
      mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9u + scale;
      sum += (mixed ^ mixed >> 32) * 0x94D049BB133111EBu;  // independent of the order of elements
    }
  }
  return sum;
}

// Whether the quantized transpose is the transpose of the quantized matrix.
bool IsSymmetric(const Kernel& kernel) {
  const Dialect& d = kernel.dialect;
  return d.block_rows == d.block_cols && !d.row_scaled && !IsStochastic(d) &&
         d.adaptive == Adaptive::kNo && kernel.hadamard == 0;
}

// Whether only the layouts can make the bytes of the two candidates differ.
bool ComputeTheSame(const Candidate& a, const Candidate& b) {
  return a.kernel.dialect == b.kernel.dialect && a.kernel.hadamard == b.kernel.hadamard &&
         a.kernel.sign_mask == b.kernel.sign_mask &&
         a.kernel.layout.tensor_scale == b.kernel.layout.tensor_scale &&
         (a.columnwise == b.columnwise || IsSymmetric(a.kernel));
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
  if (l.tensor_scale != TensorScaleConvention::kNone) {
    name += ", tensor scale as " +
            std::string(kTensorScaleConventions[static_cast<std::size_t>(l.tensor_scale)].name);
  }
  if (l.transposed) name += ", transposed";
  if (c.columnwise) name += ", of the transposed input";
  if (c.kernel.hadamard != 0) {
    name += ", after Hadamard " + std::to_string(c.kernel.hadamard) +
            (c.kernel.sign_mask == 0 ? " without signs" : " with Transformer Engine's signs");
  }
  return name;
}

void SortCandidates(std::vector<Candidate>* candidates) {
  std::stable_sort(candidates->begin(), candidates->end(),
                   [](const Candidate& a, const Candidate& b) {
                     const int plain_a = Plainness(a), plain_b = Plainness(b);
                     return plain_a != plain_b ? plain_a < plain_b : TellTales(a) > TellTales(b);
                   });
}

std::vector<std::vector<std::size_t>> SameBytes(std::span<const Candidate> candidates,
                                                std::size_t rows, std::size_t cols) {
  const IeeeArithmetic ieee;
  struct Group {
    std::vector<std::size_t> members;
    std::uint64_t hash;
  };
  std::vector<Group> groups;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::uint64_t hash = PlacesHash(candidates[i], rows, cols);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.hash == hash && ComputeTheSame(candidates[g.members[0]], candidates[i]);
    });
    if (same != groups.end()) {
      same->members.push_back(i);
    } else {
      groups.push_back({{i}, hash});
    }
  }
  std::vector<std::vector<std::size_t>> members;
  for (Group& g : groups) members.push_back(std::move(g.members));
  return members;
}

}  // namespace fp4lab
