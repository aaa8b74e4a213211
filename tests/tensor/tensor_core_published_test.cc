// The models of tensor cores against all published fixtures, and what these determine. The fixtures
// are other people's data and not part of this project: they stand in the folder model_validation
// of the folder that FP4LAB_EXTERNAL_VECTORS names.
#include <vector>

#include "fp4lab/tensor/tensor_core.h"
#include "tests/support/catch.h"
#include "tests/tensor/evidence.h"
#include "tests/tensor/hardware_vectors.h"

namespace fp4lab {
namespace {

TEST_CASE("The models return what tensor cores from V100 to B200 returned", "[tensor][hw]") {
  const auto folder = PublishedFolder();
  if (folder) CheckAll(PublishedText(*folder), 5000);
}

TEST_CASE("Each model's row claims the neighbours that stored vectors refuse, and no others",
          "[tensor][hw]") {
  const auto tsv = ExternalVectors("b200_vectors.tsv", "sf-tensor/tcgen05, validation.py");
  const auto folder = PublishedFolder();
  if (!tsv || !folder) return;
  std::vector<HardwareVectors> all = ProbedVectors();
  for (const auto& more : {PublishedText(*folder), FrozenVectors(*tsv)}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  CheckRows(all, true);
}

}  // namespace
}  // namespace fp4lab
