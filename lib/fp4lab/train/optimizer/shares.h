// The optimizer's states spread over the processes of a run: each keeps and updates those of a
// share of the parameters (ZeRO stage 1, arXiv:1910.02054).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "fp4lab/train/config.h"
#include "fp4lab/train/model/parameters.h"
#include "fp4lab/train/processes/processes.h"

namespace fp4lab {

class OptimizerShares {
 public:
  // The share of process `rank` of `size`, among nearly equal ones. A matrix that the optimizer
  // updates as a whole lies in one of them. `groups`: all parameters (ParameterLayout::groups).
  // Without `shards`, each process keeps all states: the one share is all parameters.
  OptimizerShares(const OptimizerConfig& config, std::span<const ParameterGroup> groups,
                  bool shards, int rank, int size);

  bool AreSeveral() const { return all_.size() > 1; }
  // In the order of ranks; together they are all parameters.
  std::span<const Slice> All() const { return all_; }
  const Slice& Own() const { return all_[rank_]; }
  // The elements of the own share in numbers of all parameters.
  template <class T>
  std::span<T> OwnOf(std::span<T> x) const {
    return x.subspan(Own().first, Own().size());
  }
  // The groups' parts in the own share. Places count from the share's first parameter; `slices` are
  // those that lie in it as a whole.
  std::span<const ParameterGroup> Groups() const { return groups_; }

 private:
  std::size_t rank_;
  std::vector<Slice> all_;
  std::vector<ParameterGroup> groups_;
};

}  // namespace fp4lab
