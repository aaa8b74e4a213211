// Quantizers, transforms and layouts.
#include "fp4lab/block/quantize.h"

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/exchange/quantize_stored.h"
#include "fp4lab/formats/encode.h"
#include "fp4lab/quantize/blocks.h"
#include "fp4lab/quantize/implementation.h"
#include "fp4lab/quantize/replay.h"
#include "fp4lab/quantize/te_counters.h"
#include "fp4lab/transform/hadamard.h"
#include "fp4lab/transform/hadamard_quantize.h"

namespace fp4lab::python {
namespace {

using Random = std::optional<Words16>;
using Source = std::optional<SourceNames>;

// Throws Error unless the random Hadamard transform takes x.
void CheckTransform(MatrixView<const float> x, int size) {
  const std::string where = "rht of size " + std::to_string(size);
  bool known = false;
  for (const int s : kHadamardSizes) known = known || s == size;
  if (!known) throw Error(where, "the sizes are 2, 4, 8, 16, 32, 64 and 128");
  if (x.cols % static_cast<std::size_t>(size) != 0) {
    throw Error(where,
                "needs rows of whole groups; these have " + std::to_string(x.cols) + " elements");
  }
  for (std::size_t r = 0; r < x.rows; ++r) {
    for (std::size_t c = 0; c < x.cols; ++c) {
      const float v = x(r, c);
      if (v == v && RoundToBf16(v) != v) {
        throw Error(where, "takes bfloat16 values, and the array holds others: round it first");
      }
    }
  }
}

HadamardTransform TransformOf(int size, std::uint32_t sign_mask) {
  HadamardTransform transform{.size = size, .signs = {}};
  const std::uint32_t low = size == 16 ? sign_mask & 0xFFFFu : sign_mask;
  transform.signs = MaskHadamardSigns(low);
  if (size > 32) {
    const std::uint32_t word = sign_mask <= 0xFFFFu ? sign_mask | sign_mask << 16 : sign_mask;
    transform.signs = {{word, word, word, word}};
  } else if (size == 32 && sign_mask <= 0xFFFFu) {
    transform.signs = MaskHadamardSigns(sign_mask | sign_mask << 16);
  }
  return transform;
}

Matrix<float> Transformed(MatrixView<const float> x, int size, std::uint32_t sign_mask) {
  CheckTransform(x, size);
  Matrix<float> out(x.rows, x.cols);
  if (x.size() != 0) RandomHadamard(x, TransformOf(size, sign_mask), out.View());
  return out;
}

// The matrix that a quantizer takes: the input or its transpose, behind the Hadamard transform of
// `size` elements unless that is 0.
class QuantizerInput {
 public:
  QuantizerInput(const Input& input, bool columnwise, int size, std::uint32_t sign_mask)
      : view_(columnwise ? input.view().Transposed() : input.view()) {
    if (size == 0) return;
    transformed_ = Transformed(view_, size, sign_mask);
    view_ = std::as_const(transformed_).View();
  }
  QuantizerInput(const QuantizerInput&) = delete;
  QuantizerInput& operator=(const QuantizerInput&) = delete;
  MatrixView<const float> view() const { return view_; }

