// CheckBlasProducts in a build without cuBLASLt's header: a note instead of checks.
#include "fp4lab/crosscheck/crosscheck.h"

namespace fp4lab::crosscheck {

void CheckBlasProducts(Crosscheck* result) {
  result->notes.emplace_back("gemm, cuBLASLt: this fp4lab was built without it");
}

}  // namespace fp4lab::crosscheck
