// A linear layer of a training recipe on arrays: the library's three products, with their operands
// prepared as the recipe says.
#include "fp4lab/nn/linear.h"

#include <algorithm>
#include <map>

#include "arrays.h"
#include "fp4lab/base/error.h"
#include "fp4lab/base/memory/memory_order.h"
#include "fp4lab/base/threads_scope.h"
#include "fp4lab/io/json.h"
#include "fp4lab/nn/delayed_scaling.h"
#include "fp4lab/quantize/statistics.h"
#include "fp4lab/recipe/recipe.h"
#include "fp4lab/spelling/dialect_json.h"

namespace fp4lab::python {
namespace {

using Histories = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;  // written to
// (seed, step, first of the six random tensors, steps of the run or 0).
using CallNumbers = std::tuple<std::uint64_t, std::uint32_t, std::uint32_t, std::int64_t>;

// A float32 matrix with rows of unit stride: the array itself where its layout allows, else a copy.
class RowMajor {
 public:
  explicit RowMajor(const AnyMatrix& array) : input_(array), view_(input_.view()) {
    if (view_.col_stride == 1) return;
    copy_ = RowMajorCopy(view_);
    view_ = std::as_const(copy_).View();
  }
  RowMajor(const RowMajor&) = delete;
  RowMajor& operator=(const RowMajor&) = delete;
  MatrixView<const float> view() const { return view_; }

 private:
  Input input_;
  Matrix<float> copy_;
  MatrixView<const float> view_;
};

// The recipe of a JSON text, read once for all calls. Needs the interpreter's lock.
const Recipe& ReadOnce(const std::string& json) {
  static std::map<std::string, Recipe> recipes;
  const auto found = recipes.find(json);
  if (found != recipes.end()) return found->second;
  return recipes.emplace(json, ReadRecipe(ParseJson(json, "recipe"), "recipe")).first->second;
}

// Whether every rule of a list is for all linears: the list of one linear, whose rules are for
// steps.
bool IsForOneLinear(const Recipe& list) {
  return std::all_of(list.rules.begin(), list.rules.end(), [](const RecipeRule& rule) {
    return rule.linears == std::vector<std::string>{"*"} && rule.first_blocks == 0 &&
           rule.last_blocks == 0 && rule.first_percent == 0.0 && rule.last_percent == 0.0;
  });
}

// The linear's recipe in the call's step. Throws Error if the recipe changes during a run whose
// length is unknown, and for a list with rules for some linears.
const LinearRecipe& RecipeOf(const Recipe& recipe, const CallNumbers& numbers) {
  const auto& [seed, step, tensor, total_steps] = numbers;
  if (!IsForOneLinear(recipe)) {
    throw Error("recipe",
                "is a list of rules, and a linear has one recipe; give it that of its rule");
  }
  if (!recipe.then.empty() && total_steps <= 0) {
    throw Error("recipe", "changes during the run: give total_steps, the steps of the whole run");
  }
  const Recipe& now = recipe.then.empty() ? recipe : RecipeAt(recipe, step, total_steps);
  const RecipeRule* const rule = RuleOf(now, "", 0, 1);
  return rule == nullptr ? now.linear : RecipeAtShare(rule->recipe, now.share).linear;
}

LinearCall CallOf(const Recipe& recipe, const CallNumbers& numbers,
                  const std::optional<Histories>& histories, bool records) {
  const auto& [seed, step, tensor, total_steps] = numbers;
  LinearCall call{.random = {.seed = seed, .step = step, .tensor = tensor}};
  const std::size_t floats = AmaxHistoryFloats(recipe);
  if (floats == 0) return call;
  if (!histories || histories->shape(0) != kLinearOperands || histories->shape(1) != floats) {
    throw Error("histories", "delayed scaling needs float32 (" + std::to_string(kLinearOperands) +
                                 ", " + std::to_string(floats) + ")");
  }
  call.histories = {histories->data(), floats, records};
  return call;
}

nb::object ArrayOfMatrix(Matrix<float>&& x) {
  const std::size_t rows = x.rows, cols = x.cols;
  return ArrayOf(std::move(x.values), {rows, cols});
}

nb::object Forward(const std::string& json, const AnyMatrix& x_array, const AnyMatrix& w_array,
                   const CallNumbers& numbers, const std::optional<Histories>& histories,
                   bool records, int threads) {
  const Recipe& recipe = ReadOnce(json);
  const LinearCall call = CallOf(recipe, numbers, histories, records);
  const LinearRecipe& linear = RecipeOf(recipe, numbers);
  Matrix<float> y;
  {
    const nb::gil_scoped_release release;
    const ThreadsScope scope(CheckedThreads(threads));
    const RowMajor x(x_array), w(w_array);
    y = Matrix<float>(x.view().rows, w.view().rows);
    LinearWeight weight;
    weight.w = w.view();
    LinearScratch scratch;
    LinearForward(linear, call, {x.view()}, &weight, &scratch, Write::kOverwrite, y.View());
  }
  return ArrayOfMatrix(std::move(y));
}

// (dx, dw).
nb::object Backward(const std::string& json, const AnyMatrix& x_array, const AnyMatrix& w_array,
                    const AnyMatrix& dy_array, const CallNumbers& numbers,
                    const std::optional<Histories>& histories, bool records, int threads) {
  const Recipe& recipe = ReadOnce(json);
  const LinearCall call = CallOf(recipe, numbers, histories, records);
  const LinearRecipe& linear = RecipeOf(recipe, numbers);
  Matrix<float> dx, dw;
  {
    const nb::gil_scoped_release release;
    const ThreadsScope scope(CheckedThreads(threads));
    const RowMajor x(x_array), w(w_array), dy(dy_array);
    dx = Matrix<float>(x.view().rows, x.view().cols);
    dw = Matrix<float>(w.view().rows, w.view().cols);
    LinearWeight weight;
    weight.w = w.view();
    LinearScratch scratch;
    LinearBackward(linear, call, {x.view()}, &weight, {dy.view()}, &scratch, dx.View(), dw.View());
  }
  return nb::make_tuple(ArrayOfMatrix(std::move(dx)), ArrayOfMatrix(std::move(dw)));
}

// The diagnostics of the quantized operands of a use of the linear: of its forward pass, or of its
// backward pass if there is dy. A row is (operand, format, lines, length of the reduction axis,
// numbers in the order of Diagnostics(), elements that were measured).
nb::object Observe(const std::string& json, const AnyMatrix& x_array, const AnyMatrix& w_array,
                   const std::optional<AnyMatrix>& dy_array, const CallNumbers& numbers,
                   const std::optional<Histories>& histories, int threads) {
  const Recipe& recipe = ReadOnce(json);
  LinearCall call = CallOf(recipe, numbers, histories, false);
  const LinearRecipe& linear = RecipeOf(recipe, numbers);
  struct Row {
    std::string operand, format;
    std::size_t lines, length;
    QuantizationStatistics statistics;
  };
  std::vector<Row> rows;
  const bool is_backward = dy_array.has_value();
  const OperandObserver observer = [&](const ObservedOperand& seen) {
    // A weight that dgrad shares with fprop was a row of the forward pass.
    if (is_backward && (seen.operand == kFpropInput || seen.operand == kFpropWeight)) return;
    const Json format = ToJson(seen.dialect);
    rows.push_back({std::string(OperandName(seen.operand)),
                    format.is_string() ? format.get<std::string>() : format.dump(),
                    seen.before.rows, seen.before.cols,
                    MeasureQuantization(seen.dialect, seen.before, seen.quantized)});
  };
  {
    const nb::gil_scoped_release release;
    const ThreadsScope scope(CheckedThreads(threads));
    const RowMajor x(x_array), w(w_array);
    call.observer = &observer;
    LinearWeight weight;
    weight.w = w.view();
    LinearScratch scratch;
    if (is_backward) {
      const RowMajor dy(*dy_array);
      Matrix<float> dx(x.view().rows, x.view().cols), dw(w.view().rows, w.view().cols);
      LinearBackward(linear, call, {x.view()}, &weight, {dy.view()}, &scratch, dx.View(),
                     dw.View());
    } else {
      Matrix<float> y(x.view().rows, w.view().rows);
      LinearForward(linear, call, {x.view()}, &weight, &scratch, Write::kOverwrite, y.View());
    }
  }
  nb::list result;
  for (const Row& row : rows) {
    result.append(nb::make_tuple(row.operand, row.format, row.lines, row.length,
                                 row.statistics.values.numbers, row.statistics.elements));
  }
  return result;
}

// (operand, whether the recipe quantizes it) in the order of the bits of WithQuantized, at a step.
std::vector<std::tuple<std::string, bool>> Operands(const std::string& json,
                                                    const CallNumbers& numbers) {
  const auto operands = OperandsOf(RecipeOf(ReadOnce(json), numbers));
  std::vector<std::tuple<std::string, bool>> rows;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    rows.emplace_back(OperandName(static_cast<LinearOperand>(i)), operands[i]->format.has_value());
  }
  return rows;
}

// Ends a step of the operands' histories.
void AdvanceHistories(const std::string& json, const CallNumbers& numbers,
                      const Histories& histories) {
  const Recipe& recipe = ReadOnce(json);
  CallOf(recipe, numbers, histories, false);  // checks the shape
  float* history = histories.data();
  for (const OperandRecipe* operand : OperandsOf(RecipeOf(recipe, numbers))) {
    AdvanceAmaxHistory(operand->delayed, history);
    history += histories.shape(1);
  }
}

}  // namespace