 private:
  Matrix<float> transformed_;
  MatrixView<const float> view_;
};

nb::object QuantizeArray(const AnyMatrix& array, const std::string& name,
                         const std::string& rounding, bool columnwise,
                         const std::vector<float>& amax, const Random& random, const Source& source,
                         int hadamard, std::uint32_t sign_mask, const LayoutNames& layout,
                         int threads) {
  const Dialect dialect = DialectWith(name, rounding);
  const StorageLayout to = LayoutOf(layout);
  StoredMatrix stored;
  {
    const nb::gil_scoped_release release;
    const ThreadsScope scope(CheckedThreads(threads));
    const Input input(array);
    const QuantizerInput quantized(input, columnwise, hadamard, sign_mask);
    const MatrixView<const float> x = quantized.view();
    stored = QuantizeStored(dialect, x, OptionsOf(dialect, x, amax, random, source), to);
  }
  return TupleOf(std::move(stored));
}

// Quantizes and decodes.
void Qdq(const AnyMatrix& array, const FloatMatrix& to, const std::string& name,
         const std::string& rounding, const std::vector<float>& amax, const Random& random,
         const Source& source, int threads) {
  const Dialect dialect = DialectWith(name, rounding);
  const MatrixView<float> out(to.data(), to.shape(0), to.shape(1));
  const nb::gil_scoped_release release;
  const ThreadsScope scope(CheckedThreads(threads));
  const Input input(array);
  const MatrixView<const float> x = input.view();
  if (out.rows != x.rows || out.cols != x.cols) throw Error("out", "has another shape than x");
  DialectOptions options = OptionsOf(dialect, x, amax, random, source);
  if (x.size() == 0) return;
  options.amax = TensorAmaxes(dialect, x, options);
  Make({dialect, x, options, {.decoded = out}});
}

nb::object DequantizeParts(const std::string& name, std::size_t rows, std::size_t cols,
                           const LayoutNames& layout, const Parts& parts) {
  const Dialect& dialect = RequireDialect(name);
  const StoredMatrix stored = StoredOf(dialect, rows, cols, layout, parts);
  Matrix<float> values;
  {
    const nb::gil_scoped_release release;
    if (NeedsTensorScale(stored, &dialect) && stored.tensor_scale.empty() &&
        stored.layout.tensor_scale != TensorScaleConvention::kNone) {
      throw Error("amax", std::string(dialect.name) +
                              " needs the tensor scale to decode: give it to QTensor");
    }
    const Quantized q = Load(dialect, stored, "codes");
    values = HasTensorScale(dialect) && q.amax.empty()
                 ? StoredValues(stored, dialect.scale_max, "codes")
                 : DequantizeAs(dialect, q);
  }
  const std::size_t r = values.rows, c = values.cols;
  return ArrayOf(std::move(values.values), {r, c});
}

nb::object ConvertParts(const std::string& name, std::size_t rows, std::size_t cols,
                        const LayoutNames& from, const Parts& parts, const LayoutNames& to) {
  const Dialect& dialect = RequireDialect(name);
  const StoredMatrix stored = StoredOf(dialect, rows, cols, from, parts);
  const StorageLayout layout = LayoutOf(to);
  StoredMatrix converted;
  {
    const nb::gil_scoped_release release;
    converted = Convert(stored, layout, dialect.scale_max, "codes");
  }
  return TupleOf(std::move(converted));
}

// (rows of codes, bytes of a row, rows and columns of stored scales with their padding).
std::tuple<std::size_t, std::size_t, std::size_t, std::size_t> Sizes(const std::string& name,
                                                                     std::size_t rows,
                                                                     std::size_t cols,
                                                                     const LayoutNames& layout) {
  const Dialect& dialect = RequireDialect(name);
  const StoredMatrix shape = ShapeOf(dialect, rows, cols, LayoutOf(layout));
  const StoredSizes sizes = SizesOf(shape, "codes");
  const NamedScaleOrder& order = Named(shape.layout.scales);
  if (sizes.scales == 0) return {sizes.code_rows, sizes.code_row_bytes, 0, 0};
  return {sizes.code_rows, sizes.code_row_bytes, RoundUp(sizes.scale_rows, order.tile_rows),
          RoundUp(sizes.scale_cols, order.tile_cols)};
}

nb::object AmaxArray(const AnyMatrix& array, const std::string& name, int hadamard,
                     std::uint32_t sign_mask, bool columnwise) {
  const Dialect& dialect = RequireDialect(name);
  std::vector<float> amax;
  {
    const nb::gil_scoped_release release;
    const Input input(array);
    const QuantizerInput quantized(input, columnwise, hadamard, sign_mask);
    const MatrixView<const float> x = quantized.view();
    amax = HasTensorScale(dialect) ? TensorAmaxes(dialect, x, {}) : std::vector{TensorAmax(x)};
  }
  const std::size_t n = amax.size();
  return ArrayOf(std::move(amax), {n});
}

nb::object HadamardArray(const AnyMatrix& array, int size, std::uint32_t sign_mask,
                         bool columnwise) {
  Matrix<float> out;
  {
    const nb::gil_scoped_release release;
    const Input input(array);
    out = Transformed(columnwise ? input.view().Transposed() : input.view(), size, sign_mask);
  }
  const std::size_t rows = out.rows, cols = out.cols;
  return ArrayOf(std::move(out.values), {rows, cols});
}

RandomForm FormOf(const std::string& name) {
  std::string names;
  for (const NamedRandomForm& f : kRandomForms) {
    if (f.name == name) return f.form;
    names += (names.empty() ? "" : ", ") + std::string(f.name);
  }
  throw Error("form", "\"" + name + "\" is not one of: " + names);
}

nb::object Replay(const AnyMatrix& array, const Words32& words, const std::string& name,
                  const std::string& form_name, bool columnwise, const std::vector<float>& amax,
                  const LayoutNames& layout) {
  const Dialect& dialect = RequireDialect(name);
  const StorageLayout to = LayoutOf(layout);
  const RandomForm form = FormOf(form_name);
  if (!TakesForm(dialect.element, form)) {
    throw Error("form", form_name + " does not round to the elements of " + name);
  }
  StoredMatrix stored;
  {
    const nb::gil_scoped_release release;
    const Input input(array);
    const MatrixView<const float> x = columnwise ? input.view().Transposed() : input.view();
    const std::size_t needed = x.rows * DivideUp(x.cols, ElementsAWord(dialect.element, form));
    if (words.size() != needed) {
      throw Error("words", std::to_string(words.size()) + " words; a " + std::to_string(x.rows) +
                               "x" + std::to_string(x.cols) + " matrix takes " +
                               std::to_string(needed) + ", one for each " +
                               std::to_string(ElementsAWord(dialect.element, form)) +
                               " elements along its blocks");
    }
    const std::size_t amaxes = !HasTensorScale(dialect) ? 0 : dialect.row_scaled ? x.rows : 1;
    if (!amax.empty() && amax.size() != amaxes) {
      throw Error("amax", name + " takes " + std::to_string(amaxes));
    }
    stored =
        Store(dialect, QuantizeReplayed(dialect, x, amax, form, {words.data(), words.size()}), to);
  }
  return TupleOf(std::move(stored));
}

nb::object TransformerEngineWords(const std::string& kernel, std::size_t rows, std::size_t cols,
                                  bool rowwise, bool columnwise, bool of_columnwise,
                                  std::uint64_t seed, std::uint64_t offset) {
  std::string names;
  for (const NamedTeKernel& k : kTeKernels) {
    names += (names.empty() ? "" : ", ") + std::string(k.name);
    if (k.name != kernel) continue;
    std::vector<std::uint32_t> words = TeWords({.kernel = k.kernel,
                                                .rows = rows,
                                                .cols = cols,
                                                .rowwise = rowwise,
                                                .columnwise = columnwise},
                                               of_columnwise, seed, offset);
    const std::size_t lines = of_columnwise ? cols : rows;
    return ArrayOf(std::move(words), {lines, DivideUp(of_columnwise ? rows : cols, 4)});
  }
  throw Error("te_kernel", "\"" + kernel + "\" is not one of: " + names);
}

}  // namespace

void BindQuantize(Bindings& m) {
  m.def("quantize", &QuantizeArray, nb::arg("x").noconvert(), nb::arg("dialect"),
        nb::arg("rounding"), nb::arg("columnwise"), nb::arg("amax"),
        nb::arg("random").noconvert().none(), nb::arg("source").none(), nb::arg("hadamard"),
        nb::arg("sign_mask"), nb::arg("layout"), nb::arg("threads"));
  m.def("qdq", &Qdq, nb::arg("x").noconvert(), nb::arg("out").noconvert(), nb::arg("dialect"),
        nb::arg("rounding"), nb::arg("amax"), nb::arg("random").noconvert().none(),
        nb::arg("source").none(), nb::arg("threads"));
  m.def("dequantize", &DequantizeParts);
  m.def("convert", &ConvertParts);
  m.def("sizes", &Sizes);
  m.def("amax", &AmaxArray);
  m.def("rht", &HadamardArray);
  m.def("replay", &Replay);
  m.def("te_words", &TransformerEngineWords);
}

}  // namespace fp4lab::python
