// A build without cuBLASLt's header has none of its products to check.
#include "tools/crosscheck.h"

namespace fp4lab::tools {

void CheckBlasProducts(Crosscheck* result) {
  result->notes.push_back("gemm, cuBLASLt: this fp4lab was built without it");
}

}  // namespace fp4lab::tools
