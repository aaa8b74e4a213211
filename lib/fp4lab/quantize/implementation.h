// The ways to quantize a matrix on the CPU, as a table: the tuned kernels of block/, the generic
// kernels of quantize/kernels/, and the scalar reference, which is the definition. A row states
// why it cannot make a request, or makes it; all rows that make it give the same bytes, on every
// SIMD target and for any number of threads. Callers take the first row that can.
//
// A new kernel is a row here: quantization, stored matrices, training, Python, the benchmarks and
// the differential tests range over the table.
#pragma once

#include <span>
#include <string_view>
#include <type_traits>

#include "fp4lab/base/matrix.h"
#include "fp4lab/block/plan.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/quantize/kernels/outputs.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab {

// One way to serve requests of a type. `why_not` returns the reason why it cannot make a request,
// or nothing. `make` expects that it can, and returns whether the result is exact.
template <class Request>
struct Implementation {
  std::string_view name;
  std::string_view (*why_not)(const Request&);
  bool (*make)(const Request&);
};

// The first row that can make the request; nullptr if none can.
template <class Request>
const Implementation<Request>* FirstThatCan(std::span<const Implementation<Request>> rows,
                                            const std::type_identity_t<Request>& request) {
  for (const Implementation<Request>& row : rows) {
    if (row.why_not(request).empty()) return &row;
  }
  return nullptr;
}

// One quantization. The arguments must outlive the request.
struct QuantizeRequest {
  const Dialect& dialect;
  MatrixView<const float> x;
  const DialectOptions& options;  // with the amax, or those of rows, where HasTensorScale(dialect)
  QuantizeOutputs out;
  UnitStage stage = {};  // between x and the quantizer; the amax is that of the staged elements
};

// tuned, generic, reference: from the fastest to the definition.
std::span<const Implementation<QuantizeRequest>> QuantizeImplementations();

// Makes the request by the first row that can. Returns false if `integers` were asked for and are
// not exact (block/fp4_integers.h), else true. Throws std::logic_error if no row can make it.
bool Make(const QuantizeRequest& request);

// QuantizeAs of quantize/quantize.h by the given row, which must be able to make it.
Quantized QuantizeBy(const Implementation<QuantizeRequest>& row, const Dialect& dialect,
                     MatrixView<const float> x, const DialectOptions& options = {});

// The row by which QuantizeAs quantizes in the dialect, with the source's random bits if given.
const Implementation<QuantizeRequest>& ImplementationOf(const Dialect& dialect,
                                                        const DialectOptions& options = {});

}  // namespace fp4lab
