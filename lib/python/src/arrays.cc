#include "arrays.h"

#include <bit>

#include "fp4lab/base/error.h"
#include "fp4lab/base/parallel.h"
#include "fp4lab/base/text/suggest.h"
#include "fp4lab/dialect/labels.h"
#include "fp4lab/io/json.h"
#include "fp4lab/spelling/dialect_json.h"
#include "fp4lab/spelling/spelled_dialect.h"

namespace fp4lab::python {
namespace {

// Copies rows of any strides, in elements, negative ones included.
template <class T, class ToFloat>
Matrix<float> Copied(const AnyMatrix& a, ToFloat to_float) {
  Matrix<float> copy(a.shape(0), a.shape(1));
  if (copy.values.empty()) return copy;
  const T* data = static_cast<const T*>(a.data());
  const std::int64_t row_stride = a.stride(0), col_stride = a.stride(1);
  ParallelFor(copy.rows, [&](std::size_t r) {
    const T* from = data + static_cast<std::int64_t>(r) * row_stride;
    float* to = copy.values.data() + r * copy.cols;
    for (std::size_t c = 0; c < copy.cols; ++c) {
      to[c] = to_float(from[static_cast<std::int64_t>(c) * col_stride]);
    }
  });
  return copy;
}

float FloatOfBf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Throws Error for a name that is not in the table `names`.
template <class T>
T Found(const std::optional<T>& found, std::string_view what, const std::string& name,
        const std::string& names) {
  if (!found) throw Error(what, "\"" + name + "\" is not one of: " + names);
  return *found;
}

template <class Table>
std::string NamesIn(const Table& table) {
  std::string names;
  for (const auto& row : table) names += (names.empty() ? "" : ", ") + std::string(row.name);
  return names;
}

}  // namespace

Input::Input(const AnyMatrix& a) {
  const bool is_float = a.dtype() == nb::dtype<float>();
  if (!is_float && a.dtype() != nb::dtype<std::uint16_t>()) {
    throw Error("x", "is neither float32 nor uint16 with BF16 bits");
  }
  const std::size_t rows = a.shape(0), cols = a.shape(1);
  const std::int64_t row_stride = a.stride(0), col_stride = a.stride(1);
  const bool unit = (col_stride == 1 && row_stride >= static_cast<std::int64_t>(cols)) ||
                    (row_stride == 1 && col_stride >= static_cast<std::int64_t>(rows));
  if (is_float && unit) {
    view_ = {static_cast<const float*>(a.data()), rows, cols, static_cast<std::size_t>(row_stride),
             static_cast<std::size_t>(col_stride)};
    return;
  }
  copy_ = is_float ? Copied<float>(a, [](float x) { return x; })
                   : Copied<std::uint16_t>(a, FloatOfBf16);
  view_ = std::as_const(copy_).View();
}

const Dialect& RequireDialect(std::string_view name) {
  if (const Dialect* dialect = DialectOfText(std::string(name), "dialect")) return *dialect;
  throw Error("dialect",
              "\"" + std::string(name) + "\" is not in the table; " +
                  DidYouMean(name, NamesOf(Dialects()), "fp4lab.dialects() lists the names"));
}

Dialect DialectWith(std::string_view name, std::string_view rounding) {
  const bool of_recipe = name.starts_with('{') && FindDialect(name) == nullptr;
  Dialect dialect =
      of_recipe ? ReadDialect(ParseJson(name, "dialect"), "dialect") : RequireDialect(name);
  if (rounding.empty()) return dialect;
  if (const auto found = FindLabel<ElementRounding>(rounding)) {
    dialect.rounding = *found;
    return dialect;
  }
  const std::vector<std::string_view> labels = LabelsOf<ElementRounding>();
  const std::vector<std::string> names(labels.begin(), labels.end());
  throw Error("rounding",
              "\"" + std::string(rounding) + "\" is not known; " + DidYouMean(rounding, names));
}

StorageLayout LayoutOf(const LayoutNames& names) {
  const auto& [codes, scales, transposed, expanded, tensor_scale] = names;
  return {.codes = Found(FindCodeOrder(codes), "nibbles", codes, NamesIn(kCodeOrders)),
          .scales = Found(FindScaleOrder(scales), "scale_layout", scales, NamesIn(kScaleOrders)),
          .transposed = transposed,
          .expanded_scales = expanded,
          .tensor_scale = Found(FindTensorScaleConvention(tensor_scale), "tensor_scale_is",
                                tensor_scale, NamesIn(kTensorScaleConventions))};
}

StoredMatrix StoredOf(const Dialect& dialect, std::size_t rows, std::size_t cols,
                      const LayoutNames& layout, const Parts& parts) {
  StoredMatrix stored = ShapeOf(dialect, rows, cols, LayoutOf(layout));
  const auto& [codes, scales, tensor_scale] = parts;
  if (codes.size() != 0) stored.codes.assign(codes.data(), codes.data() + codes.size());
  if (scales.size() != 0) stored.scales.assign(scales.data(), scales.data() + scales.size());
  stored.tensor_scale = tensor_scale;
  // Numbers in place of the dialect's bytes, or of its own numbers.
  for (const NamedScaleType& t : kScaleTypes) {
    if (stored.scales.empty() || SizesOf(stored, "scales").scales == scales.size()) break;
    StoredMatrix other = stored;
    other.layout.scale_type = t.type;
    if (t.type == ScaleType::kByte || dialect.block_rows == 0) continue;
    if (SizesOf(other, "scales").scales != scales.size()) continue;
    other.scale = FormatId::kE4M3;
    stored = std::move(other);
  }
  return stored;
}

namespace {

// Bytes in the shape of their layout, or in a row if a kernel wrote more or fewer.
nb::object BytesOf(std::vector<std::uint8_t>&& bytes, std::size_t rows, std::size_t cols) {
  const std::size_t count = bytes.size();
  return count == rows * cols ? ArrayOf(std::move(bytes), {rows, cols})
                              : ArrayOf(std::move(bytes), {count});
}

}  // namespace

namespace {

// The scales as an array of their type: bytes, the bits of BF16, or float32.
nb::object ScalesOf(StoredMatrix&& stored, std::size_t rows, std::size_t cols) {
  switch (stored.layout.scale_type) {
    case ScaleType::kBF16: {
      std::vector<std::uint16_t> bits(stored.scales.size() / 2);
      for (std::size_t i = 0; i < bits.size(); ++i) {
        bits[i] = static_cast<std::uint16_t>(ScaleCodeAt(stored.scales, i, ScaleType::kBF16));
      }
      return ArrayOf(std::move(bits), {rows, cols});
    }
    case ScaleType::kFP32: {
      std::vector<float> numbers(stored.scales.size() / 4);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = std::bit_cast<float>(ScaleCodeAt(stored.scales, i, ScaleType::kFP32));
      }
      return ArrayOf(std::move(numbers), {rows, cols});
    }
    case ScaleType::kByte:
      break;
  }
  return BytesOf(std::move(stored.scales), rows, cols);
}

}  // namespace

