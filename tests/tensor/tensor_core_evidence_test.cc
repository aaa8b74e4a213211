// The parameters of a model that the vectors at hand determine: the vectors must refuse its
// neighbours.
#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"
#include "tests/tensor/evidence.h"
#include "tests/tensor/hardware_vectors.h"

namespace fp4lab {
namespace {

TEST_CASE("Each model's row claims the neighbours that an H200's vectors refuse", "[tensor]") {
  CheckRows(ProbedVectors(), false);
}

TEST_CASE("A row claims no neighbour that its model does not have", "[tensor]") {
  for (const TensorCoreModel& model : kTensorCoreModels) {
    CAPTURE(model.name);
    for (const NamedNeighbour& n : kNeighbours) {
      if (!HasNeighbour(model, n.neighbour)) CHECK_FALSE(Refuses(model, n.neighbour));
    }
    CHECK_FALSE(model.evidence.empty());
  }
}

}  // namespace
}  // namespace fp4lab
