#include <dnnl.h>

#include "fp4lab/base/parallel.h"
#include "tests/bench/peers.h"

namespace fp4lab::bench {
namespace {

void OneDnnGemm(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> c,
                int threads) {
  const int before = Threads();
  SetThreads(threads);
  const bool a_rows = a.col_stride == 1, b_rows = b.col_stride == 1;
  dnnl_sgemm(a_rows ? 'N' : 'T', b_rows ? 'T' : 'N', static_cast<dnnl_dim_t>(c.rows),
             static_cast<dnnl_dim_t>(c.cols), static_cast<dnnl_dim_t>(a.cols), 1.0f, a.data,
             static_cast<dnnl_dim_t>(a_rows ? a.row_stride : a.col_stride), b.data,
             static_cast<dnnl_dim_t>(b_rows ? b.row_stride : b.col_stride), 0.0f, c.data,
             static_cast<dnnl_dim_t>(c.row_stride));
  SetThreads(before);
}

const bool kAdded = AddPeer({"onednn", OneDnnGemm});

}  // namespace
}  // namespace fp4lab::bench
