#include "fp4lab/block/quantized.h"

#include <utility>

#include "fp4lab/base/error.h"

namespace fp4lab {

Quantized InOrder(Quantized q, CodeOrder order) {
  Expects(q.order != CodeOrder::kSplitHalves && order != CodeOrder::kSplitHalves,
          "an order of codes without blocks");
  if (q.order == order) return q;
  if (q.order != CodeOrder::kBytes) q.codes = UnpackCodes(q.codes, q.rows, q.cols, q.order);
  if (order != CodeOrder::kBytes) q.codes = PackCodes(q.codes, q.rows, q.cols, order);
  q.order = order;
  return q;
}

}  // namespace fp4lab
