#include <cblas.h>

#include <string>

#include "tests/bench/peers.h"

namespace fp4lab::bench {
namespace {

void OpenBlasGemm(MatrixView<const float> a, MatrixView<const float> b, MatrixView<float> c,
                  int threads) {
  openblas_set_num_threads(threads);
  const bool a_rows = a.col_stride == 1, b_rows = b.col_stride == 1;
  cblas_sgemm(CblasRowMajor, a_rows ? CblasNoTrans : CblasTrans, b_rows ? CblasTrans : CblasNoTrans,
              static_cast<int>(c.rows), static_cast<int>(c.cols), static_cast<int>(a.cols), 1.0f,
              a.data, static_cast<int>(a_rows ? a.row_stride : a.col_stride), b.data,
              static_cast<int>(b_rows ? b.row_stride : b.col_stride), 0.0f, c.data,
              static_cast<int>(c.row_stride));
}

const bool kAdded = AddPeer({"openblas", OpenBlasGemm});

}  // namespace
}  // namespace fp4lab::bench