nb::object TupleOf(StoredMatrix&& stored) {
  const StoredSizes sizes = SizesOf(stored, "codes");
  const NamedScaleOrder& order = Named(stored.layout.scales);
  const std::size_t scale_rows = RoundUp(sizes.scale_rows, order.tile_rows),
                    scale_cols = RoundUp(sizes.scale_cols, order.tile_cols);
  const bool has_scales = !stored.scales.empty();
  std::vector<float> tensor_scale = std::move(stored.tensor_scale);
  const std::size_t numbers = tensor_scale.size();
  nb::object codes = BytesOf(std::move(stored.codes), sizes.code_rows, sizes.code_row_bytes);
  return nb::make_tuple(
      std::move(codes),
      ScalesOf(std::move(stored), has_scales ? scale_rows : 0, has_scales ? scale_cols : 0),
      ArrayOf(std::move(tensor_scale), {numbers}));
}

DialectOptions OptionsOf(const Dialect& dialect, MatrixView<const float> x,
                         const std::vector<float>& amax, const std::optional<Words16>& random,
                         const std::optional<SourceNames>& source) {
  const std::string name(dialect.name);
  DialectOptions options{.amax = amax};
  const std::size_t amaxes = !HasTensorScale(dialect) ? 0 : dialect.row_scaled ? x.rows : 1;
  if (!amax.empty() && amax.size() != amaxes) {
    throw Error("amax", std::to_string(amax.size()) + " numbers; " + name + " takes " +
                            (amaxes == 0 ? "none" : std::to_string(amaxes)));
  }
  if (!TakesRandomBits(dialect)) {
    if (random || source) {
      throw Error("rounding", name +
                                  " takes no random bits under this rounding: leave out random, "
                                  "seed and rng_state, or ask for rounding=\"stochastic\"");
    }
    return options;
  }
  if (random) {
    if (random->size() != x.size()) {
      throw Error("random", std::to_string(random->size()) + " fields of bits; the matrix has " +
                                std::to_string(x.size()) + " elements, and each takes one");
    }
    options.random = {random->data(), random->size()};
    return options;
  }
  if (!source) {
    throw Error("rounding", name +
                                " takes random bits: give seed (bits of fp4lab's generator) or "
                                "random (a uint16 field for each element)");
  }
  const auto& [seed, step, tensor, generator, columnwise] = *source;
  options.source = RandomSource{.stream = {.seed = seed, .step = step, .tensor = tensor},
                                .columnwise = columnwise};
  for (const NamedGenerator& g : kRandomGenerators) {
    if (g.name != generator) continue;
    options.source->generator = g.generator;
    if (!Feeds(g.generator, dialect)) {
      throw Error("generator", generator + " does not give the bits that " + name + " takes");
    }
    return options;
  }
  throw Error("generator", "\"" + generator + "\" is not one of: " + NamesIn(kRandomGenerators));
}

int CheckedThreads(int threads) {
  if (threads < 0 || threads > kMostThreads) {
    throw Error("threads",
                std::to_string(threads) + " is not in 1.." + std::to_string(kMostThreads));
  }
  return threads;
}

}  // namespace fp4lab::python
