#include "fp4lab/train/optimizer/shares.h"

#include <algorithm>

#include "fp4lab/train/optimizer/optimizers.h"

namespace fp4lab {
namespace {

// The nearest place to `place` that cuts no matrix of the group.
std::size_t BesideMatrices(const ParameterGroup& group, std::size_t place) {
  for (const ParameterSlice& slice : group.slices) {
    const std::size_t end = slice.offset + slice.size();
    if (slice.offset < place && place < end) {
      return place - slice.offset < end - place ? slice.offset : end;
    }
  }
  return place;
}

std::vector<Slice> SharesOf(const OptimizerConfig& config, std::span<const ParameterGroup> groups,
                            int size) {
  const bool keeps_matrices = OptimizerOf(config).whole_matrices;
  std::vector<Slice> shares = SlicesOf(groups.back().first + groups.back().size, size);
  for (std::size_t rank = 1; rank < shares.size(); ++rank) {
    std::size_t first = shares[rank].first;
    for (const ParameterGroup& group : groups) {
      const bool is_whole = keeps_matrices && group.kind == ParameterKind::kMatrices;
      if (is_whole) first = BesideMatrices(group, first);
    }
    shares[rank - 1].end = shares[rank].first = first;
  }
  return shares;
}

std::vector<ParameterGroup> GroupsIn(std::span<const ParameterGroup> groups, const Slice& share) {
  std::vector<ParameterGroup> parts;
  for (const ParameterGroup& group : groups) {
    const std::size_t first = std::max(share.first, group.first);
    const std::size_t end = std::min(share.end, group.first + group.size);
    if (first >= end) continue;
    ParameterGroup& part = parts.emplace_back(group);
    part.first = first - share.first;
    part.size = end - first;
    std::erase_if(part.slices, [&](const ParameterSlice& slice) {
      return slice.offset < first || slice.offset + slice.size() > end;
    });
    for (ParameterSlice& slice : part.slices) slice.offset -= share.first;
  }
  return parts;
}

}  // namespace

OptimizerShares::OptimizerShares(const OptimizerConfig& config,
                                 std::span<const ParameterGroup> groups, bool shards, int rank,
                                 int size)
    : rank_(shards ? static_cast<std::size_t>(rank) : 0),
      all_(SharesOf(config, groups, shards ? size : 1)),
      groups_(GroupsIn(groups, Own())) {}

}  // namespace fp4lab