void BindLinear(Bindings& m) {
  // (whether the recipe changes during a run, floats of an operand's history).
  m.def("linear_recipe", [](const std::string& json) {
    const Recipe& recipe = ReadOnce(json);
    RecipeOf(recipe, {0, 0, 0, 1});  // throws for a list of rules
    return nb::make_tuple(!recipe.then.empty(), AmaxHistoryFloats(recipe));
  });
  m.def("linear_forward", &Forward, nb::arg("recipe"), nb::arg("x").noconvert(),
        nb::arg("w").noconvert(), nb::arg("numbers"), nb::arg("histories").noconvert().none(),
        nb::arg("records"), nb::arg("threads"));
  m.def("linear_backward", &Backward, nb::arg("recipe"), nb::arg("x").noconvert(),
        nb::arg("w").noconvert(), nb::arg("dy").noconvert(), nb::arg("numbers"),
        nb::arg("histories").noconvert().none(), nb::arg("records"), nb::arg("threads"));
  m.def("linear_observe", &Observe, nb::arg("recipe"), nb::arg("x").noconvert(),
        nb::arg("w").noconvert(), nb::arg("dy").noconvert().none(), nb::arg("numbers"),
        nb::arg("histories").noconvert().none(), nb::arg("threads"));
  m.def("linear_operands", &Operands, nb::arg("recipe"), nb::arg("numbers"));
  m.def("with_quantized", [](const std::string& json, unsigned operands) {
    return ToJson(WithQuantized(ReadOnce(json), operands)).dump();
  });
  m.def("advance_histories", &AdvanceHistories, nb::arg("recipe"), nb::arg("numbers"),
        nb::arg("histories").noconvert());
}

}  // namespace fp4lab::python
