// Arrays between Python and the library: inputs of any strides as matrices, results as numpy arrays
// that own the memory of a vector. Functions that may run long release the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp4lab/base/ieee_arithmetic.h"
#include "fp4lab/base/matrix.h"
#include "fp4lab/dialect/dialect.h"
#include "fp4lab/exchange/stored.h"
#include "fp4lab/judge/kernels/deviation.h"
#include "fp4lab/quantize/quantize.h"

namespace fp4lab::python {

namespace nb = nanobind;

using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using FloatMatrix = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // written to
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words16 = nb::ndarray<const std::uint16_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words32 = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A matrix of an array of float32, or of uint16 that hold BF16 bits: a view of float32 with one
// unit stride, else a copy. The array must outlive it.
class Input {
 public:
  explicit Input(const AnyMatrix& array);
  MatrixView<const float> view() const { return view_; }

 private:
  Matrix<float> copy_;
  MatrixView<const float> view_;
};

// A numpy array of this shape that owns the vector.
template <class T>
nb::object ArrayOf(std::vector<T>&& values, std::initializer_list<std::size_t> shape) {
  auto* owner = new std::vector<T>(std::move(values));
  if (owner->empty()) owner->reserve(1);  // a pointer that is not null
  const nb::capsule memory(owner, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T>(owner->data(), shape, memory));
}

// The table's row, or the dialect that JSON or the file FILE.json spells out
// (spelling/spelled_dialect.h). Throws Error for an unknown name, with suggestions.
const Dialect& RequireDialect(std::string_view name);
// RequireDialect, or a dialect of a recipe in JSON (spelling/dialect_json.h), with another rounding
// of elements, by its label; empty: the dialect's own.
Dialect DialectWith(std::string_view name, std::string_view rounding);

// (codes, scales, transposed, expanded scales, tensor scale) by their names.
using LayoutNames = std::tuple<std::string, std::string, bool, bool, std::string>;
StorageLayout LayoutOf(const LayoutNames& names);

// The bytes of a quantized matrix: codes, scales, tensor scales.
using Parts = std::tuple<Bytes, Bytes, std::vector<float>>;
StoredMatrix StoredOf(const Dialect& dialect, std::size_t rows, std::size_t cols,
                      const LayoutNames& layout, const Parts& parts);
// (codes, scales, tensor scales, shape of the codes in bytes, shape of the scales): codes and
// scales as arrays of these shapes.
nb::object TupleOf(StoredMatrix&& stored);

// (seed, step, tensor, generator, whether the matrix is the columnwise output).
using SourceNames = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::string, bool>;
// The options of a quantization. Throws Error if they do not fit x and the dialect. `random` must
// outlive the result.
DialectOptions OptionsOf(const Dialect& dialect, MatrixView<const float> x,
                         const std::vector<float>& amax, const std::optional<Words16>& random,
                         const std::optional<SourceNames>& source);

// `threads`, the argument of a Python function, if it is 0 (as it is) or a possible number of
// threads; throws Error otherwise.
int CheckedThreads(int threads);

// Where functions of the module are defined: each computes in IEEE arithmetic, whatever the state
// of the calling thread (base/ieee_arithmetic.h). Python converts arguments before a call begins:
// the package's fp4lab._ieee guards that, and its own arithmetic.
class Bindings {
 public:
  explicit Bindings(nb::module_& m) : module_(m) {}
  template <class Function, class... Extra>
  void def(const char* name, Function&& function, const Extra&... extra) {
    module_.def(name, std::forward<Function>(function), extra..., nb::call_guard<IeeeArithmetic>());
  }

 private:
  nb::module_& module_;
};

void BindAttention(Bindings& m);
void BindCheckpoint(Bindings& m);
void BindJudge(Bindings& m);
void BindLinear(Bindings& m);
void BindParity(Bindings& m);
void BindProducts(Bindings& m);
void BindQuantize(Bindings& m);
void BindStatistics(Bindings& m);
void BindTables(Bindings& m);

}  // namespace fp4lab::python
