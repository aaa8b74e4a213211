// Finds which parameters of the models a set of hardware vectors determines.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"
#include "tests/tensor/hardware_vectors.h"

namespace fp4lab {

// For each model, by its name: the neighbours that some vector refuses.
inline std::map<std::string_view, std::uint8_t> RefusedBy(const std::vector<HardwareVectors>& all) {
  std::map<std::string_view, std::uint8_t> refused;
  for (const HardwareVectors& v : all) {
    if (v.open) continue;
    std::uint8_t& set = refused[v.model->name];
    for (const NamedNeighbour& n : kNeighbours) {
      const std::uint8_t bit = NeighbourSet({n.neighbour});
      if ((set & bit) != 0 || !HasNeighbour(*v.model, n.neighbour)) continue;
      if (v.Refuses(ModelBeside(*v.model, n.neighbour))) set |= bit;
    }
  }
  return refused;
}

inline std::string NamesOf(unsigned set) {
  std::string names;
  for (const NamedNeighbour& n : kNeighbours) {
    if ((set & NeighbourSet({n.neighbour})) != 0) names += " " + std::string(n.name);
  }
  return names;
}

// Checks that a model's row claims every neighbour that the vectors refuse and, with all vectors at
// hand (`complete`), no other neighbour.
inline void CheckRows(const std::vector<HardwareVectors>& all, bool complete) {
  for (const auto& [name, set] : RefusedBy(all)) {
    const TensorCoreModel& model = *FindTensorCoreModel(name);
    INFO(name << " refuses" << NamesOf(set) << "; its row says" << NamesOf(model.refused));
    CHECK((set & ~unsigned{model.refused}) == 0);
    if (complete) CHECK(set == model.refused);
  }
}

}  // namespace fp4lab
