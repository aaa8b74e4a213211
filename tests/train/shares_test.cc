#include "fp4lab/train/optimizer/shares.h"

#include <algorithm>
#include <set>
#include <string>

#include "fp4lab/train/model/shapes.h"
#include "tests/support/catch.h"

namespace fp4lab {
namespace {

OptimizerConfig Named(const std::string& name) {
  OptimizerConfig config;
  config.name = name;
  return config;
}

// A model with fused and gated matrices, experts and biases of a router.
ModelConfig Mixture() {
  ModelConfig model;
  model.parts = {"attention", "moe"};
  model.moe.bias_rate = 0.01f;
  return model;
}

const std::vector<int> kSizes = {1, 2, 3, 4, 7, 64};

TEST_CASE("Shares of processes are all parameters, and their groups those of the model",
          "[train]") {
  for (const char* optimizer : {"adamw", "muon"}) {
    for (const ModelConfig& model : {ModelConfig(), Mixture()}) {
      const ParameterLayout layout = MakeLayout(model);
      for (const int size : kSizes) {
        CAPTURE(optimizer, size, layout.total);
        std::size_t end = 0;
        std::vector<std::size_t> sizes(layout.groups.size());
        for (int rank = 0; rank < size; ++rank) {
          const OptimizerShares shares(Named(optimizer), layout.groups, true, rank, size);
          CHECK(shares.AreSeveral() == (size > 1));
          REQUIRE(shares.Own().first == end);
          end = shares.Own().end;
          std::size_t at = 0;
          for (const ParameterGroup& group : shares.Groups()) {
            REQUIRE(group.first == at);
            at += group.size;
            const auto whole =
                std::find_if(layout.groups.begin(), layout.groups.end(),
                             [&](const ParameterGroup& other) { return other.kind == group.kind; });
            sizes[static_cast<std::size_t>(whole - layout.groups.begin())] += group.size;
            REQUIRE(group.rate == whole->rate);
            REQUIRE(group.balance_rate == whole->balance_rate);
          }
          CHECK(at == shares.Own().size());
        }
        CHECK(end == layout.total);
        for (std::size_t i = 0; i < sizes.size(); ++i) CHECK(sizes[i] == layout.groups[i].size);
      }
    }
  }
}

TEST_CASE("AdamW's shares are equal, and Muon's differ by the matrices that they leave whole",
          "[train]") {
  const ParameterLayout layout = MakeLayout(Mixture());
  std::size_t largest = 0;
  for (const ParameterSlice& slice : layout.block_linears) {
    largest = std::max(largest, slice.size());
  }
  for (const int size : kSizes) {
    const std::vector<Slice> equal = SlicesOf(layout.total, size);
    const OptimizerShares adamw(Named("adamw"), layout.groups, true, 0, size);
    const OptimizerShares muon(Named("muon"), layout.groups, true, 0, size);
    for (std::size_t rank = 0; rank < equal.size(); ++rank) {
      CHECK(adamw.All()[rank].first == equal[rank].first);
      const std::size_t first = muon.All()[rank].first, wanted = equal[rank].first;
      CHECK(2 * (std::max(first, wanted) - std::min(first, wanted)) <= largest);
    }
  }
}

TEST_CASE("Muon's shares have every matrix once, where the parameters have it", "[train]") {
  const ParameterLayout layout = MakeLayout(Mixture());
  for (const int size : kSizes) {
    CAPTURE(size);
    std::set<std::string> names;
    for (int rank = 0; rank < size; ++rank) {
      const OptimizerShares shares(Named("muon"), layout.groups, true, rank, size);
      for (const ParameterGroup& group : shares.Groups()) {
        if (group.kind != ParameterKind::kMatrices) continue;
        std::size_t elements = 0;
        for (const ParameterSlice& slice : group.slices) {
          const auto whole =
              std::find_if(layout.block_linears.begin(), layout.block_linears.end(),
                           [&](const ParameterSlice& other) { return other.name == slice.name; });
          REQUIRE(whole != layout.block_linears.end());
          CHECK(slice.offset + shares.Own().first == whole->offset);
          CHECK(names.insert(slice.name).second);
          elements += slice.size();
        }
        CHECK(elements == group.size);
      }
    }
    CHECK(names.size() == layout.block_linears.size());
  }
}

}  // namespace
}  // namespace fp4lab
