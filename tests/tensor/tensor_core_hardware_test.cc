// The models of tensor cores against what real chips returned. The vectors are other people's data
// and not part of this project: FP4LAB_EXTERNAL_VECTORS names the folder that holds them.
#include <vector>

#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"
#include "tests/tensor/hardware_vectors.h"

namespace fp4lab {
namespace {

TEST_CASE("The models return what A100, Ada, H100 and B200 tensor cores returned", "[tensor][hw]") {
  const auto path = ExternalVectors(
      "tensor_core_hw.npz", "north-numerical-computing/MATLAB-tensor-core, model_validation");
  if (path) CheckAll(PublishedRows(*path), 1500);
}

TEST_CASE("The models return what a B200's tcgen05 instructions returned", "[tensor][hw]") {
  const auto path = ExternalVectors("b200_vectors.tsv", "sf-tensor/tcgen05, validation.py");
  if (!path) return;
  std::size_t frozen = 0, open = 0;
  for (const HardwareVectors& v : FrozenVectors(*path)) {
    INFO(v.name);
    CHECK(v.Mismatches(*v.model) == 0);
    (v.open ? open : frozen) += 1;
  }
  CHECK(frozen == 27);
  CHECK(open == 3);
}

}  // namespace
}  // namespace fp4lab
